//! A conversation of two processes over VIA: a message, an RDMA write, atomics. The tour shows it; it is also the
//! shortest complete program on the library.

use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use viaduct_providers::Config;
use viaduct_via::{
    Buffer, Descriptor, MemAttributes, MemHandle, NetAddress, Nic, ProtectionTag, RemoteAddress, Vi,
    ViAttributes,
};

use crate::error::{Error, Result};
use crate::session::PeerCommand;

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));
/// Where the guest's counter lies in the memory that it lends.
const COUNTER: usize = 1024;
/// What the host adds to it, and how often.
const ADDITIONS: u64 = 1000;

/// The first process: starts the second one with `command` and tells what happens through `say`. Returns which provider
/// carried the bytes: of `auto`, the one that it took.
pub fn host(
    provider: &str,
    config: &Config,
    command: &PeerCommand,
    say: &mut dyn FnMut(String),
) -> Result<&'static str> {
    let me = std::process::id();
    let mut side = Side::open(provider, config)?;
    let address = NetAddress::local(&format!("tour-{me}"))?;
    let listener = side.nic.listen(&address, 1)?;
    say(format!("process {me} opens a NIC on `{provider}` and listens at `{address}`"));

    let mut start = Command::new(&command.program);
    start.args(&command.args).arg("--provider").arg(provider).arg("--address").arg(address.to_string());
    let mut guest = start.spawn().map_err(Error::os("starting the second process"))?;
    let outcome = side.entertain(listener, say);
    if outcome.is_err() {
        let _ = guest.kill();
    }
    let status = guest.wait().map_err(Error::os("waiting for the second process"))?;
    let carrier = outcome?;
    if !status.success() {
        return Err(Error::layer(carrier, format!("the second process ended with {status}"), ""));
    }
    Ok(carrier)
}

/// The second process: connects, lends memory, and reads what the first one put there.
pub fn guest(provider: &str, config: &Config, address: &str) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(Error::os("asking to die with the parent"))?;
    let mut side = Side::open(provider, config)?;
    let vi = side.vi()?;
    side.nic.connect_request(vi, &address.parse()?, TIMEOUT)?;

    let board = side.nic.alloc(4096, MemAttributes::remote(side.tag))?;
    let place = board.remote(0);
    let mut letter = place.addr.to_le_bytes().to_vec();
    letter.extend(place.handle.number().to_le_bytes());
    letter.extend(format!("hello from process {}", std::process::id()).as_bytes());
    side.send(vi, &letter, None)?;

    // The host rings once it is done; until then this process sleeps and its memory changes.
    let (_, length) = side.recv(vi)?;
    let mut written = board.to_vec(length.unwrap_or(0) as usize);
    written.extend(board.word(COUNTER).load(std::sync::atomic::Ordering::Acquire).to_le_bytes());
    side.send(vi, &written, None)?;
    // The host ends the connection, so our last receive comes back flushed.
    let _ = side.nic.wait_recv_outcome(vi, TIMEOUT)?;
    Ok(())
}

struct Side {
    nic: Nic,
    tag: ProtectionTag,
}

impl Side {
    fn open(provider: &str, config: &Config) -> Result<Side> {
        let mut nic = Nic::open_with(viaduct_providers::open(provider, config)?, config.wait)?;
        let tag = nic.create_ptag()?;
        Ok(Side { nic, tag })
    }

    /// A VI with two receives posted.
    fn vi(&mut self) -> Result<Vi> {
        let vi = self.nic.create_vi(ViAttributes::new(self.tag))?;
        for _ in 0..2 {
            let buffer = self.buffer(256)?;
            self.nic.post_recv(vi, Descriptor::recv(buffer))?;
        }
        Ok(vi)
    }

    fn buffer(&mut self, len: usize) -> Result<Buffer> {
        Ok(self.nic.alloc(len, MemAttributes::local(self.tag))?)
    }

    fn send(&mut self, vi: Vi, bytes: &[u8], immediate: Option<u32>) -> Result<()> {
        let mut buffer = self.buffer(bytes.len().max(1))?;
        buffer.write(0, bytes);
        let descriptor = Descriptor::send(buffer);
        self.post(vi, immediate.into_iter().fold(descriptor, Descriptor::immediate)).map(|_| ())
    }

    /// Posts to the send queue and waits until it is done.
    fn post(&mut self, vi: Vi, descriptor: Descriptor) -> Result<Descriptor> {
        self.nic.post_send(vi, descriptor)?;
        let done = self.nic.wait_send_outcome(vi, TIMEOUT)?.0;
        if done.status.is_success() { Ok(done.descriptor) } else { Err(failed(done.status.to_string())) }
    }

    fn recv(&mut self, vi: Vi) -> Result<(Vec<u8>, Option<u32>)> {
        let done = self.nic.wait_recv_outcome(vi, TIMEOUT)?.0;
        if done.status.is_success() {
            Ok((done.data(), done.immediate))
        } else {
            Err(failed(done.status.to_string()))
        }
    }

    fn entertain(
        &mut self,
        listener: viaduct_via::Listener,
        say: &mut dyn FnMut(String),
    ) -> Result<&'static str> {
        let vi = self.vi()?;
        let request = self.nic.wait_listener(listener, TIMEOUT)?;
        self.nic.accept(request, vi).map_err(|refused| refused.error)?;
        let carrier = self.nic.query_vi(vi)?.provider.unwrap_or("none");
        let (letter, _) = self.recv(vi)?;
        let place = place_in(&letter).ok_or_else(|| failed("a letter without an address"))?;
        say(format!(
            "a second process connects, over `{carrier}`, and sends {} bytes: \"{}\"",
            letter.len(),
            text(&letter[12..])
        ));

        let news = b"written by the other process, no receive posted, no CPU of yours";
        let mut buffer = self.buffer(news.len())?;
        buffer.write(0, news);
        self.post(vi, Descriptor::rdma_write(buffer, place))?;
        let mut old = self.buffer(8)?;
        for _ in 0..ADDITIONS {
            old = self.post(vi, Descriptor::fetch_add(old, place.offset(COUNTER as u64), 1))?.into_buffer();
        }
        self.send(vi, b"look", Some(news.len() as u32))?;
        let (seen, _) = self.recv(vi)?;
        if seen.len() != news.len() + 8 || !seen.starts_with(news) {
            return Err(failed("the second process saw something else than was written"));
        }
        let mut count = [0; 8];
        count.copy_from_slice(&seen[news.len()..]);
        let count = u64::from_le_bytes(count);
        say(format!("RDMA write into its memory; it reads there: \"{}\"", text(news)));
        say(format!("{ADDITIONS} remote fetch-and-adds on a word of its memory; it reads there: {count}"));
        if count != ADDITIONS {
            return Err(failed("additions were lost"));
        }
        self.nic.disconnect(vi)?;
        Ok(carrier)
    }
}

fn place_in(letter: &[u8]) -> Option<RemoteAddress> {
    let addr = u64::from_le_bytes(letter.get(..8)?.try_into().ok()?);
    let handle = u32::from_le_bytes(letter.get(8..12)?.try_into().ok()?);
    Some(RemoteAddress { addr, handle: MemHandle::from_number(handle) })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn failed(message: impl Into<String>) -> Error {
    Error::layer("via", message, "")
}
