//! What tests of flows share: numbers as records, and an edge over VIA between two NICs of this process.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use viaduct_kit::watchdog::Watchdog;
use viaduct_river::net::{Port, ViaSink, ViaSource};
use viaduct_river::{Buffer, Edge, Error, Fixed, MemPool, Source, records};
use viaduct_via::{NetAddress, Nic, SharedNic};

pub(crate) fn watch() -> Watchdog {
    Watchdog::arm(viaduct_kit::effort::scaled(Duration::from_secs(60)), "a flow")
}

/// Numbers of eight bytes as a source, through a pool of one buffer.
pub(crate) struct Numbers {
    next: std::sync::Mutex<u64>,
    end: u64,
    step: u64,
    pool: MemPool,
    edge: Edge,
}

impl Numbers {
    pub(crate) fn new(start: u64, end: u64, step: u64) -> Numbers {
        Numbers::from_pool(start, end, step, MemPool::new(1, 4096).unwrap())
    }

    pub(crate) fn from_pool(start: u64, end: u64, step: u64, pool: MemPool) -> Numbers {
        Numbers { next: std::sync::Mutex::new(start), end, step, pool, edge: Edge::new("numbers") }
    }
}

impl Source for Numbers {
    fn pull(&self) -> Result<Option<Buffer>, Error> {
        let mut next = self.next.lock().unwrap();
        if *next >= self.end {
            return Ok(None);
        }
        let mut buffer = self.pool.take();
        while *next < self.end && buffer.free() >= 8 {
            buffer.push_record(&next.to_be_bytes());
            *next += self.step;
        }
        self.edge.carried(buffer.len(), buffer.records());
        Ok(Some(buffer))
    }

    fn edge(&self) -> &Edge {
        &self.edge
    }
}

pub(crate) fn numbers_of(source: &dyn Source) -> Result<Vec<u64>, Error> {
    let mut all = Vec::new();
    while let Some(buffer) = source.pull()? {
        all.extend(
            records(&Fixed(8), buffer.data()).map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())),
        );
    }
    Ok(all)
}

/// The two ends of a TCP connection.
#[allow(dead_code, reason = "not every test file has an edge over TCP")]
pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// The two ends of an edge between NICs of this process, and the port that it leaves from.
pub(crate) struct Ends {
    pub(crate) port: Port,
    pub(crate) sink: ViaSink,
    pub(crate) source: ViaSource,
    there: Port,
}

/// An edge over shared memory whose receiver has so many buffers.
#[allow(dead_code, reason = "not every test file has an edge over shared memory alone")]
pub(crate) fn via_pair(name: &str, buffers: usize) -> (Port, ViaSink, ViaSource) {
    let ends = via_pair_of("shm", name, buffers);
    (ends.port, ends.sink, ends.source)
}

/// An edge over a provider.
pub(crate) fn via_pair_of(provider: &str, name: &str, buffers: usize) -> Ends {
    edge(port(provider), port(provider), name, buffers)
}

impl Ends {
    /// Another edge between the same NICs.
    #[allow(dead_code, reason = "not every test file needs two")]
    pub(crate) fn another(&self, name: &str, buffers: usize) -> Ends {
        edge(self.port.clone(), self.there.clone(), name, buffers)
    }
}

fn edge(port: Port, there: Port, name: &str, buffers: usize) -> Ends {
    let address = NetAddress::local(&format!("{name}-{}", std::process::id())).unwrap();
    let listener = there.nic().lock().listen(&address, 1).unwrap();
    let limit = Duration::from_secs(20);
    let (sink, source) = std::thread::scope(|scope| {
        let sink = scope.spawn(|| ViaSink::connect("out", &port, 1, &address, 4096, limit).unwrap());
        let request = there.nic().wait_until(Some(limit), |nic| nic.poll_listener(listener).transpose());
        let pool = MemPool::registered(&there, buffers, 4096, None).unwrap();
        let source = ViaSource::accept("in", &there, 0, request.unwrap(), pool).unwrap();
        (sink.join().unwrap(), source)
    });
    Ends { port, sink, source, there }
}

fn port(provider: &str) -> Port {
    let provider = viaduct_providers::open(provider, &Default::default()).unwrap();
    Port::new(SharedNic::new(Nic::open(provider).unwrap())).unwrap()
}
