//! Plans accepted or refused by commit a8ad189, as recorded from its binary.

use ioloom_model::{AnyPlan, table};
use std::collections::BTreeSet;
use std::path::Path;

/// A number of cores that does not occur in any recorded plan.
const CORES: u32 = 97;

fn lines(name: &str) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures/a8ad189");
    let text = std::fs::read_to_string(directory.join(name)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Parses and checks a plan like `ioloom each --plan`, except for machine-dependent checks.
fn accepted(text: &str) -> Result<AnyPlan, String> {
    let plan: AnyPlan = text.parse().map_err(|e: ioloom_model::ParseError| e.to_string())?;
    let plan = plan.complete(CORES);
    plan.files().map_or(Ok(()), table::check)?;
    Ok(plan)
}

#[test]
fn old_plans_over_files_have_the_same_canonical_text() {
    let lines = lines("plans-canonical.tsv");
    assert_eq!(lines.len(), 665);
    for line in lines {
        let (text, canonical) = line.split_once('\t').unwrap();
        let plan = accepted(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(plan.to_string(), canonical.replace("CORES", &CORES.to_string()), "{text}");
        assert_eq!(plan.to_string().parse(), Ok(plan), "{text}");
    }
}

#[test]
fn old_plans_of_all_subjects_are_accepted() {
    let mut subjects = BTreeSet::new();
    let lines = lines("plans.txt");
    assert_eq!(lines.len(), 1284);
    for text in lines {
        let plan = accepted(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        subjects.insert(plan.subject().to_owned());
    }
    let expected = ["copy", "exchange", "files", "memory", "pagecache", "walk"];
    assert!(subjects.iter().eq(expected), "{subjects:?}");
}

#[test]
fn refused_plans_over_files_are_still_refused() {
    let subjects = ["copy:", "exchange:", "memory:", "pagecache:", "walk:"];
    let mut refused = 0;
    for line in lines("plans-refused.tsv") {
        let (_, text) = line.split_once('\t').unwrap();
        // The adapters of other subjects check their own plans.
        if !subjects.iter().any(|subject| text.starts_with(subject)) {
            assert!(accepted(text).is_err(), "{text}");
            refused += 1;
        }
    }
    assert_eq!(refused, 197);
}
