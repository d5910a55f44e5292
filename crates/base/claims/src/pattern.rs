//! Names with factors in braces, such as `sync-{n}`, that denote a family of arms.
//!
//! Studies and claims name a family by the same pattern, and a stored run contains the factors of
//! its arm. Filling in the pattern with those factors and comparing names identifies the members of
//! a family without a second list of names.

use std::collections::BTreeMap;

/// Fills in the factors of an arm in the same way as the laboratory names its arms. Returns `None`
/// if a factor is missing, an operand is not a number or a brace is unclosed.
pub fn fill(pattern: &str, factors: &BTreeMap<String, f64>) -> Option<String> {
    ioloom_model::study::fill(pattern, factors).ok()
}

/// Reports whether an arm with this name and these factors matches the pattern.
pub fn matches(pattern: &str, arm: &str, factors: &BTreeMap<String, f64>) -> bool {
    fill(pattern, factors).is_some_and(|name| name == arm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_fill_braces() {
        let factors = BTreeMap::from([("n".to_owned(), 4.0), ("mib".to_owned(), 0.25)]);
        for (pattern, expected) in [
            ("plain", Some("plain")),
            ("sync-{n}", Some("sync-4")),
            ("c={n-1},x={n+1}", Some("c=3,x=5")),
            ("{n*2}-{n/2}", Some("8-2")),
            ("{n-x}", None),
            ("B-{mib}", Some("B-0.25")),
            ("{k}", None),
            ("open-{n", None),
        ] {
            assert_eq!(fill(pattern, &factors).as_deref(), expected, "{pattern}");
        }
        assert!(matches("sync-{n}", "sync-4", &factors));
        assert!(!matches("sync-{n}", "sync-5", &factors));
    }
}
