//! Verdicts on disturbed runs: which ones are retained and which are withheld.

use crate::synthetic::{Store, run};
use ioloom_claims::{ClaimVerdict, Rule, Verdict, load, verdict};
use ioloom_model::{Doubt, Outcome};
use proptest::prelude::*;

/// Eight blocks, of which six must be quiet.
const RULE: Rule = Rule { blocks_min: 8, ..Rule::STANDARD };

/// Judges a claim on the ratio of two arms.
fn judged(store: &Store, claim: &str) -> ClaimVerdict {
    let text = format!(
        "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \"t\"\n\
         refutes = \"t\"\n[[claim.contrast]]\nkind = \"ratio\"\nat = {{ experiment = \"e\", \
         set = \"E\" }}\na = \"a\"\nb = \"b\"\nclaim = \"{claim}\"\n"
    );
    verdict(&load([("t", text.as_str())]).unwrap()[0], &store.records, RULE)
}

fn two(a_ms: f64, blocks: u32) -> Store {
    let mut store = Store::new(blocks);
    store.arm("a", &[], a_ms).arm("b", &[], 100.0);
    store
}

#[test]
fn no_verdict_if_all_blocks_were_disturbed() {
    let mut store = two(100.0, 8);
    store.disturb("a", &[0, 1, 2, 3, 4, 5, 6, 7], 1.3);
    let found = judged(&store, "equal");
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
    assert!(found.sentence.contains("disturbed 8 of 8 blocks"), "{}", found.sentence);
    assert!(found.sentence.contains("repeat on an idle machine"), "{}", found.sentence);
    assert!(found.doubts.contains(&Doubt::NoisyNeighbour));
    assert_eq!(found.evidence.numbers["disturbed_blocks"], 8.0);
    // The answer is withheld, but the measured effect stays visible.
    assert!(found.evidence.effect.unwrap() > 1.2);
}

#[test]
fn a_verdict_is_kept_if_the_quiet_blocks_agree() {
    let mut store = two(80.0, 8);
    store.disturb("a", &[2, 5], 1.02);
    let found = judged(&store, "less");
    assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
    assert_eq!(found.evidence.blocks, 8, "the evidence covers all blocks");
    let mut third = two(80.0, 8);
    third.disturb("a", &[2, 5, 6], 1.0);
    let found = judged(&third, "less");
    assert_eq!(found.verdict, Verdict::Undecided, "five quiet blocks of eight are too few");
    assert!(found.sentence.contains("too few"), "{}", found.sentence);
    let mut more = two(80.0, 11);
    more.disturb("a", &[2, 5, 6], 1.0);
    assert_eq!(judged(&more, "less").verdict, Verdict::Confirmed, "eight quiet blocks are enough");
}

#[test]
fn quiet_blocks_on_another_medium_do_not_replace_disturbed_ones() {
    let mut store = two(80.0, 8);
    store.disturb("a", &[2, 5, 6], 1.0);
    store.medium = "usb".to_owned();
    store.arm("a", &[], 80.0).arm("b", &[], 100.0);
    let found = judged(&store, "less");
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
    assert!(found.sentence.contains("too few other blocks"), "{}", found.sentence);
}

#[test]
fn a_verdict_that_the_disturbed_blocks_decide_is_withheld() {
    // Five of eleven blocks are disturbed and make the two arms look equal.
    let mut store = two(90.0, 11);
    store.disturb("a", &[0, 2, 4, 6, 8], 1.0 / 0.9);
    let quiet = {
        let mut quiet = two(90.0, 11);
        quiet.records.retain(|r| ![0, 2, 4, 6, 8].contains(&r.key.block));
        quiet
    };
    assert_eq!(quiet.records.len(), 12);
    let found = judged(&store, "equal");
    assert_ne!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
    // One arm is disturbed in four blocks, the other in the next four: no block is quiet.
    let mut both = two(80.0, 8);
    both.disturb("a", &[0, 1, 2, 3], 1.0).disturb("b", &[4, 5, 6, 7], 1.0);
    assert_eq!(judged(&both, "less").verdict, Verdict::Undecided);
}

#[test]
fn other_doubts_withhold_nothing_and_undecided_stays_undecided() {
    let mut store = two(80.0, 8);
    store.doubt("a", Doubt::Scaled).doubt("b", Doubt::ConditionUnknown);
    assert_eq!(judged(&store, "less").verdict, Verdict::Confirmed);
    let mut few = two(80.0, 7);
    few.disturb("a", &[0], 1.0);
    let found = judged(&few, "less");
    assert!(
        found.sentence.contains("too few blocks: 7, at least 8 are required"),
        "{}",
        found.sentence
    );
}

#[test]
fn runs_that_missed_their_condition_decide_nothing() {
    for (doubt, words) in [
        (Doubt::NotCold, "data were already cached in 8 of 8 blocks"),
        (Doubt::NotWarm, "data were not cached in 8 of 8 blocks"),
        (Doubt::Errors, "files failed in 8 of 8 blocks"),
    ] {
        let mut store = two(80.0, 8);
        assert_eq!(judged(&store, "less").verdict, Verdict::Confirmed);
        store.doubt("b", doubt);
        let found = judged(&store, "less");
        assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
        assert!(found.sentence.contains(words), "{}", found.sentence);
        assert!(found.doubts.contains(&doubt), "{:?}", found.doubts);
        // Two such blocks of eight are excluded, and the others agree.
        store.records.retain(|r| r.key.arm == "a" || r.key.block < 2);
        let mut rest = Store::new(8);
        rest.arm("b", &[], 100.0);
        store.records.extend(rest.records.into_iter().filter(|r| r.key.block >= 2));
        let found = judged(&store, "less");
        assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
        assert_eq!(found.evidence.numbers["disturbed_blocks"], 2.0);
    }
    let mut both = two(80.0, 8);
    both.disturb("a", &[0, 1, 2], 1.0).doubt("b", Doubt::NotCold);
    let sentence = judged(&both, "less").sentence;
    let expected =
        "other programs disturbed 3 of 8 blocks and data were already cached in 8 of 8 blocks";
    assert!(sentence.contains(expected), "{sentence}");
}

/// What would decide an open claim follows from what disturbed its runs.
#[test]
fn an_open_claim_needs_blocks_without_what_disturbed_its_runs() {
    let needs = |doubts: &[Doubt]| {
        let mut store = two(80.0, 8);
        for doubt in doubts {
            store.doubt("a", *doubt);
        }
        let found = judged(&store, "less");
        assert_eq!(found.verdict == Verdict::Undecided, !found.needs.is_empty(), "{found:?}");
        found.needs.concat()
    };
    for (doubt, words) in [
        (Doubt::NoisyNeighbour, "12 blocks on an idle machine"),
        (Doubt::NotCold, "12 blocks with data that are not cached"),
        (Doubt::NotWarm, "12 blocks with cached data"),
        (Doubt::Errors, "12 blocks without failed files"),
    ] {
        let found = needs(&[doubt]);
        assert!(found.ends_with(words), "{found}");
    }
    let both = needs(&[Doubt::NoisyNeighbour, Doubt::Errors]);
    assert!(both.ends_with("12 blocks on an idle machine and without failed files"), "{both}");
    assert_eq!(needs(&[Doubt::Scaled]), "");
    // No verdict is withheld, but more blocks like these would not decide it either.
    let open = |doubts: &[Doubt]| {
        let mut store = Store::new(8);
        for arm in ["a", "b"] {
            let times = move |block: u32| {
                let is_slow = block.is_multiple_of(3) == (arm == "a");
                run(if is_slow { 150.0 } else { 100.0 })
            };
            store.arm_with(arm, &[], times);
            for doubt in doubts {
                store.doubt(arm, *doubt);
            }
        }
        let found = judged(&store, "less");
        assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
        found.needs.concat()
    };
    assert!(open(&[Doubt::NoisyNeighbour]).ends_with(", on an idle machine"));
    assert!(!open(&[]).contains("idle machine"));
}

/// The effect of too few blocks for a verdict is that of the quiet ones, which the sentence counts.
#[test]
fn too_few_blocks_show_the_effect_of_the_quiet_ones() {
    let of_blocks = |blocks: u32, hit: &[u32]| {
        let mut store = two(80.0, blocks);
        store.disturb("a", hit, 3.0);
        let text = "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
                    \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\nkind = \"ratio\"\nat = { experiment = \
                    \"e\", set = \"E\" }\na = \"a\"\nb = \"b\"\nclaim = \"less\"\n";
        verdict(&load([("t", text)]).unwrap()[0], &store.records, Rule::STANDARD)
    };
    let most = of_blocks(11, &[0, 2, 4, 6]);
    assert_eq!(most.verdict, Verdict::Undecided, "{}", most.sentence);
    let expected = "too few blocks: 11, at least 12 are required; repeat the study with --blocks 12; \
                    other programs disturbed 4 of 11 blocks, so the effect is that of 7 other blocks; \
                    repeat on an idle machine";
    assert_eq!(most.sentence, expected);
    let evidence = &most.evidence;
    assert_eq!((evidence.blocks, evidence.numbers["disturbed_blocks"]), (7, 4.0));
    assert!(evidence.hi.unwrap() < 0.85, "{evidence:?}");
    let quiet = of_blocks(11, &[]);
    assert_eq!(quiet.evidence.blocks, 11);
    assert!(!quiet.sentence.contains("disturbed"), "{}", quiet.sentence);
    // Fewer than six quiet blocks have no interval.
    for hit in [&[0, 2, 4][..], &[0, 1, 2, 3, 4, 5, 6, 7]] {
        let few = of_blocks(8, hit);
        let words = format!(
            "other programs disturbed {} of 8 blocks, so too few other blocks remain to show an effect",
            hit.len()
        );
        assert!(few.sentence.contains(&words), "{}", few.sentence);
        assert_eq!((few.evidence.effect, few.evidence.blocks), (None, 8 - hit.len()));
        assert_eq!(few.evidence.sessions, ["s1"]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn disturbance_only_takes_verdicts_away(
        a_ms in 60.0f64..140.0,
        blocks in 6u32..16,
        hit in prop::collection::btree_set(0u32..16, 0..16),
        times in 0.5f64..2.0,
        claim in prop::sample::select(vec!["less", "greater", "equal", "at-most"]),
    ) {
        let hit: Vec<u32> = hit.into_iter().filter(|b| *b < blocks).collect();
        let mut store = two(a_ms, blocks);
        store.disturb("a", &hit, times);
        let found = judged(&store, claim).verdict;
        // The same numbers without doubts.
        let mut plain = two(a_ms, blocks);
        plain.disturb("a", &hit, times);
        plain.records.iter_mut().for_each(|r| r.doubts.clear());
        let without = judged(&plain, claim).verdict;
        prop_assert!(found == without || found == Verdict::Undecided);
        if hit.is_empty() {
            prop_assert_eq!(found, without);
        }
        // A verdict is retained only with at least six quiet blocks, three quarters of eight.
        if found != Verdict::Undecided && !hit.is_empty() {
            prop_assert!(blocks as usize - hit.len() >= 6);
        }
    }
}

#[test]
fn one_wrong_run_refutes_a_statement_about_every_run() {
    let every = "kind = \"every\"\nat = { experiment = \"e0\", set = \"E\" }\narm = \"a\"\n\
                 metric = \"extra.wrong\"\nwithin = [0, 0]\n";
    let text = format!(
        "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
         \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\n{every}"
    );
    let claims = load([("every", text.as_str())]).unwrap();
    let judge = |wrong_blocks: std::ops::Range<u32>, blocks: u32| {
        let mut store = Store::new(blocks);
        store.arm_with("a", &[], |_| run(100.0));
        for record in &mut store.records {
            record.key.experiment = "e0".to_owned();
            let wrong = wrong_blocks.contains(&record.key.block);
            let Outcome::Done { measured } = &mut record.outcome else { panic!("{record:?}") };
            measured.extra.insert("wrong".to_owned(), f64::from(u8::from(wrong)));
            if wrong {
                record.doubts.push(Doubt::Errors);
            }
        }
        verdict(&claims[0], &store.records, Rule::STANDARD)
    };
    let right = judge(0..0, 12);
    assert_eq!(right.verdict, Verdict::Confirmed, "{}", right.sentence);
    assert!(right.sentence.contains("less than 26.5 % of runs"), "{}", right.sentence);
    for wrong in [judge(3..4, 12), judge(0..12, 12), judge(0..3, 30)] {
        assert_eq!(wrong.verdict, Verdict::Refuted, "{}", wrong.sentence);
    }
    assert_eq!(judge(0..0, 11).verdict, Verdict::Undecided, "too few");
    assert_eq!(judge(2..3, 4).verdict, Verdict::Refuted, "one is enough");
}

/// Four of twelve blocks are disturbed, but only in an arm that was not chosen: the choice depends on it.
#[test]
fn a_disturbed_arm_of_a_family_withholds_what_was_chosen_from_it() {
    let text = |kind: &str| {
        format!(
            "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
             \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\n{kind}\nat = {{ experiment = \"e\", set = \
             \"E\" }}\n"
        )
    };
    let best = text("kind = \"ratio-of-best\"\na = [\"c-{n}\"]\nb = [\"b\"]\nclaim = \"less\"");
    let optimum =
        text("kind = \"optimum\"\nother = { experiment = \"e\", set = \"B\" }\narms = \"c-{n}\"");
    for text in [best, optimum] {
        let claim = load([("t", text.as_str())]).unwrap().remove(0);
        let mut store = Store::new(12);
        store.arm("c-1", &[("n", 1.0)], 50.0).arm("c-8", &[("n", 8.0)], 90.0).arm("b", &[], 100.0);
        store.set = "B".to_owned();
        store.arm("c-1", &[("n", 1.0)], 200.0).arm("c-8", &[("n", 8.0)], 100.0);
        let found = verdict(&claim, &store.records, Rule::STANDARD);
        assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
        let hit = |r: &&mut ioloom_model::RunRecord| {
            r.key.arm == "c-8" && r.key.set == "E" && r.key.block < 4
        };
        for record in store.records.iter_mut().filter(hit) {
            record.doubts.push(Doubt::NoisyNeighbour);
        }
        let found = verdict(&claim, &store.records, Rule::STANDARD);
        assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
        assert!(found.sentence.contains("other programs disturbed 4 of"), "{}", found.sentence);
        assert!(found.doubts.contains(&Doubt::NoisyNeighbour), "{:?}", found.doubts);
    }
}

/// A counterexample counts on every machine and medium, also if later runs elsewhere have none.
#[test]
fn clean_runs_elsewhere_do_not_hide_a_counterexample() {
    let text = "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
                \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\nkind = \"every\"\nat = { experiment = \
                \"e\", set = \"E\" }\narm = \"a\"\nmetric = \"extra.wrong\"\nwithin = [0, 0]\n";
    let claim = load([("every", text)]).unwrap().remove(0);
    let judge = |first: &str, place: fn(&mut Store), wrong: f64| {
        let mut store = Store::new(12);
        let with = |wrong: f64| {
            move |_: u32| {
                let mut one = run(100.0);
                one.extra.insert("wrong".to_owned(), wrong);
                one
            }
        };
        store.medium = first.to_owned();
        store.arm_with("a", &[], with(wrong));
        store.started = 2_000;
        place(&mut store);
        store.arm_with("a", &[], with(0.0));
        verdict(&claim, &store.records, Rule::STANDARD)
    };
    let machine: fn(&mut Store) = |store| {
        (store.session, store.machine) = ("s2".to_owned(), "m2".to_owned());
    };
    let medium: fn(&mut Store) = |store| store.medium = "work".to_owned();
    for place in [machine, medium] {
        let right = judge("usb", place, 0.0);
        assert_eq!(right.verdict, Verdict::Confirmed, "{}", right.sentence);
        let wrong = judge("usb", place, 1.0);
        assert_eq!(wrong.verdict, Verdict::Refuted, "{}", wrong.sentence);
    }
    let slow = judge("slow", medium, 1.0);
    assert_eq!(slow.verdict, Verdict::Confirmed, "only if the claim names it: {}", slow.sentence);
    let usb: fn(&mut Store) = |store| store.medium = "usb".to_owned();
    let few: fn(&mut Store) = |store| {
        (store.medium, store.blocks) = ("work".to_owned(), 2);
    };
    let none: fn(&mut Store) = |store| store.blocks = 0;
    let cases = [(usb, Verdict::Confirmed), (few, Verdict::Undecided), (none, Verdict::Undecided)];
    for (place, expected) in cases {
        let found = judge("slow", place, 1.0);
        assert_eq!(found.verdict, expected, "{}", found.sentence);
    }
}
