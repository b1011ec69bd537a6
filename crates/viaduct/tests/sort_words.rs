//! `viaduct sort` with the words of GNU sort, side by side with it; and the words for records.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use viaduct_kit::effort::{self, scaled};
use viaduct_kit::packages::need_program;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;

fn watch() -> Watchdog {
    Watchdog::arm(scaled(Duration::from_secs(180)), "sorts with many words")
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn one<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }
}

fn run(program: &Path, folder: &Path, args: &[String]) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).env("LC_ALL", "C").stdin(Stdio::null());
    command.output().expect("the program starts")
}

fn viaduct(folder: &Path, args: &[String]) -> Output {
    run(Path::new(env!("CARGO_BIN_EXE_viaduct")), folder, &[&["sort".to_owned()], args].concat())
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

/// Lines of few different fields, so that many keys are equal, with blanks and separators of all kinds.
fn text(random: &mut Random, lines: u64, mark: &str) -> String {
    let fields =
        ["a", "b", "B", "ab", "-3", "12", "012", "1.5", "-0", "", " ", "x\r", "\u{e9}", "7z", ".5", "- 1"];
    let mut text = String::new();
    for n in 0..lines {
        for _ in 0..random.below(5) {
            text += random.one(&fields);
            text += random.one(&[" ", "  ", "\t", ":", ","]);
        }
        // The last line often has no end.
        if n + 1 < lines || random.below(2) == 0 {
            text += mark;
        }
    }
    text
}

fn position(random: &mut Random, first_char: u64) -> String {
    let mut position = (1 + random.below(4)).to_string();
    if random.below(2) == 0 {
        position += &format!(".{}", first_char + random.below(4));
    }
    for letter in ["b", "n", "r"] {
        if random.below(5) == 0 {
            position += letter;
        }
    }
    position
}

/// What is said of keys and lines, without what says that the inputs are sorted.
fn any_words(random: &mut Random) -> Vec<String> {
    let mut list = Vec::new();
    for _ in 0..random.below(4) {
        let end = if random.below(2) == 0 { format!(",{}", position(random, 0)) } else { String::new() };
        list.push(format!("-k{}{end}", position(random, 1)));
    }
    for (word, of) in [("-b", 4), ("-n", 4), ("-r", 3), ("-s", 3), ("-u", 3), ("-z", 6)] {
        if random.below(of) == 0 {
            list.push(word.to_owned());
        }
    }
    match random.below(5) {
        0 => list.extend(words(&["-t", ":"])),
        1 => list.extend(words(&["-t", "\t"])),
        2 => list.push("-t,".to_owned()),
        _ => {}
    }
    list
}

#[test]
fn any_words_of_gnu_sort_mean_what_they_mean_there() {
    let Some(gnu) = need_program("sort", "coreutils") else { return };
    let _watchdog = watch();
    let folder = TempDir::new("sort-words");
    let root = folder.path();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = effort::rounds(17, now.as_nanos() as u64);
    println!("seed {seed}");
    let mut random = Random(seed);
    for round in 0..effort::rounds(60, 1000) {
        let list = any_words(&mut random);
        let mark = if list.iter().any(|word| word == "-z") { "\0" } else { "\n" };
        let merge = round % 5 == 0;
        let mut names = Vec::new();
        for n in 0..if merge { 3 } else { 1 } {
            let lines = [0, 1, 30, 400][random.below(4) as usize];
            let name = format!("in{n}");
            std::fs::write(root.join(&name), text(&mut random, lines, mark)).unwrap();
            if merge {
                let sorted = run(&gnu, root, &[&list[..], std::slice::from_ref(&name)].concat());
                std::fs::write(root.join(&name), sorted.stdout).unwrap();
            }
            names.push(name);
        }
        let how = if merge { words(&["-m"]) } else { Vec::new() };
        let all = [how, list, names].concat();
        let theirs = run(&gnu, root, &all);
        assert!(theirs.status.success(), "seed {seed}, {all:?}: {}", String::from_utf8_lossy(&theirs.stderr));
        let ours = viaduct(root, &[words(&["--lines"]), all.clone()].concat());
        assert_eq!(ours.status.code(), Some(0), "{all:?}: {}", String::from_utf8_lossy(&ours.stderr));
        assert!(ours.stdout == theirs.stdout, "seed {seed}, round {round}: {all:?}");
        if !merge {
            // The first that is out of order, if there is one: of the input, and of what was sorted.
            let (words, name) = all.split_at(all.len() - 1);
            std::fs::write(root.join("sorted"), &theirs.stdout).unwrap();
            for name in [name[0].as_str(), "sorted"] {
                let all = [words, &["-c".to_owned(), name.to_owned()]].concat();
                let (theirs, ours) =
                    (run(&gnu, root, &all), viaduct(root, &[&["--lines".to_owned()], &all[..]].concat()));
                assert_eq!(found(&ours), found(&theirs), "seed {seed}, round {round}: {all:?}");
            }
        }
    }
}

/// The answer of `-c`, and what it says behind the name of the program, without the end of the line.
fn found(output: &Output) -> (Option<i32>, String) {
    let said = String::from_utf8_lossy(&output.stderr);
    let rest = said.split_once("sort: ").map_or("", |(_, rest)| rest);
    (output.status.code(), rest.strip_suffix(['\n', '\0']).unwrap_or(rest).to_owned())
}

#[test]
fn keys_that_gnu_sort_refuses_are_refused() {
    let Some(gnu) = need_program("sort", "coreutils") else { return };
    let folder = TempDir::new("sort-keys");
    std::fs::write(folder.join("in"), "b\na\n").unwrap();
    let bad = [
        "0", "1.0", "1,0", "1.x", ",2", "n", "1,2x", "-1", "1..2", "1,,2", "1,2n3", "1.", "1,", "x1",
        "1,2,3", "",
    ];
    for key in bad {
        let args = words(&["-k", key, "in"]);
        assert_eq!(run(&gnu, folder.path(), &args).status.code(), Some(2), "{key}: GNU sort takes it");
        let ours = viaduct(folder.path(), &args);
        assert_eq!((ours.status.code(), ours.stdout), (Some(2), vec![]), "{key}");
    }
    for tab in ["", "ab"] {
        let args = words(&["-t", tab, "in"]);
        assert_eq!(run(&gnu, folder.path(), &args).status.code(), Some(2), "{tab:?}: GNU sort takes it");
        assert_eq!(viaduct(folder.path(), &args).status.code(), Some(2), "{tab:?}");
    }
    let good = ["1,1.0", "2,1", "99999999999999999999", "1.999999999,3", "1rnb", "1.2nb,3.4r"];
    for key in good {
        let args = words(&["-k", key, "in"]);
        let (theirs, ours) = (run(&gnu, folder.path(), &args), viaduct(folder.path(), &args));
        assert_eq!((ours.status.code(), ours.stdout), (Some(0), theirs.stdout), "{key}");
    }
}

#[test]
fn each_word_for_lines_alone_means_lines() {
    let folder = TempDir::new("sort-alone");
    // Taken for records this is one of 100 bytes, which stays as it is.
    let text = (10..60).rev().map(|n| format!("{n}")).collect::<Vec<_>>();
    for (word, mark) in
        [("-k1", "\n"), ("-t:", "\n"), ("-n", "\n"), ("-u", "\n"), ("-z", "\0"), ("--lines", "\n")]
    {
        let lines: String = text[..33].iter().map(|line| format!("{line}{mark}")).collect();
        std::fs::write(folder.join("in"), format!("{lines}0")).unwrap();
        let done = viaduct(folder.path(), &words(&[word, "in"]));
        let mut expected: Vec<&str> = text[..33].iter().map(String::as_str).chain(["0"]).collect();
        expected.sort_unstable();
        let expected: String = expected.iter().map(|line| format!("{line}{mark}")).collect();
        assert_eq!(String::from_utf8(done.stdout).unwrap(), expected, "{word}");
    }
    std::fs::write(folder.join("in"), "a\nb\n").unwrap();
    assert_eq!(viaduct(folder.path(), &words(&["-m", "in", "in"])).stdout, b"a\na\nb\nb\n");
}

#[test]
fn records_of_any_size_are_sorted_by_several_fields() {
    let folder = TempDir::new("sort-fields");
    let mut random = Random(5);
    let bytes: Vec<u8> = (0..64 * 5000).map(|_| random.below(3) as u8).collect();
    std::fs::write(folder.join("in"), &bytes).unwrap();
    let mut expected: Vec<&[u8]> = bytes.chunks(64).collect();
    expected.sort_by(|a, b| a[8..11].cmp(&b[8..11]).then_with(|| b[..4].cmp(&a[..4])));
    let stable = ["--record-size", "64", "--at", "8:3", "--at", "0:4:r", "-s", "in", "-o", "out"];
    assert_eq!(viaduct(folder.path(), &words(&stable)).status.code(), Some(0));
    assert!(std::fs::read(folder.join("out")).unwrap() == expected.concat());
    expected.sort_by(|a, b| a[8..11].cmp(&b[8..11]).then_with(|| b[..4].cmp(&a[..4])).then_with(|| a.cmp(b)));
    let whole = ["--record-size", "64", "--at", "8:3", "--at", "0:4:r", "in", "-o", "out"];
    assert_eq!(viaduct(folder.path(), &words(&whole)).status.code(), Some(0));
    assert!(std::fs::read(folder.join("out")).unwrap() == expected.concat());
}
