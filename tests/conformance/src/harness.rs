//! The worlds a suite can be run in: each is a provider, with its settings and the hooks wrapped around it.
//!
//! A new one is a function here and a line `suite!(name);` in `tests/main.rs`.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use viaduct_job::Token;
use viaduct_kit::effort::scaled;
use viaduct_kit::tempdir::TempDir;
use viaduct_providers::config::{OfiConfig, ShmConfig};
use viaduct_providers::loopback::Hub;
use viaduct_providers::{Config, open};
use viaduct_via::Error;
use viaduct_via::hooks::{Count, Delay, Hook, Hooked, Trace};
use viaduct_via::provider::Provider;

/// Opens one more provider whose NIC reaches the others of its world.
pub type Opener = Box<dyn Fn() -> Result<Box<dyn Provider>, Error> + Send + Sync>;

/// How the NICs of a world are made.
pub struct Setup {
    /// Name of the world, for messages.
    pub name: &'static str,
    /// Makes a provider.
    pub open: Opener,
    /// Descriptors are held back by a hook, so that a send is not handed over by the post itself.
    pub delayed: bool,
    /// Removed when the world ends.
    pub folder: Option<TempDir>,
    /// What carries a connection, where that is not the provider itself.
    pub carrier: Option<&'static str>,
}

impl Setup {
    fn new(name: &'static str, open: Opener) -> Setup {
        Setup { name, open, delayed: false, folder: None, carrier: None }
    }

    /// This setup with a hook around every provider; each gets its own.
    fn hooked(self, name: &'static str, hook: impl Fn() -> Arc<dyn Hook> + Send + Sync + 'static) -> Setup {
        let inner = self.open;
        let open: Opener = Box::new(move || Ok(Hooked::new(inner()?, hook())));
        Setup { name, open, ..self }
    }
}

/// NICs of one process on a hub of their own.
pub fn loopback() -> Setup {
    let hub = Hub::new();
    Setup::new("loopback", Box::new(move || Ok(hub.provider())))
}

/// Loopback with everything counted.
pub fn loopback_counted() -> Setup {
    loopback().hooked("loopback_counted", || Arc::new(Count::default()))
}

/// Loopback with hooks inside hooks.
pub fn loopback_traced() -> Setup {
    loopback()
        .hooked("loopback_counted", || Arc::new(Count::default()))
        .hooked("loopback_traced", || Arc::new(Trace::new(|_, _| {})))
}

/// Loopback with every descriptor held back for a moment.
pub fn loopback_delayed() -> Setup {
    delayed(loopback(), "loopback_delayed")
}

/// Shared memory as it comes.
pub fn shm() -> Setup {
    shared("shm", |_| {})
}

/// Shared memory between NICs that do not reach into each other's memory.
pub fn shm_copying() -> Setup {
    shared("shm_copying", |config| config.direct = false)
}

/// Shared memory between NICs that treat each other as those of different users do.
pub fn shm_isolated() -> Setup {
    shared("shm_isolated", |config| config.isolate = true)
}

/// Shared memory without the kernel's help for private memory.
pub fn shm_without_vm() -> Setup {
    shared("shm_without_vm", |config| config.process_vm = false)
}

/// Shared memory with rings so short and a map cache so small that both are always full.
pub fn shm_cramped() -> Setup {
    shared("shm_cramped", |config| {
        config.ring_slots = 8;
        config.map_cache = 1;
    })
}

/// Shared memory with everything counted.
pub fn shm_counted() -> Setup {
    shm().hooked("shm_counted", || Arc::new(Count::default()))
}

/// Shared memory with every descriptor held back for a moment.
pub fn shm_delayed() -> Setup {
    delayed(shm(), "shm_delayed")
}

/// The settings of shared-memory NICs that meet in `folder`.
pub fn shm_config(folder: &Path) -> Config {
    // No thread looks around by itself here: a wake-up that is lost shows.
    Config {
        shm: ShmConfig { runtime_dir: Some(folder.to_owned()), longest_sleep: None, ..ShmConfig::default() },
        ..Config::default()
    }
}

/// libfabric over TCP, within one host.
pub fn ofi_tcp() -> Setup {
    fabric("ofi_tcp", |_| {})
}

/// libfabric over TCP with frames so short and windows so small that everything is cut into pieces and has to wait.
pub fn ofi_cramped() -> Setup {
    fabric("ofi_cramped", |config| {
        config.frame = 2048;
        config.window = 8;
    })
}

/// libfabric over TCP with everything counted.
pub fn ofi_counted() -> Setup {
    ofi_tcp().hooked("ofi_counted", || Arc::new(Count::default()))
}

/// Shared memory or libfabric, whichever reaches the peer: within one host it is shared memory.
pub fn auto() -> Setup {
    let folder = TempDir::new("auto");
    let mut config = shm_config(folder.path());
    config.ofi = fabric_config(folder.path());
    let open: Opener = Box::new(move || open("auto", &config));
    Setup { folder: Some(folder), carrier: Some("shm"), ..Setup::new("auto", open) }
}

fn fabric(name: &'static str, change: impl Fn(&mut OfiConfig)) -> Setup {
    let folder = TempDir::new("ofi");
    let mut config = Config { ofi: fabric_config(folder.path()), ..Config::default() };
    change(&mut config.ofi);
    Setup { folder: Some(folder), ..Setup::new(name, Box::new(move || open("ofi:tcp", &config))) }
}

fn shared(name: &'static str, change: impl Fn(&mut ShmConfig)) -> Setup {
    let folder = TempDir::new("shm");
    let mut config = shm_config(folder.path());
    change(&mut config.shm);
    Setup { folder: Some(folder), ..Setup::new(name, Box::new(move || open("shm", &config))) }
}

fn fabric_config(folder: &Path) -> OfiConfig {
    OfiConfig {
        runtime_dir: Some(folder.to_owned()),
        token: Some(Token::random()),
        bind: Some(Ipv4Addr::LOCALHOST.into()),
        // A machine that is busy with other tests is no silent peer.
        silence: scaled(Duration::from_secs(30)),
        ..OfiConfig::default()
    }
}

fn delayed(setup: Setup, name: &'static str) -> Setup {
    let hold = Duration::from_micros(100);
    Setup { delayed: true, ..setup.hooked(name, move || Arc::new(Delay::new(hold))) }
}
