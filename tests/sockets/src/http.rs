//! HTTP/1.1 by hyper and by axum: servers that send bodies back, and a client that keeps its connection.

use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

use crate::{Conn, Door, Network};

/// Serves until the task is ended.
pub async fn serve(door: Door) -> io::Result<()> {
    loop {
        let stream = TokioIo::new(door.accept().await?);
        tokio::spawn(async move {
            let served =
                hyper::server::conn::http1::Builder::new().serve_connection(stream, service_fn(answer));
            // A client may leave whenever it likes.
            let _ = served.await;
        });
    }
}

/// Serves the same by axum.
pub async fn serve_by_axum(door: Door) -> io::Result<()> {
    let echo = axum::routing::post(|body: Bytes| async move { body });
    axum::serve(Entrance(door), axum::Router::new().route("/echo", echo)).await
}

/// What axum accepts connections from.
struct Entrance(Door);

impl axum::serve::Listener for Entrance {
    type Io = Conn;
    type Addr = ();

    async fn accept(&mut self) -> (Conn, ()) {
        loop {
            if let Ok(stream) = self.0.accept().await {
                return (stream, ());
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

async fn answer(request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let found = match (request.method(), request.uri().path()) {
        (&Method::POST, "/echo") => StatusCode::OK,
        _ => StatusCode::NOT_FOUND,
    };
    let body = request.into_body().collect().await?.to_bytes();
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = found;
    Ok(response)
}

/// A client with one connection.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Client {
    /// Connects.
    pub async fn connect(network: &Network, address: &str) -> io::Result<Client> {
        let stream = TokioIo::new(network.connect(address).await?);
        let (sender, connection) =
            hyper::client::conn::http1::handshake(stream).await.map_err(io::Error::other)?;
        Ok(Client { sender, connection: tokio::spawn(connection) })
    }

    /// Sends a body, and gives back status and body of the answer.
    pub async fn post(&mut self, path: &str, body: Bytes) -> hyper::Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("host", "localhost")
            .body(Full::new(body))
            .expect("all parts are well-formed");
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }

    /// Closes the connection, and waits until it is.
    pub async fn close(self) {
        drop(self.sender);
        let _ = self.connection.await;
    }
}
