//! The spin policy is a knob: streams and shared NICs obey it, in one process and through shared memory, and their spins and
//! sleeps are counted.

use std::io::{Read, Write};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_providers::loopback::Hub;
use viaduct_sovia::{Config, Sovia};
use viaduct_via::{Buffer, Counter, CounterSlot, Descriptor, Nic, SharedNic, Spin, ViAttributes, WaitConfig};

const LIMIT: Duration = Duration::from_secs(60);
const ROUNDS: u8 = 20;

/// Opens NICs that reach each other.
type Open<'a> = &'a dyn Fn() -> Nic;

/// Spins and sleeps of a client whose answers take a while.
fn of_a_stream(nic: Open<'_>, spin: Spin) -> (u64, u64) {
    let (counters, client, answering) = slow_server(nic, spin);
    let mut stream = client.connect("spins").unwrap();
    let before = counted(&counters);
    for n in 0..ROUNDS {
        let mut byte = [n];
        stream.write_all(&byte).unwrap();
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [n]);
    }
    let after = counted(&counters);
    drop(stream);
    answering.join().unwrap();
    (after.0 - before.0, after.1 - before.1)
}

/// Spins and sleeps of a task whose answers take a while.
#[cfg(feature = "tokio")]
fn of_a_task(nic: Open<'_>, spin: Spin) -> (u64, u64) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use viaduct_sovia::tokio::Sockets;

    let (counters, client, answering) = slow_server(nic, spin);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let (before, after) = runtime.block_on(async {
        let sockets = Sockets::new(client).unwrap();
        let mut stream = sockets.connect("spins").await.unwrap();
        let before = counted(&counters);
        for n in 0..ROUNDS {
            let mut byte = [n];
            stream.write_all(&byte).await.unwrap();
            stream.flush().await.unwrap();
            stream.read_exact(&mut byte).await.unwrap();
            assert_eq!(byte, [n]);
        }
        (before, counted(&counters))
    });
    drop(runtime);
    answering.join().unwrap();
    (after.0 - before.0, after.1 - before.1)
}

/// A server that takes a millisecond for every byte; a library that reaches it, and its counters.
fn slow_server(nic: Open<'_>, spin: Spin) -> (CounterSlot, Sovia, JoinHandle<()>) {
    let open = |nic: Nic| Sovia::open(nic, Config { spin, ..Config::default() }).unwrap();
    let (there, here) = (nic(), nic());
    let counters = here.counters().clone();
    let (server, client) = (open(there), open(here));
    let listener = server.listen("spins", 1).unwrap();
    let answering = thread::spawn(move || {
        let mut stream = listener.accept().unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() > 0 {
            thread::sleep(Duration::from_millis(1));
            stream.write_all(&byte).unwrap();
            stream.flush().unwrap();
        }
    });
    (counters, client, answering)
}

/// Spins and sleeps of a thread that waits for messages which take a while to come.
fn of_a_shared_nic(nic: Open<'_>, spin: Spin) -> (u64, u64) {
    let (mut here, mut there) = (nic(), nic());
    there.set_wait(WaitConfig { spin });
    let (a, b) = (here.create_vi(ViAttributes::default()), there.create_vi(ViAttributes::default()));
    let (a, b) = (a.unwrap(), b.unwrap());
    for _ in 0..ROUNDS {
        there.post_recv(b, Descriptor::recv(Buffer::from(vec![0; 8]))).unwrap();
    }
    let address = "spins".parse().unwrap();
    let listener = there.listen(&address, 1).unwrap();
    here.connect(a, &address).timeout(LIMIT).start().unwrap();
    let request = there.wait_listener(listener, Some(LIMIT)).unwrap();
    there.accept(request, b).unwrap();
    here.connect_finish(a).unwrap();
    let (counters, shared) = (there.counters().clone(), SharedNic::new(there));
    let before = counted(&counters);
    let sending = thread::spawn(move || {
        for n in 0..ROUNDS {
            thread::sleep(Duration::from_millis(1));
            here.send_inline(a, &[n], None).unwrap();
        }
        here
    });
    for n in 0..ROUNDS {
        let got = shared.wait_until(Some(LIMIT), |nic| nic.poll_recv(b).transpose()).unwrap();
        assert_eq!(got.data(), [n]);
    }
    drop(sending.join().unwrap());
    let after = counted(&counters);
    (after.0 - before.0, after.1 - before.1)
}

fn counted(counters: &CounterSlot) -> (u64, u64) {
    (counters.read(Counter::Spins), counters.read(Counter::Sleeps))
}

#[test]
fn streams_and_shared_nics_spin_as_they_are_told() {
    let _watchdog = Watchdog::arm(LIMIT, "spins");
    let (hub, folder) = (Hub::new(), TempDir::new("spins"));
    let mut config = viaduct_providers::Config::default();
    config.shm.runtime_dir = Some(folder.path().to_owned());
    let loopback = || Nic::open(hub.provider()).unwrap();
    let shm = || Nic::open(viaduct_providers::open("shm", &config).unwrap()).unwrap();
    for (provider, open) in [("loopback", &loopback as Open<'_>), ("shm", &shm)] {
        for (what, measure) in [
            ("a stream", of_a_stream as fn(Open<'_>, Spin) -> _),
            #[cfg(feature = "tokio")]
            ("a task", of_a_task),
            ("a NIC", of_a_shared_nic),
        ] {
            let (spins, sleeps) = measure(open, Spin::Never);
            let told = format!("{what} on {provider}: {spins} spins, {sleeps} sleeps");
            assert!(spins == 0 && sleeps > 0, "told to spin never, {told}");
            let (spins, sleeps) = measure(open, Spin::Always);
            let told = format!("{what} on {provider}: {spins} spins, {sleeps} sleeps");
            assert!(spins > 0 && sleeps == 0, "told to spin always, {told}");
        }
    }
}
