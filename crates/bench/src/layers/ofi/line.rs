//! A connected endpoint of libfabric and how its completions are taken: polled, or slept for.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use viaduct_providers::ofi::bare::{Cq, Done, Endpoint, Message, Queues};

use crate::control::Turns;
use crate::error::{Error, Result};
use crate::layers::ofi::Site;
use crate::plan::Wait;

/// Longest sleep without a look at whether the other process lives.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// One endpoint that is used, with its queues.
pub(crate) struct ConnectedEndpoint {
    pub(crate) endpoint: Endpoint,
    queues: Queues,
    /// Sends have a queue of their own.
    apart: bool,
    block: bool,
    /// How long a blocking receive looks before it sleeps.
    spin: Duration,
    /// Sends whose completion has not been taken.
    pub(crate) under_way: usize,
    /// Receives that are done and not taken yet.
    early: VecDeque<Done>,
    /// Sends that are done and not taken back yet.
    pub(crate) back: Vec<Message>,
    /// Endpoints that are open and idle.
    _idle: Vec<Endpoint>,
    pub(crate) site: Site,
}

impl ConnectedEndpoint {
    pub(crate) fn new(
        site: Site,
        endpoint: Endpoint,
        queues: Queues,
        apart: bool,
        idle: Vec<Endpoint>,
    ) -> ConnectedEndpoint {
        ConnectedEndpoint {
            endpoint,
            queues,
            apart,
            block: site.variant.wait == Wait::Block,
            spin: Duration::from_micros(site.variant.arg("spin_us")),
            under_way: 0,
            early: VecDeque::with_capacity(16),
            back: Vec::with_capacity(16),
            _idle: idle,
            site,
        }
    }

    /// Posts a send, waiting for room.
    #[inline(always)]
    pub(crate) fn send(&mut self, mut message: Message) -> Result<()> {
        loop {
            match self.endpoint.send(message).map_err(|e| self.site.failed(&e))? {
                None => break,
                Some(refused) => message = refused,
            }
            self.make_room()?;
        }
        self.under_way += 1;
        Ok(())
    }

    /// Sends bytes by value, waiting for room.
    #[inline(always)]
    pub(crate) fn inject(&mut self, bytes: &[u8]) -> Result<()> {
        while !self.endpoint.inject(bytes).map_err(|e| self.site.failed(&e))? {
            self.make_room()?;
        }
        Ok(())
    }

    /// Posts a receive.
    #[inline(always)]
    pub(crate) fn post(&mut self, message: Message) -> Result<()> {
        match self.endpoint.receive(message).map_err(|e| self.site.failed(&e))? {
            None => Ok(()),
            Some(_) => Err(Error::layer(self.site.variant.layer.name(), "no room for a receive", "")),
        }
    }

    /// Waits for a message.
    #[inline(always)]
    pub(crate) fn receive(&mut self) -> Result<Done> {
        self.wait(true)?;
        Ok(self.early.pop_front().expect("one has come"))
    }

    /// Waits until a send is done.
    pub(crate) fn reclaim(&mut self) -> Result<()> {
        self.wait(false)
    }

    /// Looks for one send that is done; nothing waits for it.
    #[inline(always)]
    pub(crate) fn glance(&mut self) -> Result<()> {
        self.look(false).map(|_| ())
    }

    #[inline(always)]
    fn wait(&mut self, receive: bool) -> Result<()> {
        let (mut turns, mut start) = (Turns::default(), None);
        loop {
            if if receive { !self.early.is_empty() } else { !self.back.is_empty() } {
                return Ok(());
            }
            let mut found = self.look(receive)?;
            // Looking is also what moves sends on.
            if receive && self.apart && self.under_way > 0 {
                found |= self.look(false)?;
            }
            if found {
                continue;
            }
            if self.block && start.get_or_insert_with(Instant::now).elapsed() >= self.spin {
                self.sleep(receive)?;
            }
            turns.pause(&self.site.patience, "waiting for a completion")?;
        }
    }

    fn sleep(&self, receive: bool) -> Result<()> {
        let queue = if receive { &self.queues.receive } else { &self.queues.send };
        sleep_on(queue)?;
        self.site.patience.check("waiting for a completion")
    }

    /// Takes one completion, if there is one.
    #[inline(always)]
    fn look(&mut self, receive: bool) -> Result<bool> {
        let queue = if receive { &self.queues.receive } else { &self.queues.send };
        let Some(done) = queue.poll().map_err(|e| self.site.failed(&e))? else { return Ok(false) };
        if done.receive {
            self.early.push_back(done);
        } else {
            self.under_way -= 1;
            self.back.push(done.message);
        }
        Ok(true)
    }

    #[cold]
    fn make_room(&mut self) -> Result<()> {
        if !self.look(false)? {
            self.site.patience.check("waiting for room")?;
        }
        Ok(())
    }
}

/// Sleeps until there may be something in a queue, for a nap at most.
pub(crate) fn sleep_on(queue: &Cq) -> Result<()> {
    let Some(fd) = queue.to_sleep_on() else { return Ok(()) };
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&NAP)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Error::os("waiting for a completion queue")(error)),
    }
}
