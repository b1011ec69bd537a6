//! Lists of hosts as people write them: `node[01-16]!node07,big*4,@gpu`.
//!
//! ```text
//!   list   = term { ("," | "!" | "&") term }        union, difference, intersection, from left to right
//!   term   = "@" group | "file:" path | name [ "*" slots | ":" slots ]
//!   name   = [ user "@" ] text with ranges [1-4,7,01-12/2] anywhere, or ssh://user@host:port
//! ```
//!
//! Pure: groups and files are read by the caller. A host that is named twice has two slots, as for `mpiexec`.

mod expand;
pub mod file;

use crate::error::Error;

/// Most hosts of a list: a slip of the finger in a range must not fill the memory.
pub const MOST: usize = 65_536;

/// One host and how many ranks it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As ssh takes it.
    pub name: String,
    /// Ranks.
    pub slots: usize,
}

impl Host {
    /// The name without user, scheme and port.
    pub fn bare(&self) -> &str {
        let name = self.name.strip_prefix("ssh://").map_or(&*self.name, |rest| match rest.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => rest,
        });
        name.rsplit_once('@').map_or(name, |(_, host)| host)
    }

    /// Whether this is the machine we are on, by a name that can mean nothing else.
    pub fn is_local(&self) -> bool {
        matches!(&*self.name, "localhost" | "127.0.0.1" | "::1")
    }
}

/// Where groups and files come from.
pub trait Source {
    /// The list of a group.
    ///
    /// # Errors
    /// If there is no such group.
    fn group(&self, name: &str) -> Result<String, Error>;

    /// The text of a file of hosts.
    ///
    /// # Errors
    /// If it cannot be read.
    fn file(&self, path: &str) -> Result<String, Error>;
}

/// The hosts of a list, in the order in which they are named.
///
/// # Errors
/// [`Error::BadHosts`] with the part that is wrong; what `source` says.
pub fn parse(list: &str, source: &dyn Source) -> Result<Vec<Host>, Error> {
    parse_at(list, source, 0)
}

fn parse_at(list: &str, source: &dyn Source, depth: usize) -> Result<Vec<Host>, Error> {
    if depth > 8 {
        return Err(bad(list, "groups that name each other"));
    }
    let mut hosts: Vec<Host> = Vec::new();
    for (operator, term) in terms(list)? {
        let right = term_hosts(term, source, depth)?;
        match operator {
            ',' => right.into_iter().for_each(|host| add(&mut hosts, host)),
            '!' => hosts.retain(|host| right.iter().all(|other| other.name != host.name)),
            _ => hosts.retain(|host| right.iter().any(|other| other.name == host.name)),
        }
        if hosts.len() > MOST {
            return Err(bad(list, "more than 65,536 hosts"));
        }
    }
    Ok(hosts)
}

/// Adds a host, or its slots to those it has.
pub(crate) fn add(hosts: &mut Vec<Host>, host: Host) {
    match hosts.iter_mut().find(|other| other.name == host.name) {
        Some(other) => other.slots += host.slots,
        None => hosts.push(host),
    }
}

/// The terms with the operator before each; operators inside of brackets belong to ranges.
fn terms(list: &str) -> Result<Vec<(char, &str)>, Error> {
    let (mut terms, mut depth, mut from, mut operator) = (Vec::new(), 0, 0, ',');
    for (at, char) in list.char_indices() {
        match char {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' | '!' | '&' if depth == 0 => {
                terms.push((operator, list[from..at].trim()));
                (operator, from) = (char, at + 1);
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return Err(bad(list, "brackets do not match"));
        }
    }
    if depth != 0 {
        return Err(bad(list, "brackets do not match"));
    }
    terms.push((operator, list[from..].trim()));
    match terms.iter().any(|(_, term)| term.is_empty()) {
        true => Err(bad(list, "a name is missing")),
        false => Ok(terms),
    }
}

fn term_hosts(term: &str, source: &dyn Source, depth: usize) -> Result<Vec<Host>, Error> {
    if let Some(group) = term.strip_prefix('@') {
        return parse_at(&source.group(group)?, source, depth + 1);
    }
    if let Some(path) = term.strip_prefix("file:") {
        return file::parse(&source.file(path)?, path);
    }
    let (name, slots) = slots(term)?;
    Ok(expand::names(name)?.into_iter().map(|name| Host { name, slots }).collect())
}

/// `host*4` and `host:4`; the colon of `ssh://host:22` and of an address of IPv6 stands for something else.
fn slots(term: &str) -> Result<(&str, usize), Error> {
    let colon = |term: &str| !term.starts_with("ssh://") && term.matches(':').count() == 1;
    let split = match term.rsplit_once('*') {
        None if colon(term) => term.rsplit_once(':'),
        other => other,
    };
    let Some((name, count)) = split else { return Ok((term, 1)) };
    match count.parse() {
        Ok(count) if (1..=MOST).contains(&count) && !name.is_empty() => Ok((name, count)),
        _ => Err(bad(term, "a number of ranks follows `*` or `:`")),
    }
}

pub(crate) fn bad(text: &str, why: &'static str) -> Error {
    Error::BadHosts { text: text.chars().take(80).collect(), why }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Some2;

    impl Source for Some2 {
        fn group(&self, name: &str) -> Result<String, Error> {
            match name {
                "gpu" => Ok("g[1-2]".to_owned()),
                "all" => Ok("@gpu,node[1-3]".to_owned()),
                "loop" => Ok("@loop".to_owned()),
                _ => Err(bad(name, "no such group")),
            }
        }

        fn file(&self, _: &str) -> Result<String, Error> {
            Ok("a slots=2\nb:3\n".to_owned())
        }
    }

    fn names(list: &str) -> Vec<String> {
        let show =
            |host: Host| if host.slots == 1 { host.name } else { format!("{}*{}", host.name, host.slots) };
        parse(list, &Some2).unwrap_or_else(|e| panic!("{list}: {e}")).into_iter().map(show).collect()
    }

    #[test]
    fn lists_are_read_from_left_to_right() {
        assert_eq!(names("a"), ["a"]);
        assert_eq!(names("node[1-3],x*2"), ["node1", "node2", "node3", "x*2"]);
        assert_eq!(names("node[01-10]!node[02-09]"), ["node01", "node10"]);
        assert_eq!(names("node[1-9/4]&node[5-9]"), ["node5", "node9"]);
        assert_eq!(names("a,a,b:3"), ["a*2", "b*3"], "named twice means two ranks");
        assert_eq!(names("@all!g1"), ["g2", "node1", "node2", "node3"]);
        assert_eq!(names("file:x,c"), ["a*2", "b*3", "c"]);
        assert_eq!(names("r[1-2]n[1-2]"), ["r1n1", "r1n2", "r2n1", "r2n2"]);
        assert_eq!(names("me@[::1],ssh://you@h:2222"), ["me@::1", "ssh://you@h:2222"]);
        assert_eq!(names("localhost*16"), ["localhost*16"]);
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for list in [
            "",
            ",",
            "a,",
            "a[",
            "a]",
            "a[1-]",
            "a[2-1]",
            "a[x]",
            "a*0",
            "a*x",
            "a*",
            "*3",
            "[[1]]",
            "@none",
            "@loop",
            "a[1-99999999]",
            "a b",
        ] {
            assert!(parse(list, &Some2).is_err(), "{list:?}");
        }
    }

    #[test]
    fn names_without_their_surroundings() {
        for (name, bare) in
            [("me@h", "h"), ("ssh://me@h:22", "h"), ("h", "h"), ("ssh://h", "h"), ("fe80::1", "fe80::1")]
        {
            assert_eq!(Host { name: name.to_owned(), slots: 1 }.bare(), bare);
        }
    }

    proptest! {
        /// Nothing that is typed makes it panic or grow beyond its limit.
        #[test]
        fn anything_can_be_typed(list in "[a-c0-9@!&,*:\\[\\]/ -]{0,40}") {
            if let Ok(hosts) = parse(&list, &Some2) {
                prop_assert!(hosts.len() <= MOST && hosts.iter().all(|host| host.slots > 0));
            }
        }

        /// A difference with itself is empty, an intersection with itself is the list.
        #[test]
        fn sets_obey_their_laws(from in 0usize..50, len in 1usize..50) {
            let list = format!("n[{from}-{}]", from + len - 1);
            prop_assert_eq!(names(&list).len(), len);
            let nothing = names(&format!("{list}!{list}"));
            prop_assert!(nothing.is_empty());
            let same = names(&format!("{list}&{list}"));
            prop_assert_eq!(same, names(&list));
        }
    }
}
