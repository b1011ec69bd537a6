//! Net addresses: a host part and a discriminator, as VIA has them, written so that a person can type them.
//!
//! `echo` is the discriminator "echo" on this host, `node3/echo` the same on a host called node3. A discriminator
//! that is not plain text is written in hexadecimal: `0x00ff`. Text that looks like the path of a file is refused.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Most bytes a host part may have.
pub const MAX_HOST_LEN: usize = 64;
/// Most bytes a discriminator may have.
pub const MAX_DISCRIMINATOR_LEN: usize = 64;

/// Where a NIC can be found: host and discriminator.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NetAddress {
    host: Vec<u8>,
    discriminator: Vec<u8>,
}

impl NetAddress {
    /// An address from its two parts; an empty host is this host.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a part that is too long.
    pub fn new(host: &[u8], discriminator: &[u8]) -> Result<NetAddress, Error> {
        if host.len() > MAX_HOST_LEN {
            return Err(Error::InvalidParameter("host part longer than 64 bytes"));
        }
        if discriminator.is_empty() || discriminator.len() > MAX_DISCRIMINATOR_LEN {
            return Err(Error::InvalidParameter("a discriminator has 1 to 64 bytes"));
        }
        Ok(NetAddress { host: host.to_vec(), discriminator: discriminator.to_vec() })
    }

    /// The discriminator `name` on this host.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a name that is too long.
    pub fn local(name: &str) -> Result<NetAddress, Error> {
        NetAddress::new(b"", name.as_bytes())
    }

    /// The host part; empty means this host.
    pub fn host(&self) -> &[u8] {
        &self.host
    }

    /// The discriminator.
    pub fn discriminator(&self) -> &[u8] {
        &self.discriminator
    }
}

impl FromStr for NetAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<NetAddress, Error> {
        if text.starts_with("via://") {
            return Err(Error::InvalidParameter(NO_STREAM));
        }
        let (host, disc) = match text.rsplit_once('/') {
            Some((host, disc)) if is_host(host) => (host, disc),
            Some(_) => return Err(Error::InvalidParameter(NO_PATH)),
            None => ("", text),
        };
        match disc.strip_prefix("0x") {
            Some(hex) => NetAddress::new(host.as_bytes(), &from_hex(hex)?),
            None => NetAddress::new(host.as_bytes(), disc.as_bytes()),
        }
    }
}

impl fmt::Display for NetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.host.is_empty() {
            write!(f, "{}/", String::from_utf8_lossy(&self.host))?;
        }
        let plain = |b: &u8| b.is_ascii_graphic() && *b != b'/';
        if self.discriminator.iter().all(plain) && !self.discriminator.starts_with(b"0x") {
            return f.write_str(&String::from_utf8_lossy(&self.discriminator));
        }
        f.write_str("0x")?;
        self.discriminator.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

const NO_PATH: &str =
    "an address is NAME or HOST/NAME, not the path of a file: a name is looked up in the run-time folder";

const NO_STREAM: &str = "an address of a NIC is NAME or HOST/NAME: `via://` begins the addresses of streams";

/// Whether text can stand before the slash: not what stands there in paths of files, such as `..`, `/tmp` or nothing at all.
fn is_host(text: &str) -> bool {
    !text.contains('/') && text.contains(|c| c != '.')
}

fn from_hex(hex: &str) -> Result<Vec<u8>, Error> {
    let bad = || Error::InvalidParameter("0x is followed by an even number of hexadecimal digits");
    if hex.is_empty() || !hex.len().is_multiple_of(2) || !hex.is_ascii() {
        return Err(bad());
    }
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).map_err(|_| bad())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["echo", "node3/echo", "0x00ff", "10.0.0.1/0x7f"] {
            let a: NetAddress = text.parse().unwrap();
            assert_eq!(a.to_string().parse::<NetAddress>().unwrap(), a, "{text}");
        }
        assert_eq!("0x6869".parse::<NetAddress>().unwrap().to_string(), "hi");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "node/", "0xabc", "0x", "0xzz"] {
            assert!(text.parse::<NetAddress>().is_err(), "{text:?}");
        }
        assert!(NetAddress::local(&"x".repeat(65)).is_err());
    }

    #[test]
    fn an_address_of_a_stream_is_told_to_be_one() {
        for text in ["via://localhost:99", "via://echo"] {
            let error = text.parse::<NetAddress>().unwrap_err();
            assert!(error.to_string().contains("streams"), "{error}");
        }
    }

    #[test]
    fn paths_of_files_are_no_addresses() {
        for text in
            ["../evil", "./echo", "/echo", "/tmp/echo", "../../etc/echo", "a/b/c", "//echo", "node3//echo"]
        {
            let Err(error) = text.parse::<NetAddress>() else { panic!("{text:?} is an address") };
            assert!(error.to_string().contains("HOST/NAME, not the path of a file"), "{text:?}: {error}");
        }
        for text in ["node3/echo", "node3.site/echo", "10.0.0.1:7/echo", "[::1]:7/echo", "..", "a..b/echo"] {
            assert!(text.parse::<NetAddress>().is_ok(), "{text:?}");
        }
    }
}
