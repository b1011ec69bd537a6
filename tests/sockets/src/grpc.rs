//! gRPC by tonic: one service with a unary and a server-streaming method. The messages are plain bytes with a codec of a
//! few lines, so that building needs no compiler of interfaces; what one generates would stand here instead.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use hyper_util::rt::TokioIo;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{ServerStreamingService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Request, Response, Status};

use crate::{Conn, Door, Network};

/// Serves until the task is ended.
pub async fn serve(door: Door) -> Result<(), tonic::transport::Error> {
    Server::builder().serve_with_incoming(Echo, Accepted { door: Some(door), next: None }).await
}

/// A client with one connection.
pub struct Client(Grpc<Channel>);

impl Client {
    /// Connects. The address in the URI is for the headers; the connector knows where to go.
    pub async fn connect(network: &Network, address: &str) -> Result<Client, tonic::transport::Error> {
        let (network, address) = (network.clone(), address.to_owned());
        let connector = tower::service_fn(move |_: Uri| {
            let (network, address) = (network.clone(), address.clone());
            async move { network.connect(&address).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://echo").connect_with_connector(connector).await?;
        Ok(Client(Grpc::new(channel)))
    }

    /// The message comes back.
    pub async fn echo(&mut self, message: Bytes) -> Result<Bytes, Status> {
        self.ready().await?;
        let path = http_path("/viaduct.Echo/Echo");
        Ok(self.0.unary(Request::new(message), path, Plain).await?.into_inner())
    }

    /// Its bytes come back one by one, each a message of its own.
    pub async fn spell(&mut self, message: Bytes) -> Result<Vec<Bytes>, Status> {
        self.ready().await?;
        let path = http_path("/viaduct.Echo/Spell");
        let mut answers = self.0.server_streaming(Request::new(message), path, Plain).await?.into_inner();
        let mut all = Vec::new();
        while let Some(answer) = answers.message().await? {
            all.push(answer);
        }
        Ok(all)
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.0.ready().await.map_err(|e| Status::unavailable(e.to_string()))
    }
}

fn http_path(path: &'static str) -> hyper::http::uri::PathAndQuery {
    hyper::http::uri::PathAndQuery::from_static(path)
}

/// The service, as generated code has it.
#[derive(Clone)]
struct Echo;

impl tower_service::Service<hyper::Request<Body>> for Echo {
    type Response = hyper::Response<Body>;
    type Error = Infallible;
    type Future = Later<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Plain);
            Ok(match request.uri().path() {
                "/viaduct.Echo/Echo" => grpc.unary(Back, request).await,
                "/viaduct.Echo/Spell" => grpc.server_streaming(Spelt, request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

struct Back;

impl UnaryService<Bytes> for Back {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(match request.into_inner() {
            empty if empty.is_empty() => Err(Status::invalid_argument("nothing to send back")),
            message => Ok(Response::new(message)),
        })
    }
}

struct Spelt;

impl ServerStreamingService<Bytes> for Spelt {
    type Response = Bytes;
    type ResponseStream = tokio_stream::Iter<std::vec::IntoIter<Result<Bytes, Status>>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let message = request.into_inner();
        let all: Vec<_> = (0..message.len()).map(|i| Ok(message.slice(i..i + 1))).collect();
        std::future::ready(Ok(Response::new(tokio_stream::iter(all))))
    }
}

/// Bytes as they are.
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Accepted connections as the stream that tonic takes.
struct Accepted {
    door: Option<Door>,
    next: Option<Later<(Door, io::Result<Conn>)>>,
}

impl Stream for Accepted {
    type Item = io::Result<Conn>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Conn>>> {
        if let Some(door) = self.door.take() {
            self.next = Some(Box::pin(async move {
                let accepted = door.accept().await;
                (door, accepted)
            }));
        }
        let Some(next) = self.next.as_mut() else { return Poll::Ready(None) };
        let (door, accepted) = std::task::ready!(next.as_mut().poll(cx));
        (self.door, self.next) = (Some(door), None);
        Poll::Ready(Some(accepted))
    }
}
