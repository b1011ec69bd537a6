//! A key-value store over VIA: one thread serves any number of clients, whose requests and answers go from memory to memory.
//!
//! ```text
//!   kv serve NAME &
//!   kv put NAME colour blue
//!   kv get NAME colour
//!   kv delete NAME colour
//!   kv measure
//! ```
//!
//! A request is an operation, the length of the key, the key and the value; an answer is a status and a value. The last line
//! compares the store as it stands here, with safe slices, with one written with unsafe ones (`measure.rs`, `raw.rs`).

mod measure;
mod raw;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use viaduct_net::{Arrival, ConnRequest, Cq, Error, NetAddress, Nic, Vi, ViAttributes};

/// The length of a key is one byte of a request.
const LONGEST_KEY: usize = 255;
const LONGEST_VALUE: usize = 1 << 20;
const LONGEST: usize = LONGEST_VALUE + 1024;
/// Clients that are served at once, each with a receive of the longest request.
const CLIENTS: usize = 100;
/// Answers to one client that may be on their way.
const DEPTH: usize = 4;
const FULL: &[u8] = b"no room for one more client";
const PATIENCE: Duration = Duration::from_secs(10);

type Store = HashMap<Vec<u8>, Arc<[u8]>>;

/// Serves clients until the NIC fails.
fn serve(mut nic: Nic, address: &NetAddress) -> Result<(), Error> {
    // An entry for the receive and each send of each client, so that none takes those of another.
    let (cq, listener) = (nic.create_cq(CLIENTS * (1 + DEPTH))?, nic.listen(address, 64)?);
    let (mut store, mut inside) = (Store::new(), 0);
    loop {
        match nic.wait_any(cq, listener, None)? {
            // Or it has gone by itself.
            Arrival::Request(request) if inside == CLIENTS => drop(nic.reject_with(request, FULL)),
            Arrival::Request(request) => inside += usize::from(let_in(&mut nic, cq, request).is_ok()),
            Arrival::Completion(done) => {
                let vi = done.vi();
                let served = done.ok().and_then(|message| {
                    let (status, value) = answer(&mut store, message.bytes().unwrap_or_default());
                    nic.post_recv(vi, message.descriptor)?; // before the client can ask again
                    nic.send(vi, &[&[status], &value], None)
                });
                if served.is_err() {
                    nic.retire(vi)?; // the client has gone, or asks and takes no answers
                    inside -= 1;
                }
            }
        }
    }
}

/// Gives a client a VI. Without one its request is dropped, and so rejected: it has gone, or there is no memory for it.
fn let_in(nic: &mut Nic, cq: Cq, request: ConnRequest) -> Result<(), Error> {
    let vi = nic.create_vi(ViAttributes::default().cq(cq).depth(DEPTH))?;
    let posted = nic.vi(vi)?.post_receives(1, LONGEST);
    let accepted = posted.and_then(|()| Ok(nic.accept(request, vi)?));
    if accepted.is_err() {
        nic.retire(vi)?;
    }
    accepted
}

fn answer(store: &mut Store, request: &[u8]) -> (u8, Arc<[u8]>) {
    let nothing = || Arc::from([]);
    match request {
        [b'G', _, key @ ..] => store.get(key).map_or((1, nothing()), |value| (0, value.clone())),
        [b'D', _, key @ ..] => (u8::from(store.remove(key).is_none()), nothing()),
        [b'P', length, rest @ ..] if rest.len() >= usize::from(*length) => {
            let (key, value) = rest.split_at(usize::from(*length));
            store.insert(key.to_vec(), value.into());
            (0, nothing())
        }
        _ => (2, nothing()),
    }
}

/// One client's connection.
struct Client {
    nic: Nic,
    vi: Vi,
}

impl Client {
    fn connect(mut nic: Nic, address: &NetAddress) -> Result<Client, Error> {
        let vi = nic.create_vi(ViAttributes::default().depth(4))?;
        nic.vi(vi)?.post_receives(1, LONGEST)?;
        nic.connect(vi, address).timeout(PATIENCE).wait()?;
        Ok(Client { nic, vi })
    }

    /// Asks, and gives the status and the value of the answer.
    fn call(&mut self, operation: u8, key: &[u8], value: &[u8]) -> Result<(u8, Vec<u8>), Error> {
        self.nic.send(self.vi, &[&[operation, key.len() as u8], key, value], None)?;
        let message = self.nic.wait_recv(self.vi, Some(PATIENCE))?;
        let (status, value) = message.bytes().and_then(<[u8]>::split_first).unwrap_or((&2, &[]));
        let answer = (*status, value.to_vec());
        self.nic.post_recv(self.vi, message.descriptor)?;
        Ok(answer)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["measure", seconds @ ..] = &words[..] {
        return measure::measure(seconds.first().map_or(Ok(measure::TURN), |text| text.parse())?);
    }
    let Some(address) = words.get(1).map(|name| name.parse()).transpose()? else { usage() };
    let nic = viaduct_net::open()?;
    match words[..] {
        ["put", _, key, value] => {
            check(key, value)?;
            let (status, _) = Client::connect(nic, &address)?.call(b'P', key.as_bytes(), value.as_bytes())?;
            if status != 0 {
                return Err("the server did not store it".into());
            }
        }
        ["get", _, ref keys @ ..] if !keys.is_empty() => {
            let mut client = Client::connect(nic, &address)?;
            for key in keys {
                check(key, "")?;
                let (status, value) = client.call(b'G', key.as_bytes(), b"")?;
                println!(
                    "{}",
                    if status == 0 { String::from_utf8_lossy(&value) } else { "(nothing)".into() }
                );
            }
        }
        ["delete", _, key] => {
            check(key, "")?;
            let (status, _) = Client::connect(nic, &address)?.call(b'D', key.as_bytes(), b"")?;
            println!("{}", if status == 0 { "deleted" } else { "(nothing)" });
        }
        ["serve", _] => serve(nic, &address)?,
        ["serve-raw", _] => raw::serve(nic, &address)?,
        _ => usage(),
    }
    Ok(())
}

/// What is too long for a request is refused before anything is sent.
fn check(key: &str, value: &str) -> Result<(), String> {
    if key.len() > LONGEST_KEY {
        return Err(format!("a key of {} bytes; a key has at most {LONGEST_KEY}", key.len()));
    }
    if value.len() > LONGEST_VALUE {
        return Err(format!("a value of {} bytes; a value has at most {LONGEST_VALUE}", value.len()));
    }
    Ok(())
}

fn usage() -> ! {
    eprintln!(
        "usage: kv serve NAME | kv put NAME KEY VALUE | kv get NAME KEY... | kv delete NAME KEY | kv measure [SECONDS]"
    );
    std::process::exit(2)
}
