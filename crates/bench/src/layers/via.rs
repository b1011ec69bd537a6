//! Viaduct between two processes, through the same calls that a program makes.
//!
//! Both processes open a NIC and meet at an address; what is built on it (which VIs, which queues, which loop) is up to
//! the case: it gets a [`Place`] on either side and connects its VIs in the same order.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use viaduct_via::{Listener, NetAddress, Nic, ProtectionTag, Vi};

use crate::cases::Case;
use crate::control::{Control, Patience};
use crate::error::{Error, Result};
use crate::layers::half::{Half, Side, failure};
use crate::layers::way::MemoryWay;
use crate::layers::{Door, cold, interrupt};
use crate::loops::{End, Looped, Wire};
use crate::plan::Variant;

/// Both processes are ours and alive, so a connection that takes longer has failed.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Option<Duration> = Some(CONNECT_LIMIT);

pub(super) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let layer = variant.layer.name();
    let name = format!("bench-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let address = NetAddress::local(&name).map_err(|e| failure(layer, &e))?;
    let (mut nic, tag) = open(variant, control)?;
    let listener = nic.listen(&address, 16).map_err(|e| failure(layer, &e))?;
    let place = Place {
        nic,
        tag,
        side: Side::Follow,
        variant: variant.clone(),
        patience: control.patience(),
        control: control.clone(),
        route: Route::Answer(listener, name.clone()),
    };
    Ok(Box::new(ViListening { place, name }))
}

pub(super) fn connect(variant: &Variant, control: &Rc<Control>, name: &str) -> Result<Box<dyn End>> {
    let name = match control.far() {
        Some(host) => format!("{host}/{name}"),
        None => name.to_owned(),
    };
    let address: NetAddress = name.parse().map_err(|e| failure(variant.layer.name(), &e))?;
    let (nic, tag) = open(variant, control)?;
    build(Place {
        nic,
        tag,
        side: Side::Lead,
        variant: variant.clone(),
        patience: control.patience(),
        control: control.clone(),
        route: Route::Call(address),
    })
}

fn build(place: Place) -> Result<Box<dyn End>> {
    (Case::find(&place.variant.case)?.via)(place)
}

/// Opens a NIC on the variant's provider, with a protection tag.
pub(super) fn open(variant: &Variant, control: &Control) -> Result<(Nic, ProtectionTag)> {
    let layer = variant.layer.name();
    let name = variant.layer.provider().unwrap_or(layer);
    let mut config = control.providers().clone();
    if let Some(slabs) = variant.args.get("map-cache") {
        config.shm.map_cache = *slabs as usize;
    }
    MemoryWay::of(variant).0.force(&mut config.shm);
    let provider = viaduct_providers::open(name, &config).map_err(|e| failure(layer, &e))?;
    let mut nic = Nic::open_with(provider, config.wait).map_err(|e| failure(layer, &e))?;
    let limit = nic.attributes().max_transfer_size;
    if u32::try_from(variant.size).is_err() || variant.size as u32 > limit {
        return Err(Error::usage(
            format!("provider {name} moves at most {limit} bytes in one message"),
            "use smaller --sizes",
        ));
    }
    let tag = nic.create_ptag().map_err(|e| failure(layer, &e))?;
    Ok((nic, tag))
}

/// One side of a variant on a provider: an open NIC, and the way to the other side.
pub(crate) struct Place {
    pub(crate) nic: Nic,
    pub(crate) tag: ProtectionTag,
    pub(crate) side: Side,
    pub(crate) variant: Variant,
    pub(crate) patience: Patience,
    pub(crate) control: Rc<Control>,
    route: Route,
}

enum Route {
    Call(NetAddress),
    Answer(Listener, String),
}

/// How the two sides meet once more, for layers that take the NIC over: by name.
pub(crate) enum Meeting {
    Call(String),
    Answer(String),
}

impl Place {
    /// Connects a VI with the one that the other side joins with as its next; hands over a few bytes and gets some.
    pub(crate) fn join(&mut self, vi: Vi, ours: &[u8]) -> Result<Vec<u8>> {
        let layer = self.variant.layer.name();
        let failed = |e: viaduct_via::Error| failure(layer, &e);
        match &self.route {
            Route::Call(address) => {
                self.nic.connect_start(vi, None, address, ours, CONNECT_TIMEOUT).map_err(failed)?;
                Ok(self.nic.connect_finish(vi).map_err(failed)?.private_data)
            }
            Route::Answer(listener, _) => {
                let request = self.nic.wait_listener(*listener, CONNECT_TIMEOUT).map_err(failed)?;
                let theirs = request.remote().private_data.clone();
                self.nic.accept_with(request, vi, ours).map_err(|e| failed(e.error))?;
                Ok(theirs)
            }
        }
    }

    /// Gives the NIC away. The name is free again.
    pub(crate) fn meet_again(mut self) -> Result<(Nic, Meeting)> {
        let meeting = match self.route {
            Route::Call(address) => Meeting::Call(address.to_string()),
            Route::Answer(listener, name) => {
                let layer = self.variant.layer.name();
                self.nic.unlisten(listener).map_err(|e| failure(layer, &e))?;
                Meeting::Answer(name)
            }
        };
        Ok((self.nic, meeting))
    }

    /// What a VIA call said, as an error of this crate.
    pub(crate) fn failed(&self, error: &viaduct_via::Error) -> Error {
        failure(self.variant.layer.name(), error)
    }
}

struct ViListening {
    place: Place,
    name: String,
}

impl Door for ViListening {
    fn address(&self) -> String {
        self.name.clone()
    }

    fn accept(self: Box<Self>) -> Result<Box<dyn End>> {
        build(self.place)
    }
}

/// The plain end: as many connections as asked for, of which the last one is used and the others stay idle.
pub(crate) fn plain(mut place: Place) -> Result<Box<dyn End>> {
    if place.variant.arg("interrupt") == 1 {
        return interrupt::end(place);
    }
    if place.variant.arg("cold") > 0 {
        return cold::end(place);
    }
    let connections = place.variant.connections;
    let mut halves = open_vis(&mut place, connections)?;
    let half = halves.pop().expect("at least one connection");
    let Place { nic, variant, .. } = place;
    Ok(if variant.motion.is_stream() {
        Box::new(Looped::new(Connected::<true> { half, _idle: halves, nic }, &variant))
    } else {
        Box::new(Looped::new(Connected::<false> { half, _idle: halves, nic }, &variant))
    })
}

/// So many connected VIs with their receives posted.
pub(crate) fn open_vis(place: &mut Place, count: usize) -> Result<Vec<Half>> {
    let mut open = || {
        let half =
            Half::create(&mut place.nic, place.tag, &place.variant, place.side, place.patience.clone())?;
        place.join(half.vi(), &[])?;
        Ok(half)
    };
    (0..count).map(|_| open()).collect()
}

struct Connected<const STREAM: bool> {
    half: Half,
    _idle: Vec<Half>,
    nic: Nic,
}

impl<const STREAM: bool> Wire for Connected<STREAM> {
    #[inline(always)]
    fn send<const CHECK: bool>(&mut self, seq: u64) -> Result<()> {
        self.half.send::<STREAM, CHECK>(&mut self.nic, seq)
    }

    #[inline(always)]
    fn recv<const CHECK: bool>(&mut self, seq: u64) -> Result<u64> {
        self.half.recv::<STREAM, CHECK>(&mut self.nic, seq)
    }

    fn acknowledge(&mut self) -> Result<()> {
        self.half.acknowledge(&mut self.nic)
    }

    fn wait_acknowledged(&mut self) -> Result<()> {
        self.half.wait_acknowledged(&mut self.nic)
    }
}
