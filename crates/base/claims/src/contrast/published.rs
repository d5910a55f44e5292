//! A statement about published numbers alone, recomputed from the tables.

use super::kind::{Context, Kind, ordered};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use crate::verdict::{Effect, Evidence};
use crate::{data, formula};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A statement about the published numbers, recomputed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Paths to published numbers, keyed by the name used in the formula.
    pub values: BTreeMap<String, String>,
    /// Formula over these names.
    pub formula: String,
    /// Range of the result if the statement follows from the numbers.
    pub within: [f64; 2],
    /// Description of the recomputed quantity.
    pub says: String,
}

impl Kind for Published {
    fn place(&self) -> String {
        "published numbers".to_owned()
    }

    fn check(&self) -> Result<(), String> {
        for path in self.values.values() {
            data::number(path).map_err(|e| e.to_string())?;
        }
        formula::evaluate(&self.formula, |name| self.values.get(name).map(|_| 1.0))
            .map_err(|e| e.to_string())?;
        ordered(&self.within)
    }

    fn evaluate<'a>(&self, _: &Context<'a>) -> Result<Finding<'a>, Gap> {
        let Self { within, says, .. } = self;
        let mut numbers = BTreeMap::new();
        for (name, path) in &self.values {
            numbers.insert(name.clone(), data::number(path).map_err(Gap::undefined)?);
        }
        let result = formula::evaluate(&self.formula, |name| numbers.get(name).copied())
            .map_err(Gap::undefined)?;
        if !result.is_finite() {
            return Err(Gap::Undefined(format!("{says} is not finite")));
        }
        let holds = (within[0]..=within[1]).contains(&result);
        let not = if holds { "" } else { "not " };
        let words = format!(
            "{says} is {result:.4}, {not}{}, recomputed from the published numbers",
            range_words(*within)
        );
        let evidence = Evidence {
            effect: Some(result),
            effect_is: Effect::Stated(says.clone()),
            numbers,
            ..Evidence::default()
        };
        Ok(Finding { holds: Some(holds), words, evidence, ..Finding::default() })
    }
}

fn range_words([lo, hi]: [f64; 2]) -> String {
    /// Bounds beyond this value mean unbounded.
    const FAR: f64 = 1e6;
    match (lo <= -FAR, hi >= FAR) {
        (_, true) => format!("at least {}", rounded(lo)),
        (true, _) => format!("at most {}", rounded(hi)),
        _ => format!("in {} to {}", rounded(lo), rounded(hi)),
    }
}

/// Rounds to four decimals, or four significant digits below 1.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return value;
    }
    let scale = 10_f64.powf(3.0 - value.abs().log10().floor().min(-1.0));
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_rounded() {
        assert_eq!(range_words([1.0 / 3.0, 2.0]), "in 0.3333 to 2");
        assert_eq!(range_words([-1e12, 0.1 + 0.2]), "at most 0.3");
        assert_eq!(range_words([12_345.678_91, 1e12]), "at least 12345.6789");
        assert_eq!(range_words([0.0, 0.000_012_345_6]), "in 0 to 0.00001235");
    }
}
