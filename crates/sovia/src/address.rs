//! Addresses as users of sockets write them: `via://host:port`. Names of VIA (`echo`, `node3/echo`) are taken as well.
//!
//! A port is the discriminator `via:PORT` of its host, so that ports do not meet other names.

use viaduct_via::NetAddress;

use crate::error::Error;

const SCHEME: &str = "via://";

/// The net address of `via://host:port`, `via://:port` (this host), or of a name as VIA writes it.
///
/// # Errors
/// [`Error::Address`] with what is missing.
pub fn parse(text: &str) -> Result<NetAddress, Error> {
    let bad = |hint| Error::Address { text: text.into(), hint };
    let Some(rest) = text.strip_prefix(SCHEME) else {
        return text.parse().map_err(|_| bad("write via://host:port, or a name such as echo or node3/echo"));
    };
    let Some((host, port)) = rest.trim_end_matches('/').rsplit_once(':') else {
        return Err(bad("a port is missing: via://host:port"));
    };
    let port: u16 = port.parse().map_err(|_| bad("a port is a number from 0 to 65535"))?;
    // Brackets are there to tell the colons of the host from that of the port.
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').ok_or(bad("a bracket is not closed"))?,
        None if host.contains(':') => return Err(bad("a host with colons stands in brackets")),
        None => host,
    };
    let host = if host == "localhost" { "" } else { host };
    NetAddress::new(host.as_bytes(), format!("via:{port}").as_bytes())
        .map_err(|_| bad("the host is too long"))
}

/// As users of sockets write it, if it is a port; else as VIA does.
pub fn display(address: &NetAddress) -> String {
    let host = String::from_utf8_lossy(address.host());
    match std::str::from_utf8(address.discriminator()).ok().and_then(|d| d.strip_prefix("via:")) {
        Some(port) if host.contains(':') => format!("{SCHEME}[{host}]:{port}"),
        Some(port) => format!("{SCHEME}{host}:{port}"),
        None => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_names_come_back() {
        for text in
            ["via://node3:7000", "via://:7000", "via://[fe80::1]:80", "via://10.0.0.7:65535", "node3/echo"]
        {
            assert_eq!(display(&parse(text).unwrap()), text);
        }
        assert_eq!(parse("via://localhost:9").unwrap(), parse("via://:9").unwrap());
        assert_eq!(parse("via://:9/").unwrap(), parse("via://:9").unwrap());
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for text in
            ["", "via://", "via://host", "via://host:", "via://host:70000", "via://a:b:1", "via://[a:1"]
        {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(';'), "{error}");
        }
    }
}
