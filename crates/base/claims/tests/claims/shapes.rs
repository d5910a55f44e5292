//! Contrasts other than ratios of two arms: ladders, lines, crossings, gains, shares, optima,
//! correlations, media and curves.

use crate::judge::{AT, judge, ratio};
use crate::synthetic::{Store, calls, run, scatter, shared, with_calls};
use ioloom_claims::{ClaimVerdict, Rule, Verdict};
use ioloom_model::{CallKind, Doubt, Measured};

fn ladder_of(shape: &str, more: &str, times: &[(f64, f64)]) -> ClaimVerdict {
    let mut store = Store::new(12);
    for (n, ms) in times {
        store.arm(&format!("t-{n}"), &[("n", *n)], *ms);
    }
    let text = format!(
        "kind = \"ladder\"\n{AT}arms = \"t-{{n}}\"\naxis = \"n\"\nshape = \"{shape}\"\n{more}"
    );
    judge(&[&text], &store, Rule::STANDARD)
}

#[test]
fn ladders_have_shapes() {
    let even = [(1.0, 100.0), (4.0, 101.0), (16.0, 99.0)];
    let falling = [(1.0, 400.0), (4.0, 200.0), (16.0, 100.0), (32.0, 101.0)];
    let bumpy = [(1.0, 400.0), (4.0, 500.0), (16.0, 100.0)];
    for (shape, more, times, expected) in [
        ("flat", "", &even[..], Verdict::Confirmed),
        ("flat", "", &falling[..], Verdict::Refuted),
        ("flat", "levels = [16, 32]", &falling[..], Verdict::Confirmed),
        ("falling", "", &falling[..], Verdict::Confirmed),
        ("falling", "", &even[..], Verdict::Refuted),
        ("falling", "", &bumpy[..], Verdict::Refuted),
        ("rising", "", &falling[..], Verdict::Refuted),
        ("knee", "within = [16, 16]", &falling[..], Verdict::Confirmed),
        ("knee", "within = [1, 4]", &falling[..], Verdict::Refuted),
        ("knee", "within = [1, 4]\nmargin = 2.0", &falling[..], Verdict::Confirmed),
        (
            "lowest",
            "within = [4, 4]",
            &[(1.0, 90.0), (4.0, 50.0), (16.0, 80.0)][..],
            Verdict::Confirmed,
        ),
        (
            "lowest",
            "within = [1, 1]",
            &[(1.0, 90.0), (4.0, 50.0), (16.0, 80.0)][..],
            Verdict::Refuted,
        ),
        ("falling", "", &[(1.0, 100.0)][..], Verdict::Undecided),
    ] {
        let found = ladder_of(shape, more, times);
        assert_eq!(found.verdict, expected, "{shape} {more} {times:?}: {}", found.sentence);
    }
    let found = ladder_of("falling", "", &falling);
    assert!((found.evidence.numbers["median_at_n_4"] / 200e6 - 1.0).abs() < 0.02);
}

#[test]
fn ladders_within_the_noise_of_one_plan_have_no_slope() {
    let judged = |shape: &str, again_ms: f64, top_ms: f64| {
        let mut store = Store::new(12);
        store.arm("t-1", &[("n", 1.0)], 100.0).arm("t-1 (again)", &[("n", 1.0)], again_ms);
        store.arm("t-4", &[("n", 4.0)], 100.0 + (top_ms - 100.0) / 2.0);
        store.arm("t-8", &[("n", 8.0)], top_ms);
        let text = format!(
            "kind = \"ladder\"\n{AT}arms = \"t-{{n}}\"\naxis = \"n\"\nshape = \"{shape}\"\n"
        );
        judge(&[&text], &store, Rule::STANDARD)
    };
    for (shape, calm) in
        [("falling", Verdict::Confirmed), ("rising", Verdict::Refuted), ("flat", Verdict::Refuted)]
    {
        assert_eq!(judged(shape, 100.0, 80.0).verdict, calm, "{shape}");
        let noisy = judged(shape, 60.0, 80.0);
        assert_eq!(noisy.verdict, Verdict::Undecided, "{shape}: {}", noisy.sentence);
        assert!(noisy.doubts.contains(&ioloom_model::Doubt::NoiseFloor), "{:?}", noisy.doubts);
    }
    let flat = judged("flat", 60.0, 101.0);
    assert_eq!(flat.verdict, Verdict::Confirmed, "no slope");
    assert!(!flat.doubts.contains(&Doubt::NoiseFloor), "decided regardless: {:?}", flat.doubts);
}

#[test]
fn a_line_must_explain_and_grow() {
    let line = |times: &dyn Fn(f64) -> f64| {
        let mut store = Store::new(12);
        for n in [1.0, 8.0, 16.0, 32.0, 40.0] {
            store.arm(&format!("t-{n}"), &[("n", n)], times(n));
        }
        let text = format!(
            "kind = \"linear\"\n{AT}arms = \"t-{{n}}\"\naxis = \"n\"\nmetric = \"elapsed_ns\"\nr2 = 0.99\ngrowth = 20"
        );
        judge(&[&text], &store, Rule::STANDARD)
    };
    let found = line(&|n| 10.0 * n);
    assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
    assert!((found.evidence.numbers["slope"] / 10e6 - 1.0).abs() < 0.05);
    assert_eq!(line(&|n| 100.0 * n.sqrt()).verdict, Verdict::Refuted);
    assert_eq!(line(&|n| 1000.0 + 10.0 * n).verdict, Verdict::Refuted);
    assert_eq!(line(&|_| 100.0).verdict, Verdict::Refuted);
}

/// Returns runs that follow law D1 with some scatter, with `w_ms` of compute and `r_ms` of waiting.
fn law_store(w_ms: f64, r_ms: f64) -> Store {
    let mut store = Store::new(12);
    for n in [2.0_f64, 3.0, 4.0, 5.0, 6.0, 8.0, 16.0, 32.0] {
        let (name, other) = (format!("sync-{n}"), format!("reader-{n}"));
        let sync_ms = (w_ms + r_ms) / n;
        store.arm_with(&name.clone(), &[("n", n)], move |block| {
            let one = shared(sync_ms * scatter(&name, block), r_ms / (w_ms + r_ms));
            with_calls(one, CallKind::Compute, calls(100, (w_ms * 1e4) as u64))
        });
        store.arm(&other, &[("n", n)], w_ms / (n - 1.0));
    }
    store
}

#[test]
fn crossings_are_compared_with_the_law() {
    let text = |law: &str| {
        format!(
            "kind = \"crossing\"\n{AT}a = \"sync-{{n}}\"\nb = \"reader-{{n}}\"\naxis = \"n\"\n{law}"
        )
    };
    let law = text("law = { name = \"reader-pays\", within = 1 }");
    // W / R = 3.8: sync wins up to four threads, the reader from five threads upward.
    let store = law_store(703.0, 186.0);
    let found = judge(&[&text("")], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
    let at = found.evidence.numbers["crossing"];
    assert!((4.0..5.0).contains(&at), "{at}");
    assert!(found.sentence.contains("they cross between n 4 (ratio "), "{}", found.sentence);
    let found = judge(&[&law], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Confirmed, "{}", found.sentence);
    assert!((found.evidence.numbers["predicted"] - (1.0 + 703.0 / 186.0)).abs() < 0.2);
    // With the same times but much less recorded waiting, the law wrongly predicts 16.
    let mut store = law_store(703.0, 186.0);
    for record in &mut store.records {
        if let ioloom_model::Outcome::Done { measured } = &mut record.outcome {
            measured.threads.iter_mut().for_each(|t| t.io_ns /= 4);
        }
    }
    let found = judge(&[&law], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Refuted, "{}", found.sentence);
    // With almost no waiting, the reader never pays off, and the families do not cross.
    let store = law_store(703.0, 7.0);
    assert_eq!(judge(&[&text("")], &store, Rule::STANDARD).verdict, Verdict::Refuted);
    let found = judge(&[&law], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided);
    assert!(found.sentence.contains("do not cross"), "{}", found.sentence);
    // The law predicts 4.8, but the reader is slower at every number of threads.
    let mut store = law_store(703.0, 186.0);
    for record in store.records.iter_mut().filter(|r| r.key.arm.starts_with("reader-")) {
        if let ioloom_model::Outcome::Done { measured } = &mut record.outcome {
            measured.elapsed_ns *= 3;
        }
    }
    let found = judge(&[&law], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Refuted, "{}", found.sentence);
    assert!(found.sentence.contains("the law predicts n 4.7"), "{}", found.sentence);
}

#[test]
fn computes_can_be_levels() {
    let mut store = Store::new(12);
    for (ms, sync, reader) in [(1.0, 100.0, 80.0), (5.0, 200.0, 190.0), (20.0, 400.0, 500.0)] {
        store.compute = format!("sleep:{ms}ms");
        store.arm("sync", &[], sync).arm("reader", &[], reader);
    }
    let crossing =
        format!("kind = \"crossing\"\n{AT}a = \"reader\"\nb = \"sync\"\naxis = \"compute\"");
    let found = judge(&[&crossing], &store, Rule::STANDARD);
    assert_eq!(
        (found.verdict, found.parts[0].holds),
        (Verdict::Scope, Some(true)),
        "{}",
        found.sentence
    );
    let at = found.evidence.numbers["crossing"];
    assert!((5e6..20e6).contains(&at), "{at}");
    let gain = |relative: bool, levels: &str, claim: &str| {
        let text = format!(
            "kind = \"gain\"\n{AT}a = \"sync\"\nb = \"reader\"\naxis = \"compute\"\nlevels = {levels}\nrelative = {relative}\nclaim = \"{claim}\""
        );
        judge(&[&text], &store, Rule::STANDARD).parts[0].holds
    };
    assert_eq!(gain(false, "[1000000, 5000000]", "greater"), Some(false));
    assert_eq!(gain(true, "[1000000, 5000000]", "less"), Some(true));
    assert_eq!(gain(false, "[1000000, 3000000]", "greater"), None);
}

#[test]
fn absolute_and_relative_gains_differ() {
    let mut store = Store::new(12);
    for (mib, sync, reader) in [(1.0, 28.0, 22.0), (10.0, 940.0, 920.0)] {
        store.arm_with(&format!("s-{mib}"), &[("mib", mib)], move |_| run(sync));
        store.arm_with(&format!("r-{mib}"), &[("mib", mib)], move |_| run(reader));
    }
    for (relative, expected) in [(false, Verdict::Confirmed), (true, Verdict::Refuted)] {
        let text = format!(
            "kind = \"gain\"\n{AT}a = \"s-{{mib}}\"\nb = \"r-{{mib}}\"\naxis = \"mib\"\nlevels = [1, 10]\nrelative = {relative}\nclaim = \"greater\""
        );
        let found = judge(&[&text], &store, Rule::STANDARD);
        assert_eq!(found.verdict, expected, "{}", found.sentence);
    }
}

#[test]
fn shares_differ_by_points() {
    let mut store = Store::new(12);
    store.arm_with("a", &[], |block| shared(100.0, 0.05 * scatter("a", block)));
    store.arm_with("b", &[], |block| shared(100.0, 0.45 * scatter("b", block)));
    for (metric, points, expected) in [
        ("share.io", -30.0, Verdict::Confirmed),
        ("share.io", -45.0, Verdict::Refuted),
        ("share.io", 30.0, Verdict::Refuted),
        ("share.on-cpu", 30.0, Verdict::Confirmed),
        ("share.on-cpu + share.io", 10.0, Verdict::Refuted),
    ] {
        let text = format!(
            "kind = \"share\"\n{AT}a = \"a\"\nb = \"b\"\nmetric = \"{metric}\"\npoints = {points:?}"
        );
        let found = judge(&[&text], &store, Rule::STANDARD);
        assert_eq!(found.verdict, expected, "{metric} {points}: {}", found.sentence);
    }
}

/// A difference that does not exceed that of a plan with itself decides nothing, whatever its unit.
/// The second runs differ by an order effect of 10 %, which more blocks do not remove.
#[test]
fn differences_within_the_noise_decide_nothing() {
    let shares = |again: f64| {
        let mut store = Store::new(12);
        for (arm, io) in [("a", 0.50), ("b", 0.45), ("a (again)", again)] {
            store.arm_with(arm, &[], move |block| shared(100.0, io * scatter(arm, block)));
        }
        let text = format!(
            "kind = \"share\"\n{AT}a = \"a\"\nb = \"b\"\nmetric = \"share.io\"\npoints = 3.0"
        );
        judge(&[&text], &store, Rule::STANDARD)
    };
    assert_eq!(shares(0.50).verdict, Verdict::Confirmed);
    let found = shares(0.40);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
    assert!(found.sentence.contains("runs of the same plan differ by"), "{}", found.sentence);
    assert_eq!(found.doubts, [Doubt::NoiseFloor]);

    let gains = |again: f64| {
        let mut store = Store::new(12);
        for (mib, slow, fast) in [(1.0, 100.0, 90.0), (10.0, 100.0, 84.0)] {
            store.arm(&format!("s-{mib}"), &[("mib", mib)], slow);
            store.arm(&format!("r-{mib}"), &[("mib", mib)], fast);
        }
        store.arm("s-1 (again)", &[("mib", 1.0)], again);
        let text = format!(
            "kind = \"gain\"\n{AT}a = \"s-{{mib}}\"\nb = \"r-{{mib}}\"\naxis = \"mib\"\nlevels = \
             [1, 10]\nrelative = true\nclaim = \"greater\""
        );
        judge(&[&text], &store, Rule::STANDARD)
    };
    assert_eq!(gains(100.0).verdict, Verdict::Confirmed);
    let found = gains(110.0);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);

    let lines = |again: f64| {
        let mut store = Store::new(12);
        for n in [1.0, 2.0, 3.0] {
            store.arm(&format!("t-{n}"), &[("n", n)], 100.0 + 4.0 * n);
        }
        store.arm("t-1 (again)", &[("n", 1.0)], again);
        let text = format!(
            "kind = \"linear\"\n{AT}arms = \"t-{{n}}\"\naxis = \"n\"\nmetric = \"elapsed_ns\"\nr2 \
             = 0.5\ngrowth = 1.01"
        );
        judge(&[&text], &store, Rule::STANDARD)
    };
    assert_eq!(lines(104.0).verdict, Verdict::Confirmed);
    let found = lines(120.0);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
}

const OPTIMUM: &str = "kind = \"optimum\"\nat = { experiment = \"e\", set = \"E\" }\n\
                       other = { experiment = \"e\", set = \"B\" }\narms = \"c-{n}\"";

#[test]
fn an_optimum_moves_or_stays() {
    for (b_times, expected) in
        [([200.0, 100.0], Verdict::Confirmed), ([100.0, 200.0], Verdict::Refuted)]
    {
        let mut store = Store::new(12);
        store.arm("c-1", &[("n", 1.0)], 50.0).arm("c-8", &[("n", 8.0)], 90.0);
        store.set = "B".to_owned();
        store.arm("c-1", &[("n", 1.0)], b_times[0]).arm("c-8", &[("n", 8.0)], b_times[1]);
        let found = judge(&[OPTIMUM], &store, Rule::STANDARD);
        assert_eq!(found.verdict, expected, "{}", found.sentence);
    }
}

/// Returns runs in which an arm has the best median but is not best in half of the blocks.
#[test]
fn an_arm_that_is_best_by_chance_decides_nothing() {
    for b_times in [[200.0, 100.0], [100.0, 200.0]] {
        let mut store = Store::new(12);
        let swings = |block: u32| run(if block.is_multiple_of(2) { 40.0 } else { 60.0 });
        store.arm_with("c-1", &[("n", 1.0)], swings).arm("c-8", &[("n", 8.0)], 52.0);
        store.set = "B".to_owned();
        store.arm("c-1", &[("n", 1.0)], b_times[0]).arm("c-8", &[("n", 8.0)], b_times[1]);
        let found = judge(&[OPTIMUM], &store, Rule::STANDARD);
        assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
        let evidence = &found.evidence;
        assert!(evidence.lo.unwrap() < 1.05 && evidence.hi.unwrap() > 1.05, "{evidence:?}");
        let wide = ioloom_stats::Reason::WideInterval.to_string();
        assert!(found.sentence.contains(&wide), "{}", found.sentence);
    }
}

/// If two arms tie in both locations, switching costs nothing, whichever is best.
#[test]
fn a_tie_does_not_move_the_optimum() {
    let mut store = Store::new(13);
    store.arm("c-1", &[("n", 1.0)], 50.0).arm("c-8", &[("n", 8.0)], 50.1);
    store.set = "B".to_owned();
    store.arm("c-1", &[("n", 1.0)], 100.1).arm("c-8", &[("n", 8.0)], 100.0);
    let found = judge(&[OPTIMUM], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Refuted, "{}", found.sentence);
    assert!(found.evidence.hi.unwrap() < 1.05, "{}", found.sentence);
    // One missing block of an arm does not remove that block from the others.
    store.stopped("c-1", &[3]);
    let found = judge(&[OPTIMUM], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Refuted, "{}", found.sentence);
}

/// An arm with too few blocks is left out, and could have been the best.
#[test]
fn a_family_that_lost_an_arm_is_partial() {
    let mut store = Store::new(12);
    store.arm("a", &[], 80.0).arm("b", &[], 85.0).arm("c", &[], 100.0);
    let best =
        format!("kind = \"ratio-of-best\"\n{AT}a = [\"a\", \"b\"]\nb = [\"c\"]\nclaim = \"less\"");
    assert_eq!(judge(&[&best], &store, Rule::STANDARD).verdict, Verdict::Confirmed);
    store.stopped("b", &[3]);
    let found = judge(&[&best], &store, Rule::STANDARD);
    assert_eq!((found.verdict, found.parts[0].holds), (Verdict::Scope, Some(true)));

    let mut store = Store::new(12);
    for set in ["E", "B"] {
        store.set = set.to_owned();
        store.arm("c-1", &[("n", 1.0)], 50.0).arm("c-8", &[("n", 8.0)], 90.0);
    }
    assert_eq!(judge(&[OPTIMUM], &store, Rule::STANDARD).verdict, Verdict::Refuted);
    store.stopped("c-8", &[3]);
    let found = judge(&[OPTIMUM], &store, Rule::STANDARD);
    assert_eq!((found.verdict, found.parts[0].holds), (Verdict::Scope, Some(false)));
}

#[test]
fn correlations_need_arms_and_a_direction() {
    let busy = |up: bool| {
        let mut store = Store::new(12);
        for n in [1.0, 2.0, 4.0, 8.0, 16.0] {
            let busy = if up { n / 20.0 } else { 1.0 - n / 20.0 };
            store.arm_with(&format!("t-{n}"), &[("n", n)], move |_| Measured {
                device_busy: Some(busy),
                ..run(400.0 / n)
            });
        }
        let text = format!(
            "kind = \"correlation\"\n{AT}arms = [\"t-{{n}}\"]\nx = \"device_busy\"\ny = \"elapsed_ns\"\nrising = false\nrho = 0.6"
        );
        judge(&[&text], &store, Rule::STANDARD)
    };
    assert_eq!(busy(true).verdict, Verdict::Confirmed);
    assert_eq!(busy(false).verdict, Verdict::Refuted);
}

#[test]
fn media_need_two() {
    let text = format!("kind = \"media\"\n{AT}arm = \"a\"\nmetric = \"elapsed_ns\"");
    let mut store = Store::new(12);
    store.arm("a", &[], 100.0);
    let found = judge(&[&text], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided);
    assert!(found.sentence.contains("--on"), "{}", found.sentence);
    store.medium = "tmpfs".to_owned();
    store.arm("a", &[], 100.0);
    assert_eq!(judge(&[&text], &store, Rule::STANDARD).verdict, Verdict::Confirmed);
    let mut store = Store::new(12);
    store.arm("a", &[], 100.0);
    store.medium = "tmpfs".to_owned();
    store.arm("a", &[], 150.0);
    assert_eq!(judge(&[&text], &store, Rule::STANDARD).verdict, Verdict::Refuted);
}

/// Equal on two of three media is not equal on all.
#[test]
fn all_media_are_compared() {
    let text = format!("kind = \"media\"\n{AT}arm = \"a\"\nmetric = \"elapsed_ns\"");
    let judged = |third: f64| {
        let mut store = Store::new(12);
        for (medium, ms) in [("image", 100.0), ("tmpfs", 100.0), ("work", third)] {
            store.medium = medium.to_owned();
            store.arm("a", &[], ms);
        }
        judge(&[&text], &store, Rule::STANDARD)
    };
    assert_eq!(judged(100.0).verdict, Verdict::Confirmed);
    let differs = judged(150.0);
    assert_eq!(differs.verdict, Verdict::Refuted, "{}", differs.sentence);
    assert!(differs.sentence.contains("of 3 pairs of media"), "{}", differs.sentence);
}

/// What failed could have changed the answer.
#[test]
fn arms_that_failed_limit_the_answer() {
    let all: Vec<u32> = (0..12).collect();
    let crossing = format!(
        "kind = \"crossing\"\n{AT}a = \"sync-{{n}}\"\nb = \"reader-{{n}}\"\naxis = \"n\"\n"
    );
    let mut store = law_store(703.0, 186.0);
    store.stopped("reader-3", &all);
    let found = judge(&[&crossing], &store, Rule::STANDARD);
    assert_eq!((found.verdict, found.parts[0].holds), (Verdict::Scope, Some(true)));
    assert!(found.sentence.contains("; 1 level could not run"), "{}", found.sentence);
    store.stopped("reader-32", &all);
    let found = judge(&[&crossing], &store, Rule::STANDARD);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.sentence);
    assert!(found.sentence.contains("reader-32 failed"), "{}", found.sentence);

    let mut store = Store::new(12);
    for n in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0] {
        store.arm_with(&format!("t-{n}"), &[("n", n)], move |_| Measured {
            device_busy: Some(n / 40.0),
            ..run(400.0 / n)
        });
    }
    store.stopped("t-4", &all);
    let correlation = format!(
        "kind = \"correlation\"\n{AT}arms = [\"t-{{n}}\"]\nx = \"device_busy\"\ny = \"elapsed_ns\"\nrising = false\nrho = 0.6"
    );
    let found = judge(&[&correlation], &store, Rule::STANDARD);
    assert_eq!((found.verdict, found.parts[0].holds), (Verdict::Scope, Some(true)));
    assert!(found.sentence.contains("; 1 arm could not run"), "{}", found.sentence);
}

#[test]
fn a_medium_on_which_the_arm_failed_leaves_equality_open() {
    let text = format!("kind = \"media\"\n{AT}arm = \"a\"\nmetric = \"elapsed_ns\"");
    let judged = |second: f64| {
        let mut store = Store::new(12);
        for (medium, ms) in [("image", 100.0), ("tmpfs", 100.0), ("work", second)] {
            store.medium = medium.to_owned();
            store.arm("a", &[], ms);
        }
        for record in store.records.iter_mut().filter(|r| r.key.medium == "tmpfs") {
            record.outcome = ioloom_model::Outcome::TimedOut { seconds: 27.4 };
        }
        judge(&[&text], &store, Rule::STANDARD)
    };
    let equal = judged(100.0);
    assert_eq!(equal.verdict, Verdict::Undecided, "{}", equal.sentence);
    assert!(equal.sentence.contains("a failed"), "{}", equal.sentence);
    assert_eq!(judged(150.0).verdict, Verdict::Refuted);
}

#[test]
fn the_distance_of_stops_is_read_off_a_curve() {
    let judged = |step: usize, present: bool| {
        let mut store = Store::new(12);
        store.arm_with("a", &[], move |_| {
            let mut one = run(100.0);
            let points = (0..256).step_by(step).map(|i| (f64::from(i) * 4096.0, 5000.0));
            if present {
                one.curves.insert("touch_ns".to_owned(), points.collect());
            }
            one
        });
        let text = format!(
            "kind = \"curve\"\n{AT}arm = \"a\"\ncurve = \"touch_ns\"\nof = \"period\"\nwithin = [16384, 16384]"
        );
        judge(&[&text], &store, Rule::STANDARD).verdict
    };
    assert_eq!(judged(4, true), Verdict::Confirmed);
    assert_eq!(judged(32, true), Verdict::Refuted);
    assert_eq!(judged(4, false), Verdict::NotTestableHere);
}

/// An export keeps 512 points of a curve, evenly spaced.
#[test]
fn a_curve_and_its_export_are_judged_alike() {
    let judged = |of: &str, within: &str, kept: usize, recorded: bool| {
        let mut store = Store::new(12);
        store.arm_with("a", &[], move |_| {
            let mut one = run(100.0);
            let at = |i: usize| (i as f64 * 16384.0, 5000.0 + i as f64 * 10.0);
            let points = (0..kept).map(|i| at(i * 4095 / (kept - 1)));
            one.curves.insert("touch_ns".to_owned(), points.collect());
            if recorded {
                let all: Vec<_> = (0..4096).map(at).collect();
                let (period, growth) =
                    (ioloom_stats::stalls::period(&all), ioloom_stats::stalls::growth(&all));
                one.extra.insert("touch_period_bytes".to_owned(), period.unwrap());
                one.extra.insert("touch_growth".to_owned(), growth.unwrap());
            }
            one
        });
        let text = format!(
            "kind = \"curve\"\n{AT}arm = \"a\"\ncurve = \"touch_ns\"\nof = \"{of}\"\nwithin = {within}"
        );
        let found = judge(&[&text], &store, Rule::STANDARD);
        (found.verdict, found.evidence.effect)
    };
    for (of, within) in [("period", "[16384, 16384]"), ("growth", "[1.5, 1e12]")] {
        let whole = judged(of, within, 4096, true);
        assert_eq!(whole.0, Verdict::Confirmed, "{of}");
        assert_eq!(judged(of, within, 512, true), whole, "{of}");
        assert_eq!(judged(of, within, 4096, false), whole, "{of}");
        assert_eq!(judged(of, within, 512, false).0, Verdict::Undecided, "{of}");
    }
}

#[test]
fn formulas_differ_by_arm() {
    let submitted = |ms: f64, call_ms: u64| {
        let mut store = Store::new(12);
        store.arm_with("a", &[], move |_| {
            with_calls(run(ms), CallKind::Read, calls(10, call_ms * 1_000_000))
        });
        store.arm_with("b", &[], |_| run(100.0));
        let text = format!(
            "{}\nmetric = \"elapsed_ns - calls.read.total_ns\"\nmetric_b = \"elapsed_ns\"\nmargin = 0.02",
            ratio("equal")
        );
        judge(&[&text], &store, Rule::STANDARD).verdict
    };
    assert_eq!(submitted(120.0, 2), Verdict::Confirmed);
    assert_eq!(submitted(120.0, 1), Verdict::Refuted);
}
