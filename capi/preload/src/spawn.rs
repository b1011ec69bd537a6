//! exec and its kin, spawning, and the end of the process: before a program starts that will not load the library, what it
//! inherits is moved back to TCP.
//!
//! The kernel's exec is called by the instruction. Functions of libc that search, spawn or wait are libc's own, found when the
//! library was loaded, or when they are first called. Those with a list of arguments push it as an array and go on as those
//! with an array.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{FILE, c_char, c_int, pid_t};
use viaduct_intercept::{carry, descriptors, epoll, settings, shared};
use viaduct_os::bare::{Errno, files, syscall};

use crate::give_int;

type Words = *const *const c_char;

unsafe extern "C" {
    static environ: Words;
}

/// Part of the library's name, by which it is known in `LD_PRELOAD`.
const OURS: &[u8] = b"sovia_preload";

/// Functions of libc and liburing that ours end in.
const NAMES: [&CStr; 27] = [
    c"execvpe",
    c"posix_spawn",
    c"posix_spawnp",
    c"system",
    c"popen",
    c"posix_spawn_file_actions_adddup2",
    c"io_uring_queue_init",
    c"io_uring_queue_init_params",
    c"io_uring_setup",
    c"fork",
    c"daemon",
    c"io_uring_queue_init_mem",
    c"sigaction",
    c"__sigaction",
    c"signal",
    c"ssignal",
    c"bsd_signal",
    c"sysv_signal",
    c"__sysv_signal",
    c"sigset",
    c"siginterrupt",
    c"login_tty",
    c"forkpty",
    c"longjmp",
    c"_longjmp",
    c"siglongjmp",
    c"__longjmp_chk",
];
/// The place of the first that sets a handler.
pub(crate) const SIGNALS: usize = 12;
/// The place of the first that jumps.
pub(crate) const JUMPS: usize = 23;
/// Where a program finds those of liburing if it does not name that library itself.
const LIBURING: [&CStr; 2] = [c"liburing.so.2", c"liburing.so.1"];
static ORIGINALS: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
/// Whether the library is loaded by another way than the variable.
static EVERYWHERE: AtomicBool = AtomicBool::new(false);

/// Looks up what ours end in. Called once, when the library is loaded.
pub(crate) fn find() {
    for (name, place) in NAMES.iter().zip(&ORIGINALS) {
        place.store(behind(name), Ordering::Release);
    }
    // SAFETY: the environment of a process that begins.
    EVERYWHERE.store(!unsafe { names_us(environ) }, Ordering::Release);
}

/// The address of a name behind our own; 0 if there is none.
fn behind(name: &CStr) -> usize {
    // SAFETY: looks up a name.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize }
}

/// As [`behind`], for what was not there when the library was loaded, or was called before that.
#[cold]
fn find_late(place: usize) -> usize {
    let name = NAMES[place];
    let mut address = behind(name);
    if address == 0 && name.to_bytes().starts_with(b"io_uring") {
        // One that was loaded for one part of the program alone. It stays, as what is found in it is kept.
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        for library in LIBURING {
            // SAFETY: loads nothing, and says where the library is that the program has loaded.
            let loaded = unsafe { libc::dlopen(library.as_ptr(), flags) };
            if address == 0 && !loaded.is_null() {
                // SAFETY: looks up a name in what is loaded.
                address = unsafe { libc::dlsym(loaded, name.as_ptr()) as usize };
            }
        }
    }
    ORIGINALS[place].store(address, Ordering::Release);
    address
}

/// # Safety
/// `F` is the type of the function with this name.
pub(crate) unsafe fn original<F: Copy>(place: usize) -> Option<F> {
    let address = match ORIGINALS[place].load(Ordering::Acquire) {
        0 => find_late(place),
        address => address,
    };
    // SAFETY: the caller's promise; both are addresses of functions.
    (address != 0).then(|| unsafe { std::mem::transmute_copy(&address) })
}

/// The value of a variable, of which `name` ends with `=`.
///
/// # Safety
/// Null, or an array of strings that ends with null, all of which stay.
unsafe fn value_in<'a>(variables: Words, name: &[u8]) -> Option<&'a [u8]> {
    let mut at = variables;
    // SAFETY: the caller's promise.
    while !at.is_null() && !unsafe { *at }.is_null() {
        // SAFETY: as above.
        let text: &'a [u8] = unsafe { CStr::from_ptr(*at) }.to_bytes();
        if let Some(value) = text.strip_prefix(name) {
            return Some(value);
        }
        at = at.wrapping_add(1);
    }
    None
}

/// Whether these variables have the library preloaded.
///
/// # Safety
/// As [`value_in`].
unsafe fn names_us(variables: Words) -> bool {
    // SAFETY: the caller's promise.
    let value = unsafe { value_in(variables, b"LD_PRELOAD=") };
    value.is_some_and(|value| value.windows(OURS.len()).any(|part| part == OURS))
}

/// Whether with these variables the library upgrades connections, with the agent that this process asks.
///
/// # Safety
/// As [`value_in`].
unsafe fn upgrade(variables: Words) -> bool {
    // SAFETY: the caller's promise.
    let (mode, agent) =
        unsafe { (value_in(variables, b"VIADUCT_RUN="), value_in(variables, b"VIADUCT_CLAIM=")) };
    ![Some(&b"off"[..]), Some(b"never")].contains(&mode) && settings::asks_the_same(agent)
}

/// Before a program starts: moves back what it could not use.
///
/// # Safety
/// As [`value_in`].
unsafe fn part(variables: Words, preloads: impl FnOnce() -> bool, heir: carry::Heir) {
    epoll::settle_all();
    shared::before_program(heir);
    // SAFETY: the caller's promise.
    let named = EVERYWHERE.load(Ordering::Acquire) || unsafe { names_us(variables) };
    // SAFETY: as above.
    if named && unsafe { upgrade(variables) } && preloads() {
        carry::part_with_unknown(heir);
    } else {
        carry::part(heir);
    }
}

/// Before a program starts in the place of this one.
///
/// # Safety
/// As [`value_in`].
unsafe fn before(variables: Words, preloads: impl FnOnce() -> bool) {
    epoll::part_with_kept();
    // SAFETY: the caller's promise.
    unsafe { part(variables, preloads, carry::Heir::This) }
}

/// Before a program starts in a child, while this one goes on.
///
/// # Safety
/// As [`value_in`].
unsafe fn before_child(variables: Words, preloads: impl FnOnce() -> bool) {
    // SAFETY: the caller's promise.
    unsafe { part(variables, preloads, carry::Heir::Child) }
}

/// # Safety
/// Null or a string.
unsafe fn at_path(dir: c_int, path: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    !path.is_null() && carry::preloads(dir, unsafe { CStr::from_ptr(path) })
}

/// Where a program without a folder in its name is found.
///
/// # Safety
/// Null or a string.
unsafe fn by_search(file: *const c_char) -> bool {
    if file.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(file) };
    if name.to_bytes().contains(&b'/') {
        return carry::preloads(libc::AT_FDCWD, name);
    }
    // SAFETY: a string of the environment, or null.
    let folders = unsafe { libc::getenv(c"PATH".as_ptr()) };
    // SAFETY: as above.
    let folders = if folders.is_null() { c"/bin:/usr/bin" } else { unsafe { CStr::from_ptr(folders) } };
    let mut path = [0u8; 4096];
    for folder in folders.to_bytes().split(|&byte| byte == b':') {
        let len = folder.len() + 1 + name.to_bytes().len();
        if len >= path.len() {
            continue;
        }
        path.fill(0);
        path[..folder.len()].copy_from_slice(folder);
        path[folder.len()] = if folder.is_empty() { b'.' } else { b'/' };
        if folder.is_empty() {
            continue; // the current folder: in doubt the answer is no
        }
        path[folder.len() + 1..len].copy_from_slice(name.to_bytes());
        if let Ok(path) = CStr::from_bytes_until_nul(&path)
            && files::is_executable(libc::AT_FDCWD, path)
        {
            return carry::preloads(libc::AT_FDCWD, path);
        }
    }
    false
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execve(path: *const c_char, words: Words, variables: Words) -> c_int {
    // SAFETY: the caller's promise, here and below: it is that of libc's function.
    unsafe {
        before(variables, || at_path(libc::AT_FDCWD, path));
        let args = [path as usize, words as usize, variables as usize, 0, 0, 0];
        give_int(syscall(libc::SYS_execve, args))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, words: Words) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execve(path, words, environ) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvpe(file: *const c_char, words: Words, variables: Words) -> c_int {
    type Exec = unsafe extern "C-unwind" fn(*const c_char, Words, Words) -> c_int;
    // SAFETY: the caller's promise; the type is that of the function.
    unsafe {
        before(variables, || by_search(file));
        match original::<Exec>(0) {
            Some(exec) => exec(file, words, variables),
            None => execve(file, words, variables),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, words: Words) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execvpe(file, words, environ) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execveat(
    dir: c_int,
    path: *const c_char,
    words: Words,
    variables: Words,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        // A program that is named by its descriptor alone is looked at by its link in /proc: in doubt not at all.
        let empty = !path.is_null() && *path == 0;
        before(variables, || !empty && at_path(dir, path));
        let args = [dir as usize, path as usize, words as usize, variables as usize, flags as usize, 0];
        give_int(syscall(libc::SYS_execveat, args))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fexecve(fd: c_int, words: Words, variables: Words) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execveat(fd, c"".as_ptr(), words, variables, libc::AT_EMPTY_PATH) }
}

/// What `execl`, `execlp` and `execle` go on with: the list of arguments as an array.
unsafe extern "C-unwind" fn list(path: *const c_char, words: Words) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execv(path, words) }
}

unsafe extern "C-unwind" fn list_search(file: *const c_char, words: Words) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { execvp(file, words) }
}

unsafe extern "C-unwind" fn list_variables(path: *const c_char, words: Words) -> c_int {
    // SAFETY: the caller's promise: behind the null that ends the arguments stand the variables.
    unsafe {
        let mut end = words;
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, words, (*end.add(1)).cast())
    }
}

/// A function with a list of arguments: those in registers are pushed below those on the stack, which makes an array.
#[cfg(target_arch = "x86_64")]
macro_rules! with_a_list {
    ($name:ident, $to:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {to}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                to = sym $to,
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! with_a_list {
    ($name:ident, $to:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            core::arch::naked_asm!(
                "sub sp, sp, #64",
                "stp x1, x2, [sp, #8]",
                "stp x3, x4, [sp, #24]",
                "stp x5, x6, [sp, #40]",
                "str x7, [sp, #56]",
                "add x1, sp, #8",
                "stp x29, x30, [sp, #-16]!",
                "bl {to}",
                "ldp x29, x30, [sp], #16",
                "add sp, sp, #64",
                "ret",
                to = sym $to,
            )
        }
    };
}

with_a_list!(execl, list);
with_a_list!(execlp, list_search);
with_a_list!(execle, list_variables);

type Spawn = unsafe extern "C-unwind" fn(
    *mut pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Words,
    Words,
) -> c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: Words,
    variables: Words,
) -> c_int {
    // SAFETY: the caller's promise; the type is that of the function.
    unsafe {
        before_child(variables, || at_path(libc::AT_FDCWD, path));
        match original::<Spawn>(1) {
            Some(spawn) => spawn(pid, path, actions, attributes, words, variables),
            None => libc::ENOSYS,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: Words,
    variables: Words,
) -> c_int {
    // SAFETY: the caller's promise; the type is that of the function.
    unsafe {
        before_child(variables, || by_search(file));
        match original::<Spawn>(2) {
            Some(spawn) => spawn(pid, file, actions, attributes, words, variables),
            None => libc::ENOSYS,
        }
    }
}

/// A descriptor that is duplicated for a child is inherited, even if exec closes it.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    to: c_int,
) -> c_int {
    type Add = unsafe extern "C-unwind" fn(*mut c_void, c_int, c_int) -> c_int;
    carry::name(fd);
    // SAFETY: the caller's promise; the type is that of the function.
    unsafe { original::<Add>(5).map_or(libc::ENOSYS, |add| add(actions, fd, to)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    type System = unsafe extern "C-unwind" fn(*const c_char) -> c_int;
    // SAFETY: the caller's promise; the type is that of the function.
    unsafe {
        if !command.is_null() {
            before_child(environ, || carry::preloads(libc::AT_FDCWD, c"/bin/sh"));
        }
        original::<System>(3).map_or(-1, |system| system(command))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    type Popen = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut FILE;
    // SAFETY: the caller's promise; the type is that of the function.
    unsafe {
        before_child(environ, || carry::preloads(libc::AT_FDCWD, c"/bin/sh"));
        original::<Popen>(4).map_or(std::ptr::null_mut(), |popen| popen(command, mode))
    }
}

/// A child has the sets of epoll of its parent: the kernel's part of them is made right before. What was not claimed is shared from now on.
fn before_fork() {
    epoll::settle_all();
    shared::before_child();
}

/// libc's function, which makes a child that shares what this process has.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fork() -> pid_t {
    type Fork = unsafe extern "C-unwind" fn() -> pid_t;
    before_fork();
    // SAFETY: the type is that of the function.
    let child =
        unsafe { original::<Fork>(9).map_or_else(|| give_int(Err(Errno(libc::ENOSYS))), |fork| fork()) };
    if child == 0 {
        epoll::begin();
    }
    child
}

/// As [`fork`], which libc's function does in its own way.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn daemon(stay: c_int, keep: c_int) -> c_int {
    type Daemon = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;
    before_fork();
    // SAFETY: the type is that of the function.
    let done = unsafe {
        original::<Daemon>(10).map_or_else(|| give_int(Err(Errno(libc::ENOSYS))), |daemon| daemon(stay, keep))
    };
    if done == 0 {
        epoll::begin();
    }
    if done == 0 && keep == 0 {
        forget_standard();
    }
    done
}

/// libc has just put something else in the place of standard input, output and errors.
fn forget_standard() {
    descriptors::begin();
    (0..3).for_each(descriptors::closing);
}

/// As [`daemon`], libc's function puts a terminal there.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn login_tty(fd: c_int) -> c_int {
    type Login = unsafe extern "C-unwind" fn(c_int) -> c_int;
    // SAFETY: the caller's promise; the type is that of the function.
    let done = unsafe {
        original::<Login>(21).map_or_else(|| give_int(Err(Errno(libc::ENOSYS))), |login| login(fd))
    };
    if done == 0 {
        forget_standard();
    }
    done
}

/// As [`fork`], with a terminal in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forkpty(terminal: usize, name: usize, modes: usize, size: usize) -> pid_t {
    type Fork = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> pid_t;
    before_fork();
    // SAFETY: the caller's promise; four words are passed on as they came.
    let child = unsafe {
        original::<Fork>(22)
            .map_or_else(|| give_int(Err(Errno(libc::ENOSYS))), |fork| fork(terminal, name, modes, size))
    };
    if child == 0 {
        forget_standard();
    }
    child
}

/// A ring of io_uring may be handed any socket, past us: from its first on nothing is upgraded here.
pub(crate) fn before_uring() {
    carry::part_with_all("this process uses io_uring");
    settings::leave_all();
}

type Uring = unsafe extern "C-unwind" fn(usize, usize, usize) -> c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_uring_queue_init(entries: usize, ring: usize, flags: usize) -> c_int {
    before_uring();
    // SAFETY: the caller's promise; three words are passed on as they came.
    unsafe { original::<Uring>(6).map_or(-libc::ENOSYS, |init| init(entries, ring, flags)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_uring_queue_init_params(
    entries: usize,
    ring: usize,
    with: usize,
) -> c_int {
    before_uring();
    // SAFETY: the caller's promise; three words are passed on as they came.
    unsafe { original::<Uring>(7).map_or(-libc::ENOSYS, |init| init(entries, ring, with)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_uring_queue_init_mem(
    entries: usize,
    ring: usize,
    with: usize,
    memory: usize,
    len: usize,
) -> c_int {
    type Init = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize) -> c_int;
    before_uring();
    // SAFETY: the caller's promise; five words are passed on as they came.
    unsafe { original::<Init>(11).map_or(-libc::ENOSYS, |init| init(entries, ring, with, memory, len)) }
}

/// The kernel's call, with the error as its value.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_uring_setup(entries: usize, with: usize) -> c_int {
    before_uring();
    // SAFETY: the caller's promise.
    match unsafe { syscall(libc::SYS_io_uring_setup, [entries, with, 0, 0, 0, 0]) } {
        Ok(ring) => ring as c_int,
        Err(Errno(error)) => -error,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _exit(status: c_int) -> ! {
    descriptors::ending();
    loop {
        // SAFETY: no pointers; ends the process.
        let _ = unsafe { syscall(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Exit(status: c_int) -> ! {
    // SAFETY: no pointers.
    unsafe { _exit(status) }
}

extern "C" fn unload() {
    descriptors::ending();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;
