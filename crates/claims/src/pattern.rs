//! Texts with factors in braces, such as `sync-{n}`: the arms of a family by one name.
//!
//! A study names a family of arms by a pattern, a claim names the same pattern, and a stored run
//! carries the factors of its arm. Filling the pattern with those factors and comparing gives the
//! members of the family without a second list of names.

use std::collections::BTreeMap;

/// Fills `{n}` with a factor of an arm, and `{n-1}`, `{n+1}`, `{n*2}` or `{n/2}` with what comes of
/// it. `None` if a factor is missing, an operand is no number or a brace is left open.
pub fn fill(pattern: &str, factors: &BTreeMap<String, f64>) -> Option<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(start) = rest.find('{') {
        out.push_str(&rest[..start]);
        let end = rest[start..].find('}')? + start;
        out.push_str(&value(&rest[start + 1..end], factors)?.to_string());
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Some(out)
}

fn value(inner: &str, factors: &BTreeMap<String, f64>) -> Option<f64> {
    let Some(at) = inner.find(['+', '-', '*', '/']) else {
        return factors.get(inner).copied();
    };
    let left = factors.get(&inner[..at])?;
    let right: f64 = inner[at + 1..].parse().ok()?;
    Some(match &inner[at..=at] {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        _ => left / right,
    })
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
