//! The words of `mpiexec`, for those who have them in their fingers and scripts: `-np 4 -host a,b -genv X 1`.
//!
//! They are turned into ours before anything else reads them; the words of the program itself stay as they are.

use std::ffi::{OsStr, OsString};

/// What a word of `mpiexec` means.
enum Meaning {
    /// One of ours, with so many values.
    Same(&'static str, usize),
    /// A variable: name and value follow, ours takes them as one.
    Pair(&'static str),
    /// Nothing here; so many values follow.
    Nothing(usize),
}

use Meaning::{Nothing, Pair, Same};

const WORDS: &[(&str, Meaning)] = &[
    ("-np", Same("-n", 1)),
    ("-c", Same("-n", 1)),
    ("-host", Same("--hosts", 1)),
    ("-hosts", Same("--hosts", 1)),
    ("-hostlist", Same("--hosts", 1)),
    ("-w", Same("--hosts", 1)),
    ("--host", Same("--hosts", 1)),
    ("-f", Same("--hostfile", 1)),
    ("-hostfile", Same("--hostfile", 1)),
    ("-machinefile", Same("--hostfile", 1)),
    ("--machinefile", Same("--hostfile", 1)),
    ("-wdir", Same("--wdir", 1)),
    ("-wd", Same("--wdir", 1)),
    ("-env", Pair("--env")),
    ("-genv", Pair("--genv")),
    ("-genvlist", Same("-x", 1)),
    ("-envlist", Same("-x", 1)),
    ("-genvall", Nothing(0)),
    ("-envall", Nothing(0)),
    ("-prepend-rank", Same("--label", 0)),
    ("--tag-output", Same("--label", 0)),
    ("-ppn", Same("--ppn", 1)),
    ("-perhost", Same("--ppn", 1)),
    ("-npernode", Same("--ppn", 1)),
    ("--npernode", Same("--ppn", 1)),
    ("--oversubscribe", Nothing(0)),
    ("--allow-run-as-root", Nothing(0)),
    ("-timeout", Same("--timeout", 1)),
    ("-iface", Nothing(1)),
    ("-launcher", Nothing(1)),
    ("-bind-to", Nothing(1)),
    ("--bind-to", Nothing(1)),
    ("-map-by", Nothing(1)),
    ("--map-by", Nothing(1)),
];

/// Turns the words before the program into ours. `valued` says which of ours take a value.
pub fn translate(args: &[OsString], valued: &dyn Fn(&str) -> bool) -> Vec<OsString> {
    let mut out = Vec::with_capacity(args.len());
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let Some(text) = word.to_str().filter(|text| text.starts_with('-') && *text != "-" && *text != "--")
        else {
            // The program, or `--`: nothing after it is ours.
            out.push(word.clone());
            break;
        };
        match WORDS.iter().find(|(theirs, _)| *theirs == text).map(|(_, meaning)| meaning) {
            Some(Same(ours, values)) => {
                out.push((*ours).into());
                out.extend(rest.by_ref().take(*values).cloned());
            }
            Some(Pair(ours)) => {
                // Open MPI's form is NAME=VALUE in one word; `-env NAME VALUE` are two.
                let name = rest.next().cloned().unwrap_or_default();
                let mut both = name.clone();
                if !contains(&name, b'=') {
                    both.push("=");
                    both.push(rest.next().map_or(OsStr::new(""), |value| value));
                }
                out.extend([OsString::from(*ours), both]);
            }
            Some(Nothing(values)) => {
                rest.by_ref().take(*values).for_each(drop);
            }
            None => {
                out.push(word.clone());
                if valued(text) {
                    out.extend(rest.next().cloned());
                }
            }
        }
    }
    out.extend(rest.cloned());
    out
}

/// Cuts a command line at the words `:`, each part a program of its own.
pub fn sections(args: &[OsString]) -> Vec<&[OsString]> {
    args.split(|word| word == ":").collect()
}

fn contains(text: &OsStr, byte: u8) -> bool {
    text.as_encoded_bytes().contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> String {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let out = translate(&args, &|word| matches!(word, "-n" | "--hosts" | "--timeout"));
        out.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_of_mpiexec_become_ours() {
        assert_eq!(run("-np 4 -host a,b prog -np 3"), "-n 4 --hosts a,b prog -np 3");
        assert_eq!(run("-genv A 1 -env B=2 -l prog"), "--genv A=1 --env B=2 -l prog");
        assert_eq!(run("-bind-to core -genvall -n 2 prog"), "-n 2 prog");
        assert_eq!(run("-ppn 2 -f hosts -wdir d -- -np"), "--ppn 2 --hostfile hosts --wdir d -- -np");
    }

    #[test]
    fn values_that_look_like_words_stay() {
        assert_eq!(run("--hosts -host prog -host"), "--hosts -host prog -host");
        assert_eq!(run("--timeout 3 -np"), "--timeout 3 -n");
        assert_eq!(run("-env"), "--env =");
    }

    #[test]
    fn sections_are_cut_at_colons() {
        let args: Vec<OsString> = "a -x : -n 2 b".split(' ').map(OsString::from).collect();
        let parts: Vec<usize> = sections(&args).iter().map(|part| part.len()).collect();
        assert_eq!(parts, [2, 3]);
    }
}
