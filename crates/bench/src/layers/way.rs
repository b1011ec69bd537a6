//! Ways to another process' memory, and the proof which one was taken.
//!
//! The shm provider reaches into a peer's shareable memory through a mapping. Private memory, such as a program registers
//! that it had before, is copied by the kernel (`process_vm_readv` and its like), and where that is not allowed by the
//! peer's control thread. Which memory is lent and a switch of the provider decide; its counters tell what happened.

use viaduct_providers::config::ShmConfig;
use viaduct_via::{Counter, Nic};

use crate::plan::{Run, Tally, Variant};

/// Operations in a slice where a thread of the peer has to run for each.
const HELPED: u64 = 48;

/// How an RDMA operation gets to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryWay {
    /// Through a mapping.
    Mapping,
    /// By a call of the kernel; the memory is private.
    Kernel,
    /// By a thread of the peer; the memory is private.
    Helper,
}

impl MemoryWay {
    /// Those besides the mapping that are open to this process.
    pub(crate) fn others() -> Vec<MemoryWay> {
        if kernel_copies() { vec![MemoryWay::Kernel, MemoryWay::Helper] } else { vec![MemoryWay::Helper] }
    }

    /// `shape` by this way, as a series of its own.
    pub(crate) fn shaped(self, shape: Variant) -> Variant {
        let series = format!("{}{}", shape.series, self.suffix());
        let shape = shape.with("way", self as u64);
        // The threads that help take the cores from those that wait: part of what is measured. Where others want the
        // cores too that takes milliseconds, so a slice is short.
        let shape = match self {
            MemoryWay::Helper => shape.with("helped", 1).with("count", HELPED),
            MemoryWay::Mapping | MemoryWay::Kernel => shape,
        };
        Variant { series, ..shape }
    }

    /// The way of a variant, and its series without it.
    pub(crate) fn of(variant: &Variant) -> (MemoryWay, &str) {
        let way = match variant.arg("way") {
            1 => MemoryWay::Kernel,
            2 => MemoryWay::Helper,
            _ => MemoryWay::Mapping,
        };
        (way, variant.series.strip_suffix(way.suffix()).unwrap_or(&variant.series))
    }

    /// The memory that is lent is not shareable.
    pub(crate) fn is_private(self) -> bool {
        self != MemoryWay::Mapping
    }

    /// Closes the way before this one.
    pub(crate) fn force(self, config: &mut ShmConfig) {
        if self == MemoryWay::Helper {
            config.process_vm = false;
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            MemoryWay::Mapping => "",
            MemoryWay::Kernel => "-kernel",
            MemoryWay::Helper => "-helper",
        }
    }
}

/// Whether processes of one user may copy from each other, as far as one can tell beforehand.
fn kernel_copies() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").map_or(true, |scope| scope.trim() == "0")
}

/// Counts the operations of a slice by the way they took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    way: MemoryWay,
    before: [u64; 2],
    /// Operations of this end in the slice.
    pub(crate) posted: u64,
}

impl Proof {
    pub(crate) fn new(way: MemoryWay) -> Proof {
        Proof { way, before: [0; 2], posted: 0 }
    }

    /// A slice begins.
    pub(crate) fn begin(&mut self, nic: &Nic) {
        (self.before, self.posted) = (counted(nic), 0);
    }

    /// A slice has ended: in a validation pass another way is a fault.
    pub(crate) fn finish(&self, nic: &Nic, run: &Run, tally: &mut Tally) {
        let now = counted(nic);
        let taken = [now[0] - self.before[0], now[1] - self.before[1]];
        if run.check && taken != self.expected() {
            tally.bad += 1;
        }
    }

    fn expected(&self) -> [u64; 2] {
        match self.way {
            MemoryWay::Mapping => [0, 0],
            MemoryWay::Kernel => [self.posted, 0],
            MemoryWay::Helper => [0, self.posted],
        }
    }
}

fn counted(nic: &Nic) -> [u64; 2] {
    [Counter::KernelCopies, Counter::HelperCopies].map(|counter| nic.counters().read(counter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::shape;
    use crate::plan::Motion;

    #[test]
    fn a_series_names_its_way_and_forces_it() {
        for (way, name, process_vm) in [
            (MemoryWay::Mapping, "read", true),
            (MemoryWay::Kernel, "read-kernel", true),
            (MemoryWay::Helper, "read-helper", false),
        ] {
            let variant = way.shaped(shape(Motion::Calls, 8, 1).on("read", None));
            assert_eq!((variant.series.as_str(), MemoryWay::of(&variant)), (name, (way, "read")));
            let mut config = ShmConfig::default();
            way.force(&mut config);
            assert_eq!((config.process_vm, way.is_private()), (process_vm, way != MemoryWay::Mapping));
        }
    }

    #[test]
    fn only_the_way_of_the_series_is_right() {
        let proof = |way| Proof { posted: 7, ..Proof::new(way) };
        assert_eq!(proof(MemoryWay::Mapping).expected(), [0, 0]);
        assert_eq!(
            (proof(MemoryWay::Kernel).expected(), proof(MemoryWay::Helper).expected()),
            ([7, 0], [0, 7])
        );
    }
}
