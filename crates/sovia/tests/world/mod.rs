//! Libraries that reach each other, by the name of their provider.

// Not every suite needs all of it.
#![allow(dead_code)]

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use viaduct_kit::effort::scaled;
use viaduct_kit::tempdir::TempDir;
use viaduct_providers::config::{OfiConfig, ShmConfig};
use viaduct_providers::loopback::Hub;
use viaduct_sovia::{Config, Sovia, Stream};
use viaduct_via::Nic;

/// The worlds that every test is run in.
pub(crate) const WORLDS: &[&str] = &["loopback", "shm"];

pub(crate) struct World {
    name: &'static str,
    hub: Hub,
    config: viaduct_providers::Config,
    folder: PathBuf,
    _owned: Option<TempDir>,
}

impl World {
    pub(crate) fn new(name: &'static str) -> World {
        let folder = TempDir::new("sovia");
        let world = World::at(name, folder.path());
        World { _owned: Some(folder), ..world }
    }

    /// A world that another process has made.
    pub(crate) fn at(name: &'static str, folder: &Path) -> World {
        let config = viaduct_providers::Config {
            // No thread looks around by itself: a wake-up that is lost shows.
            shm: ShmConfig {
                runtime_dir: Some(folder.to_owned()),
                longest_sleep: None,
                ..ShmConfig::default()
            },
            ofi: OfiConfig {
                runtime_dir: Some(folder.to_owned()),
                bind: Some(Ipv4Addr::LOCALHOST.into()),
                silence: scaled(Duration::from_secs(30)),
                ..OfiConfig::default()
            },
            ..Default::default()
        };
        World { name, hub: Hub::new(), config, folder: folder.to_owned(), _owned: None }
    }

    /// Changes the settings of shared memory, for NICs that are opened later.
    pub(crate) fn shm(&mut self, change: impl FnOnce(&mut ShmConfig)) {
        change(&mut self.config.shm);
    }

    /// Where its NICs meet.
    pub(crate) fn folder(&self) -> &str {
        self.folder.to_str().expect("a plain name")
    }

    pub(crate) fn nic(&self) -> Nic {
        let provider = match self.name {
            "loopback" => self.hub.provider(),
            name => viaduct_providers::open(name, &self.config).unwrap(),
        };
        Nic::open(provider).unwrap()
    }

    pub(crate) fn open(&self, config: &Config) -> Sovia {
        Sovia::open(self.nic(), config.clone()).unwrap()
    }

    /// Two ends of a stream, of two libraries.
    pub(crate) fn pair(&self, config: &Config) -> (Stream, Stream) {
        let (server, client) = (self.open(config), self.open(config));
        let listener = server.listen("pair", 1).unwrap();
        let stream = client.connect("pair").unwrap();
        (stream, listener.accept().unwrap())
    }
}

/// For a thread that has both ends: at the end it would wait for itself.
pub(crate) fn hasty(config: &Config) -> Config {
    Config { exit_limit: Duration::from_millis(10), ..config.clone() }
}

/// For ends with a thread each, however slow the machine is.
pub(crate) fn patient(config: &Config) -> Config {
    let long = scaled(Duration::from_secs(60));
    Config { exit_limit: long, close_limit: long, ..config.clone() }
}
