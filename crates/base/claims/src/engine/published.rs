//! Statements about the published numbers alone, recomputed from the tables.

use super::Finding;
use super::runs::Gap;
use crate::claim::Contrast;
use crate::verdict::Evidence;
use crate::{data, formula};
use std::collections::BTreeMap;

/// Evaluates the formula of a `published` contrast.
pub(super) fn recompute<'a>(contrast: &Contrast) -> Result<Finding<'a>, Gap> {
    let Contrast::Published { values, formula, within, says } = contrast else {
        return Err(Gap::Undefined("it is not about published numbers".to_owned()));
    };
    let mut numbers = BTreeMap::new();
    for (name, path) in values {
        let value = data::number(path).map_err(|e| Gap::Undefined(e.to_string()))?;
        numbers.insert(name.clone(), value);
    }
    let result = formula::evaluate(formula, |name| numbers.get(name).copied())
        .map_err(|e| Gap::Undefined(e.to_string()))?;
    if !result.is_finite() {
        return Err(Gap::Undefined(format!("{says} is not finite")));
    }
    let holds = (within[0]..=within[1]).contains(&result);
    let not = if holds { "" } else { "not " };
    let range = range_words(*within);
    let evidence =
        Evidence { effect: Some(result), effect_is: says.clone(), numbers, ..Evidence::default() };
    let words =
        format!("{says} is {result:.4}, {not}{range}, recomputed from the published numbers");
    Ok(Finding { holds: Some(holds), words, evidence, ..Finding::default() })
}

fn range_words([lo, hi]: [f64; 2]) -> String {
    const FAR: f64 = 1e9;
    match (lo <= -FAR, hi >= FAR) {
        (_, true) => format!("at least {lo:.4}"),
        (true, _) => format!("at most {hi:.4}"),
        _ => format!("within {lo:.4} to {hi:.4}"),
    }
}
