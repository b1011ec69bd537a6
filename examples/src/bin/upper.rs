//! Streams between two processes: a question, and its answer in capitals.

use std::error::Error;
use std::io::{Read, Write};
use std::net::Shutdown;

fn server(address: &str) -> Result<(), Box<dyn Error>> {
    let listener = viaduct_net::open_streams()?.listen(address, 16)?;
    let mut stream = listener.accept()?;
    let mut question = String::new();
    stream.read_to_string(&mut question)?;
    stream.write_all(question.to_uppercase().as_bytes())?;
    Ok(stream.close()?)
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
