//! The Debian packages that tests need: installed when missing, aloud, by root only.
//!
//! A test that misses a program skips itself by name, so not being able to install is no failure.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::geteuid;
use viaduct_kit::packages::find_program;

use crate::progress::say;
use crate::step::Step;
use crate::tally::Tally;

/// How long one call of apt-get may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// One package, and how to see whether it is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Package {
    name: &'static str,
    sign: Sign,
    when: When,
}

/// Which runs install it. A test that needs it runs wherever it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// Large, or for one test: full runs alone.
    Full,
}

#[derive(Clone, Copy, Debug)]
enum Sign {
    Program(&'static str),
    File(&'static str),
}

/// What the tests of this workspace need. A test names the same package in `need_program`.
const PACKAGES: &[Package] = &[
    Package { name: "apache2-bin", sign: Sign::Program("apache2"), when: When::Full },
    Package { name: "apache2-utils", sign: Sign::Program("ab"), when: When::Full },
    Package { name: "binutils", sign: Sign::Program("nm"), when: When::Always },
    Package { name: "caddy", sign: Sign::Program("caddy"), when: When::Full },
    Package { name: "chromium", sign: Sign::Program("chromium"), when: When::Full },
    Package { name: "cmake", sign: Sign::Program("cmake"), when: When::Full },
    Package { name: "curl", sign: Sign::Program("curl"), when: When::Always },
    Package { name: "g++", sign: Sign::Program("g++"), when: When::Full },
    Package { name: "gcc", sign: Sign::Program("gcc"), when: When::Always },
    Package { name: "gdb", sign: Sign::Program("gdb"), when: When::Always },
    Package { name: "gfortran", sign: Sign::Program("gfortran"), when: When::Always },
    Package { name: "git", sign: Sign::Program("git"), when: When::Full },
    Package { name: "gunicorn", sign: Sign::File("/usr/share/doc/gunicorn"), when: When::Full },
    Package { name: "haproxy", sign: Sign::Program("haproxy"), when: When::Full },
    Package { name: "iperf3", sign: Sign::Program("iperf3"), when: When::Full },
    Package { name: "iproute2", sign: Sign::Program("ip"), when: When::Always },
    Package { name: "lftp", sign: Sign::Program("lftp"), when: When::Always },
    Package { name: "libc6-dev", sign: Sign::File("/usr/include/stdio.h"), when: When::Always },
    Package { name: "libfabric-bin", sign: Sign::Program("fi_pingpong"), when: When::Always },
    Package { name: "libfabric-dev", sign: Sign::File("/usr/include/rdma/fabric.h"), when: When::Always },
    Package { name: "libmemcached-tools", sign: Sign::Program("memcaslap"), when: When::Always },
    Package { name: "libmpich-dev", sign: Sign::Program("mpicc.mpich"), when: When::Always },
    Package { name: "libopenmpi-dev", sign: Sign::Program("mpicc.openmpi"), when: When::Full },
    Package {
        name: "libpython3.11-testsuite",
        sign: Sign::File("/usr/share/doc/libpython3.11-testsuite"),
        when: When::Always,
    },
    Package { name: "libtirpc-dev", sign: Sign::File("/usr/include/tirpc/rpc/rpc.h"), when: When::Always },
    Package { name: "liburing-dev", sign: Sign::File("/usr/include/liburing.h"), when: When::Full },
    Package { name: "mariadb-client-core", sign: Sign::Program("mariadb"), when: When::Full },
    Package { name: "mariadb-server-core", sign: Sign::Program("mariadbd"), when: When::Full },
    Package { name: "memcached", sign: Sign::Program("memcached"), when: When::Always },
    Package { name: "mpich", sign: Sign::Program("mpiexec.hydra"), when: When::Always },
    Package { name: "munge", sign: Sign::Program("munged"), when: When::Full },
    Package { name: "netpipe-mpich2", sign: Sign::Program("NPmpich2"), when: When::Always },
    Package { name: "nftables", sign: Sign::Program("nft"), when: When::Always },
    Package { name: "nginx-light", sign: Sign::Program("nginx"), when: When::Full },
    Package { name: "nodejs", sign: Sign::Program("node"), when: When::Full },
    Package { name: "openbsd-inetd", sign: Sign::Program("inetd"), when: When::Always },
    Package { name: "openjdk-17-jdk-headless", sign: Sign::Program("javac"), when: When::Full },
    Package { name: "openmpi-bin", sign: Sign::Program("mpirun.openmpi"), when: When::Full },
    Package { name: "openssh-client", sign: Sign::Program("sftp"), when: When::Full },
    Package { name: "openssh-server", sign: Sign::Program("sshd"), when: When::Always },
    Package { name: "postgresql", sign: Sign::Program("pg_ctlcluster"), when: When::Full },
    Package { name: "procps", sign: Sign::Program("ps"), when: When::Always },
    Package { name: "python3", sign: Sign::Program("python3"), when: When::Always },
    Package { name: "python3-httpx", sign: Sign::File("/usr/share/doc/python3-httpx"), when: When::Full },
    Package { name: "python3-pytest", sign: Sign::File("/usr/share/doc/python3-pytest"), when: When::Full },
    Package { name: "python3-tornado", sign: Sign::File("/usr/share/doc/python3-tornado"), when: When::Full },
    Package { name: "python3-trio", sign: Sign::File("/usr/share/doc/python3-trio"), when: When::Full },
    Package { name: "python3-trustme", sign: Sign::File("/usr/share/doc/python3-trustme"), when: When::Full },
    Package { name: "python3-twisted", sign: Sign::File("/usr/share/doc/python3-twisted"), when: When::Full },
    Package { name: "python3-uvicorn", sign: Sign::File("/usr/share/doc/python3-uvicorn"), when: When::Full },
    Package { name: "python3-venv", sign: Sign::File("/usr/share/doc/python3-venv"), when: When::Always },
    Package { name: "redis-server", sign: Sign::Program("redis-server"), when: When::Always },
    Package { name: "redis-tools", sign: Sign::Program("redis-benchmark"), when: When::Always },
    Package { name: "rpcsvc-proto", sign: Sign::Program("rpcgen"), when: When::Always },
    Package { name: "rsync", sign: Sign::Program("rsync"), when: When::Full },
    Package {
        name: "scalapack-mpi-test",
        sign: Sign::File("/usr/share/doc/scalapack-mpi-test"),
        when: When::Full,
    },
    Package { name: "slurm-client", sign: Sign::Program("srun"), when: When::Full },
    Package { name: "slurmctld", sign: Sign::Program("slurmctld"), when: When::Full },
    Package { name: "slurmd", sign: Sign::Program("slurmd"), when: When::Full },
    Package { name: "socat", sign: Sign::Program("socat"), when: When::Full },
    Package { name: "sockperf", sign: Sign::Program("sockperf"), when: When::Full },
    Package { name: "strace", sign: Sign::Program("strace"), when: When::Always },
    Package { name: "tnftp", sign: Sign::Program("tnftp"), when: When::Always },
    Package { name: "util-linux", sign: Sign::Program("unshare"), when: When::Always },
    Package { name: "valgrind", sign: Sign::Program("valgrind"), when: When::Always },
    Package { name: "vsftpd", sign: Sign::Program("vsftpd"), when: When::Always },
    Package { name: "wrk", sign: Sign::Program("wrk"), when: When::Full },
];

/// Installs what is missing, if allowed and able to; says what it does and why it does not.
pub(crate) fn provide(install: bool, full: bool) {
    let missing = missing(PACKAGES, full);
    if missing.is_empty() {
        say("packages: all there");
        return;
    }
    let list = missing.join(" ");
    if let Some(reason) = obstacle(install, geteuid().is_root(), find_program("apt-get").is_some()) {
        say(format_args!(
            "packages: missing {list}; installing nothing ({reason}); tests that need them skip by name"
        ));
        return;
    }
    say(format_args!("packages: installing {list}"));
    let mut install: Vec<&str> = vec!["install", "-y", "--no-install-recommends"];
    install.extend(&missing);
    let quiet = NoServices::new(Path::new(POLICY));
    // One that this system does not have keeps none of the others out.
    let good = apt_get(&["update"]) && (apt_get(&install) || each_of(&missing));
    drop(quiet);
    say(if good {
        "packages: installed"
    } else {
        "packages: not all are installed; tests that need them skip by name"
    });
}

/// Installs packages one by one. Whether all were.
fn each_of(packages: &[&str]) -> bool {
    // All are tried, whatever becomes of one.
    let failed =
        packages.iter().filter(|package| !apt_get(&["install", "-y", "--no-install-recommends", package]));
    failed.count() == 0
}

fn missing(packages: &[Package], full: bool) -> Vec<&'static str> {
    let wanted = packages.iter().filter(|package| full || package.when == When::Always);
    wanted.filter(|package| !package.is_there()).map(|package| package.name).collect()
}

fn obstacle(install: bool, root: bool, apt: bool) -> Option<&'static str> {
    match (install, root, apt) {
        (false, _, _) => Some("--no-install"),
        (_, false, _) => Some("not root"),
        (_, _, false) => Some("no apt-get here"),
        _ => None,
    }
}

fn apt_get(arguments: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    Step::new(command).run(PATIENCE, &mut Tally::default()).is_ok_and(|end| end.is_good())
}

/// What Debian's packages ask before they start a service.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// What such a file says: 101 is "not allowed". The first lines tell ours from others.
const DENIED: &str = "#!/bin/sh\n# Put here by `cargo xtask test` while it installs packages.\nexit 101\n";

/// While this lives no package starts its services: tests start the daemons they need, with folders of their own.
#[derive(Debug)]
struct NoServices<'a> {
    /// None if the machine has a policy of its own, which stays.
    ours: Option<&'a Path>,
}

impl<'a> NoServices<'a> {
    fn new(policy: &'a Path) -> Self {
        // One of ours is left over from a run that was killed.
        let foreign = fs::read_to_string(policy).map_or_else(|_| policy.exists(), |text| text != DENIED);
        if foreign {
            say(format_args!("packages: {} decides which services start", policy.display()));
            return Self { ours: None };
        }
        let made = fs::write(policy, DENIED)
            .and_then(|()| fs::set_permissions(policy, Permissions::from_mode(0o755)));
        if let Err(error) = made {
            say(format_args!(
                "packages: services are not kept from starting ({}: {error})",
                policy.display()
            ));
        }
        Self { ours: Some(policy) }
    }
}

impl Drop for NoServices<'_> {
    fn drop(&mut self) {
        if let Some(policy) = self.ours {
            let _ = fs::remove_file(policy);
        }
    }
}

impl Package {
    fn is_there(&self) -> bool {
        match self.sign {
            Sign::Program(program) => find_program(program).is_some(),
            Sign::File(file) => Path::new(file).exists(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use viaduct_kit::tempdir::TempDir;

    #[test]
    fn only_what_is_missing_is_listed() {
        let packages = [
            Package { name: "dash", sign: Sign::Program("sh"), when: When::Always },
            Package { name: "nothing", sign: Sign::Program("no-such-program"), when: When::Always },
            Package { name: "base-files", sign: Sign::File("/etc/passwd"), when: When::Always },
            Package { name: "nowhere", sign: Sign::File("/no/such/file"), when: When::Always },
        ];
        assert_eq!(missing(&packages, false), ["nothing", "nowhere"]);
    }

    #[test]
    fn packages_for_full_runs_are_installed_by_them_alone() {
        let packages = [Package { name: "large", sign: Sign::Program("no-such-program"), when: When::Full }];
        assert_eq!(missing(&packages, false), Vec::<&str>::new());
        assert_eq!(missing(&packages, true), ["large"]);
    }

    #[test]
    fn services_are_denied_only_while_packages_are_installed() {
        let folder = TempDir::new("policy");
        let policy = folder.join("policy-rc.d");
        let denied = NoServices::new(&policy);
        assert_eq!(Command::new(&policy).status().unwrap().code(), Some(101));
        // A run that is killed leaves it, and the next one takes it for its own.
        std::mem::forget(denied);
        drop(NoServices::new(&policy));
        assert!(!policy.exists());
    }

    #[test]
    fn a_policy_that_is_there_stays() {
        let folder = TempDir::new("policy");
        let policy = folder.join("policy-rc.d");
        fs::write(&policy, "#!/bin/sh\nexit 0\n").unwrap();
        drop(NoServices::new(&policy));
        assert_eq!(fs::read_to_string(&policy).unwrap(), "#!/bin/sh\nexit 0\n");
    }

    #[test]
    fn nothing_is_installed_without_leave_root_and_apt() {
        assert_eq!(obstacle(true, true, true), None);
        assert_eq!(obstacle(false, true, true), Some("--no-install"));
        assert_eq!(obstacle(true, false, true), Some("not root"));
        assert_eq!(obstacle(true, true, false), Some("no apt-get here"));
    }

    #[test]
    fn the_table_is_sorted_without_doubles() {
        let names: Vec<_> = PACKAGES.iter().map(|package| package.name).collect();
        assert!(names.is_sorted_by(|one, two| one < two), "{names:?}");
    }
}
