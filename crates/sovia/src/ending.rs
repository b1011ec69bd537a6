//! The end of the process: libraries that are still open are closed as if they were dropped.
//!
//! SOVIA, section 4.4. Statics and what other threads have are not dropped by `exit`; what they hold would be lost.

use std::sync::{Arc, Mutex, Once, Weak};

use viaduct_os::farewell;

use crate::library::Owner;

static OPEN: Mutex<Vec<Weak<Owner>>> = Mutex::new(Vec::new());

/// A library was opened.
pub(crate) fn remember(owner: &Arc<Owner>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        farewell::at_exit(finish_all);
    });
    let mut open = OPEN.lock().unwrap_or_else(|e| e.into_inner());
    open.retain(|library| library.strong_count() > 0);
    open.push(Arc::downgrade(owner));
}

extern "C" fn finish_all() {
    // Held by a thread that opens a library while the process exits.
    let Ok(mut open) = OPEN.try_lock() else { return };
    let open = std::mem::take(&mut *open);
    open.iter().filter_map(Weak::upgrade).for_each(|library| {
        library.finish();
        // What it has goes with the process; to take it apart while other threads use it would gain nothing.
        std::mem::forget(library);
    });
}
