//! An RPC of our own, in a page: calls and answers are a length, a number and bytes. Several calls may be under way on one
//! connection; answers come in any order.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::{mpsc, oneshot};

use crate::{Conn, Door, Network};

/// Longest message that is believed.
const LONGEST: usize = 16 << 20;

/// Serves `procedure` until the task is ended. A caller that breaks the rules loses its connection, and no other caller does.
pub async fn serve(door: Door, procedure: fn(Vec<u8>) -> Vec<u8>) -> io::Result<()> {
    loop {
        let (mut calls, mut answers) = split(door.accept().await?);
        tokio::spawn(async move {
            while let Ok(Some((number, arguments))) = receive(&mut calls).await {
                if send(&mut answers, number, &procedure(arguments)).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// A caller. Clones share the connection.
#[derive(Clone)]
pub struct Client {
    calls: mpsc::UnboundedSender<(Vec<u8>, oneshot::Sender<Vec<u8>>)>,
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Vec<u8>>>>>;

impl Client {
    /// Connects.
    pub async fn connect(network: &Network, address: &str) -> io::Result<Client> {
        let (answers, out) = split(network.connect(address).await?);
        let (calls, to_send) = mpsc::unbounded_channel();
        let waiting = Waiting::default();
        tokio::spawn(write_calls(to_send, out, waiting.clone()));
        tokio::spawn(read_answers(answers, waiting));
        Ok(Client { calls })
    }

    /// Calls the procedure.
    pub async fn call(&self, arguments: Vec<u8>) -> io::Result<Vec<u8>> {
        let gone = |_| io::Error::from(io::ErrorKind::ConnectionReset);
        let (answer, answered) = oneshot::channel();
        self.calls.send((arguments, answer)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        answered.await.map_err(gone)
    }
}

async fn write_calls(
    mut calls: mpsc::UnboundedReceiver<(Vec<u8>, oneshot::Sender<Vec<u8>>)>,
    mut out: WriteHalf<Conn>,
    waiting: Waiting,
) {
    for number in 0.. {
        let Some((arguments, answer)) = calls.recv().await else { break };
        waiting.lock().expect("no thread panics with it").insert(number, answer);
        if send(&mut out, number, &arguments).await.is_err() {
            break;
        }
    }
    let _ = out.shutdown().await;
}

async fn read_answers(mut answers: ReadHalf<Conn>, waiting: Waiting) {
    while let Ok(Some((number, result))) = receive(&mut answers).await {
        if let Some(caller) = waiting.lock().expect("no thread panics with it").remove(&number) {
            // The caller may have given up.
            let _ = caller.send(result);
        }
    }
    waiting.lock().expect("no thread panics with it").clear();
}

async fn send(out: &mut (impl AsyncWrite + Unpin), number: u64, bytes: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(12 + bytes.len());
    message.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    message.extend_from_slice(&number.to_le_bytes());
    message.extend_from_slice(bytes);
    out.write_all(&message).await?;
    out.flush().await
}

/// The next message; none if the connection ended between two.
async fn receive(input: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(u64, Vec<u8>)>> {
    let mut length = [0; 4];
    if input.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    input.read_exact(&mut length[1..]).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let number = input.read_u64_le().await?;
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes).await?;
    Ok(Some((number, bytes)))
}
