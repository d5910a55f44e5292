//! Scales and ticks: positions of values on an axis, and the round values that label it.

use crate::quantity::{Unit, trimmed};

/// Largest absolute value of an end of a scale, and the inverse of the smallest end of a logarithmic
/// one. The ratio of two ends and their round steps are then finite. Values beyond are drawn at the
/// ends.
const END_MAX: f64 = 1e150;

/// Maximum number of ticks of a linear scale.
const TICKS_MAX: usize = 200;

/// A linear or logarithmic map from values to pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    log: bool,
}

/// A tick: its value and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// Value on the axis.
    pub value: f64,
    /// Text of the label.
    pub text: String,
}

impl Scale {
    /// Returns a linear scale; `low` and `high` may be equal.
    pub fn linear(low: f64, high: f64, start: f64, end: f64) -> Self {
        let (low, high) = (capped(low), capped(high));
        let is_wide = high - low > 1.0 / END_MAX;
        let high = if is_wide { high } else { low + (low.abs() * 1e-9).max(1.0) };
        Self { low, high, start, end, log: false }
    }

    /// Returns a logarithmic scale, or a linear one if either end is not positive.
    pub fn log(low: f64, high: f64, start: f64, end: f64) -> Self {
        let (low, high) = (capped(low), capped(high));
        if low <= 0.0 {
            return Self::linear(low, high, start, end);
        }
        let low = low.max(1.0 / END_MAX);
        let high = if high > low { high } else { low * 2.0 };
        Self { low, high, start, end, log: true }
    }

    /// Returns the pixel position of a value; values outside the axis are clamped.
    pub fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.start + part.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Returns the ends of the scale.
    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Returns whether it is logarithmic.
    pub fn is_log(&self) -> bool {
        self.log
    }

    /// Returns the scale widened to round ends that coincide with the first and last tick.
    #[must_use]
    pub fn nice(self, unit: Unit, count: usize) -> Self {
        let binary = matches!(unit, Unit::Bytes | Unit::BytesPerSecond);
        if self.log {
            let base: f64 = if binary { 2.0 } else { 10.0 };
            let steps: &[f64] = if binary { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let down = base.powf(self.low.log(base).floor());
            let up = base.powf(self.high.log(base).floor());
            let low = steps.iter().map(|s| s * down).rfind(|v| *v <= self.low * 1.000_001);
            let high = steps
                .iter()
                .map(|s| s * up)
                .chain([up * base])
                .find(|v| *v >= self.high * 0.999_999);
            return Self { low: low.unwrap_or(down), high: high.unwrap_or(up * base), ..self };
        }
        let (factor, _) = unit.tick_unit(self.low.abs().max(self.high.abs()));
        let step = step_125((self.high - self.low) / factor / count.max(1) as f64) * factor;
        Self {
            low: (self.low / step + 1e-9).floor() * step,
            high: (self.high / step - 1e-9).ceil() * step,
            ..self
        }
    }

    /// Returns about `count` ticks at round values: 1-2-5 steps, powers of two for bytes. Each
    /// logarithmic tick has its own unit; linear ticks share the axis unit.
    pub fn ticks(&self, unit: Unit, count: usize) -> Vec<Tick> {
        let values =
            if self.log { self.log_ticks(unit, count) } else { self.linear_ticks(unit, count) };
        let (factor, _) = unit.tick_unit(self.low.abs().max(self.high.abs()));
        values
            .into_iter()
            .map(|value| Tick {
                value,
                text: if self.log { unit.format_tick(value) } else { trimmed(value / factor) },
            })
            .collect()
    }

    fn linear_ticks(&self, unit: Unit, count: usize) -> Vec<f64> {
        let (factor, _) = unit.tick_unit(self.low.abs().max(self.high.abs()));
        let (low, high) = (self.low / factor, self.high / factor);
        let step = step_125((high - low) / count.max(1) as f64);
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        (first..=last).take(TICKS_MAX).map(|i| i as f64 * step * factor).collect()
    }

    fn log_ticks(&self, unit: Unit, count: usize) -> Vec<f64> {
        let binary = matches!(unit, Unit::Bytes | Unit::BytesPerSecond);
        let base: f64 = if binary { 2.0 } else { 10.0 };
        let first = (self.low.log(base) + 1e-9).floor() as i32;
        let last = (self.high.log(base) - 1e-9).ceil() as i32;
        let inside = |v: &f64| *v >= self.low * 0.999_999 && *v <= self.high * 1.000_001;
        let powers: Vec<f64> = (first..=last).map(|e| base.powi(e)).filter(inside).collect();
        if !binary && powers.len() < count.min(4) {
            let dense: Vec<f64> = (first..=last)
                .flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * base.powi(e)))
                .filter(inside)
                .collect();
            if dense.len() >= 2 {
                return dense;
            }
            // Below a factor of two, linear ticks are easier to read.
            return Self { log: false, ..*self }.linear_ticks(unit, count);
        }
        let skip = powers.len().div_ceil(count.max(1) + 2).max(1);
        // Byte scales use powers of 16: 4 KiB, 64 KiB, 1 MiB.
        let skip = if binary && skip > 1 { skip.next_multiple_of(2) } else { skip };
        let phase = first.rem_euclid(skip as i32);
        powers
            .into_iter()
            .enumerate()
            .filter(|(i, _)| (*i as i32 + phase).rem_euclid(skip as i32) == 0)
            .map(|(_, v)| v)
            .collect()
    }
}

/// Returns a value within the limits of ends; zero if it is not a number.
fn capped(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(-END_MAX, END_MAX) }
}

/// Returns the round step nearest to `raw` by ratio: 1, 2 or 5 times a power of ten.
fn step_125(raw: f64) -> f64 {
    if !(raw.is_finite() && raw > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(raw.log10().floor());
    let step = match raw / power {
        m if m < 2f64.sqrt() => 1.0,
        m if m < 10f64.sqrt() => 2.0,
        m if m < 50f64.sqrt() => 5.0,
        _ => 10.0,
    };
    step * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, unit: Unit, count: usize) -> Vec<String> {
        scale.ticks(unit, count).into_iter().map(|t| t.text).collect()
    }

    #[test]
    fn steps_are_one_two_five() {
        for (raw, step) in
            [(0.9, 1.0), (1.1, 1.0), (3.0, 2.0), (4.0, 5.0), (8.0, 10.0), (0.03, 0.02)]
        {
            assert!((step_125(raw) - step).abs() < 1e-12, "{raw}");
        }
    }

    #[test]
    fn linear_ticks_share_the_unit_of_the_axis() {
        let scale = Scale::linear(0.0, 3.2e6, 0.0, 100.0).nice(Unit::Time, 4);
        assert_eq!(scale.ends(), (0.0, 4e6));
        assert_eq!(texts(scale, Unit::Time, 4), ["0", "1", "2", "3", "4"]);
    }

    #[test]
    fn log_ticks_carry_units() {
        let scale = Scale::log(900.0, 2.2e7, 0.0, 100.0).nice(Unit::Time, 6);
        assert_eq!(texts(scale, Unit::Time, 6), ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]);
        let scale = Scale::log(4096.0, 67_108_864.0, 0.0, 100.0);
        assert_eq!(texts(scale, Unit::Bytes, 4), ["4 KiB", "64 KiB", "1 MiB", "16 MiB"]);
        let scale = Scale::log(10.0, 60.0, 0.0, 100.0);
        assert_eq!(texts(scale, Unit::Number, 5), ["10", "20", "50"]);
    }

    #[test]
    fn every_tick_lies_on_its_axis() {
        for low in [0.0, 0.3, 1.0, 997.0, 4096.0] {
            for span in [1e-3, 0.7, 12.0, 3e5, 7e10] {
                for unit in [Unit::Time, Unit::Bytes, Unit::Share, Unit::Number] {
                    for scale in [
                        Scale::linear(low, low + span, 0.0, 100.0).nice(unit, 5),
                        Scale::log(low, low + span, 0.0, 100.0).nice(unit, 5),
                    ] {
                        let ticks = scale.ticks(unit, 5);
                        assert!(ticks.len() <= 12, "{scale:?} {unit:?} {}", ticks.len());
                        let (from, to) = scale.ends();
                        for t in ticks {
                            let slack = (to - from) * 1e-6;
                            assert!(
                                t.value >= from - slack && t.value <= to + slack,
                                "{scale:?} {t:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn extreme_values_have_few_and_short_ticks() {
        let extremes = [0.0, 5e-324, 1e-300, 1.0, 1e15, 1e100, 1.7e308, f64::INFINITY, f64::NAN];
        let units = [Unit::Time, Unit::Bytes, Unit::PerSecond, Unit::Share, Unit::Number];
        for (low, high) in extremes.iter().flat_map(|low| extremes.map(|high| (*low, high))) {
            let made = [Scale::linear(low, high, 0.0, 100.0), Scale::log(low, high, 0.0, 100.0)];
            for (unit, scale) in units.iter().flat_map(|unit| made.map(|scale| (*unit, scale))) {
                for scale in [scale, scale.nice(unit, 5)] {
                    let (from, to) = scale.ends();
                    assert!(from.is_finite() && to.is_finite(), "{low} to {high}: {scale:?}");
                    let texts = texts(scale, unit, 5);
                    assert!(texts.len() <= 12, "{low} to {high}: {texts:?}");
                    let is_short = |text: &String| text.chars().count() <= 24;
                    assert!(texts.iter().all(is_short), "{low} to {high}: {texts:?}");
                }
            }
        }
    }

    #[test]
    fn values_outside_stay_on_the_paper() {
        let scale = Scale::log(1.0, 100.0, 10.0, 110.0);
        assert_eq!(scale.at(10.0), 60.0);
        assert_eq!(scale.at(0.0), 10.0);
        assert_eq!(scale.at(1e9), 110.0);
    }
}
