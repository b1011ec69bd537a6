//! The second process of a benchmark: pins itself, then carries out orders until its parent is gone.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use viaduct_providers::Config;

use crate::control::{Control, Mailbox};
use crate::error::{Error, Result};
use crate::host;
use crate::layers::{self, Door};
use crate::loops::End;
use crate::orders::{Answer, Order};

/// Body of the hidden verb. `parent` is the process that must not die before us; `providers` must be the settings that
/// the parent has.
pub fn serve(cpu: usize, one_core: bool, parent: u32, providers: Config) -> Result<()> {
    die_with(parent)?;
    let fd =
        std::io::stdin().as_fd().try_clone_to_owned().map_err(Error::os("taking the control segment"))?;
    let control = Rc::new(Control::adopt(fd, one_core, providers)?);
    let mut peer = Peer { control, doors: Vec::new(), ends: Vec::new(), before: (0, 0) };
    let pinned =
        viaduct_os::cpu::pin(cpu).map_err(Error::os(format!("pinning the peer process to core {cpu}")));
    peer.serve(pinned)
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
}

impl Peer {
    /// Carries out orders; the first answer tells whether the start went well.
    fn serve(&mut self, start: Result<()>) -> Result<()> {
        let mut start = Some(start);
        for number in 1.. {
            let control = Rc::clone(&self.control);
            self.await_order(number)?;
            let order: Order = control.fetch(Mailbox::Orders)?;
            if matches!(order, Order::Quit) {
                return Ok(());
            }
            // Slow things first: once an order is announced as started, the first process starts its clock.
            self.before = (host::involuntary_switches(), host::run_delay_ns());
            control.announce(&control.started, number);
            let done = start.take().unwrap_or(Ok(())).and_then(|()| self.obey(order));
            let answer = done.unwrap_or_else(|error| Answer::Failed {
                message: error.to_string(),
                hint: error.hint().unwrap_or_default(),
            });
            control.post(Mailbox::Answers, &answer);
            control.announce(&control.answered, number);
        }
        Ok(())
    }

    /// Waits without a limit: between orders the parent may take all the time it wants.
    fn await_order(&self, number: u64) -> Result<()> {
        loop {
            match self.control.wait_for(&self.control.order, number, "waiting for orders") {
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
            Order::Quit => Ok(Answer::Done),
        }
    }
}

fn misled(message: &str) -> Error {
    Error::Peer { message: message.into(), hint: String::new() }
}
