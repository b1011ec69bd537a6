//! The Debian packages that tests need: installed when missing, aloud, by root only.
//!
//! A test that misses a program skips itself by name, so not being able to install is no failure.

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
}

#[derive(Clone, Copy, Debug)]
enum Sign {
    Program(&'static str),
    File(&'static str),
}

/// What the tests of this workspace need. A test names the same package in `need_program`.
const PACKAGES: &[Package] = &[
    Package { name: "binutils", sign: Sign::Program("nm") },
    Package { name: "chromium", sign: Sign::Program("chromium") },
    Package { name: "g++", sign: Sign::Program("g++") },
    Package { name: "gcc", sign: Sign::Program("gcc") },
    Package { name: "gdb", sign: Sign::Program("gdb") },
    Package { name: "iproute2", sign: Sign::Program("ip") },
    Package { name: "libc6-dev", sign: Sign::File("/usr/include/stdio.h") },
    Package { name: "libfabric-bin", sign: Sign::Program("fi_pingpong") },
    Package { name: "libfabric-dev", sign: Sign::File("/usr/include/rdma/fabric.h") },
    Package { name: "libmpich-dev", sign: Sign::Program("mpicc.mpich") },
    Package { name: "libtirpc-dev", sign: Sign::File("/usr/include/tirpc/rpc/rpc.h") },
    Package { name: "mpich", sign: Sign::Program("mpiexec.hydra") },
    Package { name: "munge", sign: Sign::Program("munged") },
    Package { name: "nftables", sign: Sign::Program("nft") },
    Package { name: "openssh-server", sign: Sign::Program("sshd") },
    Package { name: "procps", sign: Sign::Program("ps") },
    Package { name: "slurm-client", sign: Sign::Program("srun") },
    Package { name: "slurmctld", sign: Sign::Program("slurmctld") },
    Package { name: "slurmd", sign: Sign::Program("slurmd") },
    Package { name: "strace", sign: Sign::Program("strace") },
    Package { name: "util-linux", sign: Sign::Program("unshare") },
    Package { name: "valgrind", sign: Sign::Program("valgrind") },
];

/// Installs what is missing, if allowed and able to; says what it does and why it does not.
pub(crate) fn provide(install: bool) {
    let missing = missing(PACKAGES);
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
    let good = apt_get(&["update"]) && apt_get(&install);
    say(if good {
        "packages: installed"
    } else {
        "packages: not installed; tests that need them skip by name"
    });
}

fn missing(packages: &[Package]) -> Vec<&'static str> {
    packages.iter().filter(|package| !package.is_there()).map(|package| package.name).collect()
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

    #[test]
    fn only_what_is_missing_is_listed() {
        let packages = [
            Package { name: "dash", sign: Sign::Program("sh") },
            Package { name: "nothing", sign: Sign::Program("no-such-program") },
            Package { name: "base-files", sign: Sign::File("/etc/passwd") },
            Package { name: "nowhere", sign: Sign::File("/no/such/file") },
        ];
        assert_eq!(missing(&packages), ["nothing", "nowhere"]);
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
