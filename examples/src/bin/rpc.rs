//! Calls of procedures over streams: frames with a name and bytes, answered one after the other by a thread for each client.
//!
//! ```text
//!   rpc serve via://:7020 &
//!   rpc call via://localhost:7020 reverse stressed
//! ```
//!
//! The two functions in the middle take anything that reads and writes: over TCP not a line of them changes.

use std::error::Error;
use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

const LONGEST: usize = 1 << 24;
const PAUSE: Duration = Duration::from_millis(100);

/// Answers the calls of one client until it hangs up.
fn answer(mut stream: impl Read + Write) -> io::Result<()> {
    while let Some(call) = read_frame(&mut stream)? {
        let (name, argument) = call.split_at(call.iter().position(|b| *b == b' ').unwrap_or(call.len()));
        let argument = argument.get(1..).unwrap_or_default();
        let result = match name {
            b"reverse" => argument.iter().rev().copied().collect(),
            b"length" => argument.len().to_string().into_bytes(),
            _ => b"there is no such procedure".to_vec(),
        };
        write_frame(&mut stream, &[&result])?;
    }
    Ok(())
}

/// Calls one procedure.
fn call(mut stream: impl Read + Write, name: &str, argument: &[u8]) -> io::Result<Vec<u8>> {
    write_frame(&mut stream, &[name.as_bytes(), b" ", argument])?;
    read_frame(&mut stream)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn write_frame(stream: &mut impl Write, parts: &[&[u8]]) -> io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    stream.write_all(&(length as u32).to_le_bytes())?;
    parts.iter().try_for_each(|part| stream.write_all(part))?;
    stream.flush()
}

/// The next frame; None at the end of the stream.
fn read_frame(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame)?;
    Ok(Some(frame))
}

fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let streams = viaduct_net::open_streams()?;
    for stream in streams.listen(address, 64)?.incoming() {
        match stream {
            Ok(stream) => drop(thread::spawn(move || answer(stream))),
            // Out of descriptors, or a client that is gone already: others may be let in later.
            Err(error) => {
                eprintln!("a client was not let in: {error}");
                thread::sleep(PAUSE);
            }
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address)?,
        ["call", address, name, argument] => {
            let stream = viaduct_net::open_streams()?.connect(address)?;
            println!("{}", String::from_utf8_lossy(&call(stream, name, argument.as_bytes())?));
        }
        _ => eprintln!("usage: rpc serve ADDRESS | rpc call ADDRESS NAME ARGUMENT"),
    }
    Ok(())
}
