//! Whatever is typed as a list of hosts, or arrives as a message, is read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use viaduct_catapult::Error;
use viaduct_catapult::hosts::{self, Source};
use viaduct_catapult::wire::{Event, Order, Start};

struct Nothing;

impl Source for Nothing {
    fn group(&self, name: &str) -> Result<String, Error> {
        Ok(name.chars().rev().collect())
    }

    fn file(&self, path: &str) -> Result<String, Error> {
        Ok(path.replace('+', "\n"))
    }
}

fuzz_target!(|data: &[u8]| {
    let _ = postcard::from_bytes::<Start>(data);
    let _ = postcard::from_bytes::<Order>(data);
    let _ = postcard::from_bytes::<Event>(data);
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(list) = hosts::parse(text, &Nothing)
    {
        assert!(list.len() <= hosts::MOST && list.iter().all(|host| host.slots > 0 && !host.name.is_empty()));
    }
});
