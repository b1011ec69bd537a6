//! From values to places on paper: linear or logarithmic, with ticks that read well.

/// Values above this factor apart are drawn on a logarithmic axis.
const WIDE: f64 = 20.0;

/// One direction of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    /// On a logarithmic axis zero has a place of its own before the smallest value.
    zero: bool,
    /// Where on paper it begins and ends.
    from: f64,
    to: f64,
}

/// Share of a logarithmic axis that is kept for zero.
const ZERO_SHARE: f64 = 0.08;

impl Scale {
    /// An axis over the places that were measured.
    pub(crate) fn places(values: &[f64], from: f64, to: f64) -> Scale {
        let (low, high) = bounds(values);
        let smallest = values.iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let log = low >= 0.0 && smallest.is_finite() && high / smallest >= WIDE;
        if log {
            return Scale { low: smallest, high, log, zero: low == 0.0, from, to };
        }
        let (low, high) = if low == high { (low - 1.0, high + 1.0) } else { (low, high) };
        Scale { low, high, log, zero: false, from, to }
    }

    /// An axis for values: rounded outward, from 0 if it is linear.
    pub(crate) fn values(values: &[f64], from: f64, to: f64) -> Scale {
        let (low, high) = bounds(values);
        if low > 0.0 && high / low >= WIDE {
            let (low, high) = (round_log(low, false), round_log(high, true));
            return Scale { low, high, log: true, zero: false, from, to };
        }
        let (low, high) = (low.min(0.0), high.max(0.0));
        let (low, high) = if low == high { (0.0, 1.0) } else { (low, high) };
        let step = step(high - low);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Scale { low, high, log: false, zero: false, from, to }
    }

    /// Where `value` lies; values outside lie on the edge.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let start = if self.zero { ZERO_SHARE } else { 0.0 };
        let share = if !self.log {
            (value - self.low) / (self.high - self.low)
        } else if value <= 0.0 {
            0.0
        } else {
            start + (1.0 - start) * (value / self.low).ln() / (self.high / self.low).ln()
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round numbers along the axis.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        if !self.log {
            let step = step(self.high - self.low);
            let count = ((self.high - self.low) / step).round() as i32;
            let first = (self.low / step).ceil();
            return (0..=count)
                .map(|i| (first + f64::from(i)) * step)
                .filter(|v| *v <= self.high * 1.0001)
                .collect();
        }
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades <= 2.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let every = (f64::from(last - first) / 8.0).ceil().max(1.0) as usize;
        let all = (first..=last).step_by(every).flat_map(|e| factors.iter().map(move |f| f * 10f64.powi(e)));
        all.filter(|v| *v >= self.low * 0.9999 && *v <= self.high * 1.0001).collect()
    }

    /// The measured places themselves as ticks, as far as they keep `apart` from each other.
    pub(crate) fn own_ticks(&self, values: &[f64], apart: f64) -> Vec<f64> {
        let mut ticks: Vec<f64> = Vec::new();
        for value in values {
            if ticks.last().is_none_or(|last| (self.at(*value) - self.at(*last)).abs() >= apart) {
                ticks.push(*value);
            }
        }
        ticks
    }
}

fn bounds(values: &[f64]) -> (f64, f64) {
    let finite = values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low.is_finite() { (low, high) } else { (0.0, 1.0) }
}

/// A step of 1, 2 or 5 times a power of ten that cuts `range` into four to ten.
fn step(range: f64) -> f64 {
    let raw = range / 5.0;
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= raw * 0.999).unwrap_or(10.0);
    factor * power
}

/// The next 1, 2 or 5 times a power of ten, outward.
fn round_log(value: f64, up: bool) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|f| f * power);
    if up {
        steps.into_iter().find(|s| *s >= value * 0.9999).unwrap_or(value)
    } else {
        steps.into_iter().rev().find(|s| *s <= value * 1.0001).unwrap_or(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_values_are_logarithmic_and_narrow_ones_start_at_zero() {
        let wide = Scale::values(&[0.05, 30.0], 300.0, 0.0);
        assert!(wide.log && wide.low == 0.05 && wide.high == 50.0);
        assert_eq!(wide.ticks(), [0.1, 1.0, 10.0]);
        let narrow = Scale::values(&[3.0, 9.0], 300.0, 0.0);
        assert_eq!((narrow.low, narrow.high, narrow.log), (0.0, 10.0, false));
        assert_eq!((narrow.at(0.0), narrow.at(5.0), narrow.at(10.0)), (300.0, 150.0, 0.0));
    }

    #[test]
    fn differences_may_be_negative() {
        let scale = Scale::values(&[-0.3, 1.2], 0.0, 100.0);
        assert!(scale.low <= -0.3 && scale.high >= 1.2 && scale.ticks().contains(&0.0), "{scale:?}");
    }

    #[test]
    fn zero_has_a_place_on_a_logarithmic_axis() {
        let scale = Scale::places(&[0.0, 1.0, 1000.0], 0.0, 100.0);
        assert_eq!((scale.at(0.0), scale.at(1000.0)), (0.0, 100.0));
        assert!(scale.at(1.0) > 5.0);
    }

    #[test]
    fn odd_data_do_not_make_an_odd_scale() {
        for values in [&[][..], &[0.0], &[5.0], &[f64::NAN], &[1e-9, 1e9]] {
            for scale in [Scale::values(values, 0.0, 1.0), Scale::places(values, 0.0, 1.0)] {
                assert!(scale.at(5.0).is_finite() && scale.ticks().len() < 40, "{values:?} {scale:?}");
            }
        }
    }
}
