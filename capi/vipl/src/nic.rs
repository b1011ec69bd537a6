//! NICs: open, close, query.

use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::ptr;

use viaduct_os::log;
use viaduct_via::{ErrorHandler, Nic, Reliability};

use crate::abi::{CNicAttributes, Return};
use crate::address::MAX_DISCRIMINATOR;
use crate::code::{code, done};
use crate::errors;
use crate::handle::{Handle, MOST_OBJECTS};
use crate::names::HOST_LEN;
use crate::nics::{self, NicObject};
use crate::settings::Settings;

/// Opens a device by name.
///
/// # Safety
/// `name` is NULL or a string; `out` is NULL or writable.
pub unsafe extern "C" fn vip_open_nic(name: *const c_char, out: *mut Handle) -> Return {
    if name.is_null() || out.is_null() {
        return Return::InvalidParameter;
    }
    // SAFETY: a string by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    done(open(&name).map(|handle| {
        // SAFETY: writable by the caller's promise.
        unsafe { out.write(handle) }
    }))
}

fn open(device: &str) -> Result<Handle, Return> {
    log::install_for_library("libvipl", std::env::var(log::VARIABLE).ok());
    // A program gets a code and no more, so the reason is printed for its user.
    let settings = Settings::from_environment().map_err(|reason| {
        eprintln!("vipl: {reason}");
        Return::ErrorResource
    })?;
    let Some(provider) = settings.provider_of(device).map(str::to_owned) else {
        return Err(Return::InvalidParameter);
    };
    let opened = viaduct_providers::open(&provider, &settings.providers)
        .and_then(|opened| Nic::open_with(opened, settings.providers.wait));
    let mut nic = opened.map_err(|error| {
        eprintln!("vipl: {device} ({provider}): {error}");
        code(&error)
    })?;
    nic.set_strict_receives(settings.strict_receives);
    nics::add(nic, settings, provider)
}

/// Without a handler of the program's, errors are logged, with the VI's handle as the program knows it.
pub(crate) fn default_handler(nic: u16) -> ErrorHandler {
    Box::new(move |event| eprintln!("{}", errors::line(nic, event)))
}

/// Closes a NIC; everything that belongs to it is gone.
pub extern "C" fn vip_close_nic(nic: Handle) -> Return {
    done(nics::open(nic).and_then(nics::close))
}

/// What a NIC offers.
///
/// # Safety
/// `out` is NULL or writable.
pub unsafe extern "C" fn vip_query_nic(nic: Handle, out: *mut CNicAttributes) -> Return {
    let object = match nics::open(nic) {
        Ok(object) if !out.is_null() => object,
        _ => return Return::InvalidParameter,
    };
    done(attributes(object).map(|attributes| {
        // SAFETY: writable by the caller's promise.
        unsafe { ptr::write(out, attributes) }
    }))
}

fn attributes(object: &'static NicObject) -> Result<CNicAttributes, Return> {
    let visit = object.enter()?;
    let a = visit.nic.attributes();
    let mut name = [0 as c_char; 64];
    let shown = format!("viaduct {}", object.provider);
    for (to, from) in name.iter_mut().take(63).zip(shown.bytes()) {
        *to = from as c_char;
    }
    let most = |n: usize| n.min(MOST_OBJECTS) as c_ulong;
    Ok(CNicAttributes {
        name,
        hardware_version: 0,
        provider_version: 1,
        nic_address_len: HOST_LEN as u16,
        local_nic_address: object.address_bytes.as_ptr(),
        thread_safe: c_int::from(true),
        max_discriminator_len: MAX_DISCRIMINATOR as u16,
        max_register_bytes: c_ulong::MAX,
        max_register_regions: a.max_register_regions as c_ulong,
        max_register_block_bytes: a.max_register_block_bytes as c_ulong,
        max_vi: most(a.max_vi),
        max_descriptors_per_queue: object.settings.depth as c_ulong,
        max_segments_per_desc: a.max_segments_per_desc as c_ulong,
        max_cq: most(a.max_cq),
        max_cq_entries: a.max_cq_entries as c_ulong,
        max_transfer_size: c_ulong::from(a.max_transfer_size),
        native_mtu: c_ulong::from(a.max_transfer_size),
        max_ptags: most(a.max_ptags),
        reliability_level_support: mask(a.reliability),
        rdma_read_support: mask(a.rdma_read),
    })
}

fn mask(levels: &[Reliability]) -> u16 {
    levels.iter().fold(0, |mask, level| mask | *level as u16)
}
