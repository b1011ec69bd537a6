//! Settings with the paper's values, and its five steps from the plainest protocol to the whole one.
//!
//! SOVIA, sections 3.1.3, 3.2 and 5.2. What contradicts itself is refused when the library is opened, with the cause and
//! what to do about it.

use std::time::Duration;

use viaduct_via::Spin;

use crate::error::Error;
use crate::protocol::ring;
use crate::wire::{Greeting, MAX_WINDOW, RING_LEN};

/// How streams work. The values of the paper by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most bytes in one DATA packet (the MTU).
    pub mtu: usize,
    /// DATA packets that may be under way without an acknowledgement (w).
    pub window: u32,
    /// Acknowledgements held back: one more than these, and an ACK packet goes out (t). Below the window.
    pub threshold: u32,
    /// Longest request that is copied, with others or alone. Longer ones leave from where they lie, if the call may wait
    /// until they are out.
    pub copy_max: usize,
    /// Whether small requests are combined. A stream can say otherwise for itself.
    pub combining: bool,
    /// How long a combined packet may wait for more.
    pub timer: Duration,
    /// How bytes that are not few reach the other end. Each end decides for what comes to it.
    pub path: Path,
    /// Bytes of a ring; a window of packets by default.
    pub ring: usize,
    /// Rings up to so many bytes together are made when connections come about; others when a peer first has more to say
    /// than fits into a message, and they are shorter.
    pub ring_memory: usize,
    /// Which thread takes packets in.
    pub handling: Handling,
    /// How calls wait.
    pub waiting: Waiting,
    /// The spin budget of calls that may sleep. A program sets it from its `wait.spin`.
    pub spin: Spin,
    /// How long a closed connection may take to end. A peer that does not answer by then is cut off.
    pub close_limit: Duration,
    /// How long the end of the library waits for connections that are closing.
    pub exit_limit: Duration,
}

/// How packets that are not small come to this end (docs/adr/0016).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The faster one for each connection: the ring where the peer writes into this memory at once, messages elsewhere:
    /// over a network, between users, and where a process keeps its memory to itself (`shm.isolate`).
    Auto,
    /// As messages, into descriptors posted beforehand: the paper's way.
    Messages,
    /// Written by the peer into a ring in our memory.
    Ring,
}

/// Which thread takes packets in (section 3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The threads of the application, inside their calls.
    Single,
    /// A thread of the library, which wakes the others.
    Handler,
}

/// How calls wait (end of section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Look while that pays, then sleep.
    Blocking,
    /// Look until something is there; takes a whole CPU.
    Polling,
}

/// The versions whose curves are in figure 9. Each has what the ones before it have, but for the handler thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One packet under way, taken in by the application.
    Single,
    /// One packet under way, taken in by a handler thread.
    Handler,
    /// A window of packets.
    FlowCtrl,
    /// Acknowledgements held back.
    Dacks,
    /// Small requests combined: everything.
    Combine,
}

impl Step {
    /// All of them, in the paper's order.
    pub const ALL: [Step; 5] = [Step::Single, Step::Handler, Step::FlowCtrl, Step::Dacks, Step::Combine];

    /// The name of its curve, without the paper's prefix.
    pub fn name(self) -> &'static str {
        match self {
            Step::Single => "SINGLE",
            Step::Handler => "HANDLER",
            Step::FlowCtrl => "FLOWCTRL",
            Step::Dacks => "DACKS",
            Step::Combine => "COMBINE",
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mtu: 32 << 10,
            window: 32,
            threshold: 16,
            copy_max: 2 << 10,
            combining: true,
            timer: Duration::from_millis(100),
            path: Path::Auto,
            ring: 1 << 20,
            ring_memory: 16 << 20,
            handling: Handling::Single,
            waiting: Waiting::Blocking,
            spin: Spin::Auto,
            close_limit: Duration::from_secs(3),
            exit_limit: Duration::from_secs(1),
        }
    }
}

impl Config {
    /// The settings of one step of the paper.
    pub fn step(step: Step) -> Config {
        let full = Config::default();
        // With one packet under way a ring would be of no use.
        let one_by_one =
            Config { window: 1, threshold: 0, combining: false, path: Path::Messages, ..full.clone() };
        match step {
            Step::Single => one_by_one,
            Step::Handler => Config { handling: Handling::Handler, ..one_by_one },
            Step::FlowCtrl => Config { threshold: 0, combining: false, ..full },
            Step::Dacks => Config { combining: false, ..full },
            Step::Combine => full,
        }
    }

    /// Whether the settings make sense together.
    ///
    /// # Errors
    /// [`Error::Config`] with what contradicts what.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |cause: String, hint: &str| Err(Error::Config { cause, hint: hint.to_owned() });
        if self.window == 0 || self.window > MAX_WINDOW {
            let cause = format!("a window of {} packets", self.window);
            return refuse(cause, "a window has 1 to 4096 packets");
        }
        if self.threshold >= self.window {
            let cause = format!("the threshold {} is not below the window {}", self.threshold, self.window);
            return refuse(
                cause,
                "the sender would stop before it is acknowledged; lower the threshold or widen the window",
            );
        }
        if self.mtu == 0 || self.mtu > 1 << 30 {
            let cause = format!("packets of up to {} bytes", self.mtu);
            return refuse(cause, "the MTU is 1 byte to 1 GiB");
        }
        if self.copy_max > self.mtu {
            let cause =
                format!("requests of up to {} bytes are copied into packets of {}", self.copy_max, self.mtu);
            return refuse(cause, "lower copy_max to the MTU, or raise the MTU");
        }
        if self.path != Path::Messages && (self.ring < ring::SMALLEST || self.ring > 1 << 30) {
            let cause = format!("a ring of {} bytes", self.ring);
            return refuse(cause, "a ring has 256 bytes to 1 GiB");
        }
        if self.combining && self.timer.is_zero() {
            return refuse(
                "combining with a timer of no time".into(),
                "switch combining off, or give it time",
            );
        }
        Ok(())
    }

    /// What the peer is told at connection. `small` is the longest message that this end takes if it has a ring.
    pub fn greeting(&self, small: Option<usize>) -> Greeting {
        let small = small.map_or(self.mtu, |small| small.max(RING_LEN).min(self.mtu)) as u32;
        Greeting { mtu: self.mtu as u32, window: self.window, threshold: self.threshold, small }
    }

    /// Receive descriptors that a connection needs: P = w + w/t + 1 (section 4.3), with the window of this side and the
    /// acknowledgements that the peer's settings allow it.
    ///
    /// Those are w packets of data, the FIN, and as many ACKs as fit into the window that the peer opened. An ACK goes
    /// out for more than t packets, so there are w/(t+1) of them, and usually one fewer than the paper counts. The
    /// FINACK, which the paper leaves out, takes its place; where there is none left over, one descriptor is added.
    ///
    /// An end with a ring is asked for it once. An end that has one acknowledges a quarter of it at the latest, opens its window
    /// once, and says once where its ring is.
    pub fn descriptors(ours: &Greeting, peer: &Greeting) -> usize {
        let acks = |window: u32, threshold: u32| window / (threshold + 1);
        let papers = ours.window + peer.window / peer.threshold.max(1) + 1;
        let exact = ours.window + acks(peer.window, peer.threshold) + 2;
        let asked = u32::from(ours.has_ring());
        let rung = if peer.has_ring() { 4 + 1 + 1 } else { 0 };
        (papers.max(exact) + asked + rung) as usize
    }

    /// Those of them that are posted before the window is used.
    pub fn first_descriptors(ours: &Greeting, peer: &Greeting) -> usize {
        Config::descriptors(ours, peer) - (ours.window - ours.open()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_papers() {
        let c = Config::default();
        assert_eq!((c.mtu, c.window, c.threshold, c.copy_max), (32_768, 32, 16, 2048));
        assert_eq!(c.timer, Duration::from_millis(100));
        let greeting = c.greeting(None);
        assert_eq!(Config::descriptors(&greeting, &greeting), 32 + 32 / 16 + 1);
        assert_eq!(Config::first_descriptors(&greeting, &greeting), 32 + 32 / 16 + 1);
    }

    #[test]
    fn every_step_is_a_valid_configuration() {
        for step in Step::ALL {
            let config = Config::step(step);
            config.check().unwrap();
            assert_eq!(config.combining, step == Step::Combine, "{}", step.name());
            assert_eq!(config.handling == Handling::Handler, step == Step::Handler, "{}", step.name());
        }
        assert_eq!(Config::step(Step::FlowCtrl).window, 32);
        assert_eq!(Config::step(Step::Single).window, 1);
    }

    #[test]
    fn contradictions_are_refused_with_cause_and_hint() {
        let ok = Config::default();
        let bad = [
            (Config { threshold: 32, ..ok.clone() }, "the threshold 32 is not below the window 32"),
            (Config { window: 0, ..ok.clone() }, "a window of 0 packets"),
            (Config { window: MAX_WINDOW + 1, ..ok.clone() }, "a window of 4097 packets"),
            (Config { mtu: 1024, ..ok.clone() }, "requests of up to 2048 bytes"),
            (Config { mtu: 0, copy_max: 0, ..ok.clone() }, "packets of up to 0 bytes"),
            (Config { timer: Duration::ZERO, ..ok.clone() }, "a timer of no time"),
        ];
        for (config, cause) in bad {
            let text = config.check().unwrap_err().to_string();
            assert!(text.contains(cause), "{text}");
            assert!(text.contains("; "), "no hint in: {text}");
        }
    }
}
