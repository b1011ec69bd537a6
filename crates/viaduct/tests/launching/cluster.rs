//! Hosts with sshds, and our agents on them.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use viaduct_kit::cluster;
use viaduct_kit::effort::scaled;

use super::{Folder, Run, finish};

/// A cluster, and a folder for the launcher. Agents leave with it.
pub(crate) struct Cluster {
    pub(crate) folder: Folder,
    below: cluster::Cluster,
}

impl std::ops::Deref for Cluster {
    type Target = cluster::Cluster;

    fn deref(&self) -> &cluster::Cluster {
        &self.below
    }
}

impl Cluster {
    /// `None`, and the test logged as skipped, where there is no root or no sshd.
    pub(crate) fn new(count: u8) -> Option<Cluster> {
        let cluster = Cluster::bare(count)?;
        (0..count).for_each(|host| cluster.install(host));
        Some(cluster)
    }

    /// Hosts without our program; `None` as with [`new`](Self::new).
    pub(crate) fn bare(count: u8) -> Option<Cluster> {
        Some(Cluster { below: cluster::Cluster::new(count)?, folder: Folder::new() })
    }

    /// Has our program lie there already: it is large, and the machine may be busy.
    pub(crate) fn install(&self, host: u8) {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_viaduct"));
        let payload = viaduct_agent::bootstrap::Payload::of(program.clone()).unwrap();
        let folder = self.own(host).join("cache/bin").join(payload.hash());
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(program, folder.join("viaduct")).unwrap();
    }

    /// The run-time folder of one host.
    pub(crate) fn run_folder(&self, host: u8) -> PathBuf {
        self.own(host).join("run")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let patient =
            if args.contains(&"--connect-timeout") { &[][..] } else { &["--connect-timeout", "120"] };
        self.verb(&[&["launch", "--allow-root"], patient, args].concat())
    }

    /// Another verb than `launch`.
    pub(crate) fn verb(&self, args: &[&str]) -> Command {
        let mut command = super::verb_command(&self.folder, args);
        command.env("VIADUCT_SSH", self.ssh()).current_dir(self.below.folder());
        command
    }

    pub(crate) fn launch(&self, args: &[&str]) -> Run {
        finish(self.command(args))
    }

    /// A launch whose ssh always fails, so that agents have to be there already.
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
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for host in 0..self.count() {
            let folder = self.run_folder(host);
            if viaduct_agent::serve::leave(&folder).is_ok() {
                let end = Instant::now() + scaled(Duration::from_secs(20));
                while folder.join("agent").exists() && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }
}
