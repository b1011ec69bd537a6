//! `ofi`: libfabric as a program uses it that knows nothing of VIA (thesis, chapter 3, in the place of GM).
//!
//! Every case of that chapter is written on it: `direct` is the end that most of them drive, `line` how its completions
//! are taken, `stock` and `shelf` where its messages lie; what a case does in its own way stands in the case. Streams
//! have no credits: libfabric itself keeps a message until there is a receive for it.

pub(crate) mod direct;
pub(crate) mod line;
pub(crate) mod shelf;
pub(crate) mod stock;

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::{Duration, Instant};

use viaduct_providers::config::OfiConfig;
use viaduct_providers::ofi::bare::{Cq, Domain, Endpoint, Listener, Message, Queues};

use crate::cases::Case;
use crate::control::{Control, Patience};
use crate::error::{Error, Result};
use crate::layers::Door;
use crate::layers::Layer;
use crate::layers::half::{Side, failure};
use crate::loops::End;
use crate::plan::{Variant, Wait};

/// Both processes are ours and alive, so a connection that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(20);

pub(super) fn listen(variant: &Variant, control: &Rc<Control>) -> Result<Box<dyn Door>> {
    let domain = open(variant, control)?;
    let ip = if control.far().is_some() { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    let listener = domain.listen((ip, 0).into()).map_err(|e| failure(variant.layer.name(), &e))?;
    let site = Site::new(domain, variant, Side::Follow, control, Route::Answer(listener));
    Ok(Box::new(OfiListening(site)))
}

pub(super) fn connect(variant: &Variant, control: &Rc<Control>, port: &str) -> Result<Box<dyn End>> {
    let place = format!("{}:{port}", control.far().unwrap_or("127.0.0.1"));
    let found = place.to_socket_addrs().map_err(Error::os(format!("looking {place} up")))?;
    let address = found.into_iter().find(SocketAddr::is_ipv4);
    let address = address.ok_or_else(|| {
        Error::layer(
            variant.layer.name(),
            format!("{place} has no address of IPv4"),
            "name one with --connect",
        )
    })?;
    let domain = open(variant, control)?;
    build(Site::new(domain, variant, Side::Lead, control, Route::Call(address)))
}

/// What libfabric lacks that a variant is about, in words.
pub(super) fn missing(variant: &Variant, control: &Control) -> Result<Option<String>> {
    if variant.arg("interrupt") == 1 {
        return Ok(Some("libfabric calls no handler when a message comes".into()));
    }
    let (pieces, unregistered) = (variant.arg("segments") as usize, variant.arg("unregistered") == 1);
    if pieces <= 1 && !unregistered {
        return Ok(None);
    }
    let domain = open(variant, control)?;
    let facts = domain.facts();
    Ok(if unregistered && facts.registers {
        Some(format!("libfabric's {} sends from registered memory alone (FI_MR_LOCAL)", facts.name))
    } else if variant.arg("gather") == 1 && pieces > facts.gather {
        Some(format!("libfabric's {} gathers at most {} pieces (iov_limit)", facts.name, facts.gather))
    } else if variant.arg("scatter") == 1 && pieces > facts.scatter {
        Some(format!("libfabric's {} scatters to at most {} pieces (iov_limit)", facts.name, facts.scatter))
    } else {
        None
    })
}

/// Which of its providers a layer stands for on this machine.
pub(crate) fn provider(layer: Layer, config: &OfiConfig) -> Option<String> {
    let Layer::Fabric(_) = layer else { return None };
    Domain::open(&named(layer, config)).ok().map(|domain| domain.facts().name.clone())
}

fn named(layer: Layer, config: &OfiConfig) -> OfiConfig {
    let provider = layer.name().strip_prefix("ofi:").map(Into::into);
    OfiConfig { provider: provider.or_else(|| config.provider.clone()), ..config.clone() }
}

fn open(variant: &Variant, control: &Control) -> Result<Domain> {
    let layer = variant.layer;
    let domain =
        Domain::open(&named(layer, &control.providers().ofi)).map_err(|e| failure(layer.name(), &e))?;
    let limit = domain.facts().longest;
    if variant.size > limit {
        let message =
            format!("libfabric's {} moves at most {limit} bytes in one message", domain.facts().name);
        return Err(Error::usage(message, "use smaller --sizes"));
    }
    Ok(domain)
}

fn build(site: Site) -> Result<Box<dyn End>> {
    let case = Case::find(&site.variant.case)?;
    let Some(end) = case.ofi else {
        let message = format!("layer `{}` has no {}", site.variant.layer, case.name);
        return Err(Error::usage(message, "this case is about what VIA offers; measure a provider"));
    };
    end(site)
}

/// One side of a variant on libfabric: an open domain, and the way to the other side.
pub(crate) struct Site {
    pub(crate) domain: Domain,
    pub(crate) side: Side,
    pub(crate) variant: Variant,
    pub(crate) patience: Patience,
    route: Route,
}

enum Route {
    Call(SocketAddr),
    Answer(Listener),
}

impl Site {
    fn new(domain: Domain, variant: &Variant, side: Side, control: &Control, route: Route) -> Site {
        Site { domain, side, variant: variant.clone(), patience: control.patience(), route }
    }

    /// A completion queue, to be slept on if the variant wants it.
    pub(crate) fn cq(&self, entries: usize) -> Result<Cq> {
        let sleeps = self.variant.wait == Wait::Block;
        self.domain.cq(entries, sleeps).map_err(|e| self.failed(&e))
    }

    /// One queue for sends and receives.
    pub(crate) fn one_queue(&self, entries: usize) -> Result<Queues> {
        let cq = self.cq(entries)?;
        Ok(Queues { send: cq.clone(), receive: cq })
    }

    /// Connects an endpoint with the one that the other side joins with as its next; its receives are posted before.
    pub(crate) fn join(&self, queues: &Queues, receives: Vec<Message>) -> Result<Endpoint> {
        let failed = |e| self.failed(&e);
        let endpoint = match &self.route {
            Route::Call(to) => self.domain.endpoint(*to, queues).map_err(failed)?,
            Route::Answer(listener) => {
                let request = self.until("waiting for a connection", || Ok(listener.poll()))?;
                listener.endpoint(&request, queues).map_err(failed)?
            }
        };
        for message in receives {
            if endpoint.receive(message).map_err(failed)?.is_some() {
                return Err(Error::layer(
                    self.variant.layer.name(),
                    "more receives than the queue holds",
                    "",
                ));
            }
        }
        endpoint.start().map_err(failed)?;
        self.until("connecting", || Ok(endpoint.is_connected().map_err(failed)?.then_some(())))?;
        Ok(endpoint)
    }

    /// Receives to post at once, if so many are wanted.
    pub(crate) fn at_most(&self, receives: usize) -> usize {
        receives.min(self.domain.facts().posted)
    }

    /// What a call said, as an error of this crate.
    pub(crate) fn failed(&self, error: &viaduct_via::Error) -> Error {
        failure(self.variant.layer.name(), error)
    }

    fn until<T>(&self, doing: &'static str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let start = Instant::now();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            self.patience.check(doing)?;
            if start.elapsed() > LIMIT {
                return Err(Error::Stalled { doing, seconds: LIMIT.as_secs() });
            }
            // The other end may need this core.
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

struct OfiListening(Site);

impl Door for OfiListening {
    fn address(&self) -> String {
        match &self.0.route {
            Route::Answer(listener) => {
                listener.address().map_or_else(String::new, |at| at.port().to_string())
            }
            Route::Call(_) => String::new(),
        }
    }

    fn accept(self: Box<Self>) -> Result<Box<dyn End>> {
        build(self.0)
    }
}
