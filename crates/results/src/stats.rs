//! Order statistics: median, its confidence interval, percentiles, and the interval of a ratio.
//!
//! Everything here is nonparametric. Times on a shared machine have long tails, so the mean says little; the median
//! with an interval read from the order statistics needs no assumption about the shape of the distribution.
//! This file knows nothing about units, layers or placement.

use crate::rng::Rng;

/// What is reported about one set of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How many values.
    pub n: usize,
    /// Smallest value.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 95 % confidence interval of the median.
    pub ci95: [f64; 2],
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest value.
    pub max: f64,
}

impl Summary {
    /// Summarises `values` in any order; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let sorted = Sorted::new(values)?;
        Some(Summary {
            n: sorted.0.len(),
            min: sorted.quantile(0.0),
            p50: sorted.median(),
            ci95: sorted.median_ci95(),
            p90: sorted.quantile(0.90),
            p99: sorted.quantile(0.99),
            p999: sorted.quantile(0.999),
            max: sorted.quantile(1.0),
        })
    }
}

/// A non-empty set of values in ascending order.
#[derive(Clone, Debug)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    /// Sorts `values`; `None` when there are none.
    pub fn new(values: &[f64]) -> Option<Sorted> {
        if values.is_empty() {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Sorted(sorted))
    }

    /// Middle value, or the mean of the two middle ones.
    pub fn median(&self) -> f64 {
        let n = self.0.len();
        if n % 2 == 1 { self.0[n / 2] } else { (self.0[n / 2 - 1] + self.0[n / 2]) / 2.0 }
    }

    /// Nearest-rank quantile: the smallest value which at least `q` of all values do not exceed.
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.0.len() as f64).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }

    /// Interval `[x(k), x(n+1-k)]` that covers the true median with at least 95 %.
    ///
    /// Fewer than six values cannot give 95 %; then the interval is simply the whole range.
    pub fn median_ci95(&self) -> [f64; 2] {
        let n = self.0.len();
        let k = median_rank95(n);
        [self.0[k - 1], self.0[n - k]]
    }
}

/// Median of `values`; `None` when there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    Sorted::new(values).map(|s| s.median())
}

/// A ratio of two medians.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// Median of `a` over median of `b`.
    pub value: f64,
    /// 95 % bootstrap interval of that ratio.
    pub ci95: [f64; 2],
}

impl Ratio {
    /// Ratio of the medians of two independent sets; `None` when one is empty or the lower median is 0.
    pub fn of_medians(a: &[f64], b: &[f64]) -> Option<Ratio> {
        let value = median(a)? / median(b)?;
        if !value.is_finite() {
            return None;
        }
        let mut rng = Rng::new(SEED);
        let mut draw = |set: &[f64]| -> Vec<f64> {
            (0..set.len()).map(|_| set[rng.below(set.len() as u64) as usize]).collect()
        };
        let ratios = (0..RESAMPLES).map(|_| quick_median(&mut draw(a)) / quick_median(&mut draw(b)));
        Some(Ratio { value, ci95: middle95(ratios)? })
    }

    /// Ratio of the medians of paired values, each pair measured at about the same time: what the machine did to both
    /// of them then widens the interval less. `None` as above.
    pub fn of_paired_medians(pairs: &[(f64, f64)]) -> Option<Ratio> {
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let value = median(&a)? / median(&b)?;
        if !value.is_finite() {
            return None;
        }
        let mut rng = Rng::new(SEED);
        let ratios = (0..RESAMPLES).map(|_| {
            let draw = (0..pairs.len()).map(|_| pairs[rng.below(pairs.len() as u64) as usize]);
            let (mut top, mut bottom): (Vec<f64>, Vec<f64>) = draw.unzip();
            quick_median(&mut top) / quick_median(&mut bottom)
        });
        Some(Ratio { value, ci95: middle95(ratios)? })
    }
}

const RESAMPLES: usize = 1000;

/// A fixed seed: the same data always print the same interval.
const SEED: u64 = 0x5eed;

fn middle95(ratios: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    let sorted = Sorted::new(&ratios.collect::<Vec<_>>())?;
    Some([sorted.quantile(0.025), sorted.quantile(0.975)])
}

/// The upper median, without sorting everything.
fn quick_median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Largest `k` with `P(Binomial(n, 1/2) < k) <= 0.025`, at least 1.
fn median_rank95(n: usize) -> usize {
    if n > 1000 {
        let half_width = 1.959_964 * (n as f64).sqrt() / 2.0;
        return ((n as f64 / 2.0 - half_width).floor() as usize).max(1);
    }
    // pmf(0) = 2^-n fits an f64 for n <= 1000.
    let mut pmf = 0.5f64.powi(n as i32);
    let mut below = 0.0;
    let mut k = 0;
    while below + pmf <= 0.025 {
        below += pmf;
        pmf *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
    k.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(n: usize) -> Vec<f64> {
        (1..=n).rev().map(|v| v as f64).collect()
    }

    #[test]
    fn ranks_match_the_published_table() {
        // Two-sided 95 % ranks of the sign test.
        for (n, k) in [(1, 1), (5, 1), (6, 1), (9, 2), (10, 2), (20, 6), (25, 8), (50, 18), (100, 40)] {
            assert_eq!(median_rank95(n), k, "n = {n}");
        }
        // The exact and the approximate branch meet.
        assert!(median_rank95(1000).abs_diff(median_rank95(1001)) <= 1);
    }

    #[test]
    fn summary_of_known_values() {
        let s = Summary::of(&range(1000)).unwrap();
        assert_eq!((s.n, s.min, s.p50, s.max), (1000, 1.0, 500.5, 1000.0));
        assert_eq!((s.p90, s.p99, s.p999), (900.0, 990.0, 999.0));
        assert_eq!(s.ci95, [469.0, 532.0]);
    }

    #[test]
    fn small_sets() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!((one.p50, one.ci95, one.p999), (7.0, [7.0, 7.0], 7.0));
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(Summary::of(&range(10)).unwrap().ci95, [2.0, 9.0]);
    }

    #[test]
    fn interval_holds_the_median_and_covers_as_often_as_it_says() {
        let mut rng = Rng::new(1);
        let mut hits = 0;
        for _ in 0..2000 {
            // Skewed values.
            let sample: Vec<f64> = (0..25).map(|_| rng.unit() * rng.unit().max(1e-9)).collect();
            let s = Summary::of(&sample).unwrap();
            assert!(s.ci95[0] <= s.p50 && s.p50 <= s.ci95[1]);
            // The median of a product of two uniforms solves m (1 - ln m) = 1/2.
            hits += usize::from(s.ci95[0] <= 0.186_682 && 0.186_682 <= s.ci95[1]);
        }
        assert!(hits >= 1880, "covered {hits} of 2000");
    }

    #[test]
    fn ratio_of_medians() {
        let a: Vec<f64> = range(101).iter().map(|v| v + 1000.0).collect();
        let b: Vec<f64> = a.iter().map(|v| v / 2.0).collect();
        let r = Ratio::of_medians(&a, &b).unwrap();
        assert!((r.value - 2.0).abs() < 1e-12);
        assert!(r.ci95[0] <= 2.0 && 2.0 <= r.ci95[1] && r.ci95[1] - r.ci95[0] < 0.1);
        assert_eq!(Ratio::of_medians(&a, &b), Ratio::of_medians(&a, &b));
        assert_eq!(Ratio::of_medians(&a, &[0.0]), None);
        assert_eq!(Ratio::of_medians(&[], &b), None);
        assert_eq!(Ratio::of_paired_medians(&[]), None);
        assert_eq!(Ratio::of_paired_medians(&[(1.0, 0.0)]), None);
    }

    #[test]
    fn pairing_takes_out_what_both_have_in_common() {
        // The machine drifts by a factor of ten, the ratio stays 2.
        let pairs: Vec<(f64, f64)> = (1..=50).map(|t| (2.0 * f64::from(t), f64::from(t))).collect();
        let paired = Ratio::of_paired_medians(&pairs).unwrap();
        assert_eq!((paired.value, paired.ci95), (2.0, [2.0, 2.0]));
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let loose = Ratio::of_medians(&a, &b).unwrap();
        assert!(loose.ci95[1] - loose.ci95[0] > 0.3, "{loose:?}");
    }
}
