//! `shm`: Viaduct between two processes, through the same calls that a program makes.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use viaduct_via::{Listener, NetAddress, Nic, ProtectionTag};

use crate::control::{Control, Patience};
use crate::error::{Error, Result};
use crate::layers::Door;
use crate::layers::half::{Half, Side, failure};
use crate::loops::{End, Looped, Wire};
use crate::plan::{Motion, Variant};

/// Both processes are ours and alive, so a connection that takes longer has failed.
const CONNECT_TIMEOUT: Option<Duration> = Some(Duration::from_secs(20));

pub(super) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let layer = variant.layer.name();
    let name = format!("bench-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let address = NetAddress::local(&name).map_err(|e| failure(layer, &e))?;
    let (mut nic, tag) = open(variant, control)?;
    let listener = nic.listen(&address, 16).map_err(|e| failure(layer, &e))?;
    Ok(Box::new(Listening {
        nic,
        tag,
        listener,
        name,
        variant: variant.clone(),
        patience: control.patience(),
    }))
}

pub(super) fn connect(variant: &Variant, control: &Rc<Control>, name: &str) -> Result<Box<dyn End>> {
    let layer = variant.layer.name();
    let address: NetAddress = name.parse().map_err(|e| failure(layer, &e))?;
    let (mut nic, tag) = open(variant, control)?;
    let mut halves = Vec::with_capacity(variant.connections);
    for _ in 0..variant.connections {
        let half = Half::create(&mut nic, tag, variant, Side::Lead, control.patience())?;
        nic.connect_request(half.vi(), &address, CONNECT_TIMEOUT).map_err(|e| failure(layer, &e))?;
        halves.push(half);
    }
    Ok(end(nic, halves, variant))
}

/// Opens a NIC on the variant's provider, with a protection tag.
pub(super) fn open(variant: &Variant, control: &Control) -> Result<(Nic, ProtectionTag)> {
    let layer = variant.layer.name();
    let name = variant.layer.provider().unwrap_or(layer);
    let provider = viaduct_providers::open(name, control.providers()).map_err(|e| failure(layer, &e))?;
    let mut nic = Nic::open(provider).map_err(|e| failure(layer, &e))?;
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

struct Listening {
    nic: Nic,
    tag: ProtectionTag,
    listener: Listener,
    name: String,
    variant: Variant,
    patience: Patience,
}

impl Door for Listening {
    fn address(&self) -> String {
        self.name.clone()
    }

    fn accept(self: Box<Self>) -> Result<Box<dyn End>> {
        let Listening { mut nic, tag, listener, variant, patience, .. } = *self;
        let layer = variant.layer.name();
        let mut halves = Vec::with_capacity(variant.connections);
        for _ in 0..variant.connections {
            let half = Half::create(&mut nic, tag, &variant, Side::Follow, patience.clone())?;
            let request = nic.wait_listener(listener, CONNECT_TIMEOUT).map_err(|e| failure(layer, &e))?;
            nic.accept(request, half.vi()).map_err(|(e, _)| failure(layer, &e))?;
            halves.push(half);
        }
        nic.unlisten(listener).map_err(|e| failure(layer, &e))?;
        Ok(end(nic, halves, &variant))
    }
}

/// The last VI is used, the others stay connected and idle.
fn end(nic: Nic, mut halves: Vec<Half>, variant: &Variant) -> Box<dyn End> {
    let half = halves.pop().expect("at least one connection");
    match variant.motion {
        Motion::PingPong => {
            Box::new(Looped::new(Connected::<false> { half, _idle: halves, nic }, variant.motion))
        }
        Motion::Stream => {
            Box::new(Looped::new(Connected::<true> { half, _idle: halves, nic }, variant.motion))
        }
    }
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
