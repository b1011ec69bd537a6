//! Under Slurm: our ranks as steps of `srun`, and `viaduct launch` inside of an allocation. A Slurm of one node, with
//! munge, started by the test.

use crate::launching;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use launching::{Folder, Run, finish, sorted, wait_for};
use viaduct_job::Job;
use viaduct_kit::packages::{need_program, need_root};

// More than one line of PMI holds, twice.
viaduct_kit::child!(RANK, |_| {
    let mut job = Job::join(&|name| std::env::var(name).ok()).unwrap_or_else(|why| panic!("{why}"));
    for round in 0..2 {
        let all = job.exchange(&vec![round * 16 + job.rank() as u8; 3000]).unwrap();
        assert!(all.iter().enumerate().all(|(n, bytes)| *bytes == vec![round * 16 + n as u8; 3000]));
    }
    println!("rank {} of {}", job.rank(), job.size());
    job.barrier().unwrap();
    job.finish().unwrap();
});

struct Slurm {
    folder: Folder,
    daemons: Vec<Child>,
}

impl Slurm {
    /// `None`, and the test logged as skipped, where there is no root, no Slurm or no munge.
    fn new() -> Option<Slurm> {
        if !need_root() {
            return None;
        }
        let munged = need_program("munged", "munge")?;
        let (master, node) = (need_program("slurmctld", "slurmctld")?, need_program("slurmd", "slurmd")?);
        need_program("srun", "slurm-client")?;
        let mut slurm = Slurm { folder: Folder::new(), daemons: Vec::new() };
        let key: Vec<u8> = (0..=255).cycle().take(1024).collect();
        fs::write(slurm.file("key"), key).unwrap();
        fs::set_permissions(slurm.file("key"), PermissionsExt::from_mode(0o600)).unwrap();
        fs::set_permissions(slurm.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for folder in ["state", "spool", "run"] {
            fs::create_dir(slurm.file(folder)).unwrap();
        }
        fs::set_permissions(slurm.file("run"), PermissionsExt::from_mode(0o700)).unwrap();
        fs::write(slurm.file("slurm.conf"), slurm.settings()).unwrap();
        let mut command = Command::new(munged);
        command.args(["--foreground", "--force"]);
        for (word, file) in [("key", "key"), ("pid", "munge.pid"), ("log", "munge.log"), ("seed", "seed")] {
            command.arg(format!("--{word}-file={}", slurm.file(file).display()));
        }
        command.arg(format!("--socket={}", slurm.file("munge").display()));
        slurm.start(command);
        let socket = slurm.file("munge");
        wait_for("munged", || socket.exists());
        for (program, words) in [(master, &["-D"][..]), (node, &["-D", "-N", &host()])] {
            let mut command = Command::new(program);
            command.args(words).env("SLURM_CONF", slurm.file("slurm.conf"));
            slurm.start(command);
        }
        wait_for("the node to be idle", || {
            let mut command = slurm.command("sinfo");
            command.arg("-h");
            finish(command).out.contains("idle")
        });
        Some(slurm)
    }

    fn settings(&self) -> String {
        // Asked for together, so that they differ.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [one, two] = free.map(|listener| listener.local_addr().unwrap().port());
        let (own, host) = (self.folder.path().display(), host());
        format!(
            "ClusterName=viaduct\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={own}/munge\nCredType=cred/munge\n\
             SlurmctldPort={one}\nSlurmdPort={two}\nStateSaveLocation={own}/state\nSlurmdSpoolDir={own}/spool\n\
             SlurmctldPidFile={own}/slurmctld.pid\nSlurmdPidFile={own}/slurmd.pid\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/linear\n\
             SwitchType=switch/none\nMpiDefault=pmi2\nReturnToService=2\nSlurmdParameters=config_overrides\n\
             NodeName={host} NodeAddr=127.0.0.1 Port={two} CPUs=4\nPartitionName=all Nodes={host} Default=YES State=UP\n"
        )
    }

    fn start(&mut self, mut command: Command) {
        let name = format!("out{}", self.daemons.len());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(self.file(&name)).unwrap());
        self.daemons.push(command.spawn().unwrap());
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.file("slurm.conf")).env("VIADUCT_RUNTIME_DIR", self.file("run"));
        command
    }

    fn run(&self, program: &str, words: &[&str], child: bool) -> Run {
        let mut command = self.command(program);
        command.args(words);
        if child {
            command.env("VIADUCT_TEST_CHILD", RANK.name());
        }
        finish(command)
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    name.trim().split('.').next().unwrap().to_owned()
}

#[test]
fn ranks_meet_under_srun_and_launches_find_the_allocation() {
    let Some(slurm) = Slurm::new() else { return };
    let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let run = slurm.run("srun", &["-n", "3", &program], true);
    let all = ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"];
    assert_eq!((run.status, sorted(&run.out)), (0, all.to_vec()), "{}", run.err);
    // Without PMI each would take itself for the only one.
    let run = slurm.run("srun", &["--mpi=none", "-n", "3", &program], true);
    assert!(run.status != 0 && run.err.contains("--mpi=pmi2"), "{}", run.err);
    netpipe(&slurm);
    let script = "echo $VIADUCT_RANK of $VIADUCT_SIZE";
    let viaduct = env!("CARGO_BIN_EXE_viaduct");
    let run = slurm.run("salloc", &["-n", "3", viaduct, "launch", "sh", "-c", script], false);
    assert_eq!((run.status, sorted(&run.out)), (0, vec!["0 of 3", "1 of 3", "2 of 3"]), "{}", run.err);
}

/// A program that was built for MPICH, on our MPI, as a step of `srun`.
fn netpipe(slurm: &Slurm) {
    let library = std::env::current_exe().unwrap().with_file_name("libvmpi.so");
    let Some(program) = need_program("NPmpich2", "netpipe-mpich2").filter(|_| library.exists()) else {
        return;
    };
    std::os::unix::fs::symlink(library, slurm.file("libmpich.so.12")).unwrap();
    let mut command = slurm.command("srun");
    command.args(["-n", "2"]).arg(program).args(["-n", "5", "-u", "64", "-o"]).arg(slurm.file("np.out"));
    let run = finish({
        command.env("LD_LIBRARY_PATH", slurm.folder.path());
        command
    });
    assert!(run.status == 0 && (run.out + &run.err).contains("Mbps"));
}
