//! Reads and writes of a file, many under way at once, through io_uring.
//!
//! A [`Ring`] owns every buffer that the kernel uses, from [`Ring::read`] or [`Ring::write`] until [`Ring::wait`] hands it back,
//! and waits for the rest when it is dropped. Where the kernel or a container refuses io_uring, [`Ring::new`] fails and callers
//! use threads. It never opens files and does not retry what was cut short.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

/// Memory that stays at its address while its owner is moved.
///
/// # Safety
/// `place` gives the same address and length each time, and that memory is valid, writable and used by no other code for as
/// long as the value exists.
pub unsafe trait Pinned: Send {
    /// Address and length of the memory.
    fn place(&mut self) -> (*mut u8, usize);
}

/// A buffer with what the kernel did to it.
#[derive(Debug)]
pub struct Done<B> {
    /// The buffer, back with the caller.
    pub buffer: B,
    /// The offset that was asked for.
    pub offset: u64,
    /// Bytes that were read or written, or the failure.
    pub result: io::Result<usize>,
}

/// Transfers under way.
#[derive(Debug)]
pub struct Ring<B: Pinned> {
    ring: IoUringBox,
    slots: Vec<Option<(B, u64)>>,
    under_way: usize,
}

struct IoUringBox(IoUring);

impl std::fmt::Debug for IoUringBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IoUring")
    }
}

impl<B: Pinned> Ring<B> {
    /// A ring for at most `depth` transfers at once.
    pub fn new(depth: usize) -> io::Result<Ring<B>> {
        let entries = u32::try_from(depth.clamp(1, 1024)).unwrap_or(1024).next_power_of_two();
        let ring = IoUring::new(entries)?;
        Ok(Ring {
            ring: IoUringBox(ring),
            slots: (0..depth.clamp(1, 1024)).map(|_| None).collect(),
            under_way: 0,
        })
    }

    /// Transfers under way.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether another transfer can be started.
    pub fn has_room(&self) -> bool {
        self.under_way < self.slots.len()
    }

    /// Starts to read `len` bytes at `offset` into the start of `buffer`. The file must stay open until the ring is idle.
    ///
    /// # Panics
    /// If there is no room or the buffer is shorter than `len`.
    pub fn read(&mut self, file: &File, mut buffer: B, offset: u64, len: usize) -> io::Result<()> {
        let (at, room) = buffer.place();
        assert!(len <= room, "a read longer than its buffer");
        let len = u32::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), at, len).offset(offset).build();
        self.start(entry, buffer, offset)
    }

    /// Starts to write `len` bytes of `buffer`, those from `from` on, at `offset`. The file must stay open until the ring is
    /// idle.
    ///
    /// # Panics
    /// If there is no room or the bytes do not lie in the buffer.
    pub fn write(
        &mut self,
        file: &File,
        mut buffer: B,
        from: usize,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let (at, room) = buffer.place();
        assert!(from <= room && len <= room - from, "a write of more than its buffer");
        let len = u32::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: `from` is at most the length of the memory that begins at `at` (checked above).
        let at = unsafe { at.add(from) };
        let entry = opcode::Write::new(types::Fd(file.as_raw_fd()), at, len).offset(offset).build();
        self.start(entry, buffer, offset)
    }

    /// Hands an entry on the memory of `buffer` to the kernel.
    fn start(&mut self, entry: squeue::Entry, buffer: B, offset: u64) -> io::Result<()> {
        let slot = self.slots.iter().position(Option::is_none).expect("the caller asked for room");
        let entry = entry.user_data(slot as u64);
        self.slots[slot] = Some((buffer, offset));
        // SAFETY: the memory belongs to the buffer, which the ring keeps until the completion was taken (Pinned).
        let pushed = unsafe { self.ring.0.submission().push(&entry) };
        if pushed.is_err() {
            self.slots[slot] = None;
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        self.under_way += 1;
        // What the kernel does not take now is taken with the next call.
        match self.ring.0.submit() {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for one transfer to end; `None` if none is under way.
    pub fn wait(&mut self) -> io::Result<Option<Done<B>>> {
        if self.under_way == 0 {
            return Ok(None);
        }
        loop {
            if let Some(entry) = self.ring.0.completion().next() {
                self.under_way -= 1;
                let slot = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
                let (buffer, offset) = self.slots[slot].take().expect("the kernel answers each entry once");
                let result = match usize::try_from(entry.result()) {
                    Ok(bytes) => Ok(bytes),
                    Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
                };
                return Ok(Some(Done { buffer, offset, result }));
            }
            match self.ring.0.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

impl<B: Pinned> Drop for Ring<B> {
    fn drop(&mut self) {
        while self.under_way > 0 {
            if self.wait().is_err() {
                // The kernel may still use these buffers: memory that is never reused is the lesser harm.
                self.slots.drain(..).for_each(std::mem::forget);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    struct Bytes(Box<[u8]>);

    // SAFETY: a box does not move what it owns, and only this value has it.
    unsafe impl Pinned for Bytes {
        fn place(&mut self) -> (*mut u8, usize) {
            (self.0.as_mut_ptr(), self.0.len())
        }
    }

    #[test]
    fn writes_leave_from_inside_their_buffers() {
        let Ok(mut ring) = Ring::new(2) else { return };
        let file = crate::files::temporary(&std::env::temp_dir()).unwrap();
        for n in 0..2u8 {
            let bytes: Vec<u8> = (0..100).map(|k| 100 * n + k).collect();
            ring.write(&file, Bytes(bytes.into()), 10, u64::from(n) * 50, 50).unwrap();
        }
        while let Some(done) = ring.wait().unwrap() {
            assert_eq!((done.result.unwrap(), done.buffer.0.len()), (50, 100));
        }
        let mut back = [0; 100];
        file.read_exact_at(&mut back, 0).unwrap();
        assert!(back.iter().copied().eq((10..60).chain(110..160)));
    }

    #[test]
    fn reads_come_back_with_their_bytes() {
        let Ok(mut ring) = Ring::new(4) else { return };
        let file = crate::files::temporary(&std::env::temp_dir()).unwrap();
        let content: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        for n in 0..4u64 {
            assert!(ring.has_room());
            ring.read(&file, Bytes(vec![0; 3000].into()), n * 3000, 3000).unwrap();
        }
        assert!(!ring.has_room());
        let mut seen = 0;
        while let Some(done) = ring.wait().unwrap() {
            let got = done.result.unwrap();
            let at = done.offset as usize;
            assert_eq!(got, 3000.min(content.len() - at));
            assert_eq!(done.buffer.0[..got], content[at..at + got]);
            seen += got;
        }
        assert_eq!((seen, ring.under_way()), (content.len(), 0));
        ring.read(&file, Bytes(vec![0; 8].into()), 0, 8).unwrap();
    }
}
