//! The verdict engine on runs with a known outcome: ratios, exclusions and doubts, each confirmed
//! in one case and refuted in another. `shapes` tests the other contrasts.

use crate::synthetic::{Store, calls, run, scatter, with_calls};
use ioloom_claims::{
    ClaimVerdict, Contrast, Rule, Test, Verdict, VerdictList, ledger, load, verdict,
};
use ioloom_model::fileset::Medium;
use ioloom_model::{CallKind, Doubt};
use std::collections::BTreeMap;

pub(crate) const AT: &str = "at = { experiment = \"e\", set = \"E\" }\n";

/// Builds a claim from contrasts, each the text of one table.
pub(crate) fn judge(contrasts: &[&str], store: &Store, rule: Rule) -> ClaimVerdict {
    judge_how("places", contrasts, store, rule)
}

fn judge_how(combine: &str, contrasts: &[&str], store: &Store, rule: Rule) -> ClaimVerdict {
    let mut text = format!(
        "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \"t\"\n\
         refutes = \"t\"\ncombine = \"{combine}\"\n"
    );
    for contrast in contrasts {
        text.push_str(&format!("[[claim.contrast]]\n{contrast}\n"));
    }
    let claims = load([("test", text.as_str())]).unwrap_or_else(|e| panic!("{e}"));
    verdict(&claims[0], &store.records, rule)
}

pub(crate) fn ratio(claim: &str) -> String {
    format!("kind = \"ratio\"\n{AT}a = \"a\"\nb = \"b\"\nclaim = \"{claim}\"")
}

fn two(a_ms: f64, b_ms: f64, blocks: u32) -> Store {
    let mut store = Store::new(blocks);
    store.arm("a", &[], a_ms).arm("b", &[], b_ms);
    store
}

#[test]
fn a_ratio_follows_the_truth_and_the_opposite_effect_refutes_it() {
    for (a, claim, expected) in [
        (80.0, "less", Verdict::Confirmed),
        (80.0, "greater", Verdict::Refuted),
        (80.0, "equal", Verdict::Refuted),
        (125.0, "less", Verdict::Refuted),
        (125.0, "greater", Verdict::Confirmed),
        (100.5, "equal", Verdict::Confirmed),
        (100.5, "less", Verdict::Refuted),
        (80.0, "at-most", Verdict::Confirmed),
        (100.5, "at-most", Verdict::Confirmed),
        (125.0, "at-most", Verdict::Refuted),
    ] {
        let found = judge(&[&ratio(claim)], &two(a, 100.0, 12), Rule::STANDARD);
        assert_eq!(found.verdict, expected, "{a} {claim}: {}", found.sentence);
        let effect = found.evidence.effect.unwrap();
        assert!((effect / (a / 100.0) - 1.0).abs() < 0.02, "{effect}");
        assert!(found.evidence.lo.unwrap() <= effect && effect <= found.evidence.hi.unwrap());
        assert_eq!(found.evidence.blocks, 12);
        assert_eq!(found.evidence.arms, ["a", "b"]);
        assert_eq!(found.evidence.sessions, ["s1"]);
        assert!(found.sentence.contains("12 blocks"), "{}", found.sentence);
    }
}

#[test]
fn a_wide_interval_is_undecided() {
    let mut store = Store::new(12);
    store.arm_with("a", &[], |block| run(100.0 * if block % 2 == 0 { 0.5 } else { 2.0 }));
    store.arm("b", &[], 100.0);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
    assert!(found.doubts.contains(&Doubt::Alternation), "{:?}", found.doubts);
    let [needs] = &found.needs[..] else { panic!("one contrast: {:?}", found.needs) };
    assert!(needs.contains("more blocks, or less noise, than in the 12 stored"), "{needs}");
    let found = judge(&[&ratio("at-most")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
}

#[test]
fn an_open_ratio_names_the_blocks_for_its_noise() {
    let mut store = Store::new(12);
    let times = [0.85, 1.10, 0.60, 0.95, 1.25, 0.70, 1.05, 0.80, 0.65, 1.20, 0.90, 0.78];
    store.arm_with("a", &[], move |block| run(100.0 * times[block as usize]));
    store.arm("b", &[], 100.0);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
    let [needs] = &found.needs[..] else { panic!("one contrast: {:?}", found.needs) };
    assert!(needs.contains("a session of about "), "{needs}");
}

#[test]
fn a_factor_must_be_reached_in_full() {
    let ten = |claim: &str| format!("{}\ntimes = 10.0", ratio(claim));
    for (a, b, claim, expected) in [
        (1500.0, 100.0, "greater", Verdict::Confirmed),
        (500.0, 100.0, "greater", Verdict::Refuted),
        (1000.0, 100.0, "greater", Verdict::Undecided),
        (100.0, 1500.0, "less", Verdict::Confirmed),
        (100.0, 500.0, "less", Verdict::Refuted),
    ] {
        let found = judge(&[&ten(claim)], &two(a, b, 12), Rule::STANDARD);
        assert_eq!(found.verdict, expected, "{a} {b} {claim}: {}", found.sentence);
    }
}

#[test]
fn missing_runs_and_numbers_are_named() {
    let mut only_b = Store::new(12);
    only_b.arm("b", &[], 100.0);
    let found = judge(&[&ratio("less")], &only_b, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided);
    assert!(found.sentence.contains("no stored runs of a"), "{}", found.sentence);
    // The study defines which arms quick mode omits.
    let nothing = Store::new(0);
    let sentence = of_ledger("000-P22", &nothing, Rule::STANDARD).sentence;
    assert!(
        sentence.contains("no stored runs of hybrid-{n} (quick mode does not run them)"),
        "{sentence}"
    );
    let sentence = of_ledger("000-D2", &nothing, Rule::STANDARD).sentence;
    assert!(sentence.starts_with("no stored runs of hybrid-24-open-12"), "{sentence}");

    let found = judge(&[&ratio("less")], &two(80.0, 100.0, 11), Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided);
    assert!(
        found.sentence.contains("too few blocks: 11, at least 12 are required"),
        "{}",
        found.sentence
    );
    let found = judge(&[&ratio("less")], &two(80.0, 100.0, 12), Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Confirmed);

    only_b.refused("a", "O_DIRECT is not possible on tmpfs");
    let found = judge(&[&ratio("less")], &only_b, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::NotTestableHere);
    assert!(found.sentence.contains("O_DIRECT is not possible"), "{}", found.sentence);

    let metric = format!("{}\nmetric = \"device_busy\"", ratio("less"));
    let found = judge(&[&metric], &two(80.0, 100.0, 12), Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::NotTestableHere);
    assert!(found.sentence.contains("device_busy"), "{}", found.sentence);

    let untested = "kind = \"untested\"\nneeds = \"a tape drive\"";
    let found = judge(&[untested], &only_b, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided);
    assert!(found.sentence.contains("a tape drive"));
}

#[test]
fn blocks_are_paired_within_a_session() {
    // Two sessions of six blocks are not one of twelve.
    let mut store = two(80.0, 100.0, 6);
    store.session = "s2".to_owned();
    store.arm("a", &[], 160.0).arm("b", &[], 200.0);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
    // The first of two sessions that agree decides, and the other is shown apart.
    let mut store = two(80.0, 100.0, 12);
    store.session = "s2".to_owned();
    store.started = 2_000;
    store.arm("a", &[], 180.0).arm("b", &[], 200.0);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
    assert_eq!(found.evidence.sessions, ["s1"]);
    assert_eq!(found.evidence.blocks, 12);
    assert!((found.evidence.effect.unwrap() - 0.8).abs() < 0.02);
    let apart = &found.parts[0].apart;
    assert_eq!((apart.len(), apart[0].session.as_str(), apart[0].holds), (1, "s2", Some(true)));
    assert!((apart[0].effect.unwrap() - 0.9).abs() < 0.02);

    // An arm has no partner in another session.
    let mut torn = Store::new(12);
    torn.arm("a", &[], 80.0);
    torn.session = "s2".to_owned();
    torn.arm("b", &[], 100.0);
    assert_eq!(judge(&[&ratio("less")], &torn, Rule::STANDARD).verdict, Verdict::Undecided);
}

#[test]
fn machines_files_and_media_are_never_mixed() {
    let change: [fn(&mut Store); 3] = [
        |s| s.machine = "m2".to_owned(),
        |s| s.hash = "h2".to_owned(),
        |s| s.medium = "tmpfs".to_owned(),
    ];
    for change in change {
        let mut store = two(80.0, 100.0, 6);
        store.session = "s2".to_owned();
        store.started = 2_000;
        change(&mut store);
        store.arm("a", &[], 80.0).arm("b", &[], 100.0);
        let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
        assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
        assert!(found.sentence.contains("6, at least 12 are required"), "{}", found.sentence);
    }
    // The newer of two complete groups decides.
    let mut store = two(80.0, 100.0, 12);
    store.session = "s2".to_owned();
    store.started = 2_000;
    store.machine = "m2".to_owned();
    store.arm("a", &[], 130.0).arm("b", &[], 100.0);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!((found.verdict, found.evidence.sessions), (Verdict::Refuted, vec!["s2".to_owned()]));
    // Runs on a user's files never decide a claim about a published set.
    store.records.iter_mut().for_each(|r| r.key.set = "my files".to_owned());
    assert_eq!(judge(&[&ratio("less")], &store, Rule::STANDARD).verdict, Verdict::Undecided);
}

#[test]
fn a_slowed_device_does_not_decide_for_the_machine() {
    let mut store = Store::new(12);
    store.medium = "image".to_owned();
    store.arm("a", &[], 80.0).arm("b", &[], 100.0);
    store.medium = "slow".to_owned();
    store.started = 2_000;
    store.arm("a", &[], 130.0).arm("b", &[], 100.0);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
}

/// Neither more blocks nor the order of names gives it preference.
#[test]
fn a_slowed_device_does_not_decide_instead_of_another_medium() {
    for (medium, blocks, verdict) in
        [("work", 5, Verdict::Undecided), ("usb", 12, Verdict::Confirmed)]
    {
        let mut store = Store::new(blocks);
        store.medium = medium.to_owned();
        store.arm("a", &[], 80.0).arm("b", &[], 100.0);
        (store.medium, store.blocks, store.started) = ("slow".to_owned(), 12, 2_000);
        store.arm("a", &[], 130.0).arm("b", &[], 100.0);
        let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
        assert_eq!(found.verdict, verdict, "{medium}: {}", found.sentence);
    }
}

/// The arms of two conditions ran on two disks, each arm of one condition longer on another disk.
#[test]
fn two_media_are_not_compared_as_two_sets() {
    let text = format!(
        "kind = \"ratio\"\n{AT}at_b = {{ experiment = \"e\", set = \"F\" }}\na = \"a\"\nb = \"a\"\n\
         claim = \"less\""
    );
    let mut store = Store::new(12);
    // Set E ran last on disk x, set F on disk y; both disks have both.
    for (started, medium, set, ms) in [
        (1_000, "y", "E", 100.0),
        (2_000, "x", "F", 50.0),
        (3_000, "x", "E", 50.0),
        (4_000, "y", "F", 100.0),
    ] {
        store.started = started;
        (store.medium, store.set) = (medium.to_owned(), set.to_owned());
        store.arm("a", &[], ms);
    }
    let found = judge(&[&text], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Refuted, "{}", found.sentence);
    assert!((found.evidence.effect.unwrap() - 1.0).abs() < 0.02, "{}", found.sentence);
    assert!(found.sentence.contains("(medium x)"), "{}", found.sentence);
}

/// Published numbers are not measured by any session.
#[test]
fn published_numbers_belong_to_no_session() {
    let published =
        "kind = \"published\"\nvalues = {}\nformula = \"1\"\nwithin = [0, 2]\nsays = \"one\"";
    let mut store = two(80.0, 100.0, 12);
    let of = |found: &ClaimVerdict| found.parts[0].apart.len();
    assert_eq!(of(&judge(&[published, &ratio("less")], &store, Rule::STANDARD)), 0);
    for session in ["s2", "s3"] {
        (store.session, store.started) = (session.to_owned(), store.started + 1_000);
        let before = store.records.len();
        store.arm("a", &[], 80.0);
        store.records[before..].iter_mut().for_each(|r| r.key.study = "walk".to_owned());
    }
    let mut found = judge(&[published, &ratio("less")], &store, Rule::STANDARD);
    assert_eq!((of(&found), found.verdict), (0, Verdict::Confirmed), "{}", found.sentence);
    let other = BTreeMap::from([("000-X".to_owned(), "another test".to_owned())]);
    found.register(&BTreeMap::from([("s2".to_owned(), other)]), &[]);
    assert!(!found.sentence.contains("changed or added"), "{}", found.sentence);
}

#[test]
fn wrong_bytes_never_count() {
    let mut store = two(80.0, 100.0, 12);
    store.doubt("a", Doubt::WrongBytes);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided);
    assert!(found.sentence.contains("wrong bytes"), "{}", found.sentence);
}

#[test]
fn an_arm_that_often_timed_out_is_not_judged_by_its_finished_runs() {
    let mut store = two(80.0, 100.0, 16);
    store.stopped("a", &[1, 5, 9]);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
    store.stopped("a", &[13]);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
    let expected = "4 of 16 runs were stopped at their deadline of 27 s";
    assert!(found.sentence.contains(expected), "{}", found.sentence);
}

#[test]
fn simulated_compute_limits_the_scope() {
    let mut store = Store::new(12);
    store.compute = "sleep".to_owned();
    store.arm("a", &[], 80.0).arm("b", &[], 100.0);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!((found.verdict, found.parts[0].holds), (Verdict::Scope, Some(true)));
    assert!(found.sentence.contains("simulated by sleeping"), "{}", found.sentence);
    let found = judge(&[&ratio("greater")], &store, Rule::STANDARD);
    assert_eq!((found.verdict, found.parts[0].holds), (Verdict::Scope, Some(false)));

    let mut store = two(80.0, 100.0, 12);
    store.doubt("a", Doubt::Oversubscribed);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Scope);
    assert!(found.doubts.contains(&Doubt::Oversubscribed));
    // A part that holds in full does not lift the limit of another part.
    store.set = "F".to_owned();
    store.arm("a", &[], 80.0).arm("b", &[], 100.0);
    for (claim, holds) in [("less", true), ("greater", false)] {
        let full = ratio(claim).replace("\"E\"", "\"F\"");
        let found = judge(&[&ratio(claim), &full], &store, Rule::STANDARD);
        assert_eq!(found.verdict, Verdict::Scope, "{}", found.sentence);
        assert!(found.parts.iter().all(|part| part.holds == Some(holds)), "{}", found.sentence);
        assert_ne!(found.parts[1].verdict, Verdict::Scope);
    }
    // An undecided claim has nothing to limit.
    let few = judge(&[&ratio("less")], &two(80.0, 100.0, 3), Rule::STANDARD);
    assert_eq!(few.verdict, Verdict::Undecided);
}

#[test]
fn too_few_blocks_show_an_effect_and_decide_nothing() {
    for (blocks, has_effect) in [(3, false), (5, false), (6, true), (8, true), (11, true)] {
        let found = judge(&[&ratio("less")], &two(80.0, 100.0, blocks), Rule::STANDARD);
        assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
        assert_eq!((found.parts[0].p, found.parts[0].holds), (None, None));
        let evidence = &found.parts[0].evidence;
        assert_eq!(evidence.blocks, blocks as usize);
        assert_eq!(evidence.sessions, ["s1"]);
        assert_eq!(evidence.effect.is_some() && evidence.lo.is_some(), has_effect, "{blocks}");
        assert_eq!(evidence.arms.is_empty(), !has_effect, "{blocks}");
        assert_eq!(found.evidence, *evidence);
    }
}

#[test]
fn several_contrasts_make_one_verdict() {
    let (less, more, missing) =
        (ratio("less"), ratio("greater"), ratio("less").replace("\"a\"", "\"z\""));
    let store = two(80.0, 100.0, 12);
    for (how, contrasts, expected) in [
        ("places", [&less, &less], Verdict::Confirmed),
        ("places", [&less, &more], Verdict::Scope),
        ("places", [&more, &more], Verdict::Refuted),
        ("places", [&less, &missing], Verdict::Undecided),
        ("places", [&missing, &missing], Verdict::Undecided),
        ("all", [&less, &less], Verdict::Confirmed),
        ("all", [&less, &more], Verdict::Refuted),
        ("all", [&less, &missing], Verdict::Undecided),
        ("all", [&more, &missing], Verdict::Refuted),
        ("any", [&less, &more], Verdict::Confirmed),
        ("any", [&less, &missing], Verdict::Confirmed),
        ("any", [&more, &more], Verdict::Refuted),
        ("any", [&more, &missing], Verdict::Undecided),
    ] {
        let found = judge_how(how, &[contrasts[0], contrasts[1]], &store, Rule::STANDARD);
        assert_eq!(found.verdict, expected, "{how}: {}", found.sentence);
    }
    let found = judge(&[&less, &more], &store, Rule::STANDARD);
    assert!(found.sentence.contains("does not hold at"), "{}", found.sentence);
    let mut store = two(80.0, 100.0, 12);
    store.refused("z", "no ring");
    let found = judge(&[&missing], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::NotTestableHere);
    let found = judge_how("all", &[&less, &missing], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::NotTestableHere, "{}", found.sentence);
}

/// The same arm on a warm and on a cold set: its second run on the warm set is not one of the cold set.
#[test]
fn the_noise_floor_of_an_arm_is_that_of_its_own_place() {
    let mut store = Store::new(12);
    store.arm("a", &[], 20.0).arm("a (again)", &[], 20.1);
    store.set = "F".to_owned();
    store.arm("a", &[], 100.0).arm("a (again)", &[], 100.2);
    let text = format!(
        "kind = \"ratio\"\n{AT}at_b = {{ experiment = \"e\", set = \"F\" }}\na = \"a\"\nb = \"a\"\n\
         claim = \"less\""
    );
    let found = judge(&[&text], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
    assert!(found.evidence.numbers["noise_floor"] < 0.05, "{:?}", found.evidence.numbers);
}

/// Only runs on a disk that rotates decide a claim about hard disks. Virtual disks claim to rotate.
#[test]
fn runs_on_other_hardware_limit_the_scope() {
    let text = format!(
        "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \"t\"\n\
         refutes = \"t\"\nhardware = {{ name = \"a hard disk\", rotational = true }}\n\
         [[claim.contrast]]\n{}\n",
        ratio("less")
    );
    let claims = load([("test", text.as_str())]).unwrap();
    for (disk, rotational, expected) in [
        (Some("sda"), Some(true), Verdict::Confirmed),
        (Some("vda"), Some(true), Verdict::Scope),
        (Some("loop0"), Some(true), Verdict::Scope),
        (Some("nvme0n1"), Some(false), Verdict::Scope),
        (None, None, Verdict::Scope),
    ] {
        let mut store = two(80.0, 100.0, 12);
        for record in &mut store.records {
            let block_device = disk.map(str::to_owned);
            record.set.medium = Some(Medium { block_device, rotational, ..Medium::default() });
        }
        let found = verdict(&claims[0], &store.records, Rule::STANDARD);
        assert_eq!(found.verdict, expected, "{disk:?}: {}", found.sentence);
        let named = found.sentence.contains("the claim is about a hard disk, not this hardware");
        assert_eq!(named, expected == Verdict::Scope, "{}", found.sentence);
    }
}

#[test]
fn an_effect_below_the_noise_floor_decides_nothing() {
    let mut store = Store::new(12);
    store.arm("a", &[], 90.0).arm("b", &[], 100.0).arm("b (again)", &[], 99.8);
    assert_eq!(judge(&[&ratio("less")], &store, Rule::STANDARD).verdict, Verdict::Confirmed);
    let mut store = Store::new(12);
    store.arm("a", &[], 90.0).arm("b", &[], 100.0).arm("b (again)", &[], 80.0);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
    assert!(found.parts[0].doubts.contains(&Doubt::NoiseFloor));
    assert!(found.evidence.numbers["noise_floor"] > 0.15);
    assert!(found.sentence.contains("runs of the same plan differ by"), "{}", found.sentence);
    // It is not refuted either: the opposite side is shown no better.
    for claim in ["greater", "equal"] {
        let found = judge(&[&ratio(claim)], &store, Rule::STANDARD);
        assert_eq!(found.verdict, Verdict::Undecided, "{claim}: {}", found.sentence);
    }
    // An interval that does not exceed the margin shows `at most`, whatever the noise.
    let found = judge(&[&ratio("at-most")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
    assert!(!found.parts[0].doubts.contains(&Doubt::NoiseFloor));
    let mut store = Store::new(12);
    store.arm("a", &[], 115.0).arm("b", &[], 100.0).arm("b (again)", &[], 80.0);
    let found = judge(&[&ratio("at-most")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
    // Equal arms show no difference, whatever the noise.
    let mut store = Store::new(12);
    store.arm("a", &[], 100.5).arm("b", &[], 100.0).arm("b (again)", &[], 80.0);
    for (claim, expected) in [("equal", Verdict::Confirmed), ("less", Verdict::Refuted)] {
        let found = judge(&[&ratio(claim)], &store, Rule::STANDARD);
        assert_eq!(found.verdict, expected, "{claim}: {}", found.sentence);
    }
}

#[test]
fn drift_and_conditions_raise_doubts() {
    let mut store = Store::new(12);
    store.arm("b", &[], 100.0);
    store.arm_with("a", &[], |block| run(60.0 + 2.0 * f64::from(block) + scatter("a", block)));
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided, "blocks that drift are not independent");
    assert!(found.sentence.contains("neighbouring blocks are alike"), "{}", found.sentence);
    assert!(found.evidence.numbers["autocorrelation"] > 0.3);
    assert!(found.doubts.contains(&Doubt::Drift), "{:?}", found.doubts);
    let calm = judge(&[&ratio("less")], &two(80.0, 100.0, 12), Rule::STANDARD);
    assert!(!calm.doubts.contains(&Doubt::Drift), "{:?}", calm.doubts);
    let mut store = two(80.0, 100.0, 12);
    store.doubt("a", Doubt::NotCold);
    let found = judge(&[&ratio("less")], &store, Rule::STANDARD);
    assert!(found.doubts.contains(&Doubt::NotCold));
}

#[test]
fn the_best_of_each_family_is_compared() {
    let best = |claim: &str| {
        format!(
            "kind = \"ratio-of-best\"\n{AT}a = [\"m-{{n}}\"]\nb = [\"r\", \"t-{{n}}\"]\nclaim = \"{claim}\""
        )
    };
    let mut store = Store::new(12);
    store.arm("m-1", &[("n", 1.0)], 300.0).arm("m-8", &[("n", 8.0)], 80.0);
    store.arm("r", &[], 100.0).arm("t-1", &[("n", 1.0)], 200.0);
    let found = judge(&[&best("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
    assert_eq!(found.evidence.arms, ["m-8", "r"]);
    store.arm("t-8", &[("n", 8.0)], 60.0);
    let found = judge(&[&best("less")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Refuted, "{}", found.sentence);
    assert_eq!(found.evidence.arms, ["m-8", "t-8"]);
    let mut store = Store::new(12);
    store.arm("r", &[], 100.0);
    assert_eq!(judge(&[&best("less")], &store, Rule::STANDARD).verdict, Verdict::Undecided);
}

#[test]
fn a_queued_read_call_is_not_evidence() {
    let judged = |plan: &str, ns: u64| {
        let mut store = Store::new(12);
        for arm in ["a", "b"] {
            store
                .arm_with(arm, &[], move |_| with_calls(run(100.0), CallKind::Read, calls(10, ns)));
        }
        store.records.iter_mut().for_each(|r| r.plan = plan.parse().expect("a plan"));
        let text = format!("{}\nmetric = \"calls.read.p50_ns\"", ratio("equal"));
        judge(&[&text], &store, Rule::STANDARD)
    };
    let queued = judged("direct:uring/threads:n=1", 140);
    assert_eq!(queued.verdict, Verdict::NotTestableHere);
    assert!(queued.sentence.contains("was not timed"), "{}", queued.sentence);
    assert_eq!(judged("direct:uring/threads:n=1", 4000).verdict, Verdict::Confirmed);
    assert_eq!(judged("read/threads:n=1", 140).verdict, Verdict::Confirmed);
}

fn of_ledger(id: &str, store: &Store, rule: Rule) -> ClaimVerdict {
    let claim = ledger().iter().find(|c| c.id == id).expect("a claim");
    verdict(claim, &store.records, rule)
}

#[test]
fn the_best_of_a_partial_family_has_a_limited_scope() {
    let mut store = Store::new(12);
    store.compute = "checksum:50".to_owned();
    store.arm("mmap-8", &[("n", 8.0)], 80.0).arm("default", &[], 100.0);
    let experiment = |store: &mut Store| {
        store.records.iter_mut().for_each(|r| r.key.experiment = "elapsed-small-files".to_owned());
    };
    experiment(&mut store);
    let found = of_ledger("000-P36", &store, Rule::STANDARD);
    let part = &found.parts[0];
    assert_eq!((part.verdict, part.holds), (Verdict::Scope, Some(true)));
    assert!(
        part.sentence.contains("1 of 8") && part.sentence.contains("1 of 16"),
        "{}",
        part.sentence
    );
    for n in [1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 64.0] {
        store.arm(&format!("threads-{n}"), &[("n", n)], 300.0);
        store.arm(&format!("mmap-{n}"), &[("n", n)], if n == 8.0 { 80.0 } else { 200.0 });
    }
    for arm in ["roles-1-3", "nowait-window", "uring-window"] {
        store.arm(arm, &[], 150.0);
    }
    for arm in ["direct-window", "split-12-12", "split-9-15", "split-8-16"] {
        store.refused(arm, "no direct I/O here");
    }
    experiment(&mut store);
    let found = of_ledger("000-P36", &store, Rule::STANDARD);
    assert_eq!(found.parts[0].verdict, Verdict::Confirmed, "{}", found.parts[0].sentence);
}

#[test]
fn published_numbers_alone_decide_what_they_can() {
    let nothing = Store::new(0);
    // The published numbers contradict P08b.
    let found = of_ledger("000-P08b", &nothing, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Inconsistent, "{}", found.sentence);
    let relative = (945.63 - 932.64) / 945.63 - (28.33 - 21.62) / 28.33;
    assert!((found.evidence.effect.unwrap() - relative).abs() < 1e-9);
    // P04 also needs the device, so arithmetic alone does not confirm it.
    let found = of_ledger("000-P04", &nothing, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided);
    let part = &found.parts[1];
    assert_eq!(part.holds, Some(true), "{}", part.sentence);
    // The published sign for five threads contradicts the published times.
    let found = of_ledger("000-P11", &nothing, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided);
    let notes: Vec<_> = found.parts.iter().filter(|p| p.note).collect();
    assert_eq!(notes[0].holds, Some(false), "{}", notes[0].sentence);
    assert!((notes[0].evidence.effect.unwrap() - 8.98).abs() < 0.02);
    assert_eq!(notes[1].holds, Some(true));
}

#[test]
fn without_runs_only_arithmetic_is_decided() {
    let nothing = Store::new(0);
    for claim in ledger() {
        let found = verdict(claim, &nothing.records, Rule::STANDARD);
        assert!(!found.verdict.is_reproduced(), "{}: {}", claim.id, found.sentence);
        let decided = found.verdict.is_recomputed();
        let arithmetic = |c: &Test| matches!(c.contrast, Contrast::Published(_));
        let allowed =
            claim.id == "000-P08b" || claim.source != 0 && claim.contrasts.iter().any(arithmetic);
        assert!(!decided || allowed, "{}: {}: {}", claim.id, found.verdict, found.sentence);
        assert!(found.sentence.len() > 10, "{}", claim.id);
        assert_eq!(found.published.len(), claim.published.len());
    }
}

#[test]
fn a_built_in_claim_is_confirmed_and_refuted() {
    for (overlapped, holds) in [(100.0, true), (80.0, false)] {
        let mut store = Store::new(12);
        store.set = "A".to_owned();
        store.compute = "none".to_owned();
        store.arm("overlapped", &[], overlapped);
        // Hashing takes a tenth of the serial time, which overlapped reading hides.
        store.arm_with("one-by-one", &[], |block| {
            let one = run(112.0 * scatter("one-by-one", block));
            with_calls(one, CallKind::Compute, calls(8, 1_400_000))
        });
        store.records.iter_mut().for_each(|r| r.key.experiment = "overlap-large-files".to_owned());
        let found = of_ledger("000-P01", &store, Rule::STANDARD);
        assert_eq!(found.parts[0].holds, Some(holds), "{}", found.sentence);
        // Both contrasts decide, and one has no runs.
        assert_eq!(found.verdict, Verdict::Undecided);
        let missing = "no stored runs of overlapped-16384";
        assert!(found.sentence.contains(missing), "{}", found.sentence);
    }
    for (split, holds) in [(80.0, true), (110.0, false)] {
        let mut store = Store::new(12);
        store.compute = "sleep".to_owned();
        store.arm("hybrid-24", &[("h", 24.0)], 100.0).arm("split-12-12", &[], split);
        store.records.iter_mut().for_each(|r| r.key.experiment = "roles-small-files".to_owned());
        let found = of_ledger("000-P33", &store, Rule::STANDARD);
        let part = &found.parts[0];
        assert_eq!((part.verdict, part.holds), (Verdict::Scope, Some(holds)));
    }
}

#[test]
fn the_document_round_trips() {
    let store = two(80.0, 100.0, 12);
    let list = VerdictList::new(vec![judge(&[&ratio("less")], &store, Rule::STANDARD)]);
    let json = serde_json::to_value(&list).unwrap();
    assert_eq!(json["schema"], 2);
    let claim = &json["claims"][0];
    for key in ["id", "seed", "statement", "published", "scope", "verdict", "evidence"] {
        assert!(claim.get(key).is_some(), "{key}");
    }
    assert_eq!(claim["verdict"], "confirmed");
    assert_eq!(serde_json::from_value::<VerdictList>(json).unwrap(), list);
    assert_eq!(serde_json::to_value(Verdict::NotTestableHere).unwrap(), "not testable here");
}

#[test]
fn the_same_runs_give_the_same_verdict() {
    let mut store = two(98.0, 100.0, 12);
    let first = judge(&[&ratio("less")], &store, Rule::STANDARD);
    store.records.reverse();
    assert_eq!(first, judge(&[&ratio("less")], &store, Rule::STANDARD));
}
