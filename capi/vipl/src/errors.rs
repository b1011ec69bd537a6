//! Asynchronous errors: the program's handler, which runs on the library's thread.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use viaduct_via::{ErrorCode, ErrorEvent, SharedErrorHandler};

use crate::abi::{CDescriptor, CErrorDescriptor, Return};
use crate::code::{coded, done};
use crate::handle::{Handle, Kind};
use crate::nic::default_handler;
use crate::nics::{self, Body, NicObject};

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
        let told = handler.map(|handler| -> SharedErrorHandler<Body> {
            Arc::new(move |_, event| {
                let mut told = descriptor(object, event);
                // SAFETY: by the promise of the caller that set the handler.
                unsafe { handler(context as *mut c_void, &raw mut told) }
            })
        });
        // Errors are kept for the library's thread, or told to the default handler at once.
        let logged = told.is_none().then(|| default_handler(object.number));
        object.enter()?.nic.on_error(logged);
        object.shared.on_error(told).map_err(coded)
    };
    done(set())
}

/// An error in a line for the log: the VI's handle as the program has it, the descriptor if one is to blame, the cause,
/// and for what only a changed program mends, a hint.
pub(crate) fn line(nic: u16, event: &ErrorEvent) -> String {
    let vi = Handle::new(Kind::Vi, nic, event.vi.raw()).unwrap_or(Handle::NULL);
    let mut line = format!("vipl: VI {:#x}: ", vi.bits());
    if event.context != 0 {
        line += &format!("descriptor {:#x}: ", event.context);
    }
    line += &event.code.to_string();
    line += match event.code {
        ErrorCode::ReceiveQueueEmpty => "; post receives before the peer sends",
        ErrorCode::TooLong => "; post longer receives, or send less",
        ErrorCode::ReceiveProtection => "; register all of the memory that the receive names",
        ErrorCode::Overrun => "; VIADUCT_VIPL_QUEUE_DEPTH makes queues longer",
        ErrorCode::BadDescriptor => "; descriptors lie aligned in registered memory",
        _ => "",
    };
    line
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
        ErrorCode::TooLong | ErrorCode::ReceiveProtection | ErrorCode::BadReceive => 8,
        ErrorCode::Transport => 9,
        // What was not foreseen.
        _ => 10,
    }
}

#[cfg(test)]
mod tests {
    use viaduct_via::Vi;
    use viaduct_via::handle::RawHandle;

    use super::*;

    #[test]
    fn a_line_of_the_log_names_handle_cause_and_remedy() {
        let vi = Vi::from_raw(RawHandle { index: 0, generation: 0x1234_5678 });
        let event = ErrorEvent { vi, code: ErrorCode::ReceiveProtection, context: 0 };
        let line = line(3, &event);
        assert!(line.starts_with("vipl: VI 0x123456780000001a: "), "{line}");
        assert!(line.contains("beyond its memory region") && line.contains("register all"), "{line}");
        let event = ErrorEvent { vi, code: ErrorCode::BadDescriptor, context: 0x7000 };
        assert!(super::line(3, &event).contains("descriptor 0x7000"));
    }
}
