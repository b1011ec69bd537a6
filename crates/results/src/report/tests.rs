//! The page as a whole: every figure is there, the SVG is well-formed, and nothing comes from outside.

use std::collections::BTreeMap;

use super::{Catalogue, Comparison, Results, TableInfo};
use crate::schema::{Line, Measurement, sample};
use crate::table::{Better, Table};

const FIGURES: [&str; 15] = [
    "fig-3-1",
    "fig-3-2",
    "fig-3-3",
    "fig-3-4",
    "table-3-1",
    "fig-3-5",
    "fig-3-6",
    "fig-3-7",
    "fig-3-8",
    "fig-3-9",
    "fig-3-10",
    "fig-3-11",
    "fig-7",
    "sovia-9a",
    "sovia-9b",
];

fn page(results: &Results, comparison: Option<&Comparison>) -> String {
    super::page(results, comparison, &Catalogue::default())
}

fn compare(old: &Results, new: &Results) -> Comparison {
    super::compare(old, new, &Catalogue::default())
}

fn line(case: &str, unit: &str, layer: &str, series: &str, size: usize, p50: f64) -> Measurement {
    Measurement {
        case: case.into(),
        unit: unit.into(),
        layer: layer.into(),
        series: series.into(),
        size,
        p50: Some(p50),
        ci95: Some([p50 * 0.95, p50 * 1.05]),
        ..sample()
    }
}

fn on(axis: &str, x: f64, line: Measurement) -> Measurement {
    Measurement { axis: axis.into(), x: Some(x), ..line }
}

/// Something for every figure, and two cases that this version does not know.
fn full() -> Results {
    let mut lines = Vec::new();
    for size in [4, 64, 1024, 32 << 10] {
        let s = size as f64;
        for (layer, factor) in [("shm", 1.0), ("tcp", 200.0)] {
            lines.push(line("latency", "us", layer, "", size, factor * (0.1 + s / 1e4)));
            lines.push(line("bandwidth", "MB/s", layer, "", size, s * 100.0 / factor));
            for (series, value) in [
                ("latency", 0.12),
                ("Os", 0.02),
                ("Or", 0.03),
                ("g", 0.05),
                ("L", 0.06),
                ("Or-interrupt", 4.5),
            ] {
                lines.push(line("logp", "us", layer, series, size, factor * value));
            }
        }
        for (series, value) in [("same", 0.1), ("new", 0.15), ("register", 2.0)] {
            lines.push(line("buffers", "us", "shm", series, size, value));
        }
        for (series, value) in [("hit", 0.1), ("stride", 0.3), ("miss", 20.0)] {
            let mut one = line("translation", "us", "shm", series, size, value);
            one.extra = BTreeMap::from([("miss_rate".into(), 1.0)]);
            lines.push(one);
            lines.push(line("translation-stream", "MB/s", "shm", series, size, s / value));
        }
        for (series, value) in [("via", 0.1), ("SINGLE", 0.2), ("HANDLER", 20.0), ("DACKS-blocking", 0.3)] {
            lines.push(line("sockets-latency", "us", "shm", series, size, value));
            lines.push(line("sockets-stream", "MB/s", "shm", series, size, s / value));
        }
        lines.push(line("blocking", "us", "shm", "poll", size, 0.1));
        for spin in [0.0, 5.0, 100.0] {
            lines.push(on("spin_us", spin, line("blocking", "us", "shm", "spin", size, 20.0 - spin / 10.0)));
        }
        for gap in [10.0, 1000.0] {
            lines.push(on("gap_us", gap, line("blocking", "us", "shm", "gap-poll", size, gap / 100.0)));
        }
    }
    for (series, value) in [("T_sync", 18.0), ("HANDLER-SINGLE", 19.8)] {
        lines.push(line("sockets-latency", "us", "shm", series, 4, value));
    }
    for n in [1.0, 16.0, 1024.0] {
        lines.push(on("connections", n, line("connections", "us", "shm", "", 16, 0.1)));
        lines.push(on("queues", n, line("cq", "us", "shm", "queue", 8, 0.1)));
        lines.push(on("queues", n, line("cq", "us", "shm", "cq", 8, 0.11)));
        for series in ["gather", "pack"] {
            lines.push(on("segments", n, line("segments", "us", "shm", series, 1024, 0.1 + n / 100.0)));
        }
        lines.push(on("weather", n, line("unheard-of", "storms", "shm", "", 8, n)));
    }
    lines.push(line("single", "us", "shm", "detect <b>", 0, 5.0));
    lines[0].noisy = true;
    Results { name: "results.jsonl".into(), measurements: lines, ..Results::default() }
}

#[test]
fn every_figure_is_there_and_has_its_data() {
    let html = page(&full(), None);
    for id in FIGURES.iter().copied().chain(["case-unheard-of", "case-single", "case-buffers"]) {
        let section = section(&html, id);
        assert!(!section.contains("No data"), "{id} has no data");
        assert!(section.contains("<svg class=\"chart\"") || id == "table-3-1", "{id} has no chart");
        assert!(section.contains("<table>") || id == "fig-3-5", "{id} has no table");
        assert!(section.matches("<p>").count() >= 1, "{id} says nothing");
    }
}

#[test]
fn curves_along_other_axes_have_other_charts() {
    let html = page(&full(), None);
    let section = section(&html, "case-blocking");
    assert!(section.contains("spin us") && section.contains("gap us"), "{section}");
    assert!(!self::section(&html, "fig-3-9").contains("gap"), "pauses are no part of the difference");
}

#[test]
fn libfabric_has_its_curve_and_what_it_lacks_is_told() {
    let mut results = full();
    let pieces =
        |layer: &str, count, p50| on("segments", count, line("segments", "us", layer, "gather", 1024, p50));
    let bare = |line| Measurement { provider: None, ..line };
    results.measurements.extend([1.0, 4.0].map(|count| bare(pieces("ofi", count, 9.0))));
    results.measurements.push(Measurement {
        p50: None,
        ci95: None,
        missing: Some("libfabric's tcp gathers at most 4 pieces".into()),
        ..bare(pieces("ofi", 16.0, 0.0))
    });
    let html = page(&results, None);
    well_formed(&html);
    let figure = section(&html, "fig-3-10");
    assert!(figure.contains("ofi gather"), "a curve of its own");
    assert!(figure.contains("16 segments") && figure.contains("gathers at most 4 pieces"), "{figure}");
    assert!(!section(&html, "fig-3-7").contains("gathers at most"));
}

#[test]
fn the_papers_values_stand_beside_ours() {
    let html = page(&full(), None);
    for (id, words) in [
        ("fig-3-1", &["cLAN VIA, 2000", "Berkeley VIA, 2000"][..]),
        ("fig-3-3", &["M-VIA, 2000", "GM, 2000"]),
        ("table-3-1", &["33.2", "20.6", "13.7", "Or-interrupt", "4.50"]),
        ("fig-3-11", &["Berkeley VIA, 2000: 4"]),
        ("fig-7", &["roughly 64"]),
        ("sovia-9a", &["native VIA, 2003", "TCP, 2003", "T_sync, 2003", "19.8"]),
        ("sovia-9b", &["814 Mbit/s", "TCP, 2003"]),
    ] {
        let section = section(&html, id);
        assert!(words.iter().all(|word| section.contains(word)), "{id}");
    }
    // Of large messages, so not there.
    assert!(!section(&html, "fig-3-4").contains("87.5"));
}

#[test]
fn a_figure_without_data_names_its_command() {
    let few = Results { measurements: vec![line("latency", "us", "shm", "", 8, 0.1)], ..full() };
    let html = page(&few, None);
    assert!(!section(&html, "fig-3-1").contains("No data"));
    for (id, command) in [
        ("fig-3-3", "viaduct bench bandwidth"),
        ("fig-3-11", "viaduct bench cq"),
        ("fig-7", "viaduct bench translation"),
    ] {
        let section = section(&html, id);
        assert!(section.contains("No data") && section.contains(command), "{section}");
    }
}

#[test]
fn nothing_comes_from_outside_and_no_script_runs() {
    let html = page(&full(), None).to_lowercase();
    for word in
        ["http:", "https:", "//cdn", "<script", "javascript:", "@import", "url(", "<link", "<img", "onload="]
    {
        assert!(!html.contains(word), "{word}");
    }
    assert!(html.contains("prefers-color-scheme: dark") && html.contains("@media print"));
}

#[test]
fn the_page_is_well_formed_and_labels_stay_text() {
    let results = full();
    for html in [page(&results, None), page(&results, Some(&compare(&results, &results)))] {
        well_formed(&html);
        assert!(html.contains("detect &lt;b&gt;"));
    }
}

#[test]
fn noisy_points_are_marked_in_chart_and_table() {
    let html = page(&full(), None);
    let section = section(&html, "fig-3-1");
    assert!(
        section.contains(" noisy\"")
            && section.contains("title=\"noisy\"")
            && section.contains("1 of 8 points")
    );
}

#[test]
fn a_comparison_marks_what_changed() {
    let old = full();
    let mut new = full();
    let changed = new.measurements.iter_mut().find(|l| l.case == "bandwidth").unwrap();
    (changed.p50, changed.ci95) = (changed.p50.map(|v| v * 2.0), changed.ci95.map(|c| c.map(|v| v * 2.0)));
    let html = page(&new, Some(&compare(&old, &new)));
    let section = section(&html, "comparison");
    assert_eq!(section.matches("<td class=\"better\">").count(), 1, "{section}");
    assert_eq!(section.matches("<td class=\"worse\">").count(), 0);
}

#[test]
fn sentences_say_what_the_numbers_say() {
    let html = page(&full(), None);
    let latency = section(&html, "fig-3-1");
    assert!(latency.contains("it is better than tcp by 200 times"), "{latency}");
    let connections = section(&html, "fig-3-8");
    assert!(connections.contains("no sure difference"), "{connections}");
    let logp = section(&html, "table-3-1");
    assert!(
        logp.contains("Os + Or + L = 0.110 us, the latency measured by itself is 0.120 us (-8 %)"),
        "{logp}"
    );
}

fn section<'a>(html: &'a str, id: &str) -> &'a str {
    let start = html.find(&format!("<section id=\"{id}\">")).unwrap_or_else(|| panic!("no {id}"));
    &html[start..start + html[start..].find("</section>").expect("it ends")]
}

/// Every tag that opens closes, in order; attributes are quoted; no bare ampersand.
fn well_formed(html: &str) {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let style = html.find("<style>").unwrap()..html.find("</style>").unwrap();
    let html = format!("{}{}", &html[..style.start + 7], &html[style.end..]);
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html.as_str();
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        for (at, _) in text.match_indices('&') {
            let known = ["&amp;", "&lt;", "&gt;", "&quot;"].iter().any(|name| text[at..].starts_with(name));
            assert!(known, "bare ampersand in {text}");
        }
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        assert!(tag.matches('"').count() % 2 == 0 && !tag.contains('<'), "{tag}");
        let drawn = ["path", "rect", "text", "svg"].iter().any(|shape| tag.starts_with(shape));
        assert!(!drawn || !(tag.contains("NaN") || tag.contains("inf")), "not a number: {tag}");
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes nothing");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn many_single_values_stand_in_one_picture() {
    let mut results = full();
    let names = (0..12).map(|n| format!("rival:{n}"));
    results.measurements = names.map(|name| line("rivals-latency", "us", &name, "", 8, 1.0)).collect();
    results.measurements[3].size = 14;
    let html = page(&results, None);
    let section = section(&html, "case-rivals-latency");
    assert_eq!(section.matches("<svg class=\"chart\"").count(), 1, "{section}");
    assert!(section.contains("rival:3, 14 B") && section.contains("rival:11, 8 B"), "{section}");
}

#[test]
fn rows_that_are_made_up_of_parts_are_stacked() {
    let table = Table::new("sort", BTreeMap::new());
    let cell = |row: &str, part: &str, value: f64| table.cell(row, part, "s", Better::Less).one(value);
    let lines = [
        cell("1 node", "read", 1.0),
        cell("1 node", "write", 2.0),
        cell("2 nodes", "read", 0.5),
        cell("2 nodes", "write", 1.5),
        // Without all of its parts a row is no bar.
        cell("paper", "read", 3.0),
    ];
    let file: Vec<String> = lines.iter().map(Line::to_json).collect();
    let results = super::read("results.jsonl", &file.join("\n")).unwrap();
    let info = TableInfo { name: "sort", title: "Sorting", words: "Phases.", command: "viaduct bench sort" };
    let known =
        Catalogue { tables: vec![info], stacks: vec![("sort", &["read", "write"])], ..Catalogue::default() };
    let html = super::page(&results, None, &known);
    well_formed(&html);
    let shown = section(&html, "table-sort");
    assert_eq!(shown.matches("shares of each value").count(), 1, "{shown}");
    assert!(shown.contains("<title>2 nodes write: 1.50 s</title>"), "{shown}");
    assert!(!shown.contains("<title>paper read"), "{shown}");
    assert!(shown.contains("from left to right: read, write"), "{shown}");
}

#[test]
fn a_table_has_its_grid_and_its_pictures() {
    let table = Table::new("launch", BTreeMap::new());
    let lines = [
        table.cell("viaduct", "time", "ms", Better::Less).of(&[4.0, 4.1, 4.2]),
        table.cell("hydra <b>", "time", "ms", Better::Less).of(&[9.0, 9.5]),
        table.cell("ssh", "time", "ms", Better::Less).missing("there is no sshd"),
        table.cell("Catapult", "time", "ms", Better::Less).from_paper("Millennium Sort, 4.3", 100.0),
        table.cell("viaduct", "ranks", "", Better::Neither).one(16.0),
    ];
    let file: Vec<String> = lines.iter().map(Line::to_json).collect();
    let results = super::read("results.jsonl", &file.join("\n")).unwrap();
    let info =
        TableInfo { name: "launch", title: "Starting", words: "How long.", command: "viaduct bench launch" };
    let other = TableInfo { name: "empty", command: "viaduct bench empty", ..info };
    let known = Catalogue { tables: vec![info, other], ..Catalogue::default() };
    let html = super::page(&results, None, &known);
    well_formed(&html);
    let shown = section(&html, "table-launch");
    for text in [
        "Starting",
        "How long.",
        "time (ms)",
        "4.10 <small>[4.00, 4.20]",
        "hydra &lt;b&gt;",
        "there is no sshd",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(shown.contains("100 (Millennium Sort, 4.3)") && shown.contains("Less is better"), "{shown}");
    assert_eq!(shown.matches("<svg class=\"chart\"").count(), 1, "one column has several values");
    assert!(section(&html, "table-empty").contains("viaduct bench empty"));
    assert!(section(&page(&results, None), "table-launch").contains("The table `launch`"));
}
