//! Outside programs under our thumb: started on a core, waited for with a limit, gone when we are.
//!
//! They know nothing of us, so a hidden verb of our own stands before them: it pins itself, asks the kernel to be ended
//! when its parent dies, makes a group of processes, and becomes the tool.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal, setpgid};

use viaduct_os::cpu;

use crate::error::{Error, Result};

/// How long a tool has to end by itself when it is asked to.
const FAREWELL: Duration = Duration::from_secs(1);

/// How the hidden verb is called.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// This program.
    pub program: PathBuf,
    /// Its verb; `--parent PID`, perhaps `--cpu N`, and `-- TOOL ARGS` are added.
    pub args: Vec<OsString>,
    /// Where programs are looked for.
    pub path: Vec<PathBuf>,
}

impl Launcher {
    /// Where `program` is.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        self.path.iter().map(|folder| folder.join(program)).find(|file| file.is_file())
    }

    /// Starts `tool`, pinned to `cpu` if it does not pin itself.
    pub(crate) fn start(&self, cpu: Option<usize>, tool: &Path, args: &[String]) -> Result<Running> {
        self.start_in(cpu, &[], tool, args, &[])
    }

    /// Starts `tool` with variables changed: set, or taken away. It and all that it starts run on `cpus`, if there are any.
    fn start_in(
        &self,
        cpu: Option<usize>,
        cpus: &[usize],
        tool: &Path,
        args: &[String],
        variables: &[(&str, Option<OsString>)],
    ) -> Result<Running> {
        let mut command = Command::new(&self.program);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(&self.args).arg("--parent").arg(std::process::id().to_string());
        if let Some(cpu) = cpu {
            command.arg("--cpu").arg(cpu.to_string());
        }
        command.arg("--").arg(tool).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if !cpus.is_empty() {
            cpu::bind_command(&mut command, cpus);
        }
        let child = command.spawn().map_err(Error::os(format!("starting {}", tool.display())))?;
        Ok(Running { child, name: tool.file_name().unwrap_or_default().to_string_lossy().into_owned() })
    }

    /// Runs `tool` to its end and gives what it printed.
    pub(crate) fn whole(
        &self,
        cpu: Option<usize>,
        tool: &Path,
        args: &[String],
        limit: Duration,
    ) -> Result<String> {
        self.start(cpu, tool, args)?.finish(limit)
    }

    /// Runs `tool` to its end with variables changed, and gives what it printed.
    pub(crate) fn whole_in(
        &self,
        tool: &Path,
        args: &[String],
        variables: &[(&str, Option<OsString>)],
        limit: Duration,
    ) -> Result<String> {
        self.start_in(None, &[], tool, args, variables)?.finish(limit)
    }

    /// As [`whole_in`](Self::whole_in), on these CPUs only, with all that `tool` starts.
    pub(crate) fn whole_on(
        &self,
        cpus: &[usize],
        tool: &Path,
        args: &[String],
        variables: &[(&str, Option<OsString>)],
        limit: Duration,
    ) -> Result<String> {
        self.start_in(None, cpus, tool, args, variables)?.finish(limit)
    }

    /// Runs a server on one core and a client on the other; the client's words count. A client that comes before its
    /// server is ready is sent again.
    pub(crate) fn pair(
        &self,
        tool: &Path,
        cpus: [usize; 2],
        server: &[String],
        client: &[String],
        limit: Duration,
    ) -> Result<String> {
        self.client(tool, cpus[0], client, limit, &mut || self.start(Some(cpus[1]), tool, server))
    }

    /// Runs a client whose server `start` starts, here or elsewhere; it goes when what `start` gave is dropped.
    pub(crate) fn client<T>(
        &self,
        tool: &Path,
        cpu: usize,
        client: &[String],
        limit: Duration,
        start: &mut dyn FnMut() -> Result<T>,
    ) -> Result<String> {
        let mut patience = Duration::from_millis(300);
        let mut last = None;
        for _ in 0..4 {
            let _server = start()?;
            thread::sleep(patience);
            match self.whole(Some(cpu), tool, client, limit) {
                Ok(words) => return Ok(words),
                Err(error) => last = Some(error),
            }
            patience *= 2;
        }
        Err(last.unwrap_or_else(|| failed("tool", "was never started")))
    }
}

/// A tool at work; killed when dropped.
pub(crate) struct Running {
    child: Child,
    name: String,
}

impl Running {
    /// Whether it is at work no more.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn finish(mut self, limit: Duration) -> Result<String> {
        let end = Instant::now() + limit;
        // Read while the tool runs: one that prints more than a pipe holds would wait for us, and we for it.
        let out = self.child.stdout.take();
        let reader = thread::spawn(move || {
            let mut words = Vec::new();
            out.map_or(Ok(0), |mut out| out.read_to_end(&mut words)).map(|_| words)
        });
        let status = loop {
            match self.child.try_wait().map_err(Error::os(format!("waiting for {}", self.name)))? {
                Some(status) => break status,
                None if Instant::now() > end => {
                    return Err(failed(&self.name, &format!("did not end within {} s", limit.as_secs())));
                }
                // Seldom: it shares the core with what is measured.
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        let words = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let words = words.map_err(Error::os(format!("reading from {}", self.name)))?;
        if !status.success() {
            return Err(failed(&self.name, &format!("ended with {status}")));
        }
        Ok(String::from_utf8_lossy(&words).into_owned())
    }
}

impl Drop for Running {
    /// Ends the tool with all that it started: workers of a server outlive a master that is killed.
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        // Already gone is as good.
        let _ = kill_process_group(group, Signal::TERM);
        let end = Instant::now() + FAREWELL;
        while !self.has_ended() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Something went wrong with a tool.
pub(crate) fn failed(tool: &str, what: &str) -> Error {
    Error::usage(format!("{tool} {what}"), "run it by hand to see why")
}

/// Body of the hidden verb: becomes the tool. Returns only if that is impossible.
pub fn exec_tool(cpu: Option<usize>, parent: u32, command: &[OsString]) -> Error {
    let [tool, args @ ..] = command else { return failed("the tool", "has no name") };
    if let Some(cpu) = cpu
        && let Err(error) = viaduct_os::cpu::pin(cpu)
    {
        return Error::os(format!("pinning a tool to core {cpu}"))(error);
    }
    // A group of its own, so that all of it can be ended.
    if let Err(error) = setpgid(None, None) {
        return Error::os("making a group of processes")(error);
    }
    // Asked politely: a server ends its workers, a launcher its ranks.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return Error::os("asking to die with the parent")(error);
    }
    if getppid().map(Pid::as_raw_pid) != i32::try_from(parent).ok() {
        return failed("the parent process", "is gone");
    }
    let error = Command::new(tool).args(args).exec();
    Error::os(format!("becoming {}", tool.to_string_lossy()))(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sh` stands for the hidden verb: it passes over its words up to the tool.
    fn launcher() -> Launcher {
        let step = "while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"";
        Launcher {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), step.into(), "sh".into()],
            path: vec!["/bin".into(), "/usr/bin".into()],
        }
    }

    #[test]
    fn a_tool_that_prints_more_than_a_pipe_holds_ends() {
        let launcher = launcher();
        let head = launcher.find("head").expect("every system has it");
        let args = ["-c", "200000", "/dev/zero"].map(str::to_owned);
        let said = launcher.whole(None, &head, &args, Duration::from_secs(60)).unwrap();
        assert_eq!(said.len(), 200_000);
    }

    #[test]
    fn a_tool_and_what_it_starts_stay_on_the_cores_that_are_named() {
        let launcher = launcher();
        let shell = launcher.find("sh").expect("every system has it");
        let args = ["-c", "sh -c 'grep Cpus_allowed_list: /proc/self/status; :'"].map(str::to_owned);
        let last = *cpu::allowed().last().expect("this thread runs on one");
        let said = launcher.whole_on(&[last], &shell, &args, &[], Duration::from_secs(60)).unwrap();
        assert_eq!(said.split_whitespace().last(), Some(last.to_string().as_str()), "{said}");
    }
}
