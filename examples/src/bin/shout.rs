//! The first program of the book: one process answers what another says, in capital letters.
//!
//! ```text
//!   shout server &
//!   shout client hello
//! ```

use std::time::Duration;

use viaduct_net::{Buffer, Descriptor, Error, ViAttributes};

const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: usize = 1 << 20;

fn server(name: &str) -> Result<(), Error> {
    let mut nic = viaduct_net::open()?;
    let vi = nic.create_vi(ViAttributes::default())?;
    // A receive is posted before a peer can send: VIA has no flow control of its own.
    nic.vi(vi)?.post_receives(1, LONGEST)?;
    let listener = nic.listen(&name.parse()?, 8)?;
    let request = nic.wait_listener(listener, Some(PATIENCE))?;
    nic.accept(request, vi)?;

    let letter = nic.wait_recv(vi, Some(PATIENCE))?;
    let loud = letter.data().to_ascii_uppercase();
    nic.post_send(vi, Descriptor::send(Buffer::from(loud)))?;
    nic.wait_send(vi, Some(PATIENCE))?; // or an error, if it did not go out
    Ok(())
}

fn client(name: &str, text: &str) -> Result<String, Error> {
    let mut nic = viaduct_net::open()?;
    let vi = nic.create_vi(ViAttributes::default())?;
    nic.vi(vi)?.post_receives(1, LONGEST)?;
    nic.connect(vi, &name.parse()?).timeout(PATIENCE).wait()?;

    let mut letter = nic.buffer(text.len())?;
    letter.write(0, text.as_bytes());
    nic.post_send(vi, Descriptor::send(letter))?;
    let answer = nic.wait_recv(vi, Some(PATIENCE))?;
    Ok(String::from_utf8_lossy(&answer.data()).into_owned())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => server("shout")?,
        ["client", text] => println!("{}", client("shout", text)?),
        _ => eprintln!("usage: shout server | shout client TEXT"),
    }
    Ok(())
}
