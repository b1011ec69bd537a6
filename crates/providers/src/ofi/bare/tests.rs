//! Two domains of one process talk to each other; refusals are errors.

use std::time::{Duration, Instant};

use viaduct_kit::effort::scaled;
use viaduct_kit::packages::skip;
use viaduct_os::epoll::{Epoll, Interest};

use super::*;

fn open() -> Option<Domain> {
    let config = OfiConfig { provider: Some("tcp".into()), ..OfiConfig::default() };
    match Domain::open(&config) {
        Ok(domain) => Some(domain),
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + scaled(Duration::from_secs(30));
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "nothing came");
        std::thread::yield_now();
    }
}

/// Both ends of a connection, and what keeps them.
struct Pair {
    here: (Domain, Queues, Endpoint),
    there: (Domain, Queues, Endpoint),
}

/// Connected; the far end has posted these receives before.
fn pair(sleeps: bool, receives: impl FnOnce(&Domain) -> Vec<Message>) -> Option<Pair> {
    let (a, b) = (open()?, open()?);
    let queue = |domain: &Domain| domain.cq(64, sleeps).unwrap();
    let ours = Queues { send: queue(&a), receive: queue(&a) };
    let both = queue(&b);
    let theirs = Queues { send: both.clone(), receive: both };
    let listener = b.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let here = a.endpoint(listener.address().unwrap(), &ours).unwrap();
    here.start().unwrap();
    let request = until(|| {
        assert!(!here.is_connected().unwrap());
        listener.poll()
    });
    let there = listener.endpoint(&request, &theirs).unwrap();
    for message in receives(&b) {
        assert!(there.receive(message).unwrap().is_none());
    }
    there.start().unwrap();
    let (mut one, mut other) = (false, false);
    until(|| {
        one |= here.is_connected().unwrap();
        other |= there.is_connected().unwrap();
        (one && other).then_some(())
    });
    Some(Pair { here: (a, ours, here), there: (b, theirs, there) })
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn messages_in_pieces_arrive_and_come_back() {
    let Some(pair) = pair(false, |domain| domain.messages(2, &[3, 5], 64, false).unwrap()) else { return };
    let (domain, queues, endpoint) = &pair.here;
    let mut message = domain.messages(1, &[2, 6], 4096, true).unwrap().remove(0);
    message.bytes_mut(0).copy_from_slice(b"ab");
    message.bytes_mut(1).copy_from_slice(b"cdefgh");
    assert!(endpoint.send(message).unwrap().is_none());
    assert!(endpoint.inject(b"small").unwrap());
    let sent = until(|| queues.send.poll().unwrap());
    assert!(!sent.receive && sent.endpoint == endpoint.key() && sent.message.bytes(0) == b"ab");
    let came = |expected: &[u8]| {
        let done = until(|| {
            // The sender moves the transport on by looking.
            assert!(queues.send.poll().unwrap().is_none());
            pair.there.1.receive.poll().unwrap()
        });
        let all = [done.message.bytes(0), done.message.bytes(1)].concat();
        assert!(done.receive && done.len == expected.len() && all[..done.len] == *expected);
    };
    came(b"abcdefgh");
    came(b"small");
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn a_waiter_is_woken() {
    let Some(pair) = pair(true, |domain| domain.messages(1, &[8], 64, false).unwrap()) else { return };
    let queue = &pair.there.1.receive;
    assert!(queue.poll().unwrap().is_none());
    let epoll = Epoll::new().unwrap();
    let fd = queue.to_sleep_on().expect("nothing has come");
    epoll.add(fd, 1, Interest::Read).unwrap();
    let (domain, queues, endpoint) = &pair.here;
    let mut message = domain.messages(1, &[8], 64, false).unwrap().remove(0);
    // For this message alone, on top of what there is; each registration is one of its own.
    let _others = domain.messages(3, &[8], 64, true).unwrap();
    message.register(domain).unwrap();
    assert!(endpoint.send(message).unwrap().is_none());
    until(|| queues.send.poll().unwrap()).message.deregister();
    assert_eq!(epoll.wait(&mut Vec::new(), Some(scaled(Duration::from_secs(30)))).unwrap(), 1);
    assert!(until(|| queue.poll().unwrap()).receive);
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn more_than_the_provider_takes_is_refused() {
    let Some(pair) = pair(false, |_| Vec::new()) else { return };
    let (domain, _, endpoint) = &pair.here;
    let facts = domain.facts();
    assert!(facts.name == "tcp" && facts.gather >= 1 && facts.posted > 1 && facts.longest > 1 << 20);
    let pieces = vec![1; facts.gather.max(facts.scatter) + 1];
    let message = || domain.messages(1, &pieces, 64, false).unwrap().remove(0);
    assert!(matches!(endpoint.send(message()), Err(Error::Limit { .. })));
    assert!(matches!(endpoint.receive(message()), Err(Error::Limit { .. })));
    assert!(matches!(endpoint.inject(&vec![0; facts.inject + 1]), Err(Error::Limit { .. })));
    assert!(domain.messages(1, &[65], 64, false).is_err() && domain.messages(1, &[], 64, false).is_err());
    assert!(message().register(domain).is_err(), "in pieces");
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn a_closed_endpoint_gives_up_what_was_posted() {
    let Some(pair) = pair(false, |domain| domain.messages(4, &[8], 64, false).unwrap()) else { return };
    let Pair { here, there: (domain, queues, endpoint) } = pair;
    assert_eq!(domain.inner.ledger.borrow().len(), 4);
    drop(endpoint);
    // Nothing is left in the ledger, and what libfabric says about the four finds nothing.
    assert!(queues.receive.poll().unwrap().is_none());
    assert_eq!(domain.inner.ledger.borrow().len(), 0);
    drop((here, queues));
    assert_eq!(Rc::strong_count(&domain.inner), 1, "nothing keeps the domain");
}
