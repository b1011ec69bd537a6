//! Programs of HTTP and RPC over TCP and over Viaduct, server and client on threads with runtimes of their own: results are equal.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use tokio::runtime::Builder;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_providers::config::ShmConfig;
use viaduct_sockets::{Door, Network, grpc, http, rpc};
use viaduct_sovia::{Config, Sovia};
use viaduct_via::Nic;

const LIMIT: Duration = Duration::from_secs(120);

/// How a side of the test gets to its network, inside its runtime.
fn network(folder: Option<&TempDir>) -> Network {
    let Some(folder) = folder else { return Network::Tcp };
    let shm = ShmConfig { runtime_dir: Some(folder.path().to_owned()), ..ShmConfig::default() };
    let config = viaduct_providers::Config { shm, ..viaduct_providers::Config::default() };
    let nic = Nic::open(viaduct_providers::open("shm", &config).unwrap()).unwrap();
    Network::via(Sovia::open(nic, Config::default()).unwrap()).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Runs `serve` on one thread and `ask` on another, over TCP and over Viaduct; what was asked is the same for both.
fn over_both<S, A, R>(what: &str, serve: fn(Door) -> S, ask: fn(Network, String) -> A)
where
    S: Future<Output = ()> + 'static,
    A: Future<Output = R>,
    R: PartialEq + std::fmt::Debug,
{
    let folder = TempDir::new("sockets");
    let [tcp, via] = [None, Some(&folder)].map(|folder| {
        let _watchdog = Watchdog::arm(LIMIT, what);
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let (done, end) = tokio::sync::oneshot::channel::<()>();
            scope.spawn(move || {
                block_on(async {
                    let (door, address) = network(folder).listen("via://:7100").await.unwrap();
                    tell.send(address).unwrap();
                    // Until the program that asks is through.
                    let mut served = pin!(serve(door));
                    let mut end = end;
                    poll_fn(|cx| match Pin::new(&mut end).poll(cx) {
                        Poll::Pending => served.as_mut().poll(cx),
                        Poll::Ready(_) => Poll::Ready(()),
                    })
                    .await;
                });
            });
            let address = told.recv().unwrap();
            let result = block_on(async { ask(network(folder), address).await });
            drop(done);
            result
        })
    });
    assert_eq!(tcp, via);
}

#[test]
fn http_by_hyper() {
    over_both("hyper", |door| async { http::serve(door).await.unwrap() }, ask_by_http);
}

#[test]
fn http_by_axum() {
    over_both("axum", |door| async { http::serve_by_axum(door).await.unwrap() }, ask_by_http);
}

async fn ask_by_http(network: Network, address: String) -> Vec<Bytes> {
    let mut client = http::Client::connect(&network, &address).await.unwrap();
    let mut all = Vec::new();
    for size in [0, 1, 100, 5000, 300_000] {
        let body = Bytes::from_iter((0..size).map(|i| (i * 7) as u8));
        let (status, back) = client.post("/echo", body.clone()).await.unwrap();
        assert_eq!((status, &back), (StatusCode::OK, &body));
        all.push(back);
    }
    let (status, _) = client.post("/elsewhere", Bytes::new()).await.unwrap();
    assert_eq!(status, StatusCode::NOT_FOUND);
    client.close().await;
    all
}

#[test]
fn grpc_by_tonic() {
    over_both(
        "tonic",
        |door| async { grpc::serve(door).await.unwrap() },
        |network, address| async move {
            let mut client = grpc::Client::connect(&network, &address).await.unwrap();
            let echoed = client.echo(Bytes::from(vec![7; 100_000])).await.unwrap();
            assert_eq!(echoed, vec![7; 100_000]);
            let spelt = client.spell(Bytes::from_static(b"viaduct")).await.unwrap();
            assert_eq!(spelt.concat(), b"viaduct");
            let refused = client.echo(Bytes::new()).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            (echoed, spelt, refused.message().to_owned())
        },
    );
}

#[test]
fn an_rpc_of_our_own() {
    fn reversed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.reverse();
        bytes
    }
    over_both(
        "rpc",
        |door| async { rpc::serve(door, reversed).await.unwrap() },
        |network, address| async move {
            let client = rpc::Client::connect(&network, &address).await.unwrap();
            // Many at once, on one connection.
            let calls: Vec<_> = (0..200usize)
                .map(|i| {
                    let client = client.clone();
                    tokio::spawn(async move { client.call(vec![i as u8; i * 31]).await.unwrap() })
                })
                .collect();
            let mut all = Vec::new();
            for (i, call) in calls.into_iter().enumerate() {
                let back = call.await.unwrap();
                assert_eq!(back, vec![i as u8; i * 31]);
                all.push(back);
            }
            all.push(client.call(b"lag".to_vec()).await.unwrap());
            all
        },
    );
}
