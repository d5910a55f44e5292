//! Several sessions: judging again after each, and sessions of different machines.

use crate::chain::{Noise, claims, runs};
use crate::synthetic::Store;
use ioloom_claims::{
    Claim, ClaimVerdict, Part, Rule, Verdict, load, power, verdicts, verdicts_at_looks,
};
use ioloom_model::{Doubt, RunRecord};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the runs of a session of one comparison, without the second runs that limit small effects.
fn session(
    noise: &mut Noise,
    n: u32,
    machine: &str,
    experiment: &str,
    ratio: f64,
) -> Vec<RunRecord> {
    let mut records = runs(noise, &[ratio], 12, 0.15).records;
    records.retain(|r| !r.key.arm.ends_with("(again)"));
    for record in &mut records {
        record.key.session = format!("s{n}");
        record.key.experiment = experiment.to_owned();
        record.machine = machine.to_owned();
        record.started_unix_ms += u64::from(n) * 1_000;
    }
    records
}

fn judged(claims: &[Claim], records: &[RunRecord]) -> Vec<ClaimVerdict> {
    verdicts(&claims.iter().collect::<Vec<_>>(), records, Rule::STANDARD)
}

/// Two equal arms are measured in up to eight sessions and judged after each. Anyone who stops at the
/// first confirmation is wrong in at most 5 % of series, the error rate of one claim.
#[test]
fn judging_after_each_session_keeps_the_error_rate() {
    const SERIES: usize = 400;
    let claims = claims(1, "less");
    let mut noise = Noise(31);
    let mut wrong = [0; 2];
    for _ in 0..SERIES {
        let (mut records, mut confirmed, mut alone) = (Vec::new(), false, false);
        for n in 0..8 {
            let own = session(&mut noise, n, "m", "e0", 1.0);
            alone |= judged(&claims, &own)[0].verdict == Verdict::Confirmed;
            records.extend(own);
            confirmed |= judged(&claims, &records)[0].verdict == Verdict::Confirmed;
        }
        wrong[0] += usize::from(confirmed);
        wrong[1] += usize::from(alone);
    }
    let [all, alone] = wrong.map(|n| n as f64 / SERIES as f64);
    println!("ever confirmed in 8 sessions: {all:.3}; if each were the only one: {alone:.3}");
    assert!(all <= 0.05 && alone > 0.08, "{all} {alone}");
}

/// Returns the runs of a session of this ratio whose result is as wanted.
fn session_with(n: u32, ratio: f64, wanted: impl Fn(&Part) -> bool) -> Vec<RunRecord> {
    let claims = claims(1, "less");
    let one = |seed: u64| {
        let records = session(&mut Noise(seed), n, "m", "e0", ratio);
        let found = judged(&claims, &records).remove(0);
        wanted(&found.parts[0]).then_some(records)
    };
    (0..500).find_map(one).expect("one of 500 sessions has such a result")
}

/// Returns the runs of a session that shows nothing.
fn open(n: u32) -> Vec<RunRecord> {
    session_with(n, 1.0, |part| part.holds.is_none() && part.p == Some(1.0))
}

/// Returns the runs of a session of this ratio with the smallest p-value of 12 blocks.
fn clear(n: u32, ratio: f64) -> Vec<RunRecord> {
    session_with(n, ratio, |part| part.holds.is_some() && part.p < Some(6e-4))
}

/// A session that is extended later keeps its share of the error rate.
#[test]
fn the_first_look_gives_a_session_its_place() {
    let claims = claims(1, "less");
    let mut records = runs(&mut Noise(5), &[0.5], 18, 0.15).records;
    records.retain(|r| !r.key.arm.ends_with("(again)"));
    for record in &mut records {
        let is_later = record.key.block >= 12;
        record.key.session = "s0".to_owned();
        record.key.experiment = "e0".to_owned();
        record.machine = "m".to_owned();
        record.started_unix_ms += if is_later { 1_000_000 } else { 0 };
    }
    records.extend(clear(1, 0.5));
    let all: Vec<&Claim> = claims.iter().collect();
    let deciding = |sequential: &[&str]| {
        let sequential = sequential.iter().map(|name| (*name).to_owned()).collect();
        let found = verdicts_at_looks(&all, &records, Rule::STANDARD, &sequential);
        found[0].evidence.sessions.clone()
    };
    assert_eq!(deciding(&["s0"]), ["s0"]);
    assert_eq!(deciding(&[]), ["s1"], "it could be judged only after its last run");
}

/// Not even a counterexample, for which one run is enough, counts before the first look.
#[test]
fn nothing_is_judged_before_the_first_look() {
    let head = "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
                \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\nat = { experiment = \"e0\", set = \"E\" }\n";
    let every = "kind = \"every\"\narm = \"a\"\nmetric = \"elapsed_ns\"\nwithin = [0.0, 1.0]\n";
    let ratio = "kind = \"ratio\"\na = \"a\"\nb = \"b\"\nclaim = \"less\"\n";
    let all = clear(0, 0.5);
    let early: Vec<RunRecord> = all.iter().filter(|r| r.key.block < 11).cloned().collect();
    let sequential = BTreeSet::from(["s0".to_owned()]);
    for (contrast, decided) in [(every, Verdict::Refuted), (ratio, Verdict::Confirmed)] {
        let claim = load([("look", format!("{head}{contrast}").as_str())]).unwrap().remove(0);
        let judge = |records: &[RunRecord]| {
            verdicts_at_looks(&[&claim], records, Rule::STANDARD, &sequential).remove(0)
        };
        let found = judge(&early);
        assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
        let words = "open, first look after 12 blocks (11 so far)";
        assert!(found.sentence.contains(words), "{}", found.sentence);
        let [needs] = &found.needs[..] else { panic!("one contrast: {:?}", found.needs) };
        assert!(needs.ends_with(": 1 more block"), "{needs}");
        let next = |records: &[RunRecord]| {
            let stored = stored(records, &sequential, &all[0].machine);
            power::need(&claim.contrasts[0], stored, &BTreeMap::new()).unwrap().session
        };
        assert_eq!([next(&early), next(&all)], [1, 2], "it spends nothing of the error rate");
        let found = judge(&all);
        assert_eq!(found.verdict, decided, "{}", found.sentence);
    }
}

#[test]
fn the_error_rate_is_spent_once() {
    let spent: f64 = (1..=1_000).map(|n| 1.0 / Rule::spending(n)).sum();
    assert!((0.999..1.0).contains(&spent), "{spent}");
    let claims = claims(1, "less");
    for (n, factor) in [(0, 1.25), (1, 10.0), (2, 30.0)] {
        let mut records: Vec<RunRecord> = (0..n).flat_map(open).collect();
        records.extend(clear(n, 0.5));
        let part = judged(&claims, &records).remove(0).parts.remove(0);
        let (p, adjusted) = (part.p.unwrap(), part.p_adjusted.unwrap());
        assert_eq!((part.holds, part.evidence.sessions[0].clone()), (Some(true), format!("s{n}")));
        assert!((adjusted - factor * p).abs() < 1e-12, "{n}: {p} {adjusted}");
        assert_eq!(part.apart.len(), n as usize);
        assert!(part.apart.iter().all(|one| one.p == Some(1.0) && one.holds.is_none()));
    }
}

/// A verdict does not need more evidence because the study was repeated.
#[test]
fn sessions_that_agree_keep_the_verdict_of_the_first() {
    let claims = claims(1, "less");
    let first = session_with(0, 0.85, |part| {
        part.holds == Some(true) && (0.01..0.039).contains(&part.p.unwrap_or(1.0))
    });
    let one = judged(&claims, &first).remove(0);
    assert_eq!(one.verdict, Verdict::Confirmed, "{}", one.sentence);
    let mut records = first.clone();
    for n in 1..4 {
        records.extend(first.iter().cloned().map(|mut record| {
            record.key.session = format!("s{n}");
            record.started_unix_ms += n * 1_000;
            record
        }));
    }
    let four = judged(&claims, &records).remove(0);
    assert_eq!((four.verdict, &four.sentence), (one.verdict, &one.sentence));
    let (one, four) = (&one.parts[0], &four.parts[0]);
    assert_eq!((four.p, four.p_adjusted), (one.p, one.p_adjusted));
    assert_eq!((&four.evidence, four.apart.len()), (&one.evidence, 3));
    assert!(four.apart.iter().all(|apart| apart.p == one.p && apart.p_adjusted > one.p_adjusted));
    // A session that shows nothing withdraws nothing.
    let later = [first, open(1)].concat();
    assert_eq!(judged(&claims, &later)[0].verdict, Verdict::Confirmed);
}

/// An answer of an earlier version ends with the opposite answer of a later one, which decides if it survives
/// its own factor.
#[test]
fn an_opposite_answer_of_another_version_ends_the_earlier_one() {
    let claims = claims(1, "less");
    let of_new = |mut records: Vec<RunRecord>| {
        records.iter_mut().for_each(|record| record.version = "later".to_owned());
        records
    };
    let judge = |records: &[RunRecord]| {
        let found = judged(&claims, records).remove(0);
        (found.verdict, found.parts[0].evidence.sessions[0].clone())
    };
    let mut records = clear(0, 0.5);
    records.extend(of_new(clear(1, 2.0)));
    assert_eq!(judge(&records), (Verdict::Refuted, "s1".to_owned()));
    records.extend(of_new(clear(2, 2.0)));
    assert_eq!(judge(&records), (Verdict::Refuted, "s1".to_owned()), "it agrees");
    let weak = session_with(1, 1.0 / 0.85, |part| {
        part.holds == Some(false) && (0.01..0.039).contains(&part.p.unwrap_or(1.0))
    });
    let records = [clear(0, 0.5), of_new(weak)].concat();
    assert_eq!(judge(&records), (Verdict::Undecided, "s1".to_owned()));
}

/// A claim with two contrasts, each measured on another machine, is not decided by both together.
#[test]
fn machines_are_shown_apart_and_never_pooled() {
    let contrast = |e: &str| {
        format!(
            "[[claim.contrast]]\nkind = \"ratio\"\nat = {{ experiment = \"{e}\", set = \"E\" }}\na = \
             \"a\"\nb = \"b\"\nclaim = \"less\"\n"
        )
    };
    let text = format!(
        "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \"t\"\nrefutes \
         = \"t\"\ncombine = \"all\"\n{}{}",
        contrast("e0"),
        contrast("e1")
    );
    let claim = load([("machines", text.as_str())]).unwrap();
    let mut noise = Noise(33);
    let mut records = session(&mut noise, 0, "m1", "e0", 0.5);
    records.extend(session(&mut noise, 1, "m2", "e1", 0.5));
    let verdict = judged(&claim, &records).remove(0);
    assert_eq!(verdict.verdict, Verdict::Undecided, "{}", verdict.sentence);
    assert_eq!(
        verdict.sessions().into_iter().collect::<Vec<_>>(),
        ["s1"],
        "the machine that ran last decides"
    );
    let apart = &verdict.parts[0].apart;
    assert_eq!((apart.len(), apart[0].machine.as_str(), apart[0].blocks), (1, "m1", 12));
    // The machine with results for both contrasts decides, although another one ran last.
    records.extend(session(&mut noise, 2, "m1", "e1", 0.5));
    records.extend(session(&mut noise, 3, "m2", "e0", 2.0));
    records.retain(|r| r.key.session != "s1");
    let verdict = judged(&claim, &records).remove(0);
    assert_eq!(verdict.verdict, Verdict::Confirmed, "{}", verdict.sentence);
    assert_eq!(verdict.sessions().into_iter().collect::<Vec<_>>(), ["s0", "s2"]);
    // Sessions of other machines are not further looks at the same contrast.
    let part = &verdict.parts[0];
    assert!((part.p_adjusted.unwrap() - 1.25 * part.p.unwrap()).abs() < 1e-3);
    assert_eq!(part.apart[0].machine, "m2");
}

/// A contrast that another machine decides is neither corrected in a session nor counted for its others.
#[test]
fn only_contrasts_that_a_session_decides_are_corrected_together() {
    let claims = claims(2, "less");
    let mut noise = Noise(36);
    let first = session(&mut noise, 0, "m1", "e0", 0.5);
    let newest = session(&mut noise, 2, "m2", "e1", 0.5);
    let weak = |seed: u64| {
        let records = session(&mut Noise(seed), 0, "m1", "e1", 0.87);
        let part = judged(&claims[1..], &records).remove(0).parts.remove(0);
        (0.042..0.05).contains(&part.p.unwrap_or(1.0)).then_some(records)
    };
    let weak = (0..500).find_map(weak).expect("one of 500 sessions has such a p-value");
    let adjusted = |records: &[RunRecord]| {
        let found = judged(&claims, records);
        let part = &found[0].parts[0];
        (part.p_adjusted.unwrap() / part.p.unwrap(), found[1].parts[0].clone())
    };
    let (factor, open) = adjusted(&[first.clone(), weak.clone()].concat());
    assert!((factor - 2.5).abs() < 1e-9, "it decides both: {factor}");
    assert_eq!((open.holds, open.evidence.sessions[0].as_str()), (None, "s0"));
    let (factor, decided) = adjusted(&[first, weak, newest].concat());
    assert!((factor - 1.25).abs() < 1e-9, "it decides one: {factor}");
    assert_eq!((decided.holds, decided.evidence.sessions[0].as_str()), (Some(true), "s2"));
    let [apart] = &decided.apart[..] else { panic!("one other session: {:?}", decided.apart) };
    assert_eq!((apart.machine.as_str(), apart.holds), ("m1", Some(true)), "without correction");
}

#[test]
fn smaller_sets_decide_what_full_ones_leave_open() {
    let claims = claims(1, "less");
    let mut noise = Noise(33);
    let mut small = session(&mut noise, 0, "m", "e0", 0.5);
    small.iter_mut().for_each(|record| record.doubts.push(Doubt::Scaled));
    let judge = |full: Vec<RunRecord>| {
        let records = [small.clone(), full].concat();
        judged(&claims, &records).remove(0)
    };
    let open = judge(session(&mut noise, 1, "m", "e0", 0.95));
    assert_eq!(open.verdict, Verdict::Confirmed, "{}", open.sentence);
    assert!(open.doubts.contains(&Doubt::Scaled));
    let decided = judge(session(&mut noise, 1, "m", "e0", 0.6));
    assert_eq!(decided.verdict, Verdict::Confirmed, "{}", decided.sentence);
    assert!(!decided.doubts.contains(&Doubt::Scaled), "the published size takes precedence");
}

/// A session at the published size that decides if it is judged once, but not if it is judged four times,
/// leaves the decision to a session of smaller sets.
#[test]
fn a_session_of_several_looks_decides_only_what_survives_them() {
    let claims = claims(1, "less");
    let weak = |seed: u64| {
        let records = session(&mut Noise(seed), 0, "m", "e0", 0.85);
        let found = judged(&claims, &records).remove(0);
        let p = found.parts[0].p.unwrap_or(1.0);
        (found.verdict == Verdict::Confirmed && (0.012..0.039).contains(&p)).then_some(records)
    };
    let full = (0..500).find_map(weak).expect("one of 500 sessions has such a p-value");
    let mut small = session(&mut Noise(34), 1, "m", "e0", 0.5);
    small.iter_mut().for_each(|record| record.doubts.push(Doubt::Scaled));
    let records = [full, small].concat();
    let all: Vec<&Claim> = claims.iter().collect();
    for (sequential, session) in [(None, "s0"), (Some("s0".to_owned()), "s1")] {
        let sequential: BTreeSet<String> = sequential.into_iter().collect();
        let found = verdicts_at_looks(&all, &records, Rule::STANDARD, &sequential).remove(0);
        assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
        assert_eq!(found.sessions().into_iter().collect::<Vec<_>>(), [session]);
    }
}

#[test]
fn sessions_of_other_machines_do_not_count_for_the_blocks_needed() {
    let claims = claims(1, "less");
    let mut noise = Noise(34);
    let mut records = session(&mut noise, 0, "m1", "e0", 0.5);
    records.extend(session(&mut noise, 1, "m1", "e0", 0.5));
    let none = BTreeSet::new();
    let next = |machine| {
        let stored = stored(&records, &none, machine);
        power::need(&claims[0].contrasts[0], stored, &BTreeMap::new()).unwrap().session
    };
    assert_eq!([next("m1"), next("m2")], [3, 1]);
}

/// Returns what is stored before the next session on a machine.
fn stored<'a>(
    records: &'a [RunRecord],
    sequential: &'a BTreeSet<String>,
    machine: &'a str,
) -> power::Stored<'a> {
    power::Stored { records, sequential, machine }
}

/// With 9999 resamples, the p-value of 30 blocks is at least 0.001: enough for a second session of four looks,
/// but not for a third.
#[test]
fn a_resampled_statistic_is_out_of_reach_in_the_third_session() {
    let text = "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
                \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\nkind = \"linear\"\nat = { experiment = \
                \"e\", set = \"E\" }\narms = \"c-{n}\"\naxis = \"n\"\nmetric = \"elapsed_ns\"\nr2 = 0.9\ngrowth = 2.0\n";
    let claim = load([("linear", text)]).unwrap().remove(0);
    let (mut store, none) = (Store::new(12), BTreeSet::new());
    for (session, expected) in [("s1", false), ("s2", true)] {
        store.session = session.to_owned();
        for n in [1.0, 2.0, 4.0] {
            store.arm(&format!("c-{n}"), &[("n", n)], 100.0 * n);
        }
        let contrast = &claim.contrasts[0].contrast;
        let is_out = |machine| {
            power::least_blocks(contrast, stored(&store.records, &none, machine))
                .is_none_or(|blocks| blocks > 30)
        };
        assert_eq!(is_out("m1"), expected, "{session}");
        assert!(!is_out("m2"), "{session}");
    }
    let ratio = &claims(1, "less")[0].contrasts[0].contrast;
    assert_eq!(power::least_blocks(ratio, stored(&store.records, &none, "m1")), Some(12));
}
