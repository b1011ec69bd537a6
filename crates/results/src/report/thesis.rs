//! The papers' own values: only numbers that stand in their text, each with its section. The curves themselves are
//! pictures whose points the text does not give.
//!
//! The thesis measured in 1999 and 2000 between two machines (section 3.3.1): M-VIA 1.0 on Gigabit Ethernet and Berkeley
//! VIA 2.2 and GM 1.1.3 on Myrinet with 300 MHz Pentium II, cLAN VIA on its own network with 450 MHz Pentium II.

use super::chart::Past;

/// The implementations that the thesis measured, in the order of table 3.1.
pub(crate) const SYSTEMS: [&str; 4] = ["M-VIA", "Berkeley VIA", "cLAN VIA", "GM"];

/// Table 3.1 (section 3.3.4), in microseconds for messages of 4 bytes: name, then one value for each system.
pub(crate) const TABLE_3_1: [(&str, [f64; 4]); 4] = [
    ("Os", [3.7, 2.7, 0.8, 0.9]),
    ("Or", [6.4, 2.7, 0.8, 2.0]),
    ("g", [2.0, 5.6, 1.0, 8.6]),
    ("L", [13.7, 33.2, 7.2, 20.6]),
];

/// Section 3.3.2: one-way latency of 4-byte messages, in microseconds.
pub(crate) fn latency() -> Vec<Past> {
    vec![
        spot("cLAN VIA, 2000", 4.0, 9.0),
        spot("M-VIA and GM, 2000", 4.0, 22.0),
        spot("Berkeley VIA, 2000", 4.0, 38.0),
    ]
}

/// Section 3.3.3: 640, almost 700 and (at 32 KiB) 560 Mbit/s; here in MB/s.
pub(crate) fn bandwidth() -> Vec<Past> {
    vec![
        line("GM, 2000: almost 87.5 at most", 700.0 / 8.0),
        line("cLAN VIA, 2000: about 80 at most", 640.0 / 8.0),
        spot("M-VIA, 2000", 32.0 * 1024.0, 560.0 / 8.0),
    ]
}

/// The row Os of table 3.1.
pub(crate) fn send_overhead() -> Vec<Past> {
    let (_, values) = TABLE_3_1[0];
    SYSTEMS.iter().zip(values).map(|(system, value)| spot(&format!("{system}, 2000"), 4.0, value)).collect()
}

/// Section 3.3.9: what a completion queue adds, in microseconds, for any number of queues.
pub(crate) fn completion_queues() -> Vec<Past> {
    vec![line("Berkeley VIA, 2000: 4", 4.0), line("cLAN VIA, 2000: 0.8", 0.8), line("M-VIA, 2000: none", 0.0)]
}

/// Millennium Sort, section 4.1: streaming above about 20 KB, in MB/s.
pub(crate) fn millennium_stream() -> Vec<Past> {
    vec![line("VIAv2, 1999: roughly 64 above 20 KB", 64.0)]
}

fn spot(label: &str, x: f64, y: f64) -> Past {
    Past { label: label.into(), x: Some(x), y }
}

fn line(label: &str, y: f64) -> Past {
    Past { label: label.into(), x: None, y }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_the_table_add_up_to_the_latencies_of_the_text() {
        // The thesis says about 22, 38, 9 and 22 us; its own table is within two of that.
        for (system, latency) in [22.0, 38.0, 9.0, 22.0].into_iter().enumerate() {
            let sum: f64 = [0, 1, 3].iter().map(|row| TABLE_3_1[*row].1[system]).sum();
            assert!((sum - latency).abs() < 2.0, "{}: {sum}", SYSTEMS[system]);
        }
    }
}
