//! Texts with factors in braces, such as `sync-{n}`: the arms of a family by one name.
//!
//! A study names a family of arms by a pattern, a claim names the same pattern, and a stored run
//! carries the factors of its arm. Filling the pattern with those factors and comparing gives the
//! members of the family without a second list of names.

use std::collections::BTreeMap;

/// Fills `{n}`, `{n-1}` and `{n+1}` with the factors of an arm. `None` if a factor is missing or
/// a brace is left open.
pub fn fill(pattern: &str, factors: &BTreeMap<String, f64>) -> Option<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(start) = rest.find('{') {
        out.push_str(&rest[..start]);
        let end = rest[start..].find('}')? + start;
        let inner = &rest[start + 1..end];
        let (name, step) = if let Some(name) = inner.strip_suffix("-1") {
            (name, -1.0)
        } else if let Some(name) = inner.strip_suffix("+1") {
            (name, 1.0)
        } else {
            (inner, 0.0)
        };
        out.push_str(&(factors.get(name)? + step).to_string());
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Some(out)
}

/// Whether an arm of this name with these factors belongs to the pattern.
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
