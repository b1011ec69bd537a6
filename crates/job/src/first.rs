//! What ranks tell each other in the first exchange: host, token, and a number that no other job has. Pure.
//!
//! ```text
//!   16 bytes  host
//!   8 bytes   a random number; that of rank 0 is the job's
//!   byte      0: no token was given    1: one was given, its name follows    2: rank 0 made one, it follows
//!   0, 8 or 32 bytes
//! ```
//!
//! A token that a launcher or a user gave stays where it is: only its name travels, so that ranks with different tokens are
//! found. Where none was given, rank 0 makes one, and whatever carries the exchange carries it too.

use crate::error::Error;
use crate::host::{self, HostId};
use crate::token::{self, Token};

const NONE: u8 = 0;
const GIVEN: u8 = 1;
const MADE: u8 = 2;

/// What all ranks know after the first exchange.
#[derive(Debug)]
pub(crate) struct Common {
    /// The hosts of all ranks.
    pub(crate) hosts: Vec<HostId>,
    /// A number that no other job has.
    pub(crate) nonce: u64,
    pub(crate) token: Token,
}

/// What this rank gives. `given` is the token that it has from its launcher or user.
pub(crate) fn give(rank: usize, host: HostId, nonce: u64, given: Option<&Token>) -> Vec<u8> {
    let mut bytes = [&host.0[..], &nonce.to_le_bytes()].concat();
    match given {
        Some(token) => {
            bytes.push(GIVEN);
            bytes.extend(token.name().to_le_bytes());
        }
        None if rank == 0 => {
            bytes.push(MADE);
            bytes.extend(Token::random().secret_bytes());
        }
        None => bytes.push(NONE),
    }
    bytes
}

/// What follows from what all ranks gave.
///
/// # Errors
/// If a rank gave something else, or has not the token that rank 0 was given.
pub(crate) fn settle(all: &[Vec<u8>], given: Option<&Token>) -> Result<Common, Error> {
    let parts: Vec<Part<'_>> =
        all.iter().map(|bytes| parse(bytes)).collect::<Option<_>>().ok_or_else(|| {
            let what =
                "something else than the first words of a rank; use one version of Viaduct on all hosts";
            Error::PmiSaid(what.to_owned())
        })?;
    let first = parts.first().ok_or_else(|| Error::PmiSaid("nothing".to_owned()))?;
    let token = match (first.kind, given) {
        // Ranks that have another one cannot use it with a rank 0 that has none.
        (MADE, _) => Token::from_bytes(first.rest.try_into().expect("the length was checked")),
        (GIVEN, given) => {
            let odd = parts.iter().position(|part| (part.kind, part.rest) != (GIVEN, first.rest));
            match (odd, given) {
                (None, Some(token)) => token.clone(),
                (odd, _) => return Err(Error::OtherToken { rank: odd.unwrap_or(0) }),
            }
        }
        _ => return Err(Error::PmiSaid("no token of rank 0".to_owned())),
    };
    Ok(Common { hosts: parts.iter().map(|part| part.host).collect(), nonce: first.nonce, token })
}

struct Part<'a> {
    host: HostId,
    nonce: u64,
    kind: u8,
    rest: &'a [u8],
}

fn parse(bytes: &[u8]) -> Option<Part<'_>> {
    let (host, rest) = bytes.split_first_chunk::<{ host::LEN }>()?;
    let (nonce, rest) = rest.split_first_chunk::<8>()?;
    let (&kind, rest) = rest.split_first()?;
    let len = match kind {
        NONE => 0,
        GIVEN => 8,
        MADE => token::LEN,
        _ => return None,
    };
    let part = Part { host: HostId(*host), nonce: u64::from_le_bytes(*nonce), kind, rest };
    (rest.len() == len).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostId {
        HostId::named(name)
    }

    #[test]
    fn without_a_token_all_ranks_get_that_of_rank_0() {
        let all = [give(0, host("a"), 7, None), give(1, host("b"), 8, None)];
        let common = settle(&all, None).unwrap();
        assert_eq!((common.nonce, &common.hosts[..]), (7, &[host("a"), host("b")][..]));
        assert_eq!(settle(&all, None).unwrap().token, common.token);
        let again = [give(0, host("a"), 7, None)];
        assert_ne!(settle(&again, None).unwrap().token, common.token, "each job has one of its own");
        // A rank that was given one follows rank 0, which was not.
        let own = Token::random();
        let all = [all[0].clone(), give(1, host("b"), 8, Some(&own))];
        assert_eq!(settle(&all, Some(&own)).unwrap().token, common.token);
    }

    #[test]
    fn a_token_that_was_given_does_not_travel() {
        let token = Token::random();
        let all = [give(0, host("a"), 7, Some(&token)), give(1, host("a"), 8, Some(&token))];
        let secret = token.secret_bytes();
        assert!(
            all.iter().all(|bytes| !bytes.windows(8).any(|part| secret.windows(8).any(|own| own == part)))
        );
        assert_eq!(settle(&all, Some(&token)).unwrap().token, token);
    }

    #[test]
    fn a_rank_with_another_token_or_none_is_named() {
        let (token, other) = (Token::random(), Token::random());
        let zero = give(0, host("a"), 7, Some(&token));
        let one = give(1, host("a"), 7, Some(&token));
        for odd in [give(2, host("a"), 8, Some(&other)), give(2, host("a"), 8, None)] {
            let all = [zero.clone(), one.clone(), odd];
            assert!(matches!(settle(&all, Some(&token)), Err(Error::OtherToken { rank: 2 })));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let good = give(0, host("a"), 7, None);
        for length in 0..good.len() {
            assert!(settle(&[good[..length].to_vec()], None).is_err(), "{length}");
        }
        assert!(settle(&[[&good[..], &[0]].concat()], None).is_err());
        assert!(settle(&[], None).is_err());
        let mut strange = good;
        strange[24] = 9;
        assert!(settle(&[strange], None).is_err());
    }
}
