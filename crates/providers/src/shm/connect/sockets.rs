//! Listening addresses and the socket files behind them.

use std::path::PathBuf;
use std::sync::Arc;

use viaduct_os::epoll::Interest;
use viaduct_os::error::OsError;
use viaduct_os::fdpass::Listener;
use viaduct_os::point::point;
use viaduct_via::provider::{ListenId, RequestId};
use viaduct_via::{Error, NetAddress};

use crate::here::check_listens_here;
use crate::shm::control::{Control, Listen, MEETING, SOCKET, Socket, token};
use crate::shm::nic::Core;
use crate::shm::pair::lock;
use crate::shm::wire::hello;
use crate::unseen_requests;

impl Core {
    pub(crate) fn listen(&self, address: &NetAddress, backlog: usize) -> Result<ListenId, Error> {
        check_listens_here(address)?;
        let mut control = lock(&self.control);
        let id = ListenId(control.number());
        let listen = Some(Listen { id, backlog, waiting: false, queued: 0 });
        if let Some(socket) = control.sockets.values_mut().find(|s| s.address == *address) {
            if socket.listen.is_some() {
                return Err(Error::AddressInUse(address.to_string()));
            }
            socket.listen = listen;
            return Ok(id);
        }
        self.open_socket(&mut control, address, listen, 0)?;
        Ok(id)
    }

    /// A socket at an address, watched; and another one for other users, if they may come.
    pub(super) fn open_socket(
        &self,
        control: &mut Control,
        address: &NetAddress,
        listen: Option<Listen>,
        peers: usize,
    ) -> Result<(), Error> {
        let listener = self.bind(address)?;
        let meeting = self.bind_meeting(address)?;
        let number = control.number();
        point("listen.bound");
        self.epoll.add(&listener, token(SOCKET, number), Interest::Read)?;
        if let Some(meeting) = &meeting {
            self.epoll.add(meeting, token(MEETING, number), Interest::Read)?;
        }
        let socket = Socket { listener, meeting, address: address.clone(), listen, peers };
        control.sockets.insert(number, socket);
        point("listen.watched");
        Ok(())
    }

    pub(crate) fn set_waiting(&self, listener: ListenId, waiting: bool) {
        let mut control = lock(&self.control);
        let found = control.sockets.values_mut().filter_map(|s| s.listen.as_mut()).find(|l| l.id == listener);
        if let Some(listen) = found {
            listen.waiting = waiting;
            if waiting {
                // An owner that waits anew takes one request more, however long the answers to the others take.
                listen.queued = 0;
            }
        }
    }

    pub(crate) fn unlisten(self: &Arc<Core>, listener: ListenId) {
        let waiting: Vec<RequestId> = {
            let mut control = lock(&self.control);
            let is_it = |s: &Socket| s.listen.as_ref().is_some_and(|l| l.id == listener);
            if let Some(socket) = control.sockets.values_mut().find(|s| is_it(s)) {
                socket.listen = None;
            }
            self.drop_unused_sockets(&mut control);
            unseen_requests(&mut control.events, listener)
        };
        point("unlisten");
        for request in waiting {
            self.answer(request, hello::NO_MATCH, &[]);
        }
    }

    pub(super) fn drop_unused_sockets(&self, control: &mut Control) {
        control.sockets.retain(|_, s| {
            let used = s.listen.is_some() || s.peers > 0;
            if !used {
                let _ = self.epoll.del(&s.listener);
                let _ = s.meeting.as_ref().map(|meeting| self.epoll.del(meeting));
            }
            used
        });
    }

    pub(super) fn bind(&self, address: &NetAddress) -> Result<Listener, Error> {
        Listener::bind(&self.path(address)).map_err(|e| match e {
            OsError::InUse { .. } => Error::AddressInUse(address.to_string()),
            e => Error::Os(e),
        })
    }

    /// The socket of an address: readable if the address is short and plain, else a hash of it.
    pub(super) fn path(&self, address: &NetAddress) -> PathBuf {
        let text = address.to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = text.replace('/', "@");
        if text.len() <= 40 && name.chars().all(|c| plain(c) || c == '@') && !name.starts_with('.') {
            return self.folder.join(format!("{name}.sock"));
        }
        self.folder.join(format!("x{:032x}.sock", fnv128(text.as_bytes())))
    }
}

/// The FNV-1a hash, 128 bits. A collision only makes two addresses share a socket: requests name their address.
fn fnv128(bytes: &[u8]) -> u128 {
    let offset = 0x6c62272e07bb014262b821756295c58d_u128;
    let prime = 0x0000000001000000000000000000013b_u128;
    bytes.iter().fold(offset, |h, b| (h ^ u128::from(*b)).wrapping_mul(prime))
}
