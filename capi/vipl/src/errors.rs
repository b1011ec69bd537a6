//! Asynchronous errors: the program's handler, which runs on the library's thread.

use std::ffi::c_void;
use std::fmt::Display;
use std::ptr;
use std::sync::Arc;

use viaduct_via::{ErrorCode, ErrorEvent, SharedErrorHandler};

use crate::abi::{CDescriptor, CErrorDescriptor, Return};
use crate::code::{coded, done};
use crate::handle::{Handle, Kind};
use crate::nic::default_handler;
use crate::nics::{self, NicObject};

/// A program's handler.
pub type Handler = unsafe extern "C" fn(*mut c_void, *mut CErrorDescriptor);

const RESOURCE_VI: i32 = 1;
const RESOURCE_DESCRIPTOR: i32 = 3;

/// Sets the handler of asynchronous errors; NULL goes back to logging them.
///
/// # Safety
/// `handler` may be called with `context` until another one is set, or the NIC is closed.
pub unsafe extern "C" fn vip_error_callback(
    nic: Handle,
    context: *mut c_void,
    handler: Option<Handler>,
) -> Return {
    let context = context as usize;
    let set = || {
        let object = nics::open(nic)?;
        let told = handler.map(|handler| -> SharedErrorHandler {
            Arc::new(move |_, event| {
                let mut told = descriptor(object, event);
                // SAFETY: by the promise of whoever set the handler.
                unsafe { handler(context as *mut c_void, &raw mut told) }
            })
        });
        // Errors are kept for the library's thread, or told to the default handler at once.
        object.enter()?.nic.on_error(if told.is_some() { None } else { Some(default_handler()) });
        object.shared.on_error(told).map_err(coded)
    };
    done(set())
}

/// An error in words.
pub(crate) fn text(event: &ErrorEvent) -> impl Display {
    event.code
}

fn descriptor(object: &NicObject, event: &ErrorEvent) -> CErrorDescriptor {
    let of_descriptor = matches!(event.code, ErrorCode::BadDescriptor | ErrorCode::Overrun);
    CErrorDescriptor {
        nic_handle: object.handle(),
        vi_handle: object.name(Kind::Vi, event.vi.raw()).unwrap_or(Handle::NULL),
        cq_handle: Handle::NULL,
        descriptor: if of_descriptor { event.context as *mut CDescriptor } else { ptr::null_mut() },
        op_code: 0,
        resource_code: if event.code == ErrorCode::BadDescriptor { RESOURCE_DESCRIPTOR } else { RESOURCE_VI },
        error_code: number(event.code),
    }
}

/// The error's number in the interface.
fn number(code: ErrorCode) -> i32 {
    match code {
        ErrorCode::BadDescriptor => 0,
        ErrorCode::ConnectionLost => 1,
        ErrorCode::ReceiveQueueEmpty => 2,
        ErrorCode::Overrun => 3,
        ErrorCode::RdmaWriteProtection => 4,
        ErrorCode::CompletionProtection => 8,
        ErrorCode::Transport => 9,
        // What was not foreseen.
        _ => 10,
    }
}
