//! The second process of a benchmark: pins itself, then carries out orders until its parent is gone.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use viaduct_providers::Config;

use crate::control::{Control, Mailbox};
use crate::error::{Error, Result};
use crate::host;
use crate::layers::{self, Door};
use crate::link::Link;
use crate::loops::End;
use crate::orders::{Answer, Order, Started};
use crate::rivals::{self, Launcher, Running};

/// Body of the hidden verb. `parent` is the process that must not die before us; `providers` must be the settings that
/// the parent has.
pub fn serve(cpu: usize, one_core: bool, parent: u32, providers: Config) -> Result<()> {
    die_with(parent)?;
    let control = Control::adopt(standard_input()?, one_core, providers)?;
    Peer::new(control, None).serve(pin(cpu))
}

/// Body of the hidden verb where the first process is on another host: standard input is the connection with it.
pub fn serve_far(cpu: usize, parent: u32, providers: Config, tools: Launcher) -> Result<()> {
    die_with(parent)?;
    let link = Link::adopt(standard_input()?)?;
    let control = Control::alone("", providers)?;
    control.watch(link.watch()?);
    let far = Far { link, cpu, tools, tool: None };
    Peer::new(control, Some(far)).serve(pin(cpu))
}

fn standard_input() -> Result<OwnedFd> {
    std::io::stdin().as_fd().try_clone_to_owned().map_err(Error::os("taking the way to the first process"))
}

fn pin(cpu: usize) -> Result<()> {
    viaduct_os::cpu::pin(cpu).map_err(Error::os(format!("pinning the peer process to core {cpu}")))
}

/// Has the kernel kill this process when `parent`, which started it, is gone.
pub(crate) fn die_with(parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(Error::os("asking to die with the parent"))?;
    if getppid().map(Pid::as_raw_pid) != i32::try_from(parent).ok() {
        return Err(Error::usage(
            "the parent process is gone",
            "`bench-peer` is started by `viaduct bench` itself",
        ));
    }
    Ok(())
}

struct Peer {
    control: Rc<Control>,
    /// Opened, not yet connected.
    doors: Vec<Box<dyn Door>>,
    ends: Vec<Box<dyn End>>,
    /// Involuntary switches and waiting time before the order in hand.
    before: (u64, u64),
    /// What there is if the first process is on another host.
    far: Option<Far>,
}

/// The way to another host, and what is run for it.
struct Far {
    link: Link,
    cpu: usize,
    tools: Launcher,
    tool: Option<Running>,
}

impl Peer {
    fn new(control: Control, far: Option<Far>) -> Peer {
        Peer { control: Rc::new(control), doors: Vec::new(), ends: Vec::new(), before: (0, 0), far }
    }

    /// Carries out orders; the first answer tells whether the start went well.
    fn serve(&mut self, start: Result<()>) -> Result<()> {
        let mut start = Some(start);
        for number in 1.. {
            let order = self.next_order(number)?;
            if matches!(order, Order::Quit) {
                return Ok(());
            }
            // Slow things first: once an order is announced as started, the first process starts its clock.
            self.before = (host::involuntary_switches(), host::run_delay_ns());
            match &mut self.far {
                Some(far) => far.link.send(&Started)?,
                None => self.control.announce(&self.control.started, number),
            }
            let done = start.take().unwrap_or(Ok(())).and_then(|()| self.obey(order));
            let answer = done.unwrap_or_else(|error| Answer::Failed {
                message: error.to_string(),
                hint: error.hint().unwrap_or_default(),
            });
            match &mut self.far {
                Some(far) => far.link.send(&answer)?,
                None => {
                    self.control.post(Mailbox::Answers, &answer);
                    self.control.announce(&self.control.answered, number);
                }
            }
        }
        Ok(())
    }

    /// Waits without a limit: between orders the parent may take all the time it wants.
    fn next_order(&mut self, number: u64) -> Result<Order> {
        const DOING: &str = "waiting for orders";
        loop {
            let found = match &mut self.far {
                Some(far) => far.link.receive(DOING),
                None => self
                    .control
                    .wait_for(&self.control.order, number, DOING)
                    .and_then(|()| self.control.fetch(Mailbox::Orders)),
            };
            match found {
                Err(Error::Stalled { .. }) => {}
                other => return other,
            }
        }
    }

    fn obey(&mut self, order: Order) -> Result<Answer> {
        match order {
            Order::Listen(variant) => {
                let door = layers::listen(&variant, &self.control)?;
                let address = door.address();
                self.doors.push(door);
                Ok(Answer::Address(address))
            }
            Order::Accept => {
                let door = self.doors.pop().ok_or_else(|| misled("no layer to accept"))?;
                self.ends.push(door.accept()?);
                Ok(Answer::Done)
            }
            Order::Run(index, run) => {
                let end = self.ends.get_mut(index).ok_or_else(|| misled("no such layer"))?;
                let mut tally = end.follow(&run)?;
                tally.delay = host::run_delay_ns() - self.before.1;
                tally.switches = host::involuntary_switches() - self.before.0;
                Ok(Answer::Tally(tally))
            }
            Order::Probe { first, count } => {
                let (ping, pong) = (&self.control.ping, &self.control.pong);
                let patience = self.control.patience();
                for number in first..first + count {
                    patience.spin_until("answering a probe", || ping.load(Ordering::Acquire) == number)?;
                    pong.store(number, Ordering::Release);
                }
                Ok(Answer::Done)
            }
            Order::Rest(micros) => {
                std::thread::sleep(Duration::from_micros(micros));
                Ok(Answer::Done)
            }
            Order::Serve(served) => {
                let far = self.far.as_mut().ok_or_else(|| misled("tools are served to another host"))?;
                // The one before goes first: it may have the port.
                far.tool = None;
                far.tool = Some(rivals::serve(&far.tools, far.cpu, &served)?);
                Ok(Answer::Done)
            }
            Order::Quit => Ok(Answer::Done),
        }
    }
}

fn misled(message: &str) -> Error {
    Error::Peer { message: message.into(), hint: String::new() }
}
