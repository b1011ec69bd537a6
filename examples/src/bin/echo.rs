//! A server of many clients: every message comes back with its own bytes.

use std::time::Duration;

use viaduct_net::{Arrival, Buffer, Descriptor, Error, Queue, ViAttributes};

const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: usize = 64 << 10;

/// Answers every message, until so many clients have gone.
fn server(name: &str, mut clients: usize) -> Result<(), Error> {
    let mut nic = viaduct_net::open()?;
    let (cq, listener) = (nic.create_cq(1024)?, nic.listen(&name.parse()?, 8)?);
    while clients > 0 {
        match nic.wait_any(cq, listener, None)? {
            Arrival::Request(request) => {
                let vi = nic.create_vi(ViAttributes::default().cq(cq))?;
                nic.vi(vi)?.post_receives(4, LONGEST)?;
                if nic.accept(request, vi).is_err() {
                    nic.retire(vi)?; // the client has gone already; it was none of those that are counted
                }
            }
            Arrival::Completion(done) => {
                let vi = done.vi();
                match done.ok() {
                    Ok(message) if message.queue == Queue::Receive => {
                        let answer = Descriptor::send(Buffer::from(message.data()));
                        nic.post_recv(vi, message.descriptor)?; // before the client sends again
                        nic.post_send(vi, answer)?;
                    }
                    Ok(_sent) => {}
                    Err(_gone) => {
                        nic.retire(vi)?;
                        clients -= 1;
                    }
                }
            }
        }
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
