//! Address cards: where a process can be found.
//!
//! A process hands its card to the others of its job, through whatever started it. A card says which host the process is
//! on, so that a peer knows whether shared memory reaches it, and one address for each provider it can be reached by.
//!
//! ```text
//!   byte      "VC", version, number of addresses
//!   16 bytes  host
//!   string    name
//!   strings   provider, address        once for each
//! ```
//!
//! A string is a byte with its length and so many bytes of UTF-8. Cards come from others: [`Card::parse`] takes bytes
//! of any kind and gives a card or an error.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::hex;
use crate::host::{self, HostId};

/// Version of the form.
pub const VERSION: u8 = 1;
/// Most addresses on a card.
pub const MOST_ADDRESSES: usize = 8;
/// Most bytes of a name or an address.
pub const MOST_BYTES: usize = 200;

const MAGIC: [u8; 2] = *b"VC";

/// Where one process can be found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    host: HostId,
    name: String,
    addresses: Vec<(String, String)>,
}

impl Card {
    /// A card without addresses.
    ///
    /// # Errors
    /// If the name is longer than [`MOST_BYTES`].
    pub fn new(host: HostId, name: &str) -> Result<Card, Error> {
        check(name)?;
        Ok(Card { host, name: name.to_owned(), addresses: Vec::new() })
    }

    /// Adds an address. A provider has one address on a card.
    ///
    /// # Errors
    /// If the card is full, something is too long, or the provider is there already.
    pub fn with(mut self, provider: &str, address: &str) -> Result<Card, Error> {
        check(provider)?;
        check(address)?;
        if provider.is_empty() {
            return Err(Error::BadCard("a provider without a name"));
        }
        if self.addresses.len() == MOST_ADDRESSES {
            return Err(Error::BadCard("too many addresses"));
        }
        if self.address(provider).is_some() {
            return Err(Error::BadCard("two addresses for one provider"));
        }
        self.addresses.push((provider.to_owned(), address.to_owned()));
        Ok(self)
    }

    /// The host.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// The name of the process.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address for a provider.
    pub fn address(&self, provider: &str) -> Option<&str> {
        self.addresses.iter().find(|(p, _)| p == provider).map(|(_, a)| a.as_str())
    }

    /// All addresses: provider and address.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, &str)> {
        self.addresses.iter().map(|(p, a)| (p.as_str(), a.as_str()))
    }

    /// The card as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, self.addresses.len() as u8]);
        bytes.extend(self.host.0);
        let strings = self.addresses.iter().flat_map(|(p, a)| [p, a]);
        for text in std::iter::once(&self.name).chain(strings) {
            bytes.push(text.len() as u8);
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    /// A card from bytes, of whatever origin.
    ///
    /// # Errors
    /// If they are not those of a card; the version is looked at first.
    pub fn parse(bytes: &[u8]) -> Result<Card, Error> {
        let mut rest = Rest(bytes);
        if rest.take(MAGIC.len())? != MAGIC {
            return Err(Error::BadCard("it does not begin like one"));
        }
        let version = rest.byte()?;
        if version != VERSION {
            return Err(Error::CardVersion { ours: VERSION, theirs: version });
        }
        let count = rest.byte()?;
        let host = rest.take(host::LEN)?.try_into().expect("as many bytes as asked for");
        let mut card = Card::new(HostId(host), rest.text()?)?;
        for _ in 0..count {
            card = card.with(rest.text()?, rest.text()?)?;
        }
        if !rest.0.is_empty() {
            return Err(Error::BadCard("something follows it"));
        }
        Ok(card)
    }
}

/// For the environment and for files.
impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.to_bytes())
    }
}

impl FromStr for Card {
    type Err = Error;

    fn from_str(text: &str) -> Result<Card, Error> {
        Card::parse(&hex::parse(text.trim()).ok_or(Error::BadCard("not hexadecimal digits"))?)
    }
}

fn check(text: &str) -> Result<(), Error> {
    if text.len() > MOST_BYTES { Err(Error::BadCard("a text is too long")) } else { Ok(()) }
}

/// What was not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Error::BadCard("it is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.take(1)?[0])
    }

    fn text(&mut self) -> Result<&'a str, Error> {
        let len = usize::from(self.byte()?);
        std::str::from_utf8(self.take(len)?).map_err(|_| Error::BadCard("a text is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::Config;

    use super::*;

    fn card() -> Card {
        let card = Card::new(HostId([9; 16]), "rank 3").unwrap();
        card.with("shm", "rank-3").unwrap().with("ofi:tcp", "10.0.0.7:4711/rank-3").unwrap()
    }

    #[test]
    fn cards_have_limits() {
        let long = "x".repeat(MOST_BYTES + 1);
        assert!(Card::new(HostId([0; 16]), &long).is_err());
        assert!(card().with("ofi:verbs", &long).is_err());
        assert!(card().with("", "nowhere").is_err());
        assert!(card().with("shm", "again").is_err(), "one address for each");
        let mut full = Card::new(HostId([0; 16]), "").unwrap();
        for n in 0..MOST_ADDRESSES {
            full = full.with(&n.to_string(), "").unwrap();
        }
        assert!(full.clone().with("more", "").is_err());
        assert_eq!(Card::parse(&full.to_bytes()).unwrap(), full);
    }

    #[test]
    fn another_version_is_told() {
        let mut bytes = card().to_bytes();
        bytes[2] = 9;
        assert!(matches!(Card::parse(&bytes), Err(Error::CardVersion { ours: VERSION, theirs: 9 })));
    }

    #[test]
    fn every_cut_is_noticed() {
        let bytes = card().to_bytes();
        for len in 0..bytes.len() {
            assert!(Card::parse(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
        }
        assert!(Card::parse(&[&bytes[..], &[0]].concat()).is_err());
    }

    proptest! {
        // Miri is slow, and has no files to keep failures in.
        #![proptest_config(match cfg!(miri) {
            true => Config { failure_persistence: None, ..Config::with_cases(4) },
            false => Config::default(),
        })]

        /// What is written is read again, as bytes and as text.
        #[test]
        fn bytes_and_text_and_back(
            host in any::<[u8; 16]>(),
            name in ".{0,40}",
            list in proptest::collection::btree_map("[a-z:]{1,9}", ".{0,40}", 0..MOST_ADDRESSES),
        ) {
            let mut card = Card::new(HostId(host), &name).unwrap();
            for (provider, address) in &list {
                card = card.with(provider, address).unwrap();
            }
            prop_assert_eq!(&Card::parse(&card.to_bytes()).unwrap(), &card);
            prop_assert_eq!(&card.to_string().parse::<Card>().unwrap(), &card);
            for (provider, address) in &list {
                prop_assert_eq!(card.address(provider), Some(address.as_str()));
            }
        }

        /// Whatever arrives, parsing gives an error or a card that is written the same way again.
        #[test]
        fn garbage_is_harmless(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), fix in any::<bool>()) {
            if fix && bytes.len() > 4 {
                bytes[..3].copy_from_slice(b"VC\x01");
                bytes[3] %= 4;
            }
            if let Ok(card) = Card::parse(&bytes) {
                prop_assert_eq!(card.to_bytes(), bytes);
            }
        }

        /// One wrong byte never makes a card that is larger than it may be.
        #[test]
        fn a_damaged_card_is_harmless(at in 0usize..64, value in any::<u8>()) {
            let mut bytes = card().to_bytes();
            let at = at % bytes.len();
            bytes[at] = value;
            if let Ok(card) = Card::parse(&bytes) {
                prop_assert!(card.addresses().count() <= MOST_ADDRESSES);
                prop_assert!(card.addresses().all(|(p, a)| p.len() <= MOST_BYTES && a.len() <= MOST_BYTES));
            }
        }
    }
}
