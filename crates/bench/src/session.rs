//! The first process' hold on the second one: start it, give it orders, and be sure that it is gone in the end.
//!
//! The second process is this program again with a hidden verb. Its standard input is the control segment, so that no
//! name and no descriptor number has to be agreed on. It dies with its parent, and [`Session`] kills it when dropped.
//! On another host the bench that listens there starts it; its standard input is then the connection, and it ends with that.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, getrlimit, pidfd_open, pidfd_send_signal, setrlimit,
};

use crate::control::{Control, Mailbox};
use crate::error::{Error, Result};
use crate::layers;
use crate::link::{Link, host_of};
use crate::loops::End;
use crate::orders::{Answer, Order, Served, Started, Wanted};
use crate::plan::{Run, Settings, Tally, Variant};
use crate::timer::Timer;

/// How the second process is started.
#[derive(Clone, Debug)]
pub struct PeerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; `--cpu N --parent PID` and perhaps `--one-core` are added.
    pub args: Vec<OsString>,
}

/// A running second process with open layers.
pub(crate) struct Session {
    control: Rc<Control>,
    peer: Peer,
    orders: u64,
    probes: u64,
    /// Open layers by their numbers, with the numbers that the second process knows them by; none for those left out.
    ends: Vec<Option<(usize, Box<dyn End>)>>,
    opened: usize,
}

/// Where the second process is.
enum Peer {
    Child { child: Child, pidfd: OwnedFd },
    Far(Link),
}

impl Session {
    /// Starts the second process on its core, with `arena` bytes for the layers' shared memory.
    pub(crate) fn start(command: &PeerCommand, settings: &Settings, arena: usize) -> Result<Session> {
        raise_descriptor_limit();
        if let Some(host) = &settings.connect {
            return Session::call(host, settings);
        }
        let control = Rc::new(Control::create(arena, settings.one_core(), settings.providers.clone())?);
        let mut start = Command::new(&command.program);
        start.args(&command.args).arg("--cpu").arg(settings.cpus[1].to_string());
        start.arg("--parent").arg(std::process::id().to_string());
        if settings.one_core() {
            start.arg("--one-core");
        }
        start.stdin(Stdio::from(control.dup_fd()?)).stdout(Stdio::null());
        let child = start
            .spawn()
            .map_err(Error::os(format!("starting {} as the peer", command.program.display())))?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(Error::os("watching the peer process"))?;
        let watch = pidfd.try_clone().map_err(Error::os("watching the peer process"))?;
        control.watch(watch);
        control.remember(command.clone(), settings.cpus[1]);
        Ok(Session {
            control,
            peer: Peer::Child { child, pidfd },
            orders: 0,
            probes: 0,
            ends: Vec::new(),
            opened: 0,
        })
    }

    /// Has the bench that listens at `host` start the second process.
    pub(crate) fn call(host: &str, settings: &Settings) -> Result<Session> {
        let token = viaduct_providers::ofi::job_token(&settings.providers.ofi)?;
        let mut link = Link::call(host, &token)?;
        link.send(&Wanted { cpu: settings.cpus[1] })?;
        let control = Rc::new(Control::alone(host_of(host), settings.providers.clone())?);
        control.watch(link.watch()?);
        Ok(Session { control, peer: Peer::Far(link), orders: 0, probes: 0, ends: Vec::new(), opened: 0 })
    }

    /// The second process is on another host.
    pub(crate) fn is_far(&self) -> bool {
        matches!(self.peer, Peer::Far(_))
    }

    /// Has the second process start the server of a tool, at this port.
    pub(crate) fn serve_tool(&mut self, tool: &Served) -> Result<()> {
        self.issue(&Order::Serve(tool.clone()), "starting a tool")?;
        self.settle("starting a tool")
    }

    /// The shared words.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Opens a layer on both sides; layers are numbered from 0.
    pub(crate) fn open(&mut self, variant: &Variant) -> Result<()> {
        self.issue(&Order::Listen(variant.clone()), "opening a layer")?;
        let address = match self.answer("opening a layer")? {
            Answer::Address(address) => address,
            other => return Err(unexpected(&other)),
        };
        self.issue(&Order::Accept, "connecting a layer")?;
        let end = layers::connect(variant, &self.control, &address)
            .map_err(|error| self.or_gone(error, "connecting a layer"))?;
        self.answer("connecting a layer")?;
        self.ends.push(Some((self.opened, end)));
        self.opened += 1;
        Ok(())
    }

    /// What failed, or that the second process is gone: a layer cannot tell that from one that does not listen or has
    /// disconnected. It may have said why before it went.
    fn or_gone(&mut self, error: Error, doing: &'static str) -> Error {
        let known = matches!(error, Error::PeerGone { .. });
        if !known && !self.control.is_peer_gone() {
            return error;
        }
        match self.answer(doing) {
            Err(told @ Error::Peer { .. }) => told,
            _ if known => error,
            _ => Error::PeerGone { doing },
        }
    }

    /// What the layer of a variant lacks that this is about, in words.
    pub(crate) fn missing(&self, variant: &Variant) -> Result<Option<String>> {
        layers::missing(variant, &self.control)
    }

    /// The next number belongs to a layer that is not opened.
    pub(crate) fn leave_out(&mut self) {
        self.ends.push(None);
    }

    /// Runs one slice on layer `index`; sample times go to `samples`.
    pub(crate) fn run(
        &mut self,
        index: usize,
        run: &Run,
        timer: &Timer,
        samples: &mut Vec<u64>,
    ) -> Result<(Tally, Tally)> {
        let known = self.ends[index].as_ref().map(|(number, _)| *number);
        let number = known
            .ok_or_else(|| Error::usage("this layer was left out", "this is a fault of the benchmark"))?;
        self.issue(&Order::Run(number, *run), "starting a slice")?;
        let Some((_, end)) = &mut self.ends[index] else { unreachable!("just looked") };
        let led = end.lead(run, timer, samples).map_err(|error| self.or_gone(error, "running a slice"))?;
        match self.answer("ending a slice")? {
            Answer::Tally(followed) => Ok((led, followed)),
            other => Err(unexpected(&other)),
        }
    }

    /// Lets the peer answer `count` bare ping-pongs; returns the number of the first one. Finish with
    /// [`Session::settle`].
    pub(crate) fn start_probe(&mut self, count: u64) -> Result<u64> {
        let first = self.probes + 1;
        self.probes += count;
        self.issue(&Order::Probe { first, count }, "starting a probe")?;
        Ok(first)
    }

    /// Lets both processes sleep, so that the scheduler owes them a whole slice afterwards.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<()> {
        self.issue(&Order::Rest(time.as_micros() as u64), "resting")?;
        std::thread::sleep(time);
        self.settle("resting")
    }

    /// Waits for the answer to an order that has nothing to tell.
    pub(crate) fn settle(&mut self, doing: &'static str) -> Result<()> {
        self.answer(doing).map(|_| ())
    }

    fn issue(&mut self, order: &Order, doing: &'static str) -> Result<()> {
        self.orders += 1;
        if let Peer::Far(link) = &mut self.peer {
            link.send(order)?;
            return link.receive::<Started>(doing).map(|_| ());
        }
        self.control.post(Mailbox::Orders, order);
        self.control.announce(&self.control.order, self.orders);
        self.control.wait_for(&self.control.started, self.orders, doing)
    }

    fn answer(&mut self, doing: &'static str) -> Result<Answer> {
        let answer = match &mut self.peer {
            Peer::Far(link) => link.receive(doing)?,
            Peer::Child { .. } => {
                self.control.wait_for(&self.control.answered, self.orders, doing)?;
                self.control.fetch(Mailbox::Answers)?
            }
        };
        match answer {
            Answer::Failed { message, hint } => Err(Error::Peer { message, hint }),
            answer => Ok(answer),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ends.clear();
        match &mut self.peer {
            // It ends by itself, or with the connection.
            Peer::Far(link) => drop(link.send(&Order::Quit)),
            Peer::Child { child, pidfd } => {
                self.control.give_up();
                self.control.post(Mailbox::Orders, &Order::Quit);
                self.control.order.store(u64::MAX, Ordering::Release);
                let _ = pidfd_send_signal(pidfd.as_fd(), Signal::KILL);
                let _ = child.wait();
            }
        }
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::Peer { message: format!("unexpected answer {answer:?}"), hint: String::new() }
}

/// A thousand connections need more descriptors than the customary soft limit.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
