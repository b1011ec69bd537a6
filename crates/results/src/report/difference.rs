//! Differences between curves (figures 3.7, 3.9 and 3.11): what a service costs is its latency less the plain one.

use crate::schema::Measurement;

/// For every line that `of` wants, its value less that of the `base` line with the same layer, size and placement, and
/// the same place on the axis if there is one. The interval is the widest that the two allow.
pub(crate) fn difference(
    lines: &[&Measurement],
    base: fn(&Measurement) -> bool,
    of: fn(&Measurement) -> bool,
) -> Vec<Measurement> {
    let mut differences = Vec::new();
    for line in lines.iter().filter(|line| of(line)) {
        let like = |other: &&&Measurement| {
            base(other)
                && (&other.layer, other.size, &other.placement) == (&line.layer, line.size, &line.placement)
        };
        let same = lines.iter().filter(like).find(|other| other.x == line.x);
        let Some(plain) = same.or_else(|| lines.iter().find(like)) else { continue };
        let Some((value, less)) = line.p50.zip(plain.p50) else { continue };
        let interval = line.ci95.zip(plain.ci95).map(|(a, b)| [a[0] - b[1], a[1] - b[0]]);
        differences.push(Measurement {
            p50: Some(value - less),
            ci95: interval,
            noisy: line.noisy || plain.noisy,
            ..(*line).clone()
        });
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::sample;

    #[test]
    fn only_like_is_taken_from_like() {
        let line = |series: &str, size, placement: &str, p50, ci95| Measurement {
            series: series.into(),
            size,
            placement: placement.into(),
            p50: Some(p50),
            ci95: Some(ci95),
            ..sample()
        };
        let lines = [
            line("queue", 8, "near", 1.0, [0.9, 1.1]),
            line("cq", 8, "near", 1.5, [1.4, 1.6]),
            line("cq", 8, "far", 9.0, [9.0, 9.0]),
            line("cq", 64, "near", 9.0, [9.0, 9.0]),
        ];
        let refs: Vec<&Measurement> = lines.iter().collect();
        let found = difference(&refs, |l| l.series == "queue", |l| l.series == "cq");
        assert_eq!((found.len(), found[0].p50), (1, Some(0.5)));
        let [low, high] = found[0].ci95.unwrap();
        assert!((low - 0.3).abs() < 1e-9 && (high - 0.7).abs() < 1e-9, "{low} {high}");
    }
}
