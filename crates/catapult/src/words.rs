//! The words of `mpiexec`, for fingers and scripts that are used to them: `-np 4 -host a,b -genv X 1`.
//!
//! They are turned into ours before anything else reads them; the words of the program itself stay as they are. A word
//! before the program that begins like an option and is none is refused here: to the parser it would be the program.

use std::ffi::{OsStr, OsString};

use crate::error::Error;

/// What a word of `mpiexec` means.
enum Meaning {
    /// One of ours, with so many values.
    Same(&'static str, usize),
    /// A variable: name and value follow, ours takes them as one.
    Pair(&'static str),
    /// What happens here anyway.
    Usual,
    /// What is usual with this value; another one cannot be had.
    UsualWith(&'static str),
    /// Cannot be had; a value follows. What to do instead.
    Without(&'static str),
}

use Meaning::{Pair, Same, Usual, UsualWith, Without};

const WORDS: &[(&str, Meaning)] = &[
    ("-np", Same("-n", 1)),
    ("--np", Same("-n", 1)),
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
    ("-genvall", Same("--genvall", 0)),
    ("-envall", Same("--genvall", 0)),
    ("-prepend-rank", Same("--label", 0)),
    ("--tag-output", Same("--label", 0)),
    ("-ppn", Same("--ppn", 1)),
    ("-perhost", Same("--ppn", 1)),
    ("-npernode", Same("--ppn", 1)),
    ("--npernode", Same("--ppn", 1)),
    ("--oversubscribe", Usual),
    ("--allow-run-as-root", Same("--allow-root", 0)),
    ("-launcher", UsualWith("ssh")),
    ("-iface", Without("the network is chosen by the program: FI_TCP_IFACE, UCX_NET_DEVICES and the like")),
    ("-outfile-pattern", Same("--output-file", 1)),
    ("-errfile-pattern", Same("--error-file", 1)),
];

/// The options of a parser, to tell them from unknown ones.
#[derive(Clone, Debug, Default)]
pub struct Options {
    long: Vec<(String, bool)>,
    short: Vec<(char, bool)>,
}

impl Options {
    /// Adds one: its names, and whether a value follows.
    pub fn add(&mut self, long: Option<&str>, short: Option<char>, valued: bool) {
        self.long.extend(long.map(|name| (format!("--{name}"), valued)));
        self.short.extend(short.map(|name| (name, valued)));
    }

    /// Whether an option is among them, and whether a value follows as another word.
    fn find(&self, word: &str) -> Option<bool> {
        if word.starts_with("--") {
            let (name, value) = word.split_once('=').map_or((word, false), |(name, _)| (name, true));
            return self.long.iter().find(|(long, _)| long == name).map(|(_, valued)| *valued && !value);
        }
        // Letters in a row, the last of which may take the rest as its value: `-lq`, `-n4`.
        let letters = word.strip_prefix('-')?;
        for (at, letter) in letters.char_indices() {
            let (_, valued) = *self.short.iter().find(|(short, _)| *short == letter)?;
            let rest = &letters[at + letter.len_utf8()..];
            if valued {
                // `-nolocal` is no number of ranks.
                let value = rest.trim_start_matches('=');
                let fits =
                    letter != 'n' || value.is_empty() || value.starts_with(|c: char| c.is_ascii_digit());
                return fits.then_some(rest.is_empty());
            }
        }
        (!letters.is_empty()).then_some(false)
    }

    fn nearest(&self, word: &str) -> Option<String> {
        let name = word.split('=').next().unwrap_or(word);
        let bare = |text: &str| text.trim_start_matches('-').to_owned();
        let short = self.short.iter().map(|(short, _)| format!("-{short}"));
        let ours = self.long.iter().map(|(long, _)| long.clone()).chain(short);
        let theirs = WORDS.iter().map(|(theirs, _)| (*theirs).to_owned());
        let all = ours.chain(theirs).map(|other| (distance(&bare(name), &bare(&other)), other));
        let most = (bare(name).len() / 3).clamp(1, 3);
        all.filter(|(far, other)| *far <= most && bare(other).len() > 1)
            .min_by_key(|(far, _)| *far)
            .map(|(_, other)| other)
    }
}

/// Turns the words before the program into ours, which are `ours`. `everywhere` are those of the whole command line, if
/// this is a part of it after `:`.
///
/// # Errors
/// [`Error::Option`] for a word that begins like an option and is none, or has no place here.
pub fn translate(
    args: &[OsString],
    ours: &Options,
    everywhere: Option<&Options>,
) -> Result<Vec<OsString>, Error> {
    let mut out = Vec::with_capacity(args.len());
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let Some(text) = word.to_str().filter(|text| text.starts_with('-') && *text != "-" && *text != "--")
        else {
            // The program, or `--`: nothing after it is ours.
            out.push(word.clone());
            break;
        };
        let known = |ours: &Options, word: &str| ours.find(word).is_some();
        let here = |word: &str| match known(ours, word) {
            true => Ok(()),
            false => Err(refused(text, word, ours, everywhere)),
        };
        let (name, glued) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (text, None),
        };
        match WORDS.iter().find(|(theirs, _)| *theirs == name).map(|(_, meaning)| meaning) {
            Some(Same(our, values)) => {
                here(our)?;
                out.push((*our).into());
                let more = values.saturating_sub(usize::from(glued.is_some()));
                out.extend(glued);
                out.extend(rest.by_ref().take(more).cloned());
            }
            Some(Pair(our)) => {
                here(our)?;
                // Open MPI's form is NAME=VALUE in one word; `-env NAME VALUE` are two.
                let name = glued.or_else(|| rest.next().cloned()).unwrap_or_default();
                let mut both = name.clone();
                if !contains(&name, b'=') {
                    both.push("=");
                    both.push(rest.next().map_or(OsStr::new(""), |value| value));
                }
                out.extend([OsString::from(*our), both]);
            }
            Some(Usual) => {}
            Some(UsualWith(usual)) => {
                let value = glued.or_else(|| rest.next().cloned()).unwrap_or_default();
                if value != *usual {
                    let value = value.to_string_lossy();
                    let instead = "hosts are reached by ssh; VIADUCT_SSH says how it is called";
                    return Err(Error::Option {
                        word: format!("{name} {value}"),
                        why: "cannot be had",
                        hint: instead.to_owned(),
                    });
                }
            }
            Some(Without(instead)) => {
                return Err(Error::Option {
                    word: name.to_owned(),
                    why: "has no effect here",
                    hint: (*instead).to_owned(),
                });
            }
            None => {
                // `-timeout 3`: hydra writes long words with one stroke.
                let double = format!("-{text}");
                let word = match (known(ours, text), text.starts_with("--") || text.len() < 3) {
                    (false, false) if known(ours, &double) => double,
                    _ => text.to_owned(),
                };
                let Some(value_follows) = ours.find(&word) else {
                    return Err(refused(text, &word, ours, everywhere));
                };
                out.push(word.into());
                if value_follows {
                    out.extend(rest.next().cloned());
                }
            }
        }
    }
    out.extend(rest.cloned());
    Ok(out)
}

/// Why a word is none of ours.
fn refused(text: &str, word: &str, ours: &Options, everywhere: Option<&Options>) -> Error {
    if everywhere.is_some_and(|all| all.find(word).is_some() || all.find(&format!("-{word}")).is_some()) {
        let hint = "it stands before the first program, and is for all of them".to_owned();
        return Error::Option { word: text.to_owned(), why: "is not allowed after `:`", hint };
    }
    let hint = match ours.nearest(text) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`viaduct launch --help` lists all; a program whose name begins with `-` stands behind `--`"
            .to_owned(),
    };
    Error::Option { word: text.to_owned(), why: "is no option", hint }
}

/// Cuts a command line at the words `:`, each part a program of its own.
pub fn sections(args: &[OsString]) -> Vec<&[OsString]> {
    args.split(|word| word == ":").collect()
}

fn contains(text: &OsStr, byte: u8) -> bool {
    text.as_encoded_bytes().contains(&byte)
}

/// Letters to add, take away, change or swap with the next until one word is the other.
fn distance(one: &str, two: &str) -> usize {
    let (one, two): (Vec<char>, Vec<char>) = (one.chars().collect(), two.chars().collect());
    let mut rows = vec![(0..=two.len()).collect::<Vec<usize>>()];
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, other) in two.iter().enumerate() {
            let change = rows[i][j] + usize::from(letter != other);
            let mut least = change.min(row[j] + 1).min(rows[i][j + 1] + 1);
            if i > 0 && j > 0 && *letter == two[j - 1] && one[i - 1] == *other {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][two.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let mut options = Options::default();
        for (long, short, valued) in [
            (None, Some('n'), true),
            (Some("hosts"), None, true),
            (Some("hostfile"), None, true),
            (Some("timeout"), None, true),
            (Some("wdir"), None, true),
            (Some("env"), None, true),
            (Some("genv"), None, true),
            (Some("genvall"), None, false),
            (Some("ppn"), None, true),
            (Some("label"), Some('l'), false),
            (Some("quiet"), Some('q'), false),
            (Some("bind-to"), None, true),
        ] {
            options.add(long, short, valued);
        }
        options
    }

    fn try_run(line: &str) -> Result<String, Error> {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let out = translate(&args, &options(), None)?;
        Ok(out.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    fn run(line: &str) -> String {
        try_run(line).unwrap_or_else(|why| panic!("{line}: {why}"))
    }

    #[test]
    fn words_of_mpiexec_become_ours() {
        assert_eq!(run("-np 4 -host a,b prog -np 3"), "-n 4 --hosts a,b prog -np 3");
        assert_eq!(run("-genv A 1 -env B=2 -l prog"), "--genv A=1 --env B=2 -l prog");
        assert_eq!(run("-bind-to core -genvall -n 2 prog"), "--bind-to core --genvall -n 2 prog");
        assert_eq!(run("-ppn 2 -f hosts -wdir d -- -np"), "--ppn 2 --hostfile hosts --wdir d -- -np");
        assert_eq!(
            run("--np=3 -lq -n4 --hosts=x -timeout 3 prog"),
            "-n 3 -lq -n4 --hosts=x --timeout 3 prog"
        );
        assert_eq!(run("-launcher ssh --oversubscribe prog"), "prog");
    }

    #[test]
    fn values_that_look_like_words_stay() {
        assert_eq!(run("--hosts -host prog -host"), "--hosts -host prog -host");
        assert_eq!(run("--timeout 3 -np"), "--timeout 3 -n");
        assert_eq!(run("-env"), "--env =");
    }

    #[test]
    fn an_unknown_option_is_no_program() {
        for (line, near) in [
            ("--frobnicate true", "--help"),
            ("--host-file x true", "--hostfile"),
            ("--lable true", "--label"),
            ("-nolocal true", "--help"),
            ("-z true", "--help"),
            ("-launcher rsh true", "VIADUCT_SSH"),
            ("-iface eth0 true", "FI_TCP_IFACE"),
        ] {
            let why = try_run(line).unwrap_err();
            assert!(why.hint().is_some_and(|hint| hint.contains(near)), "{line}: {why} {:?}", why.hint());
        }
    }

    #[test]
    fn options_for_all_programs_stand_before_the_first() {
        let mut section = Options::default();
        section.add(None, Some('n'), true);
        let args: Vec<OsString> = ["-n", "1", "--label", "prog"].map(OsString::from).to_vec();
        let why = translate(&args, &section, Some(&options())).unwrap_err().to_string();
        assert_eq!(why, "`--label` is not allowed after `:`");
    }

    #[test]
    fn sections_are_cut_at_colons() {
        let args: Vec<OsString> = "a -x : -n 2 b".split(' ').map(OsString::from).collect();
        let parts: Vec<usize> = sections(&args).iter().map(|part| part.len()).collect();
        assert_eq!(parts, [2, 3]);
    }

    #[test]
    fn distances() {
        assert_eq!((distance("label", "lable"), distance("", "ab"), distance("hosts", "host")), (1, 2, 1));
    }
}
