//! The layers that can be measured: Viaduct's providers and the references they are held against.
//!
//! | layer | what it is |
//! |---|---|
//! | `shm`, `auto`, `ofi`, `ofi:NAME`, `loopback` | Viaduct itself |
//! | `raw` | a bare cache line or ring in shared memory: the physical limit |
//! | `copy` | a bare single-copy loop between two processes: the limit of bandwidth |
//! | `unix`, `tcp` and variants, `pipe` | the kernel's sockets and pipes |
//!
//! A layer is chosen by value when it is opened. Timed loops are written once, in `loops.rs`, and compiled for
//! every layer apart, so there is no dynamic call for a message. To add a layer: one file here that implements
//! `Wire`, one line in [`ALL`], one arm in `listen`, `connect` and `arena_len`.

pub(crate) mod cold;
mod copy;
pub(crate) mod half;
pub(crate) mod heap;
pub(crate) mod interrupt;
pub(crate) mod lent;
mod loopback;
mod pipe;
mod raw;
mod socket;
pub(crate) mod sovia;
pub(crate) mod stock;
pub(crate) mod stocked;
mod tcp;
pub(crate) mod three_way;
mod unix;
pub(crate) mod via;
pub(crate) mod way;

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::control::Control;
use crate::error::{Error, Result};
use crate::loops::End;
use crate::plan::{Variant, Wait};

/// Something that carries messages between the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layer {
    /// Viaduct's provider for processes of one host.
    Shm,
    /// Viaduct's provider that chooses by itself: between processes of one host, shared memory.
    Auto,
    /// Viaduct's provider between hosts: `ofi` on the best that libfabric has, `ofi:NAME` on one of its providers.
    Ofi(&'static str),
    /// Viaduct's provider within one process.
    Loopback,
    /// A cache line or ring in shared memory, nothing else.
    Raw,
    /// One copy into a shared buffer that the receiver reads in place.
    Copy,
    /// Unix stream socket, blocking.
    Unix,
    /// Unix stream socket, spinning.
    UnixSpin,
    /// Two kernel pipes, blocking.
    Pipe,
    /// TCP over the loopback interface, blocking; with Nagle's algorithm in the case `rate`, else without.
    Tcp,
    /// TCP, spinning on non-blocking calls.
    TcpSpin,
    /// TCP, blocking, with Nagle's algorithm.
    TcpNagle,
    /// TCP, blocking, without Nagle's algorithm.
    TcpNodelay,
}

/// One line of the list of layers.
#[derive(Debug)]
pub struct Info {
    /// The layer.
    pub layer: Layer,
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// One sentence about it.
    pub about: &'static str,
}

/// Every layer this build knows.
pub const ALL: &[Info] = &[
    Info { layer: Layer::Shm, name: "shm", about: "Viaduct between two processes, through shared memory" },
    Info {
        layer: Layer::Auto,
        name: "auto",
        about: "Viaduct between two processes, by whatever reaches the peer",
    },
    Info {
        layer: Layer::Ofi("ofi"),
        name: "ofi",
        about: "Viaduct between two processes, on the best that libfabric has",
    },
    Info {
        layer: Layer::Ofi("ofi:tcp"),
        name: "ofi:tcp",
        about: "Viaduct between two processes, on libfabric's TCP; any other of its providers likewise",
    },
    Info {
        layer: Layer::Loopback,
        name: "loopback",
        about: "Viaduct within one process: what the VIA model costs",
    },
    Info {
        layer: Layer::Raw,
        name: "raw",
        about: "bare cache line (latency) or ring of 64-byte slots in shared memory",
    },
    Info { layer: Layer::Copy, name: "copy", about: "bare single-copy loop; the receiver reads in place" },
    Info { layer: Layer::Unix, name: "unix", about: "Unix stream socket, blocking" },
    Info {
        layer: Layer::UnixSpin,
        name: "unix-spin",
        about: "Unix stream socket, non-blocking and spinning",
    },
    Info { layer: Layer::Pipe, name: "pipe", about: "two kernel pipes, one for each direction, blocking" },
    Info {
        layer: Layer::Tcp,
        name: "tcp",
        about: "TCP over loopback, blocking (Nagle on in `rate`, off elsewhere)",
    },
    Info { layer: Layer::TcpSpin, name: "tcp-spin", about: "TCP over loopback, non-blocking and spinning" },
    Info { layer: Layer::TcpNagle, name: "tcp-nagle", about: "TCP over loopback, blocking, Nagle on" },
    Info { layer: Layer::TcpNodelay, name: "tcp-nodelay", about: "TCP over loopback, blocking, Nagle off" },
];

impl Layer {
    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Ofi(name) => name,
            _ => self.info().name,
        }
    }

    /// One sentence about it.
    pub fn about(self) -> &'static str {
        self.info().about
    }

    /// The Viaduct provider behind it; `None` for a reference.
    pub fn provider(self) -> Option<&'static str> {
        match self {
            Layer::Shm => Some("shm"),
            Layer::Auto | Layer::Ofi(_) => Some(self.name()),
            Layer::Loopback => Some("loopback"),
            _ => None,
        }
    }

    /// How this layer waits when the user asked for `asked`: sockets have it in their name.
    pub fn wait(self, asked: Wait) -> Wait {
        match self {
            Layer::Shm | Layer::Auto | Layer::Ofi(_) | Layer::Loopback | Layer::Raw => asked,
            Layer::Copy | Layer::UnixSpin | Layer::TcpSpin => Wait::Poll,
            Layer::Unix | Layer::Pipe | Layer::Tcp | Layer::TcpNagle | Layer::TcpNodelay => Wait::Block,
        }
    }

    /// Bytes of the shared arena that it needs.
    pub(crate) fn arena_len(self, variant: &Variant) -> usize {
        match self {
            Layer::Raw => raw::arena_len(variant),
            Layer::Copy => copy::arena_len(variant),
            _ => 0,
        }
    }

    fn info(self) -> &'static Info {
        let own = ALL.iter().find(|info| info.layer == self);
        // A provider of libfabric that has no line of its own is described by the line of all.
        own.or_else(|| ALL.iter().find(|info| info.name == "ofi")).expect("every layer is in the list")
    }
}

impl FromStr for Layer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Layer> {
        if let Some(known) = ALL.iter().find(|info| info.name == text) {
            return Ok(known.layer);
        }
        if text.strip_prefix("ofi:").is_some_and(is_provider_name) {
            // A layer is copied around by value; the few names that a command line holds may stay for ever.
            return Ok(Layer::Ofi(Box::leak(text.into())));
        }
        let names: Vec<_> = ALL.iter().map(|info| info.name).collect();
        let hint = format!("known layers: {}; ofi:NAME for a provider of libfabric", names.join(", "));
        Err(Error::usage(format!("there is no layer `{text}`"), hint))
    }
}

/// Whether it can be the name of a provider of libfabric, as `fi_info` prints them: `verbs`, `tcp;ofi_rxm`.
fn is_provider_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-;".contains(c))
}

impl Serialize for Layer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Layer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Layer, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The second process' side of a layer before the first one has connected.
pub(crate) trait Door {
    /// What the first process needs in order to connect.
    fn address(&self) -> String;
    /// Waits for the first process.
    fn accept(self: Box<Self>) -> Result<Box<dyn End>>;
}

/// Refuses what cannot be had between two hosts.
fn reaches(layer: Layer, control: &Control) -> Result<()> {
    let far = matches!(
        layer,
        Layer::Auto | Layer::Ofi(_) | Layer::Tcp | Layer::TcpSpin | Layer::TcpNagle | Layer::TcpNodelay
    );
    if far || control.far().is_none() {
        return Ok(());
    }
    Err(Error::usage(
        format!("the layer {layer} does not leave its host"),
        "between hosts there are auto, ofi, ofi:NAME, and tcp with its variants",
    ))
}

/// Opens the second process' side.
pub(crate) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    reaches(variant.layer, control)?;
    match variant.layer {
        Layer::Shm | Layer::Auto | Layer::Ofi(_) => via::listen(variant, control),
        Layer::Loopback => loopback::listen(variant, control),
        Layer::Raw => raw::listen(variant, control),
        Layer::Copy => copy::listen(variant, control),
        Layer::Unix | Layer::UnixSpin => unix::listen(variant, control),
        Layer::Pipe => pipe::listen(variant, control),
        Layer::Tcp | Layer::TcpSpin | Layer::TcpNagle | Layer::TcpNodelay => tcp::listen(variant, control),
    }
}

/// Opens the first process' side.
pub(crate) fn connect(variant: &Variant, control: &Rc<Control>, address: &str) -> Result<Box<dyn End>> {
    match variant.layer {
        Layer::Shm | Layer::Auto | Layer::Ofi(_) => via::connect(variant, control, address),
        Layer::Loopback => loopback::connect(variant, control),
        Layer::Raw => raw::connect(variant, control),
        Layer::Copy => copy::connect(variant, control),
        Layer::Unix | Layer::UnixSpin => unix::connect(variant, control, address),
        Layer::Pipe => pipe::connect(variant, control, address),
        Layer::Tcp | Layer::TcpSpin | Layer::TcpNagle | Layer::TcpNodelay => {
            tcp::connect(variant, control, address)
        }
    }
}

/// A door with nothing behind it to wait for: layers that live in the shared arena.
pub(crate) struct OpenDoor(pub(crate) Box<dyn End>);

impl Door for OpenDoor {
    fn address(&self) -> String {
        String::new()
    }

    fn accept(self: Box<Self>) -> Result<Box<dyn End>> {
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_parse_back() {
        for info in ALL {
            assert_eq!(info.name.parse::<Layer>().unwrap(), info.layer);
            assert_eq!(serde_json::to_value(info.layer).unwrap(), info.name);
        }
        let verbs: Layer = "ofi:verbs".parse().unwrap();
        assert_eq!((verbs, verbs.provider()), (Layer::Ofi("ofi:verbs"), Some("ofi:verbs")));
        assert_eq!(verbs.about(), "ofi".parse::<Layer>().unwrap().about());
        assert_eq!(serde_json::from_str::<Layer>("\"ofi:verbs\"").unwrap(), verbs);
        assert!("ofi:".parse::<Layer>().is_err() && "ofi:a b".parse::<Layer>().is_err());
        let error = "carrier-pigeon".parse::<Layer>().unwrap_err();
        assert!(error.hint().unwrap().contains("shm, auto, ofi, ofi:tcp, loopback, raw"));
    }
}
