//! The table of sockets (`sockdes[]` of figure 6). A number is never used twice, so that a packet for a socket that is
//! gone finds none.

use crate::socket::Socket;

/// Number of a socket: place and generation. Also the context of its descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SocketId(pub(crate) u64);

#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<(u32, Option<Box<Socket>>)>,
    free: Vec<u32>,
    len: usize,
}

impl Table {
    /// Puts in what `make` makes for its number.
    pub(crate) fn insert<E>(
        &mut self,
        make: impl FnOnce(SocketId) -> Result<Socket, E>,
    ) -> Result<SocketId, E> {
        let at = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let generation = self.slots.get(at as usize).map_or(0, |s| s.0);
        let id = SocketId(u64::from(generation) << 32 | u64::from(at));
        let socket = Some(Box::new(make(id)?));
        match self.slots.get_mut(at as usize) {
            Some(slot) => {
                slot.1 = socket;
                self.free.pop();
            }
            None => self.slots.push((0, socket)),
        }
        self.len += 1;
        Ok(id)
    }

    /// A socket, for anything. It is calm no more.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        let socket = self.find(id)?;
        socket.calm = false;
        Some(socket)
    }

    /// A socket, for what concerns neither its connection nor its calm.
    #[inline]
    pub(crate) fn peek_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.find(id)
    }

    /// A socket that is calm, for what keeps it so (`calm.rs`).
    #[inline]
    pub(crate) fn get_calm(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.find(id).filter(|socket| socket.calm)
    }

    /// A socket that holds something, for holding more.
    #[inline]
    pub(crate) fn get_held(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.find(id).filter(|socket| socket.out.held > 0)
    }

    #[inline]
    fn find(&mut self, id: SocketId) -> Option<&mut Socket> {
        let slot = self.slots.get_mut(id.0 as u32 as usize)?;
        if u64::from(slot.0) != id.0 >> 32 { None } else { slot.1.as_deref_mut() }
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Box<Socket>> {
        let at = id.0 as u32;
        let slot = self.slots.get_mut(at as usize).filter(|s| u64::from(s.0) == id.0 >> 32)?;
        let socket = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(at);
        self.len -= 1;
        Some(socket)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (SocketId, &mut Socket)> {
        self.slots.iter_mut().enumerate().filter_map(|(at, (generation, socket))| {
            let id = SocketId(u64::from(*generation) << 32 | at as u64);
            let socket = socket.as_deref_mut()?;
            socket.calm = false;
            Some((id, socket))
        })
    }
}
