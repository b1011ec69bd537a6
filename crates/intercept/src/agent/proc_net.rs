//! Which TCP connections the kernel lists: /proc/net/tcp and tcp6 of this network namespace.

use std::collections::HashSet;

use viaduct_os::bare::sockets::Name;

use super::connections::Tuple;

/// A socket of this state is held by no process.
const TIME_WAIT: &str = "06";

/// The names of all connections that processes hold; `None` if the kernel does not say.
pub(super) fn connections() -> Option<HashSet<Tuple>> {
    let four = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let six = std::fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    Some(four.lines().chain(six.lines()).filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Tuple> {
    let mut fields = line.split_whitespace().skip(1);
    let (own, peer) = (name(fields.next()?)?, name(fields.next()?)?);
    (fields.next()? != TIME_WAIT).then_some(Tuple { own, peer })
}

/// An address is printed as words in the machine's order.
fn name(text: &str) -> Option<Name> {
    let (digits, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut address = [0; 16];
    let words = match digits.len() {
        8 => {
            address[10..12].fill(0xff);
            &mut address[12..]
        }
        32 => &mut address[..],
        _ => return None,
    };
    for (place, digits) in words.chunks_exact_mut(4).zip(digits.as_bytes().chunks_exact(8)) {
        let word = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        place.copy_from_slice(&word.to_ne_bytes());
    }
    Some(Name { address, port })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use viaduct_os::bare::sockets::{self, Side};

    use super::*;

    #[test]
    fn a_connection_is_listed_while_it_is_there() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let fd = stream.as_raw_fd();
            let [own, peer] = [Side::Own, Side::Peer].map(|side| sockets::name(fd, side).unwrap().unwrap());
            let tuple = Tuple { own, peer };
            assert!(connections().unwrap().contains(&tuple), "{address}");
            drop((stream, listener));
            assert!(!connections().unwrap().contains(&tuple), "{address}");
        }
        assert_eq!(parse("  sl  local_address rem_address   st"), None);
    }
}
