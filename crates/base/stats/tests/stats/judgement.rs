//! The verdict rule, as cases and as properties; equivalence and the noise floor.

use crate::noise_source::Noise;
use ioloom_stats::{
    Claimed, Decision, Judgement, Ratio, Reason, Rule, StatsError, aa_noise, decide, equivalence,
};
use proptest::prelude::*;

fn judge(ratio: &Ratio, claimed: Claimed, rule: &Rule) -> Judgement {
    decide(ratio, claimed, rule).judgement
}

fn with_margin(margin: f64) -> Rule {
    Rule { margin, ..Rule::FULL }
}

fn ratio(lo: f64, middle: f64, hi: f64) -> Ratio {
    // Significant if and only if the interval excludes 1.
    let p = if lo > 1.0 || hi < 1.0 { 0.01 } else { 0.3 };
    Ratio { ratio: middle, lo, hi, confidence: 0.95, n: 12, p, noise: 0.01 }
}

#[test]
fn the_rule_case_by_case() {
    use Claimed::{AtMost, Equal, Greater, Less};
    use Judgement::{Confirmed, Refuted, Undecided};
    let cases = [
        // interval and effect, claim, judgement, reason
        (ratio(0.70, 0.80, 0.90), Less, Confirmed, Reason::ClaimedSide),
        (ratio(0.70, 0.80, 0.90), Greater, Refuted, Reason::OtherSide),
        (ratio(0.70, 0.80, 0.90), Equal, Refuted, Reason::OutsideMargin),
        (ratio(1.10, 1.20, 1.30), Less, Refuted, Reason::OtherSide),
        (ratio(1.10, 1.20, 1.30), Greater, Confirmed, Reason::ClaimedSide),
        // no relevant difference
        (ratio(0.98, 1.00, 1.02), Less, Refuted, Reason::WithinMargin),
        (ratio(0.98, 1.00, 1.02), Greater, Refuted, Reason::WithinMargin),
        (ratio(0.98, 1.00, 1.02), Equal, Confirmed, Reason::WithinMargin),
        // a real difference, but too small for the claim
        (ratio(0.96, 0.97, 0.98), Less, Refuted, Reason::WithinMargin),
        (ratio(0.96, 0.97, 0.98), Equal, Confirmed, Reason::WithinMargin),
        // on the claimed side, effect below the margin, interval beyond it
        (ratio(0.94, 0.97, 0.99), Less, Undecided, Reason::SmallEffect),
        (ratio(0.94, 0.97, 0.99), Greater, Refuted, Reason::OtherSide),
        (ratio(0.94, 0.97, 0.99), Equal, Undecided, Reason::WideInterval),
        // both answers are possible
        (ratio(0.80, 0.90, 1.10), Less, Undecided, Reason::WideInterval),
        (ratio(0.80, 0.90, 1.10), Greater, Undecided, Reason::WideInterval),
        (ratio(0.80, 0.90, 1.10), Equal, Undecided, Reason::WideInterval),
        // only the upper bound of the margin matters
        (ratio(0.70, 0.80, 0.90), AtMost, Confirmed, Reason::NotAboveMargin),
        (ratio(0.80, 0.90, 1.04), AtMost, Confirmed, Reason::NotAboveMargin),
        (ratio(1.01, 1.03, 1.04), AtMost, Confirmed, Reason::NotAboveMargin),
        (ratio(1.01, 1.04, 1.08), AtMost, Undecided, Reason::WideInterval),
        (ratio(0.80, 0.90, 1.10), AtMost, Undecided, Reason::WideInterval),
        (ratio(1.06, 1.20, 1.30), AtMost, Refuted, Reason::AboveMargin),
    ];
    for (ratio, claimed, judgement, reason) in cases {
        let found = decide(&ratio, claimed, &Rule::FULL);
        assert_eq!(found, Decision { judgement, reason }, "{ratio:?} {claimed:?}");
    }
}

#[test]
fn too_few_blocks_are_undecided() {
    let eleven = Ratio { n: 11, ..ratio(0.7, 0.8, 0.9) };
    assert_eq!(judge(&eleven, Claimed::Less, &Rule::FULL), Judgement::Undecided);
    assert_eq!(decide(&eleven, Claimed::Less, &Rule::FULL).reason, Reason::FewBlocks);
    let eight = Rule { blocks_min: 8, ..Rule::FULL };
    assert_eq!(judge(&eleven, Claimed::Less, &eight), Judgement::Confirmed);
    let seven = Ratio { n: 7, ..eleven };
    for claimed in [Claimed::Less, Claimed::Greater, Claimed::Equal, Claimed::AtMost] {
        assert_eq!(judge(&seven, claimed, &eight), Judgement::Undecided);
    }
}

#[test]
fn a_range_without_confidence_is_undecided_under_any_rule() {
    let rule = Rule { blocks_min: 2, ..Rule::FULL };
    let slow = [2.0, 2.1, 1.9, 2.0, 2.2, 2.1, 2.0, 1.9];
    for (n, wanted) in [(2, false), (3, false), (5, false), (6, true), (7, true), (8, true)] {
        let ratio = Ratio::of(&slow[..n], &[1.0; 8][..n]).unwrap();
        assert_eq!(ratio.reaches_confidence(), wanted, "{n}: {ratio:?}");
        let found = decide(&ratio, Claimed::Greater, &rule);
        assert_eq!(found.judgement == Judgement::Confirmed, wanted, "{n}: {found:?}");
        assert_eq!(found.reason == Reason::FewBlocks, !wanted, "{n}: {found:?}");
    }
}

#[test]
fn the_margin_changes_the_judgement() {
    let r = ratio(0.90, 0.93, 0.96);
    assert_eq!(judge(&r, Claimed::Less, &Rule::FULL), Judgement::Confirmed);
    let ten = with_margin(0.12);
    assert_eq!(judge(&r, Claimed::Less, &ten), Judgement::Refuted);
    assert_eq!(judge(&r, Claimed::Equal, &ten), Judgement::Confirmed);
    assert_eq!(judge(&r, Claimed::Equal, &with_margin(0.02)), Judgement::Refuted);
}

#[test]
fn nan_is_undecided() {
    let r = ratio(f64::NAN, f64::NAN, f64::NAN);
    for claimed in [Claimed::Less, Claimed::Greater, Claimed::Equal, Claimed::AtMost] {
        assert_eq!(judge(&r, claimed, &Rule::FULL), Judgement::Undecided);
    }
}

#[test]
fn invalid_pairs_are_refused_with_their_position() {
    let good = [1.0, 2.0, 3.0];
    assert_eq!(
        Ratio::of(&good, &[1.0, 2.0]).unwrap_err(),
        StatsError::LengthMismatch { what: "paired ratio", left: 3, right: 2 }
    );
    let zero = Ratio::of(&good, &[1.0, 0.0, 2.0]).unwrap_err();
    assert_eq!(zero.to_string(), "paired ratio: value 1 is 0; a ratio needs values above zero");
    let nan = Ratio::of(&[1.0, 2.0, f64::NAN], &good).unwrap_err();
    assert!(nan.to_string().contains("value 2 is NaN"), "{nan}");
    let one = Ratio::of(&[1.0], &[1.0]).unwrap_err();
    assert_eq!(one.to_string(), "paired ratio: got 1 values, need at least 2");
}

#[test]
fn the_noise_floor_includes_order_effects() {
    let mut noise = Noise::new(11);
    let first = noise.lognormals(12, 0.03);
    let second = noise.lognormals(12, 0.03);
    let floor = aa_noise(&first, &second).unwrap();
    assert!(floor.floor <= floor.reach, "{floor:?}");
    assert!(floor.half_width <= floor.reach + 1e-12);
    assert!(floor.floor < 0.05, "{floor:?}");
    // A plan that is slower whenever it runs second: the order effect is part of the floor.
    let shifted: Vec<f64> = first.iter().map(|v| v * 1.2).collect();
    let floor = aa_noise(&first, &shifted).unwrap();
    assert!((floor.floor - 0.2).abs() < 1e-9 && (floor.reach - 0.2).abs() < 1e-9);
    assert!(floor.half_width < 1e-9);
}

/// Generates intervals around a midpoint, on a logarithmic scale.
fn intervals() -> impl Strategy<Value = Ratio> {
    (-0.3..0.3_f64, 0.0..0.2_f64, 0.0..0.2_f64).prop_map(|(middle, below, above)| {
        ratio((middle - below).exp(), middle.exp(), (middle + above).exp())
    })
}

proptest! {
    #[test]
    fn swapping_arms_and_claim_does_not_change_the_judgement(r in intervals()) {
        let rule = Rule::FULL;
        prop_assert_eq!(judge(&r, Claimed::Less, &rule), judge(&r.inverse(), Claimed::Greater, &rule));
        prop_assert_eq!(judge(&r, Claimed::Equal, &rule), judge(&r.inverse(), Claimed::Equal, &rule));
    }

    #[test]
    fn equality_implies_at_most_and_a_smaller_ratio_does_not_refute_it(r in intervals()) {
        let at_most = judge(&r, Claimed::AtMost, &Rule::FULL);
        match judge(&r, Claimed::Equal, &Rule::FULL) {
            Judgement::Confirmed => prop_assert_eq!(at_most, Judgement::Confirmed),
            Judgement::Refuted if r.ratio > 1.0 => prop_assert_eq!(at_most, Judgement::Refuted),
            Judgement::Refuted => prop_assert_eq!(at_most, Judgement::Confirmed),
            Judgement::Undecided => prop_assert_ne!(at_most, Judgement::Refuted),
        }
    }

    #[test]
    fn opposite_claims_are_never_both_confirmed(r in intervals()) {
        let confirmed = [Claimed::Less, Claimed::Greater, Claimed::Equal]
            .iter()
            .filter(|c| judge(&r, **c, &Rule::FULL) == Judgement::Confirmed)
            .count();
        prop_assert!(confirmed <= 1);
    }

    #[test]
    fn equality_and_equivalence_agree(r in intervals(), margin in 0.001..0.5_f64) {
        let e = equivalence(&r, margin);
        let judged = judge(&r, Claimed::Equal, &with_margin(margin));
        prop_assert_eq!(e.equivalent, judged == Judgement::Confirmed);
        prop_assert_eq!(e.different, judged == Judgement::Refuted);
        prop_assert!(equivalence(&r, e.margin_needed * 1.000_001 + 1e-9).equivalent);
        prop_assert!(!equivalence(&r, e.margin_needed * 0.999 - 1e-9).equivalent);
    }

    #[test]
    fn swapped_arms_give_the_inverse_ratio(seed in 0_u64..1000, n in 2_usize..20) {
        let mut noise = Noise::new(seed);
        let (a, b) = (noise.lognormals(n, 0.4), noise.lognormals(n, 0.4));
        let forth = Ratio::of(&a, &b).unwrap();
        let back = Ratio::of(&b, &a).unwrap();
        prop_assert!((forth.ratio * back.ratio - 1.0).abs() < 1e-9);
        prop_assert!((forth.lo * back.hi - 1.0).abs() < 1e-9);
        prop_assert!(forth.lo <= forth.ratio && forth.ratio <= forth.hi);
        prop_assert!((forth.effect() - back.effect()).abs() < 1e-9);
        prop_assert_eq!(forth, Ratio::of(&a, &b).unwrap());
    }
}
