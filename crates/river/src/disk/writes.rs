//! Writes under way past the page cache: a thread of the sink hands them to io_uring and gives buffers back to their pools.
//!
//! The thread is there because a producer may wait for a buffer that is being written: only a thread that does nothing else
//! returns it whatever the producers do, so that a pool of one buffer suffices.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use viaduct_os::files::BLOCK;
use viaduct_os::uring::Ring;

use super::Volume;
use crate::buffer::Buffer;
use crate::error::Error;

/// Writes under way at once.
const DEPTH: usize = 8;

/// The way to the thread that writes.
#[derive(Debug)]
pub(super) struct Writes {
    queue: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Order {
    Write(Buffer),
    /// To be answered when all that came before is written.
    Flush(SyncSender<()>),
}

/// Where the first failure of a sink is kept.
pub(super) type Failed = Arc<Mutex<Option<Error>>>;

impl Writes {
    /// A thread that writes to `volume`. `None` where io_uring is refused: then the callers write.
    pub(super) fn start(volume: &Arc<Volume>, failed: &Failed) -> Option<Writes> {
        let ring = Ring::new(DEPTH).ok()?;
        let (queue, orders) = sync_channel(DEPTH);
        let (volume, failed) = (volume.clone(), failed.clone());
        let serve = move || Writer { ring, volume, failed }.serve(&orders);
        let thread = std::thread::Builder::new().name("river-writes".to_owned()).spawn(serve).ok()?;
        Some(Writes { queue: Some(queue), thread: Some(thread) })
    }

    /// Hands a buffer over; waits while too many are under way.
    pub(super) fn put(&self, buffer: Buffer) -> Result<(), Error> {
        self.send(Order::Write(buffer))
    }

    /// Waits until everything was written, or has failed.
    pub(super) fn flush(&self) -> Result<(), Error> {
        let (done, wait) = sync_channel(1);
        self.send(Order::Flush(done))?;
        wait.recv().map_err(|_| Error::Stopped)
    }

    fn send(&self, order: Order) -> Result<(), Error> {
        let queue = self.queue.as_ref().ok_or(Error::Stopped)?;
        queue.send(order).map_err(|_| Error::Stopped)
    }
}

impl Drop for Writes {
    /// The thread ends when it has written what was put.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Writer {
    /// Before the volume: files stay open until it is idle.
    ring: Ring<Buffer>,
    volume: Arc<Volume>,
    failed: Failed,
}

impl Writer {
    fn serve(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.ring.under_way() {
                0 => match orders.recv() {
                    Ok(order) => Some(order),
                    Err(_) => return,
                },
                _ if self.ring.has_room() => orders.try_recv().ok(),
                _ => None,
            };
            let done = match order {
                Some(Order::Write(buffer)) => self.write(buffer),
                Some(Order::Flush(done)) => {
                    // The caller looks for a failure as soon as it is answered.
                    let drained = self.drain();
                    self.note(drained);
                    let _ = done.send(());
                    Ok(())
                }
                None => self.take(),
            };
            self.note(done);
        }
    }

    /// Keeps the first failure for the callers.
    fn note(&self, done: Result<(), Error>) {
        if let Err(error) = done {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// Starts to write whole blocks; what is at their edges goes through the page cache at once.
    fn write(&mut self, buffer: Buffer) -> Result<(), Error> {
        let (position, blocks) = blocks_of(&buffer);
        let place = position + blocks.start as u64;
        let Some((file, at)) = self.volume.direct_at(place, blocks.len()).filter(|_| !blocks.is_empty())
        else {
            return self.volume.write_at(buffer.data(), position);
        };
        let data = buffer.data();
        self.volume.write_at(&data[..blocks.start], position)?;
        self.volume.write_at(&data[blocks.end..], position + blocks.end as u64)?;
        let from = buffer.start() + blocks.start;
        let started = self.ring.write(file, buffer, from, at, blocks.len());
        started.map_err(|error| Error::file("writing", self.volume.path_at(place), error))
    }

    /// Waits for one write to end.
    fn take(&mut self) -> Result<(), Error> {
        let done = self.ring.wait();
        let done = done.map_err(|error| Error::file("writing", self.volume.path_at(0), error))?;
        let Some(done) = done else { return Ok(()) };
        let (position, blocks) = blocks_of(&done.buffer);
        let place = position + blocks.start as u64;
        let written = written(done.result);
        let written = written.map_err(|error| Error::file("writing", self.volume.path_at(place), error))?;
        // What was refused or cut short is written the ordinary way, which also tells why it was cut short.
        let rest = blocks.start + written.min(blocks.len())..blocks.end;
        self.volume.write_at(&done.buffer.data()[rest.clone()], position + rest.start as u64)
    }

    fn drain(&mut self) -> Result<(), Error> {
        let mut first = Ok(());
        while self.ring.under_way() > 0 {
            first = first.and(self.take());
        }
        first
    }
}

/// Bytes that are on their way to the disk after a write past the page cache. The page cache takes any write and fails, if at all,
/// when it writes back, of which only a caller that syncs hears: it gets what this way of writing was refused, never what the disk
/// has failed with.
fn written(result: io::Result<usize>) -> io::Result<usize> {
    use io::ErrorKind::{Interrupted, InvalidInput, Unsupported, WouldBlock};
    match result {
        Err(error) if matches!(error.kind(), InvalidInput | Unsupported | Interrupted | WouldBlock) => Ok(0),
        result => result,
    }
}

/// Where the payload belongs, as the sink has said, and the part of it that can be written past the page cache: whole blocks of the
/// file that lie aligned in memory.
fn blocks_of(buffer: &Buffer) -> (u64, Range<usize>) {
    let position = buffer.position().expect("a sink gives every buffer its place");
    let head = (position.next_multiple_of(BLOCK as u64) - position) as usize;
    let data = buffer.data();
    if head >= data.len() || !(data.as_ptr() as usize + head).is_multiple_of(512) {
        return (position, 0..0);
    }
    (position, head..head + (data.len() - head) / BLOCK * BLOCK)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use viaduct_kit::effort::scaled;
    use viaduct_kit::tempdir::TempDir;
    use viaduct_kit::watchdog::Watchdog;

    use super::super::DiskSink;
    use super::*;
    use crate::flow::Sink;
    use crate::pool::MemPool;

    fn created(path: &Path) -> File {
        File::options().read(true).write(true).create_new(true).open(path).unwrap()
    }

    /// A sink that writes whole blocks to `direct` and the rest to a good file.
    fn sink_on(good: File, direct: File, path: PathBuf) -> DiskSink {
        DiskSink::new("output", Volume::of_two(path, good, direct))
    }

    fn put_blocks(sink: &DiskSink) -> Result<(), Error> {
        let mut buffer = MemPool::new(1, 8192).unwrap().take();
        buffer.push_record(&[0xFF; 8192]);
        sink.put(buffer).and_then(|()| sink.finish())
    }

    #[test]
    fn a_write_that_was_refused_or_cut_short_goes_on_and_one_that_failed_is_told() {
        for code in [libc::EINVAL, libc::EOPNOTSUPP, libc::EINTR, libc::EAGAIN] {
            assert_eq!(written(Err(io::Error::from_raw_os_error(code))).unwrap(), 0, "{code}");
        }
        for code in [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
            let told = written(Err(io::Error::from_raw_os_error(code))).unwrap_err();
            assert_eq!(told.raw_os_error(), Some(code));
        }
        assert_eq!([0, 100, 4096].map(|len| written(Ok(len)).unwrap()), [0, 100, 4096]);
    }

    /// The page cache would take what such a disk refuses.
    #[test]
    fn a_disk_that_fails_with_a_direct_write_is_told_by_name() {
        let _watchdog = Watchdog::arm(scaled(Duration::from_secs(60)), "a write that fails");
        let folder = TempDir::new("river-bad-disk");
        // At the start of this process's memory nothing is mapped: the kernel says EIO. The other device is always full.
        let bad = [("/proc/self/mem", "Input/output error"), ("/dev/full", "No space left")];
        for (n, (device, cause)) in bad.into_iter().enumerate() {
            let path = folder.join(format!("out{n}"));
            let direct = File::options().read(true).write(true).open(device).unwrap();
            let sink = sink_on(created(&path), direct, path.clone());
            if !sink.is_ahead() {
                viaduct_kit::skip!("io_uring is refused here");
            }
            let told = put_blocks(&sink).unwrap_err().to_string();
            assert!(told.contains("writing") && told.contains(&format!("out{n}")), "{told}");
            assert!(told.contains(cause), "{told}");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "nothing went through the page cache");
        }
    }

    #[test]
    fn a_file_that_refuses_direct_writes_later_is_written_through_the_page_cache() {
        let _watchdog = Watchdog::arm(scaled(Duration::from_secs(60)), "a write that is refused");
        let folder = TempDir::new("river-refusing");
        let path = folder.join("out");
        // What is written there has to be a number: EINVAL.
        let refusing = File::options().read(true).write(true).open("/proc/self/oom_score_adj").unwrap();
        let sink = sink_on(created(&path), refusing, path.clone());
        if !sink.is_ahead() {
            viaduct_kit::skip!("io_uring is refused here");
        }
        put_blocks(&sink).unwrap();
        assert!(std::fs::read(&path).unwrap() == [0xFF; 8192]);
    }
}
