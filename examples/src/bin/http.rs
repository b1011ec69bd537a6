//! A web server by axum and a client by hyper, over streams of Viaduct instead of TCP.
//!
//! ```text
//!   http serve via://:7030 &
//!   http get via://localhost:7030 /hello/you
//! ```
//!
//! Both run on one thread. A runtime of several threads works too, and is slower for one connection: the book's chapter on
//! sockets says by how much.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use viaduct_net::streams::tokio::Sockets;

/// What axum accepts connections from.
struct Door(viaduct_net::streams::tokio::Listener);

impl axum::serve::Listener for Door {
    type Io = viaduct_net::streams::tokio::Stream;
    type Addr = String;

    async fn accept(&mut self) -> (Self::Io, String) {
        loop {
            match self.0.accept().await {
                Ok(stream) => {
                    let peer = stream.peer_addr();
                    return (stream, peer);
                }
                // Out of descriptors, perhaps: some are free again later.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<String> {
        Ok(self.0.local_addr())
    }
}

async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let sockets = Sockets::new(viaduct_net::open_streams()?)?;
    let hello = |Path(name): Path<String>| async move { format!("Hello, {name}!\n") };
    let router = Router::new().route("/hello/{name}", get(hello));
    axum::serve(Door(sockets.listen(address, 64)?), router).await?;
    Ok(())
}

async fn fetch(address: &str, page: &str) -> Result<(u16, Bytes), Box<dyn Error>> {
    let sockets = Sockets::new(viaduct_net::open_streams()?)?;
    let request = Request::get(page).header("host", "viaduct").body(Empty::<Bytes>::new())?;

    let stream = sockets.connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.ready().await?; // before each request
    let response = sender.send_request(request).await?;
    Ok((response.status().as_u16(), response.into_body().collect().await?.to_bytes()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address).await?,
        ["get", address, page] => {
            let (status, body) = fetch(address, page).await?;
            print!("{status} {}", String::from_utf8_lossy(&body));
        }
        _ => eprintln!("usage: http serve ADDRESS | http get ADDRESS PAGE"),
    }
    Ok(())
}
