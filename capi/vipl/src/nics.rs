//! The NICs that are open, and how a call gets at one.
//!
//! An object is never freed, only emptied: a thread that holds the handle of a NIC which another thread closes finds it
//! closed, and nothing worse. What stays is some 6 KiB for each VipOpenNic, the page of its bell among them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use viaduct_os::fork;
use viaduct_via::handle::RawHandle;
use viaduct_via::{Buffer, ConnRequest, Nic, NicGuard, ProtectionTag, SharedNic};

use crate::abi::Return;
use crate::code::coded;
use crate::handle::{Handle, Kind, MOST_NICS};
use crate::names::{HOST_LEN, NodeAddress};
use crate::nic::default_handler;
use crate::settings::Settings;
use crate::vi::ViBody;

/// One opened NIC.
pub(crate) struct NicObject {
    pub(crate) shared: SharedNic<Body>,
    pub(crate) number: u16,
    generation: u32,
    fork: u32,
    pub(crate) settings: Settings,
    /// Name of the provider.
    pub(crate) provider: String,
    /// Whether that reaches other hosts.
    pub(crate) beyond_host: bool,
    pub(crate) address: NodeAddress,
    /// The bytes of `address`, which the program may read for as long as the process lives.
    pub(crate) address_bytes: [u8; HOST_LEN],
}

/// What the library keeps beside the model. The thread that has the NIC has it.
#[derive(Default)]
pub(crate) struct Body {
    /// By index of the model's table.
    pub(crate) vis: Vec<Option<ViBody>>,
    /// By memory handle.
    pub(crate) regions: HashMap<u32, Buffer>,
    /// By handle.
    pub(crate) requests: HashMap<u64, ConnRequest>,
    /// Whether the name service was started.
    pub(crate) names: bool,
    /// What QuerySystemManagementInfo gave out.
    pub(crate) discovered: Vec<[u64; 2]>,
    pub(crate) discovered_list: Vec<usize>,
}

/// A call that has the NIC.
pub(crate) struct Visit {
    pub(crate) nic: NicGuard<'static, Body>,
    pub(crate) object: &'static NicObject,
}

static NICS: [AtomicPtr<NicObject>; MOST_NICS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_NICS];
/// Closed ones: kept, since a thread may be on its way to one.
static CLOSED: Mutex<Vec<&'static NicObject>> = Mutex::new(Vec::new());

/// Opens a NIC on what `make` gives.
pub(crate) fn add(mut nic: Nic, settings: Settings, provider: String) -> Result<Handle, Return> {
    let _one_at_a_time = CLOSED.lock().unwrap_or_else(|e| e.into_inner());
    let free = NICS.iter().position(|slot| slot.load(Ordering::Relaxed).is_null());
    let place = free.ok_or(Return::ErrorResource)?;
    let number = u16::try_from(place).map_err(|_| Return::ErrorResource)?;
    nic.on_error(Some(default_handler(number)));
    let beyond_host = nic.attributes().beyond_host;
    let address = settings.nodes.own(beyond_host);
    let object = NicObject {
        shared: SharedNic::with_value(nic, Body::default()),
        number,
        generation: viaduct_os::random::u32(),
        fork: fork::generation(),
        settings,
        provider,
        beyond_host,
        address,
        address_bytes: address.to_bytes(),
    };
    let handle = object.handle();
    NICS[place].store(Box::into_raw(Box::new(object)), Ordering::Release);
    Ok(handle)
}

/// The NIC with this number, as other handles have it.
#[inline]
pub(crate) fn find(number: u16) -> Result<&'static NicObject, Return> {
    let object = NICS.get(usize::from(number)).ok_or(Return::InvalidParameter)?.load(Ordering::Acquire);
    // SAFETY: null, or a box that is never freed.
    let object = unsafe { object.as_ref() }.ok_or(Return::InvalidParameter)?;
    // What a forked child inherits is its parent's, and a thread of that may have held its lock.
    if object.fork == fork::generation() { Ok(object) } else { Err(Return::InvalidParameter) }
}

/// The NIC of a handle.
#[inline]
pub(crate) fn open(handle: Handle) -> Result<&'static NicObject, Return> {
    let (number, raw) = handle.open(Kind::Nic).ok_or(Return::InvalidParameter)?;
    let object = find(number)?;
    if raw.index == 0 && raw.generation == object.generation {
        Ok(object)
    } else {
        Err(Return::InvalidParameter)
    }
}

/// Closes a NIC.
pub(crate) fn close(object: &'static NicObject) -> Result<(), Return> {
    object.shared.close().map_err(coded)?;
    let mut closed = CLOSED.lock().unwrap_or_else(|e| e.into_inner());
    NICS[usize::from(object.number)].store(std::ptr::null_mut(), Ordering::Release);
    closed.push(object);
    Ok(())
}

impl NicObject {
    pub(crate) fn handle(&self) -> Handle {
        let raw = RawHandle { index: 0, generation: self.generation };
        Handle::new(Kind::Nic, self.number, raw).expect("the number of a place in the table")
    }

    /// Takes the NIC.
    #[inline]
    pub(crate) fn enter(&'static self) -> Result<Visit, Return> {
        let nic = self.shared.try_lock().map_err(coded)?;
        Ok(Visit { nic, object: self })
    }

    /// Does something with NIC and body.
    #[inline(always)]
    pub(crate) fn visit(&'static self, act: impl FnOnce(&mut Nic, &mut Body) -> Return) -> Return {
        self.shared.with_both(act).unwrap_or(Return::InvalidParameter)
    }

    /// The handle of something that belongs to this NIC.
    pub(crate) fn name(&self, kind: Kind, raw: RawHandle) -> Result<Handle, Return> {
        Handle::new(kind, self.number, raw).ok_or(Return::ErrorResource)
    }

    /// What a handle names, if it is of this kind and this NIC.
    #[inline]
    pub(crate) fn own(&self, handle: Handle, kind: Kind) -> Option<RawHandle> {
        handle.open(kind).filter(|(number, _)| *number == self.number).map(|(_, raw)| raw)
    }

    /// The tag of a handle. Whether there is such a tag, the model knows.
    pub(crate) fn tag(&self, handle: Handle) -> Result<ProtectionTag, Return> {
        if handle.is_null() && !self.settings.strict {
            return Ok(ProtectionTag::ANY);
        }
        self.own(handle, Kind::Ptag).map(ProtectionTag::from_raw).ok_or(Return::InvalidPtag)
    }

    /// The handle of a tag.
    pub(crate) fn tag_handle(&self, tag: ProtectionTag) -> Handle {
        if tag == ProtectionTag::ANY {
            return Handle::NULL;
        }
        Handle::new(Kind::Ptag, self.number, tag.raw()).unwrap_or(Handle::NULL)
    }
}

impl Visit {
    /// NIC and body.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut Nic, &mut Body) {
        self.nic.both()
    }
}
