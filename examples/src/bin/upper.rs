//! Streams between two processes: questions, and their answers in capitals by a server with a thread for each client.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use viaduct_net::streams::Stream;

fn server(address: &str) -> Result<(), Box<dyn Error>> {
    for stream in viaduct_net::open_streams()?.listen(address, 16)?.incoming() {
        match stream {
            Ok(stream) => drop(thread::spawn(move || answer(stream))),
            // Out of descriptors, perhaps: some are free again later.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
    Ok(())
}

/// Gives a client its question in capitals. What fails concerns this client alone.
fn answer(mut stream: Stream) -> io::Result<()> {
    let mut question = String::new();
    stream.read_to_string(&mut question)?;
    stream.write_all(question.to_uppercase().as_bytes())?;
    stream.close()
}

fn client(address: &str, question: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = viaduct_net::open_streams()?.connect(address)?;
    stream.write_all(question.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => server("via://:7000")?,
        ["client", question] => println!("{}", client("via://localhost:7000", question)?),
        _ => eprintln!("usage: upper server | upper client TEXT"),
    }
    Ok(())
}
