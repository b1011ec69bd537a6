//! A process that stands by: it listens, takes one connection and gives back what it is sent, until it is killed.
//!
//! The case `failure` starts such processes for the purpose of killing them; the second process of the benchmark is
//! left alone. Each is this program again with the hidden verb, says on its standard output that it listens, and dies
//! with its parent.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use viaduct_providers::Config;
use viaduct_via::{Descriptor, MemAttributes, NetAddress, Nic, Reliability, ViAttributes};

use crate::control::Control;
use crate::error::{Error, Result};
use crate::peer::die_with;

/// Longest message that is given back: small enough to go by value.
pub(crate) const ECHO: usize = 64;

const READY: &str = "ready";

/// A process that was started and listens.
#[derive(Debug)]
pub(crate) struct Standby {
    child: Child,
    /// Where it listens.
    pub(crate) address: NetAddress,
}

impl Standby {
    /// Starts one and waits until it listens.
    pub(crate) fn start(control: &Control, provider: &str) -> Result<Standby> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (command, cpu) = control.command().ok_or_else(|| {
            Error::usage("only the first process starts others", "this is a fault of the benchmark")
        })?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let address = NetAddress::local(&format!("standby-{}-{number}", std::process::id()))?;
        let mut start = Command::new(&command.program);
        start.args(&command.args).arg("--cpu").arg(cpu.to_string());
        start.arg("--parent").arg(std::process::id().to_string());
        start.arg("--standby").arg(address.to_string()).arg("--provider").arg(provider);
        start.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = start.spawn().map_err(Error::os("starting a process that stands by"))?;
        let mut standby = Standby { child, address };
        let mut line = String::new();
        if let Some(output) = standby.child.stdout.take().filter(speaks) {
            BufReader::new(output).read_line(&mut line).map_err(Error::os("waiting for a fresh process"))?;
        }
        if line.trim_end() != READY {
            return Err(Error::PeerGone { doing: "starting a process that stands by" });
        }
        Ok(standby)
    }

    /// Stops it: it does nothing more until it is killed.
    pub(crate) fn stop(&self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::STOP)
            .map_err(Error::os("stopping a process that stands by"))
    }

    /// Kills it; it is reaped when this is dropped.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().map_err(Error::os("killing a process that stands by"))
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a fresh process has something to say, or has ended; not for ever.
fn speaks(output: &ChildStdout) -> bool {
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}

/// Body of the hidden verb.
pub fn serve(cpu: usize, parent: u32, provider: &str, address: &str, config: &Config) -> Result<()> {
    const RECEIVES: usize = 4;
    die_with(parent)?;
    viaduct_os::cpu::pin(cpu).map_err(Error::os(format!("pinning a process to core {cpu}")))?;
    let mut nic = Nic::open_with(viaduct_providers::open(provider, config)?, config.wait)?;
    let tag = nic.create_ptag()?;
    // One for either kind of caller, made beforehand: only connecting is timed.
    let mut doors = Vec::new();
    for level in [Reliability::ReliableDelivery, Reliability::ReliableReception] {
        let vi = nic.create_vi(ViAttributes::new(tag).reliability(level))?;
        for buffer in nic.alloc(RECEIVES * ECHO, MemAttributes::local(tag))?.chunks(ECHO) {
            nic.post_recv(vi, Descriptor::recv(buffer))?;
        }
        doors.push((level, vi));
    }
    let listener = nic.listen(&address.parse()?, 1)?;
    let mut output = std::io::stdout();
    writeln!(output, "{READY}")
        .and_then(|()| output.flush())
        .map_err(Error::os("telling that it listens"))?;
    let request = nic.wait_listener(listener, None)?;
    let asked = request.remote().reliability;
    let (_, vi) = doors.into_iter().find(|(level, _)| *level == asked).ok_or_else(|| {
        Error::usage("the caller wants another level of reliability", "this is a fault of the benchmark")
    })?;
    nic.accept(request, vi).map_err(|refused| refused.error)?;
    loop {
        let done = nic.wait_recv_outcome(vi, None)?.0;
        if !done.status.is_success() {
            return Ok(());
        }
        nic.send_inline(vi, &done.data(), None)?;
        nic.post_recv(vi, done.descriptor)?;
    }
}
