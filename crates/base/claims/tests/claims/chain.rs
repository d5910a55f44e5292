//! The whole chain from runs to verdicts on synthetic ledgers: how often it is wrong if nothing is
//! true, and how often it finds effects that exist. Seeded, so the counts never change; printed with
//! `cargo test -p ioloom-claims chain -- --nocapture`.

use crate::synthetic::{Store, run};
use ioloom_claims::{
    Claim, ClaimVerdict, Registered, Rule, Score, Verdict, forecast, load, verdicts,
    verdicts_at_looks,
};
use ioloom_model::RunRecord;

/// Uniform numbers from a linear congruence with an output permutation, enough for a test.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (((mixed ^ (mixed >> 32)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Returns claims `000-N0` to `000-N(n-1)`, each on a comparison of its own in experiment `eN`.
pub(crate) fn claims(n: usize, claim: &str) -> Vec<Claim> {
    let one = |i: usize| {
        format!(
            "[[claim]]\nid = \"000-N{i}\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
             \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\nkind = \"ratio\"\nat = {{ experiment = \
             \"e{i}\", set = \"E\" }}\na = \"a\"\nb = \"b\"\nclaim = \"{claim}\"\n"
        )
    };
    let text: String = (0..n).map(one).collect();
    load([("chain", text.as_str())]).unwrap()
}

/// Makes the runs of one comparison per claim: arms a, b and the second run of a. The logarithm of
/// a block's ratio has this standard deviation.
pub(crate) fn runs(noise: &mut Noise, ratios: &[f64], blocks: u32, sd: f64) -> Store {
    let mut all = Store::new(0);
    for (i, ratio) in ratios.iter().enumerate() {
        let mut store = Store::new(blocks);
        // Two arms contribute to a ratio, each half of its variance.
        let each = sd / std::f64::consts::SQRT_2;
        let mut values = |ms: f64| -> Vec<f64> {
            (0..blocks).map(|_| ms * (each * noise.normal()).exp()).collect()
        };
        for (arm, values) in [
            ("a", values(100.0 * ratio)),
            ("b", values(100.0)),
            ("a (again)", values(100.0 * ratio)),
        ] {
            store.arm_with(arm, &[], move |block| run(values[block as usize]));
        }
        store.records.iter_mut().for_each(|r| r.key.experiment = format!("e{i}"));
        all.records.extend(store.records);
    }
    all
}

fn judged(claims: &[Claim], store: &Store) -> Vec<ClaimVerdict> {
    verdicts(&claims.iter().collect::<Vec<_>>(), &store.records, Rule::STANDARD)
}

#[test]
fn a_ledger_of_nothing_decides_almost_nothing() {
    let less = claims(60, "less");
    let mut noise = Noise(11);
    let (mut ledgers, mut confirmed, mut score) = (0, 0, Score::default());
    for _ in 0..20 {
        let found = judged(&less, &runs(&mut noise, &[1.0; 60], 12, 0.15));
        let one = Score::of(&found, Rule::STANDARD.false_rate);
        ledgers += usize::from(one.confirmed > 0);
        confirmed += one.confirmed;
        score.false_expected += one.false_expected;
        score.undecided += one.undecided;
    }
    println!(
        "20 ledgers of 60 contrasts without any effect: {confirmed} confirmed in {ledgers} ledgers, \
         {} undecided",
        score.undecided
    );
    // If nothing is true, the false discovery rate is the share of ledgers with any false verdict.
    assert!(ledgers <= 4, "{ledgers} of 20 ledgers");
}

/// Returns the share of effects found among as many effects as comparisons without any.
fn power(seed: u64, blocks: u32, sd: f64) -> (f64, usize) {
    let less = claims(40, "less");
    let mut noise = Noise(seed);
    let (mut found, mut wrong) = (0, 0);
    for _ in 0..10 {
        let ratios: Vec<f64> = (0..40).map(|i| if i % 2 == 0 { 0.88 } else { 1.0 }).collect();
        let verdicts = judged(&less, &runs(&mut noise, &ratios, blocks, sd));
        let confirmed = |odd: usize| {
            let of = verdicts.iter().skip(odd).step_by(2);
            of.filter(|v| v.verdict == Verdict::Confirmed).count()
        };
        found += confirmed(0);
        wrong += confirmed(1);
    }
    (found as f64 / 200.0, wrong)
}

#[test]
fn a_ledger_with_known_effects_decides_them() {
    println!("blocks  scatter  ratio 0.88 confirmed  ratio 1 confirmed (of 200)");
    for (blocks, sd, least) in [(12, 0.10, 0.80), (48, 0.20, 0.90)] {
        let (share, wrong) = power(u64::from(blocks), blocks, sd);
        println!("{blocks:6}  {sd:7.2}  {share:20.3}  {wrong:17}");
        assert!(share >= least, "{blocks} blocks, scatter {sd}: {share}");
        assert!(wrong <= 12, "{wrong} of {}", share * 200.0);
    }
}

/// What became of the claims of one sequential session.
#[derive(Default)]
struct Ended {
    confirmed: usize,
    wrong: usize,
    blocks: u32,
}

/// Runs a session by the sequential rule as `claims --verify` does: after each look, claims that are
/// decided or would stay undecided with the largest number of blocks end, and the others go on. Even
/// claims are true at `ratio`, odd ones are not.
fn sequential(noise: &mut Noise, claims: &[Claim], ratio: f64, sd: f64) -> Ended {
    let ratios: Vec<f64> =
        (0..claims.len()).map(|i| if i % 2 == 0 { ratio } else { 1.0 }).collect();
    let last = *Rule::LOOKS.last().unwrap();
    let all = runs(noise, &ratios, last, sd).records;
    let all_claims: Vec<&Claim> = claims.iter().collect();
    let session = std::collections::BTreeSet::from(["s1".to_owned()]);
    let mut ends = vec![last; claims.len()];
    let mut found = Vec::new();
    for look in Rule::LOOKS {
        let ran = |r: &&RunRecord| {
            let of: usize = r.key.experiment[1..].parse().unwrap();
            r.key.block < look.min(ends[of])
        };
        let known: Vec<RunRecord> = all.iter().filter(ran).cloned().collect();
        let judge =
            |records: &[RunRecord], rule| verdicts_at_looks(&all_claims, records, rule, &session);
        found = judge(&known, Rule::STANDARD);
        let later = judge(&forecast::repeated(&known, last), forecast::rule(Rule::STANDARD));
        for (end, (now, later)) in ends.iter_mut().zip(found.iter().zip(&later)) {
            let open = now.verdict == Verdict::Undecided && later.verdict == Verdict::Undecided;
            if *end == last && (open || now.verdict != Verdict::Undecided) {
                *end = look;
            }
        }
    }
    let confirmed = |odd: usize| {
        let of = found.iter().skip(odd).step_by(2);
        of.filter(|v| v.verdict == Verdict::Confirmed).count()
    };
    Ended { confirmed: confirmed(0), wrong: confirmed(1), blocks: ends.iter().sum() }
}

/// Power and errors of the sequential rule with all corrections: four looks, many contrasts, giving
/// up. Runs after a look are judged again with those before it. The bounds are two standard errors
/// of 48 claims below what the rule reaches.
#[test]
fn the_sequential_rule_finds_effects_and_keeps_its_error_rate() {
    const SESSIONS: usize = 4;
    let claims = claims(24, "less");
    println!("scatter  true ratio  confirmed  wrong of 48  blocks per claim");
    for (sd, ratio, least) in [(0.10, 0.88, 0.90), (0.20, 0.88, 0.20), (0.20, 0.80, 0.80)] {
        let mut noise = Noise(17);
        let mut sum = Ended::default();
        for _ in 0..SESSIONS {
            let one = sequential(&mut noise, &claims, ratio, sd);
            sum.confirmed += one.confirmed;
            sum.wrong += one.wrong;
            sum.blocks += one.blocks;
        }
        let share = sum.confirmed as f64 / (SESSIONS * 12) as f64;
        let blocks = f64::from(sum.blocks) / (SESSIONS * 24) as f64;
        println!("{sd:7.2}  {ratio:10.2}  {share:9.3}  {:11}  {blocks:16.1}", sum.wrong);
        assert!(share >= least, "scatter {sd}, ratio {ratio}: {share}");
        assert!(sum.wrong <= 3, "{} of {} are wrong", sum.wrong, SESSIONS * 12);
    }
}

#[test]
fn the_best_of_many_equal_arms_is_not_better_than_one() {
    let text = "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
                \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\nkind = \"ratio-of-best\"\nat = { \
                experiment = \"e\", set = \"E\" }\na = [\"one\"]\nb = [\"many-{n}\"]\nclaim = \
                \"greater\"\n";
    let claim = load([("best", text)]).unwrap();
    let mut noise = Noise(5);
    let (mut confirmed, mut effects) = (0, Vec::new());
    for _ in 0..300 {
        let mut store = Store::new(12);
        let mut add = |name: &str, n: f64| {
            let values: Vec<f64> = (0..12).map(|_| 100.0 * (0.15 * noise.normal()).exp()).collect();
            store.arm_with(name, &[("n", n)], move |block| run(values[block as usize]));
        };
        add("one", 0.0);
        (1..=9).for_each(|n| add(&format!("many-{n}"), f64::from(n)));
        let found = judged(&claim, &store).remove(0);
        confirmed += usize::from(found.verdict == Verdict::Confirmed);
        effects.push(found.evidence.effect.unwrap());
    }
    effects.sort_by(f64::total_cmp);
    println!(
        "1 against 9 equal arms: greater confirmed in {confirmed} of 300, median effect {:.3}",
        effects[150]
    );
    assert!(confirmed <= 14, "{confirmed} of 300");
    assert!((effects[150] - 1.0).abs() < 0.02, "{}", effects[150]);
}

#[test]
fn an_answer_needs_a_smaller_p_value_among_many() {
    let one = claims(1, "less");
    let many = claims(40, "less");
    let mut noise = Noise(3);
    // A single weak effect among comparisons without any.
    let mut ratios = vec![1.0; 40];
    ratios[0] = 0.90;
    let (mut alone, mut among) = (0, 0);
    for _ in 0..30 {
        let store = runs(&mut noise, &ratios, 12, 0.1);
        alone += usize::from(judged(&one, &store)[0].verdict == Verdict::Confirmed);
        let found = judged(&many, &store).remove(0);
        among += usize::from(found.verdict == Verdict::Confirmed);
        let part = &found.parts[0];
        assert!(part.p_adjusted >= part.p, "{part:?}");
        if part.p_adjusted > Some(0.05) && part.p < Some(0.05) {
            assert!(part.sentence.contains("after correction for the 40 contrasts"), "{part:?}");
        }
    }
    assert!(alone > among, "{alone} alone, {among} among many");
    // A session that may be judged four times needs a p-value a quarter as large.
    let store = runs(&mut noise, &[0.88], 12, 0.1);
    let once = verdicts(&[&one[0]], &store.records, Rule::STANDARD).remove(0);
    let looks = verdicts(&[&one[0]], &store.records, Rule::STANDARD.sequential()).remove(0);
    let adjusted = |v: &ClaimVerdict| v.parts[0].p_adjusted.unwrap();
    assert!((adjusted(&looks) - (4.0 * adjusted(&once)).min(1.0)).abs() < 1e-12);
}

#[test]
fn sessions_that_contradict_each_other_decide_nothing() {
    let one = claims(1, "less");
    let mut store = runs(&mut Noise(1), &[0.8], 12, 0.02);
    let mut other = runs(&mut Noise(2), &[1.25], 12, 0.02);
    for record in &mut other.records {
        record.key.session = "s2".to_owned();
        record.started_unix_ms += 1_000;
    }
    store.records.extend(other.records);
    let found = judged(&one, &store).remove(0);
    assert_eq!(found.verdict, Verdict::Undecided);
    assert!(found.sentence.contains("session s1 shows the opposite"), "{}", found.sentence);
    // Another machine does not contradict it.
    let first = |r: &&mut ioloom_model::RunRecord| r.key.session == "s1";
    store.records.iter_mut().filter(first).for_each(|r| r.machine = "other".to_owned());
    assert_eq!(judged(&one, &store).remove(0).verdict, Verdict::Refuted);
}

#[test]
fn verdicts_are_counted_by_what_they_rest_on() {
    let mut text = String::new();
    for (id, same, body) in [
        (
            "000-A",
            "",
            "kind = \"ratio\"\nat = { experiment = \"e0\", set = \"E\" }\na = \"a\"\nb = \"b\"\nclaim = \"less\"\n",
        ),
        (
            "000-B",
            "",
            "kind = \"published\"\nvalues = { v = \"001_walk[1].nvme_s\" }\nformula = \"v\"\nwithin = [0, 100]\nsays = \"s\"\n",
        ),
        (
            "000-C",
            "",
            "kind = \"published\"\nvalues = { v = \"001_walk[1].nvme_s\" }\nformula = \"v\"\nwithin = [0, 1]\nsays = \"s\"\n",
        ),
        ("000-D", "same_as = \"000-A\"\n", ""),
        (
            "000-E",
            "",
            "kind = \"ratio\"\nat = { experiment = \"none\", set = \"E\" }\na = \"a\"\nb = \"b\"\nclaim = \"less\"\n",
        ),
    ] {
        text.push_str(&format!(
            "[[claim]]\nid = \"{id}\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
             \"t\"\nrefutes = \"t\"\n{same}"
        ));
        if !body.is_empty() {
            text.push_str(&format!("[[claim.contrast]]\n{body}"));
        }
    }
    let claims = load([("kinds", text.as_str())]).unwrap();
    let found = judged(&claims, &runs(&mut Noise(4), &[0.8], 12, 0.02));
    let score = Score::of(&found, 0.05);
    let counted = [score.confirmed, score.consistent, score.inconsistent, score.undecided];
    assert_eq!(counted, [1, 1, 1, 1], "{score:?}");
    assert_eq!((score.repeated, score.contrasts_decided), (1, 1));
    assert_eq!(found[3].verdict, Verdict::Confirmed);
    let line = score.to_string();
    assert!(line.contains("reproduced from runs: 1 ("), "{line}");
    assert!(line.contains("recomputed from published numbers: 2 ("), "{line}");
    assert!(line.contains("at most 0.1 answers are expected to be false"), "{line}");
}

#[test]
fn the_published_size_is_compared_with_the_measured_one() {
    let sized = |claim: &str, size: &str, truth: f64| {
        let text = format!(
            "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
             \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\nkind = \"ratio\"\nat = {{ experiment = \
             \"e0\", set = \"E\" }}\na = \"a\"\nb = \"b\"\nclaim = \"{claim}\"\nsize = \"{size}\"\n"
        );
        let claims = load([("sized", text.as_str())]).unwrap();
        let found = judged(&claims, &runs(&mut Noise(8), &[truth], 12, 0.02)).remove(0);
        (found.verdict, found.parts[0].agreement.unwrap(), found.sentence)
    };
    let walk = "001_walk[8].nvme_s / 001_walk[16].nvme_s";
    for (claim, size, truth, verdict, words) in [
        ("less", "0.8", 0.8, Verdict::Confirmed, "agrees in size"),
        ("less", "0.1", 0.8, Verdict::Confirmed, "agrees in direction, not in size"),
        ("less", "1.3", 0.8, Verdict::Confirmed, "agrees in neither"),
        ("greater", "1.3", 0.8, Verdict::Refuted, "agrees in neither"),
        ("less", walk, 0.8, Verdict::Confirmed, "published"),
        ("equal", "0.96", 1.0, Verdict::Confirmed, "agrees in size"),
        ("equal", "1.3", 1.0, Verdict::Confirmed, "agrees in neither"),
    ] {
        let (found, agreement, sentence) = sized(claim, size, truth);
        assert_eq!(found, verdict, "{sentence}");
        assert!(sentence.contains(words), "{size}: {agreement:?} {sentence}");
    }
    let broken = "[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"t\"\nscope = \"t\"\nconfirms = \
                  \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\nkind = \"untested\"\nneeds = \
                  \"x\"\nsize = \"001_walk[7777].nvme_s\"\n";
    let error = load([("mine", broken)]).unwrap_err().to_string();
    assert!(error.contains("no row starts with"), "{error}");
}

#[test]
fn a_test_changed_after_the_runs_is_reported() {
    let claim = claims(1, "less");
    let mut found = judged(&claim, &runs(&mut Noise(1), &[0.8], 12, 0.02)).remove(0);
    let stored = |claims: &[(&str, &str)]| {
        let of = claims.iter().map(|(id, hash)| ((*id).to_owned(), (*hash).to_owned()));
        std::collections::BTreeMap::from([("s1".to_owned(), of.collect())])
    };
    let definition = found.definition.clone();
    let earlier = &claim[0].earlier_definitions;
    for (claims, expected) in [
        (vec![], Registered::Unknown),
        (vec![("000-N0", definition.as_str())], Registered::Before),
        (vec![("000-N0", earlier[0].as_str())], Registered::EarlierRule),
        (vec![("000-other", earlier[0].as_str())], Registered::Changed),
        (vec![("000-N0", "0123456789abcdef")], Registered::Changed),
        (vec![("000-other", definition.as_str())], Registered::Changed),
    ] {
        let before = found.sentence.clone();
        found.register(&stored(&claims), earlier);
        assert_eq!(found.registered, Some(expected));
        let changed = found.sentence.contains("changed or added after session s1 began");
        assert_eq!(changed, expected == Registered::Changed, "{}", found.sentence);
        let rule = found.sentence.contains("the rule of verdicts was changed after session s1");
        assert_eq!(rule, expected == Registered::EarlierRule, "{}", found.sentence);
        let score = Score::of(std::slice::from_ref(&found), 0.05);
        let is_fixed = matches!(expected, Registered::Before | Registered::EarlierRule);
        assert_eq!(score.not_fixed_before, usize::from(!is_fixed), "{score}");
        assert_eq!(score.earlier_rule, usize::from(rule), "{score}");
        assert_eq!(score.to_string().contains("rule of verdicts was changed"), rule, "{score}");
        found.sentence = before;
    }
}

#[test]
fn a_definition_changes_with_the_test_and_not_with_its_words() {
    let definition = |extra: &str, claim: &str, times: &str| {
        let text = format!(
            "# comment {extra}\n[[claim]]\nid = \"000-T\"\nseed = 0\nstatement = \"{extra}\"\nscope \
             = \"t\"\nconfirms = \"t\"\nrefutes = \"t\"\n[[claim.contrast]]\nkind = \"ratio\"\nat = \
             {{ experiment = \"e\", set = \"E\" }}\na = \"a\"\nb = \"b\"\nclaim = \"{claim}\"\nreason \
             = \"{extra}\"\n{times}"
        );
        load([("t", text.as_str())]).unwrap().remove(0).definition
    };
    let first = definition("x", "less", "");
    assert_eq!(first.len(), 16);
    assert_eq!(first, definition("y", "less", ""));
    assert_ne!(first, definition("x", "greater", ""));
    assert_eq!(first, definition("x", "less", "no_size = \"direction only\"\n"));
    assert_ne!(first, definition("x", "less", "size = \"2\"\n"));
    assert_ne!(first, definition("x", "less", "times = 2.0\n"));
    assert_ne!(definition("x", "less", "times = 3.0\n"), definition("x", "less", "times = 2.0\n"));
}

/// Fingerprints that sessions of an earlier rule stored. Their tests have not changed since.
#[test]
fn definitions_of_an_earlier_rule_are_those_that_sessions_stored() {
    for (id, stored) in [
        ("000-P07", "c34a43b2d80f71ff"),
        ("002-31", "dd4bcc17535d370e"),
        ("004-10", "6d0c33953b12815a"),
    ] {
        let claim = ioloom_claims::ledger().iter().find(|claim| claim.id == id).unwrap();
        assert_eq!(claim.earlier_definitions, [stored], "{id}");
    }
}
