//! The tokio face itself: what its users rely on, with both ends in one runtime and on several threads.

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, Read, Write};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::runtime::{Builder, Runtime};
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_providers::config::ShmConfig;
use viaduct_sovia::tokio::{Listener, Sockets, Stream};
use viaduct_sovia::{Config, Sovia};
use viaduct_via::Nic;

const LIMIT: Duration = Duration::from_secs(120);

/// Two libraries that reach each other, in the runtime that this is called in.
struct World {
    server: Sockets,
    client: Sockets,
    _folder: TempDir,
}

impl World {
    fn new(config: &Config) -> World {
        let folder = TempDir::new("streams");
        // A thread that has both ends would wait for itself at the end.
        let config = Config { exit_limit: Duration::from_millis(10), ..config.clone() };
        let [server, client] = [(); 2].map(|()| {
            // No thread looks around by itself: a wake-up that is lost shows.
            let shm = ShmConfig {
                runtime_dir: Some(folder.path().to_owned()),
                longest_sleep: None,
                ..ShmConfig::default()
            };
            let providers = viaduct_providers::Config { shm, ..viaduct_providers::Config::default() };
            let nic = Nic::open(viaduct_providers::open("shm", &providers).unwrap()).unwrap();
            Sockets::new(Sovia::open(nic, config.clone()).unwrap()).unwrap()
        });
        World { server, client, _folder: folder }
    }

    async fn pair(&self, listener: &Listener) -> (Stream, Stream) {
        let asking = self.client.connect(&listener.local_addr()).await.unwrap();
        (asking, listener.accept().await.unwrap())
    }
}

fn on_one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn both_ends_in_one_runtime_move_more_than_fits() {
    let _watchdog = Watchdog::arm(LIMIT, "one runtime");
    on_one_thread().block_on(async {
        let world = World::new(&Config::default());
        let listener = world.server.listen("via://:7001", 4).unwrap();
        let (mut a, b) = world.pair(&listener).await;
        let echo = tokio::spawn(async move {
            let (mut read, mut write) = split(b);
            copy(&mut read, &mut write).await.unwrap();
            write.shutdown().await.unwrap();
        });
        let sent = pattern(3_000_000);
        let (mut read, mut write) = split(&mut a);
        let mut back = Vec::new();
        let writing = async {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let (_, got) = tokio::join!(writing, read.read_to_end(&mut back));
        assert_eq!(got.unwrap(), sent.len());
        assert!(back == sent, "other bytes came back");
        echo.await.unwrap();
    });
}

#[test]
fn a_sleeping_reader_is_woken() {
    let _watchdog = Watchdog::arm(LIMIT, "sleeping");
    on_one_thread().block_on(async {
        let world = World::new(&Config::default());
        let listener = world.server.listen("via://:7002", 4).unwrap();
        let (mut a, mut b) = world.pair(&listener).await;
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            for _ in 0..5 {
                let mut byte = [0];
                b.read_exact(&mut byte).await.unwrap();
                all.push(byte[0]);
            }
            all
        });
        for i in 0..5u8 {
            // Longer than anybody looks.
            tokio::time::sleep(Duration::from_millis(5)).await;
            a.write_all(&[i]).await.unwrap();
            a.flush().await.unwrap();
        }
        assert_eq!(reader.await.unwrap(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn a_writer_waits_for_a_slow_reader() {
    let _watchdog = Watchdog::arm(LIMIT, "slow reader");
    let config = Config { mtu: 1024, copy_max: 1024, window: 4, threshold: 2, ..Config::default() };
    on_one_thread().block_on(async {
        let world = World::new(&config);
        let listener = world.server.listen("via://:7003", 4).unwrap();
        let (mut a, mut b) = world.pair(&listener).await;
        let sent = pattern(100_000);
        let expected = sent.clone();
        let writer = tokio::spawn(async move {
            a.write_all(&sent).await.unwrap();
            a
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!writer.is_finished(), "100 kB went into a window of 4 kB");
        let mut got = vec![0; expected.len()];
        let mut at = 0;
        while at < got.len() {
            let until = (at + 3000).min(got.len());
            b.read_exact(&mut got[at..until]).await.unwrap();
            at = until;
            tokio::task::yield_now().await;
        }
        assert!(got == expected, "other bytes came");
        drop(writer.await.unwrap());
        assert_eq!(b.read(&mut got).await.unwrap(), 0);
    });
}

#[test]
fn a_burst_of_tasks_gets_through_a_small_backlog() {
    const BURST: u8 = 100;
    let _watchdog = Watchdog::arm(LIMIT, "a burst of tasks");
    on_one_thread().block_on(async {
        let world = Arc::new(World::new(&Config::default()));
        let listener = world.server.listen("via://:7011", 4).unwrap();
        let clients: Vec<_> = (0..BURST)
            .map(|n| {
                let world = world.clone();
                tokio::spawn(async move {
                    let mut stream = world.client.connect_timeout("via://:7011", LIMIT).await.unwrap();
                    stream.write_all(&[n]).await.unwrap();
                    stream.flush().await.unwrap();
                    let mut answer = [0];
                    stream.read_exact(&mut answer).await.unwrap();
                    assert_eq!(answer, [n]);
                })
            })
            .collect();
        for _ in 0..BURST {
            let mut stream = listener.accept().await.unwrap();
            let mut word = [0];
            stream.read_exact(&mut word).await.unwrap();
            stream.write_all(&word).await.unwrap();
            stream.flush().await.unwrap();
        }
        for client in clients {
            client.await.unwrap();
        }
    });
}

#[test]
fn many_streams_share_one_descriptor() {
    let _watchdog = Watchdog::arm(LIMIT, "many");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::new(&Config::default());
        let listener = world.server.listen("via://:7004", 64).unwrap();
        let server = tokio::spawn(async move {
            for _ in 0..40 {
                let mut stream = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut buffer = [0; 256];
                    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                        stream.write_all(&buffer[..n]).await.unwrap();
                        stream.flush().await.unwrap();
                    }
                });
            }
        });
        let world = Arc::new(world);
        let clients: Vec<_> = (0..40u8)
            .map(|i| {
                let world = world.clone();
                tokio::spawn(async move {
                    let mut stream = world.client.connect("via://:7004").await.unwrap();
                    for round in 0..50u8 {
                        let question = [i, round, i ^ round];
                        stream.write_all(&question).await.unwrap();
                        stream.flush().await.unwrap();
                        let mut answer = [0; 3];
                        stream.read_exact(&mut answer).await.unwrap();
                        assert_eq!(answer, question);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        server.await.unwrap();
    });
}

#[test]
fn a_wake_up_touches_only_the_streams_that_something_came_for() {
    const IDLE: usize = 40;
    const ROUNDS: usize = 200;
    let _watchdog = Watchdog::arm(LIMIT, "wake-ups");
    on_one_thread().block_on(async {
        let world = World::new(&Config::default());
        let listener = world.server.listen("via://:7010", 64).unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        let mut silent = Vec::new();
        for _ in 0..IDLE {
            let (quiet, mut waiting) = world.pair(&listener).await;
            let polls = polls.clone();
            let task = tokio::spawn(async move {
                let mut byte = [0];
                let mut read = pin!(waiting.read_exact(&mut byte));
                poll_fn(|cx| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    read.as_mut().poll(cx)
                })
                .await
                .unwrap();
            });
            silent.push((quiet, task));
        }
        let (mut asking, mut answering) = world.pair(&listener).await;
        // Until every silent stream has left its waker: then none is polled any more.
        let mut before = 0;
        while polls.load(Ordering::Relaxed) != before || before < IDLE {
            before = polls.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for _ in 0..ROUNDS {
            // The reader sleeps when the byte comes.
            let reading = tokio::spawn(async move {
                answering.read_u8().await.unwrap();
                answering
            });
            tokio::time::sleep(Duration::from_millis(1)).await;
            asking.write_u8(1).await.unwrap();
            asking.flush().await.unwrap();
            answering = reading.await.unwrap();
        }
        assert_eq!(polls.load(Ordering::Relaxed), before, "streams without news were polled");
        for (mut quiet, task) in silent {
            quiet.write_u8(1).await.unwrap();
            quiet.flush().await.unwrap();
            task.await.unwrap();
        }
    });
}

#[test]
fn peeking_closing_and_going_back_to_threads() {
    let _watchdog = Watchdog::arm(LIMIT, "calls");
    on_one_thread().block_on(async {
        let world = World::new(&Config::default());
        let listener = world.server.listen("via://:7005", 4).unwrap();
        let (mut a, mut b) = world.pair(&listener).await;
        assert_eq!(a.provider(), Some("shm"));
        a.write_all(b"seen twice").await.unwrap();
        a.flush().await.unwrap();
        let mut seen = [0; 10];
        assert_eq!(b.peek(&mut seen).await.unwrap(), 10);
        b.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"seen twice");
        b.shutdown().await.unwrap();
        assert_eq!(a.read(&mut seen).await.unwrap(), 0);
        // The other direction is open still.
        let mut threaded = a.into_std().unwrap();
        threaded.write_all(b"from a thread").unwrap();
        threaded.flush().unwrap();
        let mut got = [0; 13];
        b.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"from a thread");
        assert_eq!(threaded.read(&mut got).unwrap(), 0);
        drop(threaded);
        assert_eq!(b.read(&mut got).await.unwrap(), 0);
        let refused = world.client.connect("via://:7006").await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_peer_that_is_gone_ends_the_wait() {
    let _watchdog = Watchdog::arm(LIMIT, "gone");
    on_one_thread().block_on(async {
        let world = World::new(&Config::default());
        let listener = world.server.listen("via://:7007", 4).unwrap();
        let (mut a, b) = world.pair(&listener).await;
        let reader = tokio::spawn(async move { a.read(&mut [0; 8]).await });
        tokio::time::sleep(Duration::from_millis(5)).await;
        b.set_linger(Some(Duration::ZERO)).unwrap();
        drop(b);
        let ended = reader.await.unwrap();
        assert!(
            matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionReset)
        );
    });
}

#[test]
fn a_listener_that_waits_hears_of_connections_beside_a_busy_stream() {
    let _watchdog = Watchdog::arm(LIMIT, "a listener");
    on_one_thread().block_on(async {
        let world = World::new(&Config::default());
        let listener = world.server.listen("via://:7009", 4).unwrap();
        let (mut a, mut b) = world.pair(&listener).await;
        let busy = tokio::spawn(async move {
            let (mut question, mut answer) = ([0; 8], [0; 8]);
            loop {
                a.write_all(&question).await.unwrap();
                b.read_exact(&mut answer).await.unwrap();
                b.write_all(&answer).await.unwrap();
                a.read_exact(&mut question).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        for round in 0..20 {
            let waits = listener.accept();
            let comes = async {
                // Sometimes it has to fall asleep first.
                tokio::time::sleep(Duration::from_millis(round % 4)).await;
                world.client.connect("via://:7009").await
            };
            let (waited, came) = tokio::join!(waits, comes);
            waited.unwrap();
            came.unwrap();
        }
        busy.abort();
    });
}
