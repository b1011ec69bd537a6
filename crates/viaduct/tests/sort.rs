//! `viaduct sort gen` and `viaduct sort check`: the words and answers of gensort and valsort.

use std::path::Path;
use std::process::{Command, Output, Stdio};

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
    let answer = sort(folder.path(), &["check", "cut"]);
    assert_eq!(answer.status.code(), Some(2));
    assert!(said(&answer).contains("50 bytes at offset 200"), "{}", said(&answer));
    std::fs::write(folder.path().join("empty"), []).unwrap();
    assert_eq!(sort(folder.path(), &["check", "empty"]).status.code(), Some(1));
}
