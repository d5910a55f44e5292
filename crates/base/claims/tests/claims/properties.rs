//! Properties that hold for any numbers and any text.

use crate::synthetic::{Store, run};
use ioloom_claims::{Rule, Verdict, data, formula, load, pattern, verdict};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn judged(a: &[f64], b: &[f64], claim: &str) -> Verdict {
    let mut store = Store::new(a.len() as u32);
    let (left, right) = (a.to_vec(), b.to_vec());
    store.arm_with("a", &[], move |block| run(left[block as usize]));
    store.arm_with("b", &[], move |block| run(right[block as usize]));
    let text = format!(
        "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \"t\"\n\
         refutes = \"t\"\n[[claim.contrast]]\nkind = \"ratio\"\nat = {{ experiment = \"e\", \
         set = \"E\" }}\na = \"a\"\nb = \"b\"\nclaim = \"{claim}\"\n"
    );
    verdict(&load([("t", text.as_str())]).unwrap()[0], &store.records, Rule::STANDARD).verdict
}

fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn swapping_the_arms_reverses_the_claim(
        a in prop::collection::vec(50.0f64..150.0, 12),
        b in prop::collection::vec(50.0f64..150.0, 12),
    ) {
        prop_assert_eq!(judged(&a, &b, "less"), judged(&b, &a, "greater"));
        prop_assert_eq!(judged(&a, &b, "equal"), judged(&b, &a, "equal"));
    }

    #[test]
    fn a_claim_and_its_contrary_are_never_both_confirmed(
        a in prop::collection::vec(80.0f64..120.0, 13),
        b in prop::collection::vec(80.0f64..120.0, 13),
    ) {
        let found = ["less", "greater", "equal"].map(|c| judged(&a, &b, c));
        prop_assert!(found.iter().filter(|v| **v == Verdict::Confirmed).count() <= 1, "{found:?}");
        // A confirmed direction matches the median ratio, computed without any bootstrap.
        let logs: Vec<f64> = a.iter().zip(&b).map(|(a, b)| (a / b).ln()).collect();
        if found[0] == Verdict::Confirmed {
            prop_assert!(middle(&logs) < 0.0);
        }
        if found[1] == Verdict::Confirmed {
            prop_assert!(middle(&logs) > 0.0);
        }
    }

    #[test]
    fn no_text_panics(text in ".{0,80}", words in "[-+*/()a0 .]{0,40}") {
        let _ = load([("any", text.as_str())]);
        let _ = data::number(&text);
        let _ = data::Table::parse("any", &text);
        let _ = pattern::fill(&text, &BTreeMap::new());
        let _ = formula::evaluate(&words, |_| Some(1.0));
    }

    #[test]
    fn formulas_agree_with_plain_arithmetic(a in -1e6f64..1e6, b in 1.0f64..1e6, c in -1e6f64..1e6) {
        let value = |name: &str| match name { "a" => Some(a), "b" => Some(b), _ => Some(c) };
        prop_assert_eq!(formula::evaluate("( a - c ) / b * c + a", value).unwrap(), (a - c) / b * c + a);
    }
}
