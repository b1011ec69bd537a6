//! Options of GNU sort that `viaduct sort` does not have: each is known, so that it is refused by its name and not taken for
//! something else.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;

#[derive(Debug, Default, Args)]
pub(crate) struct GnuArgs {
    #[arg(short = 'd', long, hide = true)]
    dictionary_order: bool,
    #[arg(short = 'f', long, hide = true)]
    ignore_case: bool,
    #[arg(short = 'g', long, hide = true)]
    general_numeric_sort: bool,
    #[arg(short = 'i', long, hide = true)]
    ignore_nonprinting: bool,
    #[arg(short = 'M', long, hide = true)]
    month_sort: bool,
    #[arg(long, hide = true)]
    human_numeric_sort: bool,
    #[arg(short = 'R', long, hide = true)]
    random_sort: bool,
    #[arg(short = 'V', long, hide = true)]
    version_sort: bool,
    #[arg(long, hide = true)]
    debug: bool,
    #[arg(long, hide = true, value_name = "WORD")]
    sort: Option<String>,
    #[arg(long, hide = true, value_name = "FILE")]
    random_source: Option<String>,
    #[arg(long, hide = true, value_name = "N")]
    batch_size: Option<String>,
    #[arg(long, hide = true, value_name = "PROGRAM")]
    compress_program: Option<String>,
    #[arg(long, hide = true, value_name = "FILE")]
    files0_from: Option<String>,
}

impl GnuArgs {
    /// The first option that was given, by its names.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let flags = [
            (self.dictionary_order, "-d (--dictionary-order)"),
            (self.ignore_case, "-f (--ignore-case)"),
            (self.general_numeric_sort, "-g (--general-numeric-sort)"),
            (self.ignore_nonprinting, "-i (--ignore-nonprinting)"),
            (self.month_sort, "-M (--month-sort)"),
            (self.human_numeric_sort, "-h (--human-numeric-sort)"),
            (self.random_sort, "-R (--random-sort)"),
            (self.version_sort, "-V (--version-sort)"),
            (self.debug, "--debug"),
            (self.sort.is_some(), "--sort"),
            (self.random_source.is_some(), "--random-source"),
            (self.batch_size.is_some(), "--batch-size"),
            (self.compress_program.is_some(), "--compress-program"),
            (self.files0_from.is_some(), "--files0-from"),
        ];
        flags.iter().find(|(given, _)| *given).map(|(_, names)| *names)
    }
}

/// Makes `-h` of GNU sort what it means there, which is no help: beside other words, or at the end of a pipe.
pub(crate) fn human_numbers(words: &mut [OsString], from_a_pipe: bool) {
    let of_gnu = |word: &OsString| {
        let flags = word.as_bytes().strip_prefix(b"-").unwrap_or_default();
        flags.contains(&b'h') && flags.iter().all(|letter| b"hbcCmnrsuz".contains(letter))
    };
    let Some((verb, rest)) = words.get_mut(1..).and_then(<[OsString]>::split_first_mut) else { return };
    let is_verb = rest.first().is_some_and(|word| word == "gen" || word == "check");
    if verb != "sort" || is_verb || rest.len() < 2 && !from_a_pipe {
        return;
    }
    let end = rest.iter().position(|word| word == "--").unwrap_or(rest.len());
    rest[..end].iter_mut().filter(|word| of_gnu(word)).for_each(|word| *word = "--human-numeric-sort".into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(words: &[&str], from_a_pipe: bool) -> bool {
        let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
        human_numbers(&mut words, from_a_pipe);
        words.iter().any(|word| word == "--human-numeric-sort")
    }

    #[test]
    fn help_stays_help_and_human_numbers_are_seen() {
        assert!(!changed(&["viaduct", "sort", "-h"], false) && changed(&["viaduct", "sort", "-h"], true));
        assert!(changed(&["viaduct", "sort", "-rh", "file"], false));
        assert!(changed(&["viaduct", "sort", "-h", "-k2", "file"], false));
        assert!(!changed(&["viaduct", "sort", "gen", "-h"], true));
        assert!(!changed(&["viaduct", "sort", "-k2,2h", "-t", "file"], true));
        assert!(!changed(&["viaduct", "sort", "-r", "--", "-h"], true));
        assert!(!changed(&["viaduct", "launch", "-h", "x"], true) && !changed(&["viaduct"], true));
    }
}
