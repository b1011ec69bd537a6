//! Streams for tokio between two processes: a server with a task for each client, on one thread.

use std::error::Error;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use viaduct_net::streams::tokio::{Sockets, Stream};

async fn server(address: &str) -> Result<(), Box<dyn Error>> {
    let listener = Sockets::new(viaduct_net::open_streams()?)?.listen(address, 16)?;
    loop {
        match listener.accept().await {
            Ok(stream) => drop(tokio::spawn(answer(stream))),
            // Out of descriptors, perhaps: some are free again later.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Gives a client its question in capitals. What fails concerns this client alone.
async fn answer(mut stream: Stream) -> std::io::Result<()> {
    let mut question = String::new();
    stream.read_to_string(&mut question).await?;
    stream.write_all(question.to_uppercase().as_bytes()).await?;
    stream.shutdown().await
}

async fn client(address: &str, question: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = Sockets::new(viaduct_net::open_streams()?)?.connect(address).await?;
    stream.write_all(question.as_bytes()).await?;
    stream.shutdown().await?; // ends the question, and lets the answer come
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => server("via://:7001").await?,
        ["client", question] => println!("{}", client("via://localhost:7001", question).await?),
        _ => eprintln!("usage: tasks server | tasks client TEXT"),
    }
    Ok(())
}
