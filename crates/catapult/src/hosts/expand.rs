//! Ranges in names: `node[01-12/2,20]rack[a,b]` is every combination. An address in brackets is an address.

use super::{MOST, bad};
use crate::error::Error;

/// The names that a pattern stands for.
pub(super) fn names(pattern: &str) -> Result<Vec<String>, Error> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').ok_or_else(|| bad(pattern, "brackets do not match"))?;
        let choices = if inside.contains(':') { vec![inside.to_owned()] } else { choices(inside, pattern)? };
        if names.len().saturating_mul(choices.len()) > MOST {
            return Err(bad(pattern, "more than 65,536 hosts"));
        }
        let pair = |name: &String| choices.iter().map(|c| format!("{name}{before}{c}")).collect::<Vec<_>>();
        names = names.iter().flat_map(pair).collect();
        rest = after;
    }
    for name in &mut names {
        name.push_str(rest);
        let good = |char: char| char.is_alphanumeric() || "._-@:/%".contains(char);
        // A name that begins like an option would be one to ssh.
        if name.is_empty() || name.starts_with('-') || !name.chars().all(good) {
            return Err(bad(pattern, "not the name of a host"));
        }
    }
    Ok(names)
}

fn choices(inside: &str, pattern: &str) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    for part in inside.split(',') {
        let wrong = || bad(pattern, "a range is written [1-4,7] or [01-12/2]");
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<usize>().ok().filter(|&n| n > 0).ok_or_else(wrong)?),
            None => (part, 1),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (usize, usize) = match (first.parse(), last.parse()) {
            (Ok(from), Ok(to)) => (from, to),
            _ => return Err(wrong()),
        };
        if from > to {
            return Err(bad(pattern, "a range goes from the smaller number to the larger one"));
        }
        if (to - from) / step >= MOST || all.len() > MOST {
            return Err(bad(pattern, "more than 65,536 hosts"));
        }
        // [01-12]: as many digits as the first one has.
        let width = if first.starts_with('0') { first.len() } else { 0 };
        all.extend((from..=to).step_by(step).map(|n| format!("{n:0width$}")));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_stay() {
        assert_eq!(names("n[08-10]").unwrap(), ["n08", "n09", "n10"]);
        assert_eq!(names("n[0-1]").unwrap(), ["n0", "n1"]);
        assert_eq!(names("n[1-7/3,9]x").unwrap(), ["n1x", "n4x", "n7x", "n9x"]);
    }

    #[test]
    fn too_many_are_named_as_such() {
        let why = names("h[0-99999999]").unwrap_err().to_string();
        assert!(why.contains("more than 65,536 hosts"), "{why}");
    }

    #[test]
    fn options_are_no_names() {
        assert!(names("-oProxyCommand").is_err() && names("a;b").is_err() && names("$(x)").is_err());
    }
}
