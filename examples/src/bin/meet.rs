//! Two programs that meet wherever they run: on one host through shared memory, between hosts over the network.
//!
//! ```text
//!   meet server meeting &
//!   meet client localhost/meeting
//! ```

use std::time::Duration;

use viaduct_net::{Error, ViAttributes};

const PATIENCE: Duration = Duration::from_secs(10);

fn server(name: &str) -> Result<(), Error> {
    let mut nic = viaduct_net::open()?;
    let vi = nic.create_vi(ViAttributes::default())?;
    nic.vi(vi)?.post_receives(1, 64)?;
    let listener = nic.listen(&name.parse()?, 8)?;
    let request = nic.wait_listener(listener, None)?;
    nic.accept(request, vi)?;
    let question = nic.wait_recv(vi, Some(PATIENCE))?;
    nic.send(vi, &[b"well met, ", &question.data()], None)
}

fn client(address: &str) -> Result<(), Error> {
    let mut nic = viaduct_net::open()?;
    let vi = nic.create_vi(ViAttributes::default())?;
    nic.vi(vi)?.post_receives(1, 64)?;
    nic.connect(vi, &address.parse()?).timeout(PATIENCE).wait()?;
    let provider = nic.query_vi(vi)?.provider.unwrap_or("nothing any more");
    nic.send(vi, &[b"stranger"], None)?;
    let answer = nic.wait_recv(vi, Some(PATIENCE))?.data();
    println!("{}, by {provider}", String::from_utf8_lossy(&answer));
    Ok(())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", name] => server(name)?,
        ["client", address] => client(address)?,
        _ => eprintln!("usage: meet server NAME | meet client HOST/NAME"),
    }
    Ok(())
}
