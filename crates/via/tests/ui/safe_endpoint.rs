//! A transport is trusted with addresses of the program: to be one is a promise.

use viaduct_via::provider::{Endpoint, Small, Submit};
use viaduct_via::raw::WatchWord;
use viaduct_via::{Error, Queues, Reach, RemoteAddress, Work};

struct Mine;

impl Endpoint for Mine { //~ E0200
    fn submit(&mut self, _: &mut Work, _: u32) -> Submit {
        Submit::Done
    }

    fn submit_inline(&mut self, _: &[u8], _: Option<u32>) -> Submit {
        Submit::Done
    }

    fn write_inline(&mut self, _: &[u8], _: RemoteAddress, _: Option<u32>) -> Submit {
        Submit::Busy
    }

    fn most_by_value(&self) -> u32 {
        0
    }

    fn submit_value(&mut self, _: &[&[u8]], _: u32, _: Option<u32>) -> Submit {
        Submit::Busy
    }

    fn nudge(&mut self) {}

    fn reads_private(&self) -> bool {
        false
    }

    fn read_private(&mut self, _: u64, _: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }

    fn tell_receives_from(&self) -> u32 {
        0
    }

    fn recv_posted(&mut self, _: &Work, _: u32) {}

    fn take_small(&mut self, _: &Work) -> Option<Small> {
        None
    }

    fn watch(&self) -> WatchWord {
        WatchWord::NONE
    }

    fn poll(&mut self, _: &mut Queues<'_>) {}

    fn set_armed(&mut self, _: bool) {}

    fn close(&mut self) {}

    fn provider(&self) -> &'static str {
        "mine"
    }

    fn reach(&self) -> Reach {
        Reach::Messages
    }
}

fn main() {}
