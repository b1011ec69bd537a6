//! SIGSEGV and SIGBUS of one window, chained in front of the handlers that were there before.

use std::io;
use std::ops::Range;
use std::ptr;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::error::OsError;

/// What the program was about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// This processor does not say.
    Unknown,
}

/// Catches a fault at an address of the window; whether it was dealt with, so that the program goes on.
pub type Catch = fn(address: usize, access: Access) -> bool;

/// Ends the process, or says false: what was there before gets the signal.
pub type Lacking = fn(address: usize) -> bool;

static TAKEN: AtomicBool = AtomicBool::new(false);
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
static CATCH: AtomicUsize = AtomicUsize::new(0);
/// What was there before for SIGSEGV and SIGBUS.
static BEFORE: OnceLock<[libc::sigaction; 2]> = OnceLock::new();

/// The window is served until this is dropped.
#[derive(Debug)]
pub struct Serving(());

impl Drop for Serving {
    fn drop(&mut self) {
        END.store(0, Ordering::Release);
        TAKEN.store(false, Ordering::Release);
    }
}

/// Hands faults at these addresses to `catch`, in this process, from now on.
///
/// The handlers stay installed: what is not of a window goes to the ones that were there before.
///
/// # Errors
/// [`OsError::BadPlace`] if another window of the process is served; the kernel's.
pub fn serve(addresses: Range<usize>, catch: Catch) -> Result<Serving, OsError> {
    if TAKEN.swap(true, Ordering::AcqRel) {
        let len = addresses.len();
        return Err(OsError::BadPlace {
            addr: addresses.start,
            len,
            why: "another window of this process is served",
        });
    }
    let serving = Serving(());
    install()?;
    CATCH.store(catch as usize, Ordering::Release);
    START.store(addresses.start, Ordering::Release);
    END.store(addresses.end, Ordering::Release);
    Ok(serving)
}

/// Puts the handler in front of those that are there, once in a process.
fn install() -> Result<(), OsError> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if BEFORE.get().is_none() {
        let before = [action(libc::SIGSEGV, None)?, action(libc::SIGBUS, None)?];
        let _ = BEFORE.set(before);
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: an all-zero sigaction is valid: no flags, an empty mask.
            let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
            ours.sa_sigaction = on_fault as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            action(signal, Some(&ours))?;
        }
    }
    Ok(())
}

/// Memory that may turn out not to be there. All zeroes: a free place.
struct Promise {
    taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    lacking: AtomicUsize,
}

static PROMISES: [Promise; 32] = [const {
    Promise {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        lacking: AtomicUsize::new(0),
    }
}; 32];

/// A range of sparse memory, watched until this is dropped.
#[derive(Debug)]
pub struct Promised(usize);

impl Drop for Promised {
    fn drop(&mut self) {
        let promise = &PROMISES[self.0];
        promise.end.store(0, Ordering::Release);
        promise.taken.store(false, Ordering::Release);
    }
}

/// Calls `lacking` for a SIGBUS at one of these addresses, which are sparse memory: the machine has none for it. A window that
/// is served by userfaultfd gets SIGBUS for other reasons and is none of them.
///
/// # Errors
/// [`OsError::BadPlace`] if too many ranges are watched; the kernel's.
pub fn promised(addresses: Range<usize>, lacking: Lacking) -> Result<Promised, OsError> {
    install()?;
    let free = PROMISES.iter().position(|promise| !promise.taken.swap(true, Ordering::AcqRel));
    let Some(at) = free else {
        let (addr, len) = (addresses.start, addresses.len());
        return Err(OsError::BadPlace { addr, len, why: "too many ranges of this process are watched" });
    };
    let promise = &PROMISES[at];
    promise.lacking.store(lacking as usize, Ordering::Release);
    promise.start.store(addresses.start, Ordering::Release);
    promise.end.store(addresses.end, Ordering::Release);
    Ok(Promised(at))
}

/// Whether memory that was promised is lacking at this address, and that was dealt with.
fn is_lacking(address: usize) -> bool {
    let inside = |promise: &&Promise| {
        address < promise.end.load(Ordering::Acquire) && address >= promise.start.load(Ordering::Acquire)
    };
    PROMISES.iter().find(inside).is_some_and(|promise| {
        // SAFETY: `promised` stored a function of this type before the addresses.
        let lacking: Lacking = unsafe { std::mem::transmute(promise.lacking.load(Ordering::Acquire)) };
        lacking(address)
    })
}

/// Sets the action of a signal, if there is a new one; gives the one before.
fn action(signal: libc::c_int, new: Option<&libc::sigaction>) -> Result<libc::sigaction, OsError> {
    // SAFETY: an all-zero sigaction is valid; the call reads one and writes the other.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: as above.
    match unsafe { libc::sigaction(signal, new, &raw mut old) } {
        0 => Ok(old),
        _ => Err(OsError::sys("sigaction", io::Error::last_os_error())),
    }
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo to a handler with SA_SIGINFO.
    if unsafe { (*info).si_code } <= 0 {
        return chain(signal, info, context, Cause::Sent);
    }
    // SAFETY: as above, and a fault has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    if signal == libc::SIGBUS && is_lacking(address) {
        return;
    }
    if address >= START.load(Ordering::Acquire) && address < END.load(Ordering::Acquire) {
        // SAFETY: errno of this thread; the interrupted code must find it unchanged.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: `serve` stored a function of this type before the addresses.
        let catch: Catch = unsafe { std::mem::transmute(CATCH.load(Ordering::Acquire)) };
        let caught = catch(address, access(context));
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        if caught {
            return;
        }
    }
    chain(signal, info, context, Cause::Fault);
}

/// Whether the fault was a store, as the processor said it.
#[cfg(target_arch = "x86_64")]
fn access(context: *mut libc::c_void) -> Access {
    const STORE: i64 = 1 << 1;
    // SAFETY: the kernel gives a valid ucontext to a handler with SA_SIGINFO.
    let code = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] };
    if code & STORE != 0 { Access::Write } else { Access::Read }
}

#[cfg(not(target_arch = "x86_64"))]
fn access(_: *mut libc::c_void) -> Access {
    Access::Unknown
}

/// Where a signal comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// An instruction, which is tried again after the handler.
    Fault,
    /// A process, by `kill`.
    Sent,
}

/// The signal is not ours: does what would have happened without us.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, cause: Cause) {
    let before = BEFORE.get().map(|both| both[usize::from(signal == libc::SIGBUS)]);
    let handler = before.map_or(libc::SIG_DFL, |old| old.sa_sigaction);
    if handler == libc::SIG_IGN && cause == Cause::Sent {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // The instruction faults again, and the kernel ends the process as it would have. What was sent comes only once.
        // SAFETY: an all-zero sigaction with the default handler is valid; sigaction and raise may be called in handlers, and
        // the signal is not blocked in this one.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &raw const default, ptr::null_mut());
            if cause == Cause::Sent {
                libc::raise(signal);
            }
        }
        return;
    }
    let with_info = before.is_some_and(|old| old.sa_flags & libc::SA_SIGINFO != 0);
    // SAFETY: the address of a handler that the program had installed, of the type that its flags say.
    unsafe {
        if with_info {
            let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            call(signal, info, context);
        } else {
            let call: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
            call(signal);
        }
    }
}

/// A stack for the signal handlers of the calling thread, with a guard page below it.
#[derive(Debug)]
pub struct Stack {
    at: usize,
}

/// Room for a fault function that talks to other nodes.
const STACK: usize = 256 * 1024;
const GUARD: usize = 64 * 1024;

impl Stack {
    /// Gives the calling thread a stack for signals until the value is dropped, on the same thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn install() -> Result<Stack, OsError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping somewhere, closed at first.
        let at = unsafe { libc::mmap(ptr::null_mut(), GUARD + STACK, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(OsError::sys("mmap", io::Error::last_os_error()));
        }
        let stack = Stack { at: at as usize };
        let base = (stack.at + GUARD) as *mut libc::c_void;
        let wanted = libc::stack_t { ss_sp: base, ss_flags: 0, ss_size: STACK };
        // SAFETY: the upper part of the mapping just made; the stack stays mapped until it is taken away in `drop`.
        let failed = unsafe {
            libc::mprotect(base, STACK, libc::PROT_READ | libc::PROT_WRITE) != 0
                || libc::sigaltstack(&raw const wanted, ptr::null_mut()) != 0
        };
        if failed { Err(OsError::sys("sigaltstack", io::Error::last_os_error())) } else { Ok(stack) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: the thread's alternate stack is this one (or disabling another's fails without harm), and no handler
        // runs on it while the thread runs this.
        unsafe {
            libc::sigaltstack(&raw const none, ptr::null_mut());
            libc::munmap(self.at as *mut libc::c_void, GUARD + STACK);
        }
    }
}
