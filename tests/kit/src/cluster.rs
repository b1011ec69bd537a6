//! A cluster on this machine: hosts out of network namespaces, each with a real sshd, with keys made for it.
//!
//! The hosts are called `h0`, `h1` and so on by the ssh configuration that comes with it ([`Cluster::ssh`]). They have
//! one disk, but each has folders of its own for Viaduct ([`Cluster::own`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::effort::scaled;
use crate::hosts::Hosts;
use crate::packages::{need_program, skip};
use crate::tempdir::TempDir;

const PORT: u16 = 2222;

/// Some hosts and their sshds. The daemons end with it.
#[derive(Debug)]
pub struct Cluster {
    /// The hosts.
    pub hosts: Hosts,
    files: TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    /// So many hosts. `None`, and the test logged as skipped, where there is no root or no sshd.
    ///
    /// # Panics
    ///
    /// If sshd does not come up.
    pub fn new(count: u8) -> Option<Cluster> {
        let sshd = need_program("sshd", "openssh-server")?;
        let keygen = need_program("ssh-keygen", "openssh-client")?;
        let hosts = Hosts::new(count)?;
        let files = TempDir::new("cluster");
        for key in ["host", "user"] {
            let mut command = Command::new(&keygen);
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(files.join(key));
            if !command.stdin(Stdio::null()).status().is_ok_and(|status| status.success()) {
                skip("ssh-keygen makes no keys here");
                return None;
            }
        }
        // Where sshd keeps apart what it does as root; it insists on it.
        let _ = fs::create_dir_all("/run/sshd");
        let mut cluster = Cluster { hosts, files, daemons: Vec::new() };
        let mut config = String::new();
        for host in 0..count {
            cluster.start(host, &sshd);
            config += &format!(
                "Host h{host}\n HostName {}\n Port {PORT}\n User root\n IdentityFile {}\n IdentitiesOnly yes\n \
                 StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n",
                cluster.hosts.address(host),
                cluster.file("user").display(),
            );
        }
        fs::write(cluster.file("config"), config).expect("the folder is ours");
        (0..count).for_each(|host| cluster.wait(host));
        Some(cluster)
    }

    /// How ssh is called, from here and from the hosts.
    pub fn ssh(&self) -> String {
        format!("ssh -F {}", self.file("config").display())
    }

    /// What belongs to one host: `run`, `cache`, `home` and the `log` of its sshd.
    pub fn own(&self, host: u8) -> PathBuf {
        self.file(&format!("h{host}"))
    }

    /// A file that all hosts see.
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.join(name)
    }

    /// The folder of those files.
    pub fn folder(&self) -> &Path {
        self.files.path()
    }

    /// How many hosts there are.
    pub fn count(&self) -> u8 {
        self.daemons.len() as u8
    }

    /// The process of a host's sshd.
    ///
    /// # Panics
    ///
    /// If there is no such host.
    pub fn daemon(&self, host: u8) -> u32 {
        self.daemons[usize::from(host)].id()
    }

    fn start(&mut self, host: u8, sshd: &Path) {
        let own = self.own(host);
        fs::create_dir_all(own.join("home")).expect("the folder is ours");
        let file = self.file(&format!("sshd{host}"));
        let text = format!(
            "Port {PORT}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPermitRootLogin yes\n\
             UsePAM no\nPidFile none\nMaxStartups 100\nSetEnv VIADUCT_RUNTIME_DIR={} VIADUCT_CACHE={} \
             VIADUCT_AGENT_IDLE=60 \"VIADUCT_SSH={}\" HOME={}\n",
            self.hosts.address(host),
            self.file("host").display(),
            self.file("user.pub").display(),
            own.join("run").display(),
            own.join("cache").display(),
            self.ssh(),
            own.join("home").display(),
        );
        fs::write(&file, text).expect("the folder is ours");
        let mut command = Command::new(sshd);
        command.arg("-D").arg("-e").arg("-f").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(own.join("log")).expect("the folder is ours"));
        self.hosts.enter(host, &mut command);
        self.daemons.push(command.spawn().expect("sshd starts"));
    }

    fn wait(&self, host: u8) {
        let (log, end) = (self.own(host).join("log"), Instant::now() + scaled(Duration::from_secs(60)));
        while !fs::read_to_string(&log).is_ok_and(|log| log.contains("Server listening")) {
            assert!(Instant::now() < end, "sshd of h{host} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
