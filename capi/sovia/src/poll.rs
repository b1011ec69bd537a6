//! Waiting for several sockets, ours and the kernel's together.
//!
//! Ours are asked what they are ready for; the kernel's are polled. If none is ready, one poll of the kernel waits for
//! its own descriptors and for the one that stands for all of ours ([`viaduct_sovia::StreamWatch`]). Before it sleeps it looks
//! for a while, as all calls do.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{c_int, c_short, fd_set, nfds_t, pollfd, timeval};
use viaduct_os::wait::Looks;

use crate::code::{answer, fail};
use crate::table::{self, Socket, State};

thread_local! {
    /// How long looking pays, as this thread has learnt; there since its first wait.
    static LOOKS: RefCell<Option<Looks>> = const { RefCell::new(None) };
}

/// `sov_poll`
///
/// # Safety
/// As `poll`.
pub unsafe extern "C" fn sov_poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let ours = match (fds.is_null(), count) {
        (_, 0) => &mut [],
        (true, _) => return fail(libc::EFAULT),
        // SAFETY: the caller's word.
        _ => unsafe { std::slice::from_raw_parts_mut(fds, count as usize) },
    };
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    answer(Wait::new(ours).run(ours, limit))
}

/// `sov_select`. Numbers are below FD_SETSIZE, as with select itself.
///
/// # Safety
/// As `select`.
pub unsafe extern "C" fn sov_select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    if !(0..=libc::FD_SETSIZE as c_int).contains(&count) {
        return fail(libc::EINVAL);
    }
    let kinds = [(read, libc::POLLIN), (write, libc::POLLOUT), (except, libc::POLLPRI)];
    let mut wanted: Vec<pollfd> = Vec::new();
    for fd in 0..count {
        // SAFETY: sets of the caller's, and a number that is in them.
        let asked = |set: *mut fd_set| !set.is_null() && unsafe { libc::FD_ISSET(fd, set) };
        let events = kinds.iter().filter(|(set, _)| asked(*set)).fold(0, |all, (_, event)| all | event);
        if events != 0 {
            wanted.push(pollfd { fd, events, revents: 0 });
        }
    }
    // SAFETY: the caller's word.
    let limit = unsafe { timeout.as_ref() }.map(|t| {
        let micros = Duration::from_micros(t.tv_usec.max(0) as u64);
        Duration::from_secs(t.tv_sec.max(0) as u64).saturating_add(micros)
    });
    let waited = Wait::new(&wanted).run(&mut wanted, limit);
    if waited.is_err() {
        return answer(waited);
    }
    if wanted.iter().any(|w| w.revents & libc::POLLNVAL != 0) {
        return fail(libc::EBADF);
    }
    for (set, _) in kinds.iter().filter(|(set, _)| !set.is_null()) {
        // SAFETY: a set of the caller's.
        unsafe { libc::FD_ZERO(*set) };
    }
    let mut marked = 0;
    for w in &wanted {
        for (set, event) in kinds.iter().filter(|(set, event)| !set.is_null() && w.events & event != 0) {
            // An end or an error is something that a read or a write would say.
            let more = if *event == libc::POLLPRI { 0 } else { libc::POLLHUP | libc::POLLERR };
            if w.revents & (event | more) != 0 {
                // SAFETY: a set of the caller's, and a number that was in it.
                unsafe { libc::FD_SET(w.fd, *set) };
                marked += 1;
            }
        }
    }
    marked
}

/// One call: which of the entries are ours, and the others with room for one more.
struct Wait {
    ours: Vec<(usize, Arc<Socket>)>,
    kernels: Vec<usize>,
    polled: Vec<pollfd>,
}

impl Wait {
    fn new(entries: &[pollfd]) -> Wait {
        let mut wait = Wait { ours: Vec::new(), kernels: Vec::new(), polled: Vec::new() };
        for (at, entry) in entries.iter().enumerate() {
            match table::find(entry.fd) {
                Some(socket) => wait.ours.push((at, socket)),
                None => {
                    wait.kernels.push(at);
                    wait.polled.push(pollfd { revents: 0, ..*entry });
                }
            }
        }
        wait
    }

    fn run(&mut self, entries: &mut [pollfd], limit: Option<Duration>) -> std::io::Result<c_int> {
        // A time that no clock will show is none.
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let left = || deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if self.ours.is_empty() {
            self.kernel(entries, left())?;
            return Ok(ready(entries));
        }
        let library = table::library()?;
        let looked = LOOKS.with_borrow_mut(|looks| {
            let looks = looks.get_or_insert_with(|| library.looks());
            loop {
                library.progress();
                self.look(entries);
                if !self.kernels.is_empty() {
                    self.kernel(entries, Some(Duration::ZERO))?;
                }
                let found = ready(entries);
                if found > 0 || left() == Some(Duration::ZERO) {
                    looks.found();
                    library.count_waits(looks.take_waits());
                    return Ok(Some(found));
                }
                if !looks.again() {
                    library.count_waits(looks.take_waits());
                    return std::io::Result::Ok(None);
                }
                std::hint::spin_loop();
            }
        })?;
        if let Some(found) = looked {
            return Ok(found);
        }
        loop {
            let watch = library.watch()?;
            self.look(entries);
            let mut found = ready(entries);
            if found == 0 {
                let fd = watch.as_fd().as_raw_fd();
                self.polled.push(pollfd { fd, events: libc::POLLIN, revents: 0 });
                let polled = self.kernel(entries, left());
                self.polled.pop();
                polled?;
                library.progress();
                self.look(entries);
                found = ready(entries);
            }
            drop(watch);
            if found > 0 || left() == Some(Duration::ZERO) {
                LOOKS.with_borrow_mut(|looks| looks.as_mut().map(Looks::found));
                return Ok(found);
            }
        }
    }

    /// Asks ours.
    fn look(&self, entries: &mut [pollfd]) {
        for (at, socket) in &self.ours {
            entries[*at].revents = events(socket, entries[*at].events);
        }
    }

    /// Polls the kernel's.
    fn kernel(&mut self, entries: &mut [pollfd], limit: Option<Duration>) -> std::io::Result<()> {
        let time = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs().min(1 << 40) as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: a list of ours with its length, and a time or none.
        let done = unsafe {
            libc::ppoll(self.polled.as_mut_ptr(), self.polled.len() as nfds_t, time, std::ptr::null())
        };
        if done < 0 {
            return Err(std::io::Error::last_os_error());
        }
        for (at, polled) in self.kernels.iter().zip(&self.polled) {
            entries[*at].revents = polled.revents;
        }
        Ok(())
    }
}

fn ready(entries: &[pollfd]) -> c_int {
    entries.iter().filter(|entry| entry.revents != 0).count() as c_int
}

/// What a socket is ready for, of what was asked.
fn events(socket: &Socket, asked: c_short) -> c_short {
    let state = socket.state().clone();
    match state {
        State::Fresh(..) => libc::POLLHUP | libc::POLLOUT & asked,
        State::Listening(listener, _) => {
            if listener.ready() {
                libc::POLLIN & asked
            } else {
                0
            }
        }
        State::Connected(stream) => {
            let now = stream.readiness();
            let mut events = 0;
            for (is, event) in [(now.read, libc::POLLIN), (now.write, libc::POLLOUT)] {
                if is {
                    events |= asked & event;
                }
            }
            if now.ended { events | libc::POLLHUP } else { events }
        }
    }
}
