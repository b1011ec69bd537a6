//! The layers that can be measured: Viaduct's providers and the references they are held against.
//!
//! | layer | what it is |
//! |---|---|
//! | `shm`, `auto`, `via:ofi`, `via:ofi:NAME`, `loopback` | Viaduct itself, by that provider |
//! | `ofi`, `ofi:NAME` | libfabric without Viaduct |
//! | `raw` | a bare cache line or ring in shared memory: the physical limit |
//! | `copy` | a bare single-copy loop between two processes: the limit of bandwidth |
//! | `unix`, `tcp` and variants, `pipe` | the kernel's sockets and pipes |
//!
//! A layer is chosen by value when it is opened. Timed loops are written once, in `loops.rs`, and compiled for
//! every layer apart, so there is no dynamic call for a message. Providers come from their own list
//! ([`viaduct_providers::KNOWN`]). To add a reference: one file here that implements `Wire`, one line in `REFERENCES`,
//! one arm in `listen`, `connect` and `arena_len`.

pub(crate) mod cold;
mod copy;
pub(crate) mod credit;
pub(crate) mod half;
pub(crate) mod heap;
pub(crate) mod interrupt;
pub(crate) mod lent;
mod loopback;
pub(crate) mod ofi;
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
use viaduct_providers::{KNOWN, Known, Span};

use crate::control::Control;
use crate::error::{Error, Result};
use crate::layers::way::MemoryWay;
use crate::loops::End;
use crate::plan::{Motion, Variant, Wait};

/// Something that carries messages between the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layer {
    /// Viaduct by one of its providers, which is called as the provider; one whose name a reference has is `via:NAME`,
    /// so `via:ofi` on the best that libfabric has and `via:ofi:NAME` on one of its providers.
    Via(&'static str),
    /// libfabric itself: `ofi` on the best that it has, `ofi:NAME` on one of its providers.
    Fabric(&'static str),
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
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The layer.
    pub layer: Layer,
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// One sentence about it.
    pub about: &'static str,
}

/// Every layer this build knows: Viaduct by each of its providers, then the references.
pub fn all() -> impl Iterator<Item = Info> {
    let ours = KNOWN.iter().map(|known| {
        let layer = Layer::by(known.name);
        Info { layer, name: layer.name(), about: known.about }
    });
    ours.chain(REFERENCES.iter().copied())
}

/// What Viaduct is held against.
const REFERENCES: &[Info] = &[
    Info {
        layer: Layer::Fabric("ofi"),
        name: "ofi",
        about: "libfabric itself, without Viaduct: the best that it has, or what --provider ofi:NAME names",
    },
    Info {
        layer: Layer::Fabric("ofi:tcp"),
        name: "ofi:tcp",
        about: "libfabric itself, its TCP; any other of its providers likewise",
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
            Layer::Via(name) | Layer::Fabric(name) => name,
            _ => self.reference().name,
        }
    }

    /// One sentence about it.
    pub fn about(self) -> &'static str {
        self.known().map_or_else(|| self.reference().about, |known| known.about)
    }

    /// The Viaduct provider behind it; `None` for a reference.
    pub fn provider(self) -> Option<&'static str> {
        let Layer::Via(name) = self else { return None };
        Some(name.strip_prefix(VIA).unwrap_or(name))
    }

    /// The layer that is Viaduct by this provider.
    pub fn of_provider(name: &str) -> Result<Layer> {
        let of_libfabric = name.strip_prefix("ofi:").is_none_or(is_provider_name);
        if of_libfabric && viaduct_providers::find(name).is_some() {
            return Ok(Layer::by(name));
        }
        let known: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
        let hint = format!("known providers: {}; ofi:NAME for a provider of libfabric", known.join(", "));
        Err(Error::usage(format!("there is no provider `{name}`"), hint))
    }

    /// Viaduct by this provider, which is there.
    fn by(provider: &str) -> Layer {
        let base = provider.split(':').next().unwrap_or(provider);
        let is_taken = REFERENCES.iter().any(|info| info.name == base);
        let name = if is_taken { format!("{VIA}{provider}") } else { provider.to_owned() };
        // A layer is copied around by value; the few names that a command line holds may stay for ever.
        Layer::Via(name.leak())
    }

    /// What the providers say about this one; `None` for a reference.
    fn known(self) -> Option<&'static Known> {
        self.provider().and_then(viaduct_providers::find)
    }

    /// Whether it is a provider that has both ends in one process.
    pub(crate) fn is_one_process(self) -> bool {
        self.known().is_some_and(|known| known.span == Span::Process)
    }

    /// Whether it is a provider with the settings of shared memory.
    fn has_shm(self) -> bool {
        matches!(self.provider(), Some("shm" | "auto"))
    }

    /// How this layer waits when the user asked for `asked`: sockets have it in their name.
    pub fn wait(self, asked: Wait) -> Wait {
        match self {
            Layer::Via(_) | Layer::Fabric(_) | Layer::Raw => asked,
            Layer::Copy | Layer::UnixSpin | Layer::TcpSpin => Wait::Poll,
            Layer::Unix | Layer::Pipe | Layer::Tcp | Layer::TcpNagle | Layer::TcpNodelay => Wait::Block,
        }
    }

    /// Whether the kernel carries the bytes: sockets and pipes.
    pub(crate) fn is_kernel(self) -> bool {
        match self {
            Layer::Unix | Layer::UnixSpin | Layer::Pipe => true,
            Layer::Tcp | Layer::TcpSpin | Layer::TcpNagle | Layer::TcpNodelay => true,
            Layer::Via(_) | Layer::Fabric(_) | Layer::Raw | Layer::Copy => false,
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

    /// The line of a reference. A provider of libfabric that has none of its own is described by the line of all.
    fn reference(self) -> &'static Info {
        let own = REFERENCES.iter().find(|info| info.layer == self);
        own.or_else(|| REFERENCES.iter().find(|info| info.layer == Layer::Fabric("ofi")))
            .expect("it has a line")
    }
}

impl FromStr for Layer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Layer> {
        if let Some(known) = all().find(|info| info.name == text) {
            return Ok(known.layer);
        }
        if text.strip_prefix("ofi:").is_some_and(is_provider_name) {
            return Ok(Layer::Fabric(text.to_owned().leak()));
        }
        if let Some(provider) = text.strip_prefix(VIA) {
            return Layer::of_provider(provider);
        }
        let names: Vec<_> = all().map(|info| info.name).collect();
        let hint =
            format!("known layers: {}; ofi:NAME, via:ofi:NAME for a provider of libfabric", names.join(", "));
        Err(Error::usage(format!("there is no layer `{text}`"), hint))
    }
}

/// Stands before the name of a provider that is meant as Viaduct, where another layer has that name.
const VIA: &str = "via:";

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
    let far = match layer {
        Layer::Via(_) => layer.known().is_some_and(|known| known.span == Span::Network),
        Layer::Fabric(_) => true,
        Layer::Tcp | Layer::TcpSpin | Layer::TcpNagle | Layer::TcpNodelay => true,
        Layer::Raw | Layer::Copy | Layer::Unix | Layer::UnixSpin | Layer::Pipe => false,
    };
    if far || control.far().is_none() {
        return Ok(());
    }
    Err(Error::usage(
        format!("the layer {layer} does not leave its host"),
        "between hosts there are auto, ofi and via:ofi, and tcp with its variants",
    ))
}

/// Opens the second process' side.
pub(crate) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    reaches(variant.layer, control)?;
    match variant.layer {
        layer if layer.is_one_process() => loopback::listen(variant, control),
        Layer::Via(_) => via::listen(variant, control),
        Layer::Fabric(_) => ofi::listen(variant, control),
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
        layer if layer.is_one_process() => loopback::connect(variant, control),
        Layer::Via(_) => via::connect(variant, control, address),
        Layer::Fabric(_) => ofi::connect(variant, control, address),
        Layer::Raw => raw::connect(variant, control),
        Layer::Copy => copy::connect(variant, control),
        Layer::Unix | Layer::UnixSpin => unix::connect(variant, control, address),
        Layer::Pipe => pipe::connect(variant, control, address),
        Layer::Tcp | Layer::TcpSpin | Layer::TcpNagle | Layer::TcpNodelay => {
            tcp::connect(variant, control, address)
        }
    }
}

/// What a layer lacks that a variant is about, in words.
pub(crate) fn missing(variant: &Variant, control: &Control) -> Result<Option<String>> {
    let one_clock = variant.motion == Motion::OneWay || variant.arg("one-clock") == 1;
    if one_clock && control.far().is_some() {
        return Ok(Some("two hosts have no clock in common".into()));
    }
    match variant.layer {
        Layer::Fabric(_) => ofi::missing(variant, control),
        layer @ Layer::Via(_) if !layer.has_shm() && variant.args.contains_key("map-cache") => {
            Ok(Some(format!("no memory is mapped over {layer}, so there is no cache of mappings")))
        }
        layer @ Layer::Via(_) if !layer.has_shm() && MemoryWay::of(variant).0.is_private() => {
            Ok(Some(format!("over {layer} there is one way only, and none to choose")))
        }
        _ => Ok(None),
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
        for info in all() {
            assert_eq!(info.name.parse::<Layer>().unwrap(), info.layer);
            assert_eq!(serde_json::to_value(info.layer).unwrap(), info.name);
        }
        let verbs: Layer = "via:ofi:verbs".parse().unwrap();
        assert_eq!((verbs, verbs.provider()), (Layer::Via("via:ofi:verbs"), Some("ofi:verbs")));
        assert_eq!(verbs.about(), "via:ofi".parse::<Layer>().unwrap().about());
        assert_eq!(serde_json::from_str::<Layer>("\"via:ofi:verbs\"").unwrap(), verbs);
        let bare: Layer = "ofi:verbs".parse().unwrap();
        assert_eq!((bare, bare.provider()), (Layer::Fabric("ofi:verbs"), None), "not Viaduct");
        assert_eq!(bare.about(), "ofi".parse::<Layer>().unwrap().about());
        assert_eq!("via:shm".parse::<Layer>().unwrap(), Layer::Via("shm"));
        for wrong in ["ofi:", "ofi:a b", "via:ofi:", "via:raw", "via:via:shm", "via:"] {
            assert!(wrong.parse::<Layer>().is_err(), "{wrong}");
        }
        let error = "carrier-pigeon".parse::<Layer>().unwrap_err();
        // Ours by each provider, then the references.
        let hint = error.hint().unwrap();
        assert!(
            hint.contains("auto, shm, via:ofi, loopback, ") && hint.contains(", ofi, ofi:tcp, raw"),
            "{hint}"
        );
    }

    #[test]
    fn providers_are_viaduct() {
        for known in KNOWN {
            let layer = Layer::of_provider(known.name).unwrap();
            assert_eq!((layer.provider(), layer.about()), (Some(known.name), known.about));
            assert_eq!(format!("{VIA}{}", known.name).parse::<Layer>().unwrap(), layer);
        }
        assert_eq!(Layer::of_provider("shm").unwrap(), Layer::Via("shm"));
        assert!(Layer::Via("loopback").is_one_process() && !Layer::Via("shm").is_one_process());
        for name in ["ofi", "ofi:tcp", "ofi:verbs"] {
            let layer = Layer::of_provider(name).unwrap();
            assert_eq!((layer.provider(), layer.name().strip_prefix("via:")), (Some(name), Some(name)));
        }
        for wrong in ["raw", "tcp", "via:ofi", "ofi:", "pigeon"] {
            let error = Layer::of_provider(wrong).unwrap_err();
            assert!(error.hint().unwrap().contains("known providers: auto, shm, ofi"), "{wrong}");
        }
    }
}
