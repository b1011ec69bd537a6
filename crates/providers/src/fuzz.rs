//! What hostile peers feed, for fuzzing: every message of `shm` and `ofi` is read, and if it is taken for a
//! message, everything that can be asked of it is asked.
//!
//! Only with the feature `fuzzing`, for `fuzz/`, and in the tests below, which do it on the stable compiler.

use viaduct_via::Error;
use zerocopy::IntoBytes;

use crate::parties::Parties;
use crate::{ofi, shm};

/// Bytes that came through a Unix socket of `shm`: a greeting or a note.
pub fn shm_wire(bytes: &[u8]) {
    if let Ok(hello) = shm::wire::Hello::parse(bytes) {
        read_parties(&hello.parties);
        let _ = (hello.direct(), hello.asymmetric(), hello.isolated(), hello.has_channel());
    }
    if let Ok((note, payload)) = shm::wire::Note::parse(bytes) {
        assert!(payload.len() <= shm::wire::PIECE, "more payload than a note may have");
        assert_eq!(note.with(payload), bytes, "a note is its header and its payload");
    }
}

/// A frame that libfabric delivered to `ofi`: a header with its payload, or a greeting.
pub fn ofi_wire(bytes: &[u8]) {
    if let Ok((_, head, payload)) = ofi::wire::Head::parse(bytes) {
        assert_eq!(payload.len(), head.length.get() as usize, "a frame has the length it says");
        let _ = head.immediate();
    }
    match ofi::wire::Hello::parse(bytes) {
        Ok(hello) => {
            read_parties(&hello.parties);
            if let Ok((window, frame)) = hello.window() {
                assert!(window.data > 0 && window.service > 0 && frame >= ofi::wire::MIN_FRAME);
            }
            let _ = (hello.step(), hello.port());
        }
        Err(Error::VersionMismatch { ours, theirs }) => assert_ne!(ours, theirs),
        Err(_) => {}
    }
}

/// Messages of `shm` that are right.
pub fn shm_seeds() -> Vec<Vec<u8>> {
    use shm::wire::{Hello, Note, hello};
    let hello = Hello::new(hello::REQUEST, [7; 16]);
    let note = Note::new(shm::wire::note::WANT);
    vec![hello.as_bytes().to_vec(), note.with(&[]), note.with(&[1; 100])]
}

/// Frames of `ofi` that are right.
pub fn ofi_seeds() -> Vec<Vec<u8>> {
    use ofi::wire::{FIRST, Head, Hello, Kind, LAST, step};
    let mut head = Head::new(Kind::Data);
    (head.total, head.length, head.flags) = (20.into(), 20.into(), FIRST | LAST);
    let data = [head.as_bytes(), &[5; 20]].concat();
    vec![Hello::new(step::REQUEST).as_bytes().to_vec(), Head::new(Kind::Data).as_bytes().to_vec(), data]
}

fn read_parties(parties: &Parties) {
    let _ = (parties.to(), parties.from(), parties.attributes(), parties.private().len());
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use viaduct_kit::fuzz::spoil;

    #[test]
    fn any_bytes_from_a_peer_through_a_socket_of_shm_are_read_or_refused() {
        shm_seeds().iter().for_each(|seed| shm_wire(seed));
        spoil(&shm_seeds(), shm_wire);
    }

    #[test]
    fn any_bytes_from_a_peer_through_libfabric_are_read_or_refused() {
        ofi_seeds().iter().for_each(|seed| ofi_wire(seed));
        spoil(&ofi_seeds(), ofi_wire);
    }

    #[test]
    fn the_seeds_are_right() {
        use crate::ofi::wire as fabric;
        use crate::shm::wire as socket;
        let (one, other) = (shm_seeds(), ofi_seeds());
        assert!(socket::Hello::parse(&one[0]).is_ok());
        assert!(one[1..].iter().all(|note| socket::Note::parse(note).is_ok()));
        assert!(fabric::Hello::parse(&other[0]).is_ok());
        assert!(fabric::Head::parse(&other[2]).is_ok());
    }
}
