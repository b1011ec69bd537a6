//! Hosts out of network namespaces, each with a real sshd and folders of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use viaduct_kit::effort::scaled;
use viaduct_kit::hosts::Hosts;
use viaduct_kit::packages::need_program;
use viaduct_kit::tempdir::TempDir;

use super::{Folder, Run, finish, wait_for};

const PORT: u16 = 2222;

/// Some hosts and their sshds. Everything ends with it.
pub(crate) struct Cluster {
    pub(crate) hosts: Hosts,
    pub(crate) folder: Folder,
    files: TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    /// `None`, and the test logged as skipped, where there is no root or no sshd.
    pub(crate) fn new(count: u8) -> Option<Cluster> {
        let cluster = Cluster::bare(count)?;
        (0..count).for_each(|host| cluster.install(host));
        Some(cluster)
    }

    /// The same, without our program anywhere.
    pub(crate) fn bare(count: u8) -> Option<Cluster> {
        let sshd = need_program("sshd", "openssh-server")?;
        let keygen = need_program("ssh-keygen", "openssh-client")?;
        let hosts = Hosts::new(count)?;
        let files = TempDir::new("cluster");
        for key in ["host", "user"] {
            let mut command = Command::new(&keygen);
            let run = finish(std::mem::replace(
                command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(files.join(key)),
                Command::new("true"),
            ));
            assert_eq!(run.status, 0, "{}", run.err);
        }
        // Where sshd keeps apart what it does as root; it insists on it.
        let _ = std::fs::create_dir_all("/run/sshd");
        let mut cluster = Cluster { hosts, folder: Folder::new(), files, daemons: Vec::new() };
        let mut config = String::new();
        for host in 0..count {
            cluster.start(host, &sshd);
            config += &format!(
                "Host h{host}\n HostName {}\n Port {PORT}\n User root\n IdentityFile {}\n IdentitiesOnly yes\n \
                 StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n",
                cluster.hosts.address(host),
                cluster.files.join("user").display(),
            );
        }
        std::fs::write(cluster.files.join("config"), config).unwrap();
        Some(cluster)
    }

    /// Has our program lie there already: it is large, and the machine may be busy.
    pub(crate) fn install(&self, host: u8) {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_viaduct"));
        let payload = viaduct_agent::bootstrap::Payload::of(program.clone()).unwrap();
        let folder = self.own(host).join("cache/bin").join(payload.hash());
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(program, folder.join("viaduct")).unwrap();
    }

    fn start(&mut self, host: u8, sshd: &PathBuf) {
        let own = self.own(host);
        std::fs::create_dir_all(&own).unwrap();
        let file = self.files.join(format!("sshd{host}"));
        let text = format!(
            "Port {PORT}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPermitRootLogin yes\n\
             UsePAM no\nPidFile none\nMaxStartups 100\n\
             SetEnv VIADUCT_RUNTIME_DIR={} VIADUCT_CACHE={} VIADUCT_AGENT_IDLE=60 \"VIADUCT_SSH={}\"\n",
            self.hosts.address(host),
            self.files.join("host").display(),
            self.files.join("user.pub").display(),
            own.join("run").display(),
            own.join("cache").display(),
            self.ssh(),
        );
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(sshd);
        command.arg("-D").arg("-e").arg("-f").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(own.join("log")).unwrap());
        self.hosts.enter(host, &mut command);
        self.daemons.push(command.spawn().unwrap());
        wait_for("sshd", || {
            std::fs::read_to_string(own.join("log")).is_ok_and(|log| log.contains("Server listening"))
        });
    }

    /// What belongs to one host.
    pub(crate) fn own(&self, host: u8) -> PathBuf {
        self.files.join(format!("h{host}"))
    }

    /// The run-time folder of one host.
    pub(crate) fn run_folder(&self, host: u8) -> PathBuf {
        self.own(host).join("run")
    }

    /// How ssh is called, from here and from the hosts: they have one disk, and one set of keys.
    pub(crate) fn ssh(&self) -> String {
        format!("ssh -F {}", self.files.join("config").display())
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let patient =
            if args.contains(&"--connect-timeout") { &[][..] } else { &["--connect-timeout", "120"] };
        let mut command = super::command(&self.folder, &[&["--allow-root"], patient, args].concat());
        command.env("VIADUCT_SSH", self.ssh());
        command.current_dir(self.files.path());
        command
    }

    pub(crate) fn launch(&self, args: &[&str]) -> Run {
        finish(self.command(args))
    }

    /// The same, where ssh cannot help.
    pub(crate) fn launch_warm(&self, args: &[&str]) -> Run {
        let mut command = self.command(args);
        command.env("VIADUCT_SSH", "false");
        finish(command)
    }

    /// The process of the agent of a host.
    pub(crate) fn agent(&self, host: u8) -> u32 {
        let key = viaduct_agent::PublicKey([0; 32]);
        viaduct_agent::serve::admit(&self.run_folder(host), key).expect("it is there").pid
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.files.join(name)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for host in 0..self.daemons.len() {
            let folder = self.run_folder(host as u8);
            if viaduct_agent::serve::leave(&folder).is_ok() {
                let end = std::time::Instant::now() + scaled(Duration::from_secs(20));
                while folder.join("agent").exists() && std::time::Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
