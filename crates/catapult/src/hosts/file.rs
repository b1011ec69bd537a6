//! Files of hosts: one a line, with the number of ranks as hydra (`host:4`), Open MPI (`host slots=4`) or we (`host*4`)
//! write it. What PBS writes, a line for each rank, is the same. And files of groups: `name: list`.

use super::{Host, add, bad, expand, slots};
use crate::error::Error;

/// The hosts of a file with this name.
///
/// # Errors
/// [`Error::BadHostFile`] with the line that is wrong.
pub fn parse(text: &str, file: &str) -> Result<Vec<Host>, Error> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |why: &Error| match why {
            Error::BadHosts { why, .. } => Error::BadHostFile {
                file: file.to_owned(),
                number,
                line: line.chars().take(80).collect(),
                why,
            },
            other => Error::Usage(other.to_string()),
        };
        one_line(line, &mut hosts).map_err(|why| wrong(&why))?;
    }
    Ok(hosts)
}

fn one_line(line: &str, hosts: &mut Vec<Host>) -> Result<(), Error> {
    let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
    let Some(first) = words.next() else { return Ok(()) };
    let (name, mut count) = slots(first)?;
    for word in words {
        match word.split_once('=') {
            Some(("slots", number)) => {
                count = number.parse().map_err(|_| bad(line, "a number follows `slots=`"))?;
            }
            // Open MPI and MPICH know more words; none of them says which host it is.
            Some(_) => {}
            None => return Err(bad(line, "one host a line")),
        }
    }
    for name in expand::names(name)? {
        add(hosts, Host { name, slots: count });
    }
    Ok(())
}

/// The list of one group in a file of groups.
pub fn group<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (group, list) = line.split('#').next()?.split_once(':')?;
        (group.trim() == name).then_some(list.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_launchers_file_is_understood() {
        let text =
            "# a comment\nnode1:4\nnode2 slots=2 max-slots=9 # more\n\nnode3*3\nnode4\nnode4\nn[5-6]:2\n";
        let hosts = parse(text, "f").unwrap();
        let list: Vec<(&str, usize)> = hosts.iter().map(|host| (&*host.name, host.slots)).collect();
        assert_eq!(list, [("node1", 4), ("node2", 2), ("node3", 3), ("node4", 2), ("n5", 2), ("n6", 2)]);
        assert!(parse("a b\n", "f").is_err());
        let why = parse("a\nb slots=two\n", "f").unwrap_err();
        assert_eq!(why.to_string(), "f, line 2: `b slots=two`: a number follows `slots=`");
        assert!(why.hint().unwrap().contains("host slots=4"));
    }

    #[test]
    fn groups_have_names() {
        let text = "gpu: g[1-4]\nall: @gpu,node1 # everything\n";
        assert_eq!(group(text, "all"), Some("@gpu,node1"));
        assert_eq!(group(text, "none"), None);
    }
}
