//! The bad twin of every call of a shared NIC and of a driver: with handles that are not there, and after the NIC was
//! closed. Each is refused by an error, whatever thread makes it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use viaduct_via::Reliability::ReliableDelivery;
use viaduct_via::handle::RawHandle;
use viaduct_via::{Cq, Driver, Error, Layer, Listener, News, Nic, Queue, SharedNic, Spin, Vi, WaitConfig};

use viaduct_os::wait::WaitPolicy;

use crate::world::{LONG, SHORT, World};

const MADE_UP: RawHandle = RawHandle { index: 3, generation: 0x1234_5678 };

fn unknown<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::InvalidHandle(_)))
}

fn closed<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Closed))
}

/// What a future has to say at once.
fn at_once<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(Error::Timeout),
    }
}

/// Handles that were destroyed, or made up.
pub fn unknown_objects_of_a_shared_nic(mut w: World) {
    let gone = w.a.vi(ReliableDelivery);
    w.a.destroy_vi(gone).unwrap();
    let gone_cq = w.a.create_cq(4).unwrap();
    w.a.destroy_cq(gone_cq).unwrap();
    let nic = SharedNic::new(w.a.into_nic());
    let listener = Listener::from_raw(MADE_UP);
    for vi in [gone, Vi::from_raw(MADE_UP)] {
        assert!(unknown(nic.disconnect(vi)));
        assert!(unknown(nic.retire(vi)));
        assert!(unknown(nic.wait_recv(vi, LONG)));
        assert!(unknown(nic.wait_send(vi, LONG)));
        assert!(unknown(nic.wait(vi, Queue::Receive, LONG)));
        assert!(unknown(nic.connect_finish(vi)));
        assert!(unknown(nic.notify(vi, Queue::Send, Box::new(|_, _| panic!("nothing comes")))));
        assert!(unknown(at_once(nic.next(vi, Queue::Receive))));
        assert!(unknown(at_once(nic.connected(vi))));
        nic.cancel_notify(vi);
    }
    for cq in [gone_cq, Cq::from_raw(MADE_UP)] {
        assert!(unknown(nic.wait_cq(cq, LONG)));
        assert!(unknown(nic.wait_any(cq, listener, LONG)));
        assert!(unknown(nic.notify_cq(cq, Box::new(|_, _| panic!("nothing comes")))));
        assert!(unknown(nic.notify_cq_entry(cq, Box::new(|_, _, _| panic!("nothing comes")))));
        assert!(unknown(at_once(nic.next_cq(cq))));
        nic.cancel_notify_cq(cq);
    }
    assert!(unknown(at_once(nic.next_request(listener))));
    assert!(nic.with(|nic| nic.create_ptag().is_ok()).unwrap(), "it goes on");
}

/// A shared NIC that another thread has closed.
pub fn a_closed_shared_nic_is_refused(mut w: World) {
    let (vi, cq, address) = (w.a.vi(ReliableDelivery), w.a.create_cq(4).unwrap(), w.address());
    let listener = w.a.listen(&address, 1).unwrap();
    let nic = SharedNic::new(w.a.into_nic());
    let other = nic.clone();
    nic.close().unwrap();
    assert!(closed(other.close()));
    assert!(closed(other.try_lock().map(drop)));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(other.lock()))).is_err());
    assert!(refused_at_all(other.with(|_| ())));
    assert!(refused_at_all(other.with_both(|_, ()| ())));
    assert!(closed(other.disconnect(vi)));
    assert!(closed(other.retire(vi)));
    assert!(closed(other.wait_recv(vi, LONG)));
    assert!(closed(other.wait_send(vi, LONG)));
    assert!(closed(other.wait_any(cq, listener, LONG)));
    assert!(closed(other.wait(vi, Queue::Send, LONG)));
    assert!(closed(other.wait_cq(cq, LONG)));
    assert!(closed(other.connect_wait(&address, LONG)));
    assert!(closed(other.connect_finish(vi)));
    assert!(closed(other.wait_until(LONG, |_| Some(Ok(())))));
    assert!(closed(other.wait_until_both(LONG, |_, ()| Some(Ok(())))));
    assert!(closed(other.notify(vi, Queue::Send, Box::new(|_, _| panic!("nothing comes")))));
    assert!(closed(other.notify_cq(cq, Box::new(|_, _| panic!("nothing comes")))));
    assert!(closed(other.notify_cq_entry(cq, Box::new(|_, _, _| panic!("nothing comes")))));
    assert!(closed(other.on_error(Some(Arc::new(|_: &SharedNic, _| panic!("nothing comes"))))));
    assert!(closed(at_once(other.next(vi, Queue::Send))));
    assert!(closed(at_once(other.next_cq(cq))));
    assert!(closed(at_once(other.next_request(listener))));
    assert!(closed(at_once(other.connected(vi))));
}

fn refused_at_all<T>(result: Option<T>) -> bool {
    result.is_none()
}

/// A NIC and nothing else.
struct Bare {
    nic: Nic,
    news: News,
}

impl Layer for Bare {
    const THREAD: &'static str = "bare-service";

    fn nic(&mut self) -> &mut Nic {
        &mut self.nic
    }

    fn news(&mut self) -> &mut News {
        &mut self.news
    }
}

/// A driver that another thread has closed, and one that has no such VI.
pub fn a_closed_driver_is_refused(mut w: World) {
    let vi = w.a.vi(ReliableDelivery);
    let driver = Driver::new(Bare { nic: w.a.into_nic(), news: News::default() });
    let watch = driver.watch().unwrap();
    let mut policy = WaitPolicy::new(WaitConfig { spin: Spin::Never });
    assert!(unknown(driver.disconnect(Vi::from_raw(MADE_UP))));
    assert!(matches!(driver.wait(SHORT, |_| None::<()>), Err(Error::Timeout)));
    driver.clone().close().unwrap();
    assert!(closed(driver.close()));
    assert!(refused_at_all(driver.with(|_| ())));
    assert!(closed(driver.lock().map(drop)));
    assert!(refused_at_all(driver.lock_at_exit(SHORT.unwrap()).map(drop)));
    assert!(closed(driver.wait(LONG, |_| Some(()))));
    assert!(closed(driver.wait_with(&mut policy, None, |_| Some(()))));
    assert!(closed(driver.wait_at(&mut policy, None, |_| Some(()), |_, _| ())));
    assert!(closed(driver.disconnect(vi)));
    assert!(closed(driver.start()));
    assert!(closed(driver.watch()));
    assert!(closed(watch.again()));
    // These say nothing, and do nothing.
    driver.poke();
    driver.stop();
}
