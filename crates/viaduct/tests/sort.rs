//! `viaduct sort`, with the words of GNU sort, gensort and valsort: what it answers, and what it leaves behind.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use viaduct_kit::tempdir::TempDir;

fn sort(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.arg("sort").args(args).current_dir(folder).stdin(Stdio::null());
    command.output().expect("the program starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn generated_records_are_checked_and_found_in_no_order() {
    let folder = TempDir::new("sort-gen");
    let made = sort(folder.path(), &["gen", "1000", "-b1000000", "-c", "-o", "x"]);
    assert_eq!((made.status.code(), said(&made).trim()), (Some(0), "1f912af9809"), "{made:?}");
    let answer = sort(folder.path(), &["check", "x"]);
    assert_eq!(answer.status.code(), Some(1));
    let text = said(&answer);
    assert!(text.contains("Records: 1000\nChecksum: 1f912af9809\nDuplicate keys: 0\n"), "{text}");
    assert!(
        text.contains("First unordered record is record") && text.contains("ERROR - there are"),
        "{text}"
    );
}

#[test]
fn output_to_a_pipe_is_the_file() {
    let folder = TempDir::new("sort-gen");
    sort(folder.path(), &["gen", "30K", "-a", "-s", "-t3", "-o", "x"]);
    let piped = sort(folder.path(), &["gen", "30000", "-a", "-s", "-o", "-"]);
    assert_eq!(piped.stdout, std::fs::read(folder.path().join("x")).unwrap());
}

#[test]
fn summaries_of_parts_join() {
    let folder = TempDir::new("sort-check");
    let mut record = [b'a'; 100];
    let mut all = Vec::new();
    for n in 0..3u8 {
        record[0] = b'a' + n;
        let part = [record, record].concat();
        std::fs::write(folder.path().join(format!("part{n}")), &part).unwrap();
        let sum = format!("sum{n}");
        let answer = sort(folder.path(), &["check", "-o", &sum, &format!("part{n}")]);
        assert_eq!(answer.status.code(), Some(0), "{}", said(&answer));
        all.extend(std::fs::read(folder.path().join(sum)).unwrap());
    }
    std::fs::write(folder.path().join("all"), all).unwrap();
    let joined = sort(folder.path(), &["check", "-s", "all"]);
    let whole = sort(folder.path(), &["check", "part0", "part1", "part2"]);
    assert_eq!((joined.status.code(), said(&joined)), (Some(0), said(&whole)));
    assert!(said(&whole).contains("Records: 6") && said(&whole).contains("Duplicate keys: 3"));
}

#[test]
fn a_cut_record_and_an_empty_file_are_refused() {
    let folder = TempDir::new("sort-check");
    std::fs::write(folder.path().join("cut"), [0; 250]).unwrap();
    // valsort says no to it, as to records in no order: it is no failure of the check.
    for (stdin, name) in
        [(Stdio::null(), "cut"), (std::fs::File::open(folder.join("cut")).unwrap().into(), "-")]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
        let answer =
            command.args(["sort", "check", name]).current_dir(folder.path()).stdin(stdin).output().unwrap();
        assert_eq!(answer.status.code(), Some(1), "{name}");
        let text = said(&answer);
        assert!(text.contains("ERROR - ") && text.contains("50 bytes at offset 200"), "{name}: {text}");
    }
    let answer = sort(folder.path(), &["check", "missing"]);
    assert_eq!(answer.status.code(), Some(2), "what cannot be read is a failure");
    std::fs::write(folder.path().join("empty"), []).unwrap();
    assert_eq!(sort(folder.path(), &["check", "empty"]).status.code(), Some(1));
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_sort_proves_itself_and_tells_what_its_edges_carried() {
    let folder = TempDir::new("sort-verb");
    sort(folder.path(), &["gen", "20K", "-o", "x"]);
    let done = sort(folder.path(), &["x", "-o", "y", "--summary", "s"]);
    assert_eq!((done.status.code(), said(&done)), (Some(0), String::new()));
    let check = sort(folder.path(), &["check", "y"]);
    assert_eq!(check.status.code(), Some(0), "{}", said(&check));
    let summary: Value = serde_json::from_slice(&std::fs::read(folder.path().join("s")).unwrap()).unwrap();
    assert_eq!((&summary["records"], &summary["passes"]), (&20_000.into(), &1.into()));
    assert!(said(&check).contains(summary["checksum"].as_str().unwrap()));
    for edge in summary["nodes"][0]["edges"].as_array().unwrap() {
        assert_eq!((&edge["records"], &edge["bytes"]), (&20_000.into(), &2_000_000.into()), "{edge}");
    }
    for phase in ["overhead", "read", "sort", "write"] {
        assert!(summary["nodes"][0]["phases"][phase].is_number());
    }
    // The output may be the input.
    let done = sort(folder.path(), &["x", "-o", "x"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert_eq!(
        std::fs::read(folder.path().join("x")).unwrap(),
        std::fs::read(folder.path().join("y")).unwrap()
    );
    assert_eq!(names(folder.path()), ["s", "x", "y"]);
}

#[test]
fn pipes_several_inputs_and_an_empty_one_are_sorted() {
    let folder = TempDir::new("sort-pipe");
    let root = folder.path();
    std::fs::write(root.join("a"), "pear\napple").unwrap();
    std::fs::write(root.join("b"), "fig\n\n").unwrap();
    let done = sort(root, &["--lines", "a", "b"]);
    assert_eq!(done.stdout, b"\napple\nfig\npear\n", "{}", said(&done));
    let program = env!("CARGO_BIN_EXE_viaduct");
    let script = format!("cat a b | {program} sort -r --lines - | {program} sort -u --lines");
    let piped = Command::new("sh").args(["-c", &script]).current_dir(root).output().unwrap();
    assert_eq!(piped.stdout, b"\napplefig\npear\n", "{}", said(&piped));
    std::fs::write(root.join("none"), "").unwrap();
    let done = sort(root, &["none", "-o", "empty"]);
    assert_eq!((done.status.code(), std::fs::read(root.join("empty")).unwrap().len()), (Some(0), 0));
}

#[test]
fn failures_have_a_cause_and_leave_no_output() {
    let folder = TempDir::new("sort-fail");
    let root = folder.path();
    std::fs::write(root.join("text"), "one line\nanother line\n".repeat(50)).unwrap();
    std::fs::write(root.join("cut"), [7; 1050]).unwrap();
    std::fs::create_dir(root.join("folder")).unwrap();
    sort(root, &["gen", "200K", "-o", "big"]);
    let cases: [(&[&str], &str); 10] = [
        (&["text", "-o", "out"], "--lines"),
        (&["cut", "-o", "out"], "50 bytes at offset 1000"),
        (&["missing", "-o", "out"], "missing"),
        (&["folder", "-o", "out"], "folder"),
        (&["big", "-o", "no/such/out"], "no/such/out"),
        (&["big", "-o", "out", "--memory", "16M", "--tmp", "no/tmp"], "no/tmp"),
        (&["big", "-o", "out", "--at", "95:10"], "95:10"),
        (&["big", "-o", "/dev/full"], "/dev/full"),
        (&["big", "-o", "out", "-k1,1f"], "letter f"),
        (&["big", "-o", "out", "--version-sort"], "--version-sort"),
    ];
    for (args, cause) in cases {
        let answer = sort(root, args);
        assert_eq!(answer.status.code(), Some(2), "{args:?}: {}", said(&answer));
        assert!(said(&answer).contains(cause), "{args:?}: {}", said(&answer));
        assert_eq!(names(root), ["big", "cut", "folder", "text"], "{args:?}");
    }
    let done = sort(root, &["cut", "-o", "out", "--partial", "drop"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert_eq!(std::fs::read(root.join("out")).unwrap().len(), 1000);
    // Kept, it stays at the end: from files, from streams, in one pass and in two.
    let big = std::fs::read(root.join("big")).unwrap();
    std::fs::write(root.join("cut big"), [&big[..], b"\0rest"].concat()).unwrap();
    assert!(sort(root, &["big", "-o", "sorted"]).status.success());
    let expected = [std::fs::read(root.join("sorted")).unwrap(), b"\0rest".to_vec()].concat();
    for memory in ["16M", "1G"] {
        let keep = ["--partial", "keep", "--memory", memory, "-o", "out"];
        for input in [&["cut big"][..], &["--summary", "s", "-"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
            command.arg("sort").args(keep).args(input).current_dir(root);
            let done = command.stdin(std::fs::File::open(root.join("cut big")).unwrap()).output().unwrap();
            assert_eq!(done.status.code(), Some(0), "{input:?}: {}", said(&done));
            assert!(std::fs::read(root.join("out")).unwrap() == expected, "{input:?}, {memory}");
        }
        let summary: Value = serde_json::from_slice(&std::fs::read(root.join("s")).unwrap()).unwrap();
        let len = expected.len() as u64;
        assert_eq!((&summary["bytes"], &summary["bytes_out"]), (&len.into(), &len.into()));
        let edges = summary["nodes"][0]["edges"].as_array().unwrap();
        assert_eq!((&edges[0]["bytes"], &edges[edges.len() - 1]["bytes"]), (&len.into(), &len.into()));
    }
    let refused = sort(root, &["--nodes", "2", "--partial", "keep", "cut big", "-o", "out"]);
    assert!(refused.status.code() == Some(2) && said(&refused).contains("--partial keep"), "{refused:?}");
}

#[test]
fn options_of_gnu_sort_that_are_not_there_are_refused_by_name() {
    let folder = TempDir::new("sort-gnu");
    let root = folder.path();
    std::fs::write(root.join("text"), "b\na\n").unwrap();
    let cases: [(&[&str], &str); 16] = [
        (&["-d"], "--dictionary-order"),
        (&["-f"], "--ignore-case"),
        (&["-g"], "--general-numeric-sort"),
        (&["-i"], "--ignore-nonprinting"),
        (&["-M"], "--month-sort"),
        (&["-h"], "--human-numeric-sort"),
        (&["-rh"], "--human-numeric-sort"),
        (&["-R"], "--random-sort"),
        (&["-V"], "--version-sort"),
        (&["--sort=month"], "--sort"),
        (&["--debug"], "--debug"),
        (&["--batch-size=3"], "--batch-size"),
        (&["--compress-program", "gzip"], "--compress-program"),
        (&["--files0-from=x"], "--files0-from"),
        (&["--random-source=x"], "--random-source"),
        (&["-k1,1M"], "letter M"),
    ];
    for (words, name) in cases {
        let answer = sort(root, &[words, &["text", "-o", "out"]].concat());
        assert_eq!((answer.status.code(), &answer.stdout[..]), (Some(2), &b""[..]), "{words:?}");
        assert!(said(&answer).contains(name), "{words:?}: {}", said(&answer));
        assert_eq!(names(root), ["text"]);
    }
    let help = sort(root, &["-h"]);
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--lines"));
    // Those that are there, in GNU's spelling.
    let done = sort(root, &["-S", "10%", "--parallel=2", "-T", ".", "--lines", "text"]);
    assert_eq!(done.stdout, b"a\nb\n", "{}", said(&done));
    assert_eq!(sort(root, &["-C", "--lines", "text"]).status.code(), Some(1));
    assert!(sort(root, &["-C", "--lines", "text"]).stderr.is_empty());
}

#[test]
fn text_from_a_pipe_is_refused_as_records() {
    let folder = TempDir::new("sort-text");
    let program = env!("CARGO_BIN_EXE_viaduct");
    let run = |words: &str| {
        let script = format!("seq 1 100000 | {program} sort {words}");
        Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap()
    };
    let refused = run("-o out");
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("standard input looks like text"), "{}", said(&refused));
    assert!(said(&refused).contains("--lines") && names(folder.path()).is_empty());
    assert!(run("--lines").status.success());
}

#[test]
fn progress_is_told_in_lines() {
    let folder = TempDir::new("sort-progress");
    sort(folder.path(), &["gen", "20K", "-o", "x"]);
    let done = sort(folder.path(), &["x", "-o", "y", "--progress", "lines"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert!(said(&done).contains("sort: ended after") && said(&done).contains("sort and write"));
    let done = sort(folder.path(), &["x", "-o", "y", "--progress", "json"]);
    let line: Value = serde_json::from_str(said(&done).lines().last().unwrap()).unwrap();
    assert_eq!((&line["phase"], &line["bytes"]), (&"sort and write".into(), &2_000_000.into()));
    assert!(line["ended_after"].is_number());
    let done = sort(folder.path(), &["x", "-o", "y"]);
    assert_eq!((done.status.code(), said(&done)), (Some(0), String::new()), "no terminal, no words");
}

#[test]
fn a_killed_sort_leaves_nothing() {
    let folder = TempDir::new("sort-kill");
    let root = folder.path();
    let fifo = root.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.args(["sort", "--lines", "fifo", "-o", "out", "--memory", "16M"]).current_dir(root);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    // More than fits into memory, and no end: the sort spills, and waits.
    let mut pipe = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    let line = [b'x'; 1 << 16];
    for _ in 0..320 {
        std::io::Write::write_all(&mut pipe, &line).unwrap();
        std::io::Write::write_all(&mut pipe, b"\n").unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(root), ["fifo"]);
}

#[test]
fn the_order_of_files_is_checked() {
    let folder = TempDir::new("sort-c");
    let root = folder.path();
    std::fs::write(root.join("good"), "a 2\nb 1\nb 1\n").unwrap();
    assert_eq!(sort(root, &["-c", "--lines", "good"]).status.code(), Some(0));
    for (args, number) in [(&["-c", "-k2,2n", "good"], 2), (&["-c", "-u", "good"], 3)] {
        let answer = sort(root, args);
        assert_eq!(answer.status.code(), Some(1));
        assert!(said(&answer).contains(&format!("good:{number}: disorder: b 1")), "{}", said(&answer));
    }
    // Text is no records, whether it comes from a file or from a pipe.
    for word in ["-c", "-C"] {
        for (stdin, name) in
            [(Stdio::null(), "good"), (std::fs::File::open(root.join("good")).unwrap().into(), "-")]
        {
            let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
            let answer = command.args(["sort", word, name]).current_dir(root).stdin(stdin).output().unwrap();
            assert_eq!(answer.status.code(), Some(2), "{word} {name}: {}", said(&answer));
            assert!(said(&answer).contains("--lines"), "{word} {name}: {}", said(&answer));
        }
    }
    sort(root, &["gen", "20", "-o", "records"]);
    assert_eq!(sort(root, &["-c", "records"]).status.code(), Some(1));
}

/// What a pipe is closed on, as `head` does after its lines.
#[test]
fn a_pipe_that_is_closed_early_ends_a_sort_quietly() {
    let folder = TempDir::new("sort-head");
    let root = folder.path();
    sort(root, &["gen", "200K", "-a", "-o", "big"]);
    sort(root, &["--lines", "big", "-o", "sorted"]);
    let cases: [&[&str]; 5] = [
        &["big"],
        &["--lines", "big"],
        &["--memory", "16M", "big"],
        &["-m", "sorted"],
        &["gen", "200K", "-o", "-"],
    ];
    for args in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
        command.arg("sort").args(args).current_dir(root).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 100];
        std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut first).unwrap();
        let answer = child.wait_with_output().unwrap();
        assert_eq!((answer.status.code(), said(&answer)), (Some(0), String::new()), "{args:?}");
    }
    assert_eq!(names(root), ["big", "sorted"]);
}

#[test]
fn a_summary_that_cannot_be_written_is_found_before_anything_is_sorted() {
    let folder = TempDir::new("sort-summary");
    let root = folder.path();
    sort(root, &["gen", "20", "-o", "in"]);
    let nodes: [&[&str]; 2] = [&[], &["--nodes", "2"]];
    for more in nodes {
        let answer = sort(root, &[&["in", "-o", "out", "--summary", "no/such"], more].concat());
        assert_eq!(answer.status.code(), Some(2), "{more:?}");
        assert!(said(&answer).contains("no/such"), "{more:?}: {}", said(&answer));
        assert_eq!(names(root), ["in"], "{more:?}");
        // A sort that fails leaves no empty summary behind, and what was there before.
        let answer = sort(root, &[&["missing", "-o", "out", "--summary", "s"], more].concat());
        assert_eq!((answer.status.code(), names(root)), (Some(2), vec!["in".to_owned()]), "{more:?}");
    }
}

#[test]
fn one_line_larger_than_the_memory_is_sorted() {
    let folder = TempDir::new("sort-giant");
    let root = folder.path();
    // One alone, and one between short ones.
    let giant = "m".repeat(40 << 20) + "\n";
    for text in [giant.clone(), format!("z\n{giant}b\n")] {
        std::fs::write(root.join("in"), &text).unwrap();
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        lines.sort_unstable();
        for (stdin, name) in
            [(Stdio::null(), "in"), (std::fs::File::open(root.join("in")).unwrap().into(), "-")]
        {
            let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
            command
                .args(["sort", "--lines", "--memory", "16M", "-o", "out", name])
                .current_dir(root)
                .stdin(stdin);
            let answer = command.output().unwrap();
            assert_eq!(answer.status.code(), Some(0), "{name}: {}", said(&answer));
            assert!(std::fs::read(root.join("out")).unwrap() == lines.concat().as_bytes(), "{name}");
        }
    }
    assert_eq!(names(root), ["in", "out"]);
}
