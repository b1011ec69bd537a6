//! The test's own account of descriptors: each one posted comes back exactly once.

use std::collections::BTreeSet;
use std::time::Duration;

use viaduct_via::{Completion, Cq, Descriptor, Ended, Error, Nic, Queue, Vi, ViState};

/// Why a session ended before its time: the other side is gone.
#[derive(Debug)]
pub struct Stop(pub String);

impl From<viaduct_via::AcceptError> for Stop {
    fn from(error: viaduct_via::AcceptError) -> Stop {
        Stop(error.to_string())
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop(error.to_string())
    }
}

/// One VI and what was posted to it.
pub struct Account {
    /// The VI.
    pub vi: Vi,
    /// Where its completions go, if not to its queues.
    pub cq: Option<Cq>,
    out: BTreeSet<u64>,
    next: u64,
    /// Descriptors that came back.
    pub returned: u64,
}

impl Account {
    /// An account for a fresh VI.
    pub fn new(vi: Vi, cq: Option<Cq>) -> Account {
        Account { vi, cq, out: BTreeSet::new(), next: 0, returned: 0 }
    }

    /// Posts a descriptor to the queue it belongs to.
    pub fn post(&mut self, nic: &mut Nic, queue: Queue, descriptor: Descriptor) -> Result<(), Stop> {
        let context = self.next << 1 | u64::from(queue == Queue::Receive);
        self.next += 1;
        let descriptor = descriptor.context(context);
        match queue {
            Queue::Send => nic.post_send(self.vi, descriptor),
            Queue::Receive => nic.post_recv(self.vi, descriptor),
        }
        .map_err(|refused| Stop(refused.to_string()))?;
        assert!(self.out.insert(context));
        Ok(())
    }

    /// The next completion of a queue within `limit`; `None` if there was none.
    pub fn next(
        &mut self,
        nic: &mut Nic,
        queue: Queue,
        limit: Option<Duration>,
    ) -> Result<Option<Completion>, Stop> {
        let found = match (self.cq, queue) {
            (Some(cq), _) => nic.wait_cq(cq, limit),
            (None, Queue::Send) => nic.wait_send_outcome(self.vi, limit),
            (None, Queue::Receive) => nic.wait_recv_outcome(self.vi, limit),
        };
        match found {
            Ok(Ended(completion)) => {
                self.back(&completion);
                Ok(Some(completion))
            }
            Err(Error::Timeout) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that a descriptor came back.
    pub fn back(&mut self, completion: &Completion) {
        let context = completion.descriptor.work().context;
        let expected = u64::from(completion.queue == Queue::Receive);
        assert_eq!((completion.vi, context & 1), (self.vi, expected), "a completion of another queue");
        assert!(self.out.remove(&context), "descriptor {context} came back twice");
        self.returned += 1;
    }

    /// Waits until the connection is over, by an error or never begun.
    pub fn is_over(&self, nic: &mut Nic) {
        loop {
            let state = nic.query_vi(self.vi).expect("a VI of ours").state;
            if matches!(state, ViState::Error | ViState::Idle) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Disconnects, drains, checks that nothing is missing, destroys. How many descriptors came back.
    pub fn close(mut self, nic: &mut Nic) -> u64 {
        let idle = nic.query_vi(self.vi).expect("a VI of ours").state == ViState::Idle;
        match nic.disconnect(self.vi) {
            Err(Error::InvalidState { .. }) if idle => {}
            other => other.expect("a VI that is not idle, or has receives posted, can be disconnected"),
        }
        for queue in [Queue::Send, Queue::Receive] {
            let poll = |nic: &mut Nic, account: &Account| match (account.cq, queue) {
                (Some(cq), _) => nic.poll_cq(cq),
                (None, Queue::Send) => nic.poll_send(account.vi),
                (None, Queue::Receive) => nic.poll_recv(account.vi),
            };
            while let Some(completion) = poll(nic, &self).expect("a VI of ours") {
                self.back(&completion);
            }
        }
        assert!(self.out.is_empty(), "{} descriptors did not come back: {:?}", self.out.len(), self.out);
        let info = nic.query_vi(self.vi).expect("a VI of ours");
        assert_eq!((info.state, info.sends, info.receives), (ViState::Idle, 0, 0));
        nic.destroy_vi(self.vi).expect("an idle, drained VI can be destroyed");
        if let Some(cq) = self.cq {
            nic.destroy_cq(cq).expect("a completion queue without a VI can be destroyed");
        }
        self.returned
    }
}
