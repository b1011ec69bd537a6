//! Rules of the user: which connections are never upgraded, and which at once. One a line, the first that fits counts:
//!
//! ```text
//! # what       which, all that is named must fit
//! never        program sshd
//! never        port 5432
//! always       address 127.0.0.0/8 port 6379-6400
//! ```
//!
//! An address or port fits if one end of the connection has both. Pure, and without allocation: it runs while a foreign
//! application is loaded.

use std::net::IpAddr;

use viaduct_os::bare::sockets::Name;

/// Rules that are kept; more are an error.
pub const MOST: usize = 64;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleVerdict {
    /// The connection stays on TCP.
    Never,
    /// It is claimed at its first use, whatever was learned of its listener.
    Always,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    verdict: RuleVerdict,
    address: [u8; 16],
    bits: u32,
    ports: (u16, u16),
}

/// The rules for one program.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    list: [Rule; MOST],
    len: usize,
}

impl Default for Rules {
    fn default() -> Rules {
        let none = Rule { verdict: RuleVerdict::Never, address: [0; 16], bits: 0, ports: (0, u16::MAX) };
        Rules { list: [none; MOST], len: 0 }
    }
}

impl Rules {
    /// Those of a text that concern this program. What cannot be understood is left out; the number of its first line.
    pub fn parse(text: &[u8], program: &[u8]) -> (Rules, Option<usize>) {
        let mut rules = Rules::default();
        let mut bad = None;
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.split(|&byte| byte == b'#').next().unwrap_or_default();
            match parse_line(line, program) {
                ParsedLine::Empty => {}
                ParsedLine::Rule(rule) if rules.len < MOST => {
                    rules.list[rules.len] = rule;
                    rules.len += 1;
                }
                ParsedLine::Rule(_) | ParsedLine::Bad => bad = bad.or(Some(number + 1)),
            }
        }
        (rules, bad)
    }

    /// What they say of a connection between these ends.
    pub fn judge(&self, ends: [Name; 2]) -> Option<RuleVerdict> {
        let fits = |rule: &&Rule| ends.iter().any(|end| rule.fits(end));
        self.list[..self.len].iter().find(fits).map(|rule| rule.verdict)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Rule {
    fn fits(&self, end: &Name) -> bool {
        let mask = if self.bits == 0 { 0 } else { u128::MAX << (128 - self.bits) };
        let same = (u128::from_be_bytes(self.address) ^ u128::from_be_bytes(end.address)) & mask == 0;
        same && (self.ports.0..=self.ports.1).contains(&end.port)
    }
}

enum ParsedLine {
    Empty,
    Rule(Rule),
    Bad,
}

fn parse_line(line: &[u8], program: &[u8]) -> ParsedLine {
    let Ok(text) = std::str::from_utf8(line) else { return ParsedLine::Bad };
    let mut words = text.split_whitespace();
    let verdict = match words.next() {
        None => return ParsedLine::Empty,
        Some("never") => RuleVerdict::Never,
        Some("always") => RuleVerdict::Always,
        Some(_) => return ParsedLine::Bad,
    };
    let mut rule = Rule { verdict, address: [0; 16], bits: 0, ports: (0, u16::MAX) };
    let mut ours = true;
    while let Some(word) = words.next() {
        let Some(value) = words.next() else { return ParsedLine::Bad };
        let good = match word {
            "program" => {
                ours &= value.as_bytes() == program;
                true
            }
            "address" => parse_address(value)
                .map(|(address, bits)| (rule.address, rule.bits) = (address, bits))
                .is_some(),
            "port" => parse_ports(value).map(|ports| rule.ports = ports).is_some(),
            _ => false,
        };
        if !good {
            return ParsedLine::Bad;
        }
    }
    if ours { ParsedLine::Rule(rule) } else { ParsedLine::Empty }
}

fn parse_address(text: &str) -> Option<([u8; 16], u32)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let (bytes, all, before) = match address.parse().ok()? {
        IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), 32, 96),
        IpAddr::V6(address) => (address.octets(), 128, 0),
    };
    let bits = bits.map_or(Some(all), |bits| bits.parse::<u32>().ok().filter(|&bits| bits <= all))?;
    Some((bytes, before + bits))
}

fn parse_ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let ports = (first.parse().ok()?, last.parse().ok()?);
    (ports.0 <= ports.1).then_some(ports)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end(address: &str, port: u16) -> Name {
        Name { address: parse_address(address).unwrap().0, port }
    }

    fn judge(text: &str, program: &str, ends: [Name; 2]) -> Option<RuleVerdict> {
        let (rules, bad) = Rules::parse(text.as_bytes(), program.as_bytes());
        assert_eq!(bad, None, "{text}");
        rules.judge(ends)
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let text = "# mine\n\nalways port 6379\nnever address 127.0.0.0/8 # all others\n";
        let client = end("127.0.0.1", 50_000);
        assert_eq!(judge(text, "x", [client, end("127.0.0.1", 6379)]), Some(RuleVerdict::Always));
        assert_eq!(judge(text, "x", [client, end("127.0.0.1", 80)]), Some(RuleVerdict::Never));
        assert_eq!(judge(text, "x", [end("::1", 5), end("::1", 80)]), None);
    }

    #[test]
    fn all_that_a_rule_names_must_fit_one_end() {
        let ends = [end("10.0.0.1", 80), end("10.0.0.2", 4000)];
        assert_eq!(judge("never address 10.0.0.1 port 4000", "x", ends), None);
        assert_eq!(judge("never address 10.0.0.2 port 3000-4000", "x", ends), Some(RuleVerdict::Never));
        assert_eq!(judge("never program redis port 80", "nginx", ends), None);
        assert_eq!(judge("never program nginx port 80", "nginx", ends), Some(RuleVerdict::Never));
        assert_eq!(judge("never", "nginx", ends), Some(RuleVerdict::Never));
        assert_eq!(judge("never address ::/0", "nginx", ends), Some(RuleVerdict::Never));
        assert_eq!(
            judge("never address 2001:db8::/32", "nginx", [end("2001:db8::7", 1), ends[0]]),
            Some(RuleVerdict::Never)
        );
    }

    #[test]
    fn lines_that_make_no_sense_are_named_and_left_out() {
        for bad in [
            "perhaps",
            "never port",
            "never port 9-1",
            "never port 70000",
            "always address 1.2.3",
            "never address 1.2.3.4/33",
            "never user 1",
        ] {
            let text = format!("always\n{bad}\n");
            let (rules, line) = Rules::parse(text.as_bytes(), b"x");
            assert_eq!((line, rules.len), (Some(2), 1), "{bad}");
        }
        let many = "never port 1\n".repeat(MOST + 1);
        assert_eq!(Rules::parse(many.as_bytes(), b"x").1, Some(MOST + 1));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in prop::collection::vec(any::<u8>(), 0..300), port: u16) {
            let (rules, _) = Rules::parse(&text, b"x");
            rules.judge([Name { address: [7; 16], port }, Name::default()]);
        }
    }
}
