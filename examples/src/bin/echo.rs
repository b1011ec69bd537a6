//! A server of many clients: every message comes back with its own bytes.

use std::time::Duration;

use viaduct_net::{Arrival, Buffer, ConnRequest, Cq, Descriptor, Ended, Error, Nic, Queue, ViAttributes};

const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: usize = 64 << 10;
/// Clients that are served at once.
const CLIENTS: usize = 100;
const FULL: &[u8] = b"no room for one more client";
/// Descriptors that each of the two queues of a client holds: half of them receives that are always posted.
const DEPTH: usize = 8;

/// Answers every message, until so many clients have gone.
fn server(name: &str, mut clients: usize) -> Result<(), Error> {
    let mut nic = viaduct_net::open()?;
    // An entry for each descriptor of each client, so that none takes those of another.
    let (cq, listener) = (nic.create_cq(CLIENTS * 2 * DEPTH)?, nic.listen(&name.parse()?, 8)?);
    let mut inside = 0;
    while clients > 0 {
        match nic.wait_any(cq, listener, None)? {
            // What the client does not hear any more is no error of the server's.
            Arrival::Request(request) if inside == CLIENTS => drop(nic.reject_with(request, FULL)),
            // One that is not let in has gone already, or the machine has no memory for it: the others are served on.
            Arrival::Request(request) => inside += usize::from(let_in(&mut nic, cq, request).is_ok()),
            Arrival::Completion(done) => {
                let vi = done.vi();
                if answer(&mut nic, done).is_err() {
                    nic.retire(vi)?; // it has gone, or asks and takes no answers
                    (inside, clients) = (inside - 1, clients - 1);
                }
            }
        }
    }
    Ok(())
}

/// Gives a client a VI. Without one its request is dropped, and so rejected.
fn let_in(nic: &mut Nic, cq: Cq, request: ConnRequest) -> Result<(), Error> {
    let vi = nic.create_vi(ViAttributes::default().cq(cq).depth(DEPTH))?;
    let posted = nic.vi(vi)?.post_receives(DEPTH / 2, LONGEST);
    let accepted = posted.and_then(|()| Ok(nic.accept(request, vi)?));
    if accepted.is_err() {
        nic.retire(vi)?;
    }
    accepted
}

/// Answers a message; a send that is out needs nothing. What fails concerns this client alone.
fn answer(nic: &mut Nic, done: Ended) -> Result<(), Error> {
    let message = done.ok()?;
    if message.queue == Queue::Receive {
        let answer = Descriptor::send(Buffer::from(message.data()));
        nic.post_recv(message.vi, message.descriptor)?; // before the client sends again
        nic.post_send(message.vi, answer)?;
    }
    Ok(())
}

fn client(name: &str, text: &str) -> Result<String, Error> {
    let mut nic = viaduct_net::open()?;
    let vi = nic.create_vi(ViAttributes::default())?;
    nic.vi(vi)?.post_receives(1, LONGEST)?;
    nic.connect(vi, &name.parse()?).timeout(PATIENCE).wait()?;
    nic.post_send(vi, Descriptor::send(Buffer::from(text.as_bytes().to_vec())))?;
    let answer = nic.wait_recv(vi, Some(PATIENCE))?;
    Ok(String::from_utf8_lossy(&answer.data()).into_owned())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", clients] => server("echo", clients.parse().unwrap_or(1))?,
        ["client", text] => println!("{}", client("echo", text)?),
        _ => eprintln!("usage: echo server CLIENTS | echo client TEXT"),
    }
    Ok(())
}
