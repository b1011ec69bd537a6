//! `viaduct report`: a page from result files, wrong files refused, and the page as a browser draws it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use viaduct_kit::packages::need_program;
use viaduct_kit::tempdir::TempDir;

fn report(args: &[&Path], flags: &[&str], page: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viaduct"));
    command.arg("report").args(args).args(flags).arg("-o").arg(page).stdin(Stdio::null());
    command.output().expect("the program starts")
}

fn refused(text: &[u8], flags: &[&str]) -> String {
    let folder = TempDir::new("report");
    let file = folder.join("results.jsonl");
    fs::write(&file, text).unwrap();
    let page = folder.join("report.html");
    let output = report(&[&file], flags, &page);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{talk}");
    assert!(!page.exists(), "half a report was written");
    talk
}

/// One result line; `p50` with five percent on either side.
fn line(case: &str, layer: &str, size: usize, unit: &str, p50: f64, more: &str) -> String {
    let (low, high) = (p50 * 0.95, p50 * 1.05);
    format!(
        r#"{{"schema":1,"case":"{case}","layer":"{layer}","provider":null,"size":{size},"unit":"{unit}","p50":{p50},"ci95":[{low},{high}],"n":20,"launches":10,"valid":true,"noisy":false,"min":null,"p90":null,"p99":null,"p999":null,"max":null,"samples":99,"batch":1,"ns_per_message":null,"placement":"near","probe_ns":55,"cpus":[0,1],"wait":"poll","window":1,"connections":1,"dropped":0,"timer_ns":20,"steal":0,"gap":0,"host":{{"kernel":"6.1","cpu":"A Processor","cores":2,"virtualised":false,"memory":8000000000,"governor":null,"load":0.1}},"commit":"abcdef","config":{{"seed":"1"}}{more}}}"#
    ) + "\n"
}

fn results(factor: f64) -> String {
    let mut text = String::new();
    for size in [4, 64, 1024, 32768] {
        text += &line("latency", "shm", size, "us", factor * (0.1 + size as f64 / 1e4), "");
        text += &line("latency", "tcp", size, "us", 25.0 + size as f64 / 1e3, "");
        text += &line("bandwidth", "shm", size, "MB/s", 1000.0 + size as f64, "");
        for (series, value) in [("latency", 0.12), ("Os", 0.02), ("Or", 0.03), ("g", 0.05), ("L", 0.07)] {
            text += &line("logp", "shm", size, "us", value, &format!(r#","series":"{series}""#));
        }
    }
    for n in [1, 16, 1024] {
        let more = format!(r#","axis":"connections","x":{n}.0"#);
        text += &line("connections", "shm", 16, "us", 0.1, &more);
    }
    text
}

fn written(folder: &TempDir, name: &str, factor: f64) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, results(factor)).unwrap();
    file
}

#[test]
fn a_page_is_made_from_results() {
    let folder = TempDir::new("report");
    let page = folder.join("report.html");
    let output = report(&[&written(&folder, "results.jsonl", 1.0)], &[], &page);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{talk}");
    assert!(talk.contains("35 points"), "{talk}");
    let html = fs::read_to_string(&page).unwrap();
    for word in
        ["A Processor", "abcdef", "id=\"fig-3-1\"", "id=\"table-3-1\"", "<svg", "No data. Measure with:"]
    {
        assert!(html.contains(word), "{word}");
    }
}

#[test]
fn two_files_are_compared() {
    let folder = TempDir::new("report");
    let (old, new) = (written(&folder, "old.jsonl", 1.0), written(&folder, "new.jsonl", 0.5));
    let page = folder.join("report.html");
    let output = report(&[&old, &new], &["--compare"], &page);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{talk}");
    assert!(talk.contains("35 points in both: 4 better, 0 worse, 0 not sure"), "{talk}");
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<td class=\"better\">").count(), 4);
    // The other way round they are worse, and named where `cargo xtask against` reads them.
    let talk = String::from_utf8_lossy(&report(&[&new, &old], &["--compare"], &page).stderr).into_owned();
    assert_eq!(talk.matches("worse by 100 %: ").count(), 4, "{talk}");
}

#[test]
fn wrong_files_are_refused_with_a_hint() {
    for (text, cause) in [
        (&b""[..], "is empty"),
        (b"# Size  Latency (us)\n8  0.1\n", "line 1: not JSON"),
        (b"{\"schema\":99}\n", "schema version 99"),
        (b"{\"hello\":1}\n", "without a schema number"),
        (b"\xff\xfe", "is not text"),
    ] {
        let talk = refused(text, &[]);
        assert!(talk.contains(cause) && talk.contains("hint:"), "{talk}");
    }
    assert!(refused(results(1.0).as_bytes(), &["--compare"]).contains("two result files, not 1"));
    let missing = report(&[Path::new("no-such-file.jsonl")], &[], Path::new("unused.html"));
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("reading no-such-file.jsonl"));
}

#[test]
fn a_browser_draws_the_page_in_light_and_dark() {
    let Some(chromium) = need_program("chromium", "chromium") else { return };
    let folder = TempDir::new("report");
    let page = folder.join("report.html");
    assert!(report(&[&written(&folder, "results.jsonl", 1.0)], &[], &page).status.success());
    let run = |flags: &[&str]| {
        let mut command = Command::new(&chromium);
        // The page is our own, and a sandbox is not to be had everywhere.
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=900,2500",
        ]);
        command
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .env("HOME", folder.path());
        command.args(flags).arg(format!("file://{}", page.display())).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // What the browser understood is what we wrote.
    let (seen, html) = (run(&["--dump-dom"]), fs::read_to_string(&page).unwrap());
    for tag in ["<section ", "<svg ", "<table>", "<path "] {
        assert_eq!(seen.matches(tag).count(), html.matches(tag).count(), "{tag}");
    }
    let shot = |name: &str, flags: &[&str]| {
        let file = folder.join(name);
        run(&[flags, &[&format!("--screenshot={}", file.display())]].concat());
        fs::read(&file).expect("a picture")
    };
    let light = shot("light.png", &["--blink-settings=preferredColorScheme=1"]);
    let dark = shot("dark.png", &["--blink-settings=preferredColorScheme=0"]);
    assert!(light.starts_with(b"\x89PNG") && light.len() > 20_000, "an empty picture: {} bytes", light.len());
    assert_ne!(light, dark, "the dark scheme is the light one");
}
