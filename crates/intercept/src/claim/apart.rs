//! Claims over a connection to the agent that is made for one question, and without a trace in this process: the caller may be a child
//! that borrows its parent's memory, and the program that comes next will ask in this way, too.

use viaduct_os::bare::calls;
use viaduct_os::bare::sockets::{self, MOST_FDS};

use super::{agent, close_all, exchange, try_withdraw};
use crate::companion;
use crate::endpoint::slot;
use crate::raw::Mapping;
use crate::wire::{Answer, Verdict};

/// What a claim brought, and how many descriptors came with it.
struct Brought {
    answer: Answer,
    fds: [i32; MOST_FDS],
    count: usize,
}

impl Brought {
    fn is_granted(&self) -> bool {
        self.answer.verdict == Verdict::Granted && self.count == 3
    }

    /// Gives up the segment, for all that may get it.
    fn refuse(&self) {
        let mapping = Mapping::none();
        if self.is_granted() && mapping.map(self.fds[0]).is_ok() {
            let _ = mapping.view().map(|view| try_withdraw(view.header(), self.answer.side as usize & 1));
            mapping.unmap();
        }
    }
}

impl Drop for Brought {
    fn drop(&mut self) {
        close_all(&self.fds[..self.count]);
    }
}

/// Asks the agent of this user, if it is there.
fn ask(fd: i32) -> Option<Brought> {
    let user = calls::user_id();
    let channel = sockets::connect_abstract(agent(user).as_c_str().to_bytes()).ok()?;
    let mut fds = [-1; MOST_FDS];
    let ours = sockets::peer_user(channel) == Ok(user);
    let got = if ours { exchange(channel, fd, &mut fds).ok() } else { None };
    close_all(&[channel]);
    got.map(|(answer, count)| Brought { answer, fds, count })
}

/// Whether a program that is started now in the place of this one, or by it, will get the rings of this connection from its
/// agent.
pub(crate) fn is_known(fd: i32, index: u32) -> bool {
    let slot = slot(index);
    let Some(brought) = ask(fd) else { return false };
    let answer = &brought.answer;
    let same = answer.id == slot.id() && answer.side as usize == slot.side();
    let known = brought.is_granted() && answer.again && same;
    if !known {
        brought.refuse();
    }
    known
}

/// Keeps every process that holds this socket from upgrading its connection, unless one has. False if the agent was not there to hear of it.
pub(crate) fn bar(fd: i32) -> bool {
    if !companion::is_tcp(fd) || !companion::is_local(fd) {
        return true;
    }
    let brought = ask(fd);
    brought.iter().for_each(Brought::refuse);
    brought.is_some()
}
