//! The decision about limits, on recorded evidence.
//!
//! `recorded.jsonl` holds facts of live runs with one planted limit each, written by the example
//! `why` of the crate `ioloom` on a virtual machine with two processors. Each case also changes the
//! facts until another limit decides, and looks at both sides of the edge.

use ioloom_model::{Measured, ThreadTime};
use ioloom_observe::limit::{
    CLOSE_POINTS, Facts, JUDGED_FROM_NS, Limit, NoVerdict, Shares, Verdict, decide,
};
use proptest::prelude::*;

mod one_file;
mod quota;

const RECORDED: &str = include_str!("recorded.jsonl");

/// A change of the facts: 0 is none, 1 is all of it.
type Change = fn(&mut Facts, f64);

#[derive(serde::Deserialize)]
struct Recorded {
    plant: String,
    limit: String,
    facts: Facts,
}

fn recorded() -> Vec<Recorded> {
    RECORDED.lines().map(|line| serde_json::from_str(line).expect("a line of facts")).collect()
}

fn of(plant: &str) -> Facts {
    let found = recorded().into_iter().find(|r| r.plant == plant);
    found.unwrap_or_else(|| panic!("no plant '{plant}'")).facts
}

/// Moves a part of one time to another.
fn shift(from: &mut u64, to: &mut u64, part: f64) {
    let ns = (*from as f64 * part) as u64;
    *from -= ns;
    *to += ns;
}

fn scale(ns: &mut u64, part: f64) {
    *ns = (*ns as f64 * part) as u64;
}

/// Gives our threads the processors that other programs had.
fn without_others(f: &mut Facts, part: f64) {
    let mut ready = f.ready_ns.unwrap_or(0);
    let mut given = 0;
    shift(&mut ready, &mut given, part);
    f.ready_ns = Some(ready);
    f.on_cpu_ns += given;
    f.user_ns += given;
    f.others_ns = f.others_ns.map(|ns| ns.saturating_sub(given));
}

/// Puts waits onto processors, in the function.
fn computing(ns: fn(&mut Facts) -> &mut u64, f: &mut Facts, part: f64) {
    let mut given = 0;
    shift(ns(f), &mut given, part);
    f.on_cpu_ns += given;
    f.user_ns += given;
    f.function_wall_ns += given;
}

/// Leaves the processor time of the process as it is, but the threads of the run wait.
fn elsewhere(f: &mut Facts, wait: fn(&mut Facts) -> &mut u64, part: f64) {
    let mut ns = 0;
    shift(&mut f.on_cpu_ns, &mut ns, part);
    f.function_wall_ns = f.function_wall_ns.saturating_sub(ns);
    *wait(f) += ns;
}

/// Plant, the change, and the limit after the whole change.
const EDGES: [(&str, Change, Limit); 26] = [
    (
        "slow producer",
        |f, part| shift(&mut f.input_ns, &mut f.function_ns, part),
        Limit::FunctionWaits,
    ),
    ("processor hogs", without_others, Limit::Compute),
    // A quota kept our threads waiting, and the other programs did not.
    (
        "processor hogs",
        |f, part| f.throttled_ns = (f.ready_ns.unwrap_or(0) as f64 * part) as u64,
        Limit::Quota,
    ),
    // Our threads were ready for as long, and the quota took less of it.
    ("a processor quota", |f, part| scale(&mut f.throttled_ns, 1.0 - part), Limit::OtherPrograms),
    // A larger quota lets our threads run.
    (
        "a processor quota",
        |f, part| {
            let mut given = 0;
            shift(&mut f.throttled_ns, &mut given, part);
            f.ready_ns = f.ready_ns.map(|ready| ready - given);
            f.on_cpu_ns += given;
            f.user_ns += given;
        },
        Limit::Compute,
    ),
    // The quota keeps children from running instead of our threads.
    (
        "children that compute",
        |f, part| {
            (f.child_ns, f.function_ns) = (f.function_ns, 0);
            shift(&mut f.children_ns, &mut f.child_ready_ns, part);
            f.throttled_ns = f.child_ready_ns;
        },
        Limit::Quota,
    ),
    ("neighbour on the device", |f, part| f.others_device *= 1.0 - part, Limit::Device),
    (
        "children that compute",
        |f, part| {
            let mut given = 0;
            shift(&mut f.children_ns, &mut given, part);
            f.user_ns += given;
            f.on_cpu_ns += given;
            shift(&mut f.function_ns, &mut given, part);
        },
        Limit::Compute,
    ),
    (
        "children that sleep",
        |f, part| scale(&mut f.children_faults, 1.0 - part),
        Limit::FunctionWaits,
    ),
    (
        "a function that sleeps",
        |f, part| shift(&mut f.function_ns, &mut f.output_ns, part),
        Limit::Output,
    ),
    (
        "a function that sleeps",
        |f, part| shift(&mut f.function_ns, &mut f.reserve_ns, part),
        Limit::Memory,
    ),
    // Idle children whose waits were reported, and waits that were not after all.
    (
        "a function that sleeps",
        |f, part| shift(&mut f.function_ns, &mut f.child_ns, part),
        Limit::ChildProcesses,
    ),
    (
        "children that sleep",
        |f, part| {
            (f.child_ns, f.function_ns, f.children_faults) = (f.function_ns, 0, 0);
            shift(&mut f.child_ns, &mut f.function_ns, part);
        },
        Limit::FunctionWaits,
    ),
    (
        "a function that sleeps",
        |f, part| computing(|f| &mut f.function_ns, f, part),
        Limit::Compute,
    ),
    (
        "a function with a lock",
        |f, part| {
            f.function_wall_ns -= (f.function_ns as f64 * part) as u64;
            shift(&mut f.function_ns, &mut f.hand_over_ns, part);
        },
        Limit::HandOver,
    ),
    ("a budget held by the caller", |f, part| scale(&mut f.memory_ns, 1.0 - part), Limit::Device),
    (
        "a function that computes",
        |f, part| shift(&mut f.function_wall_ns, &mut f.fetch_wall_ns, part),
        Limit::Metadata,
    ),
    (
        "one thread that computes",
        |f, part| {
            let ns = (f.on_cpu_ns as f64 * part) as u64;
            f.on_cpu_ns -= ns;
            f.user_ns = f.user_ns.saturating_sub(ns);
            f.function_wall_ns -= ns;
            f.fetch_wall_ns += ns;
            f.io_ns += ns;
        },
        Limit::Device,
    ),
    (
        "many small warm files",
        |f, part| shift(&mut f.fetch_wall_ns, &mut f.function_wall_ns, part),
        Limit::Compute,
    ),
    ("cold files", |f, part| shift(&mut f.io_ns, &mut f.input_ns, part), Limit::InputList),
    ("a slow file system", |f, part| shift(&mut f.io_ns, &mut f.unknown_ns, part), Limit::Unknown),
    (
        "one file at a time in the queue",
        |f, part| computing(|f| &mut f.hand_over_ns, f, part),
        Limit::Compute,
    ),
    // The same processor time, by threads outside of the run: an iterator of the caller, threads of
    // the application that have nothing to do with the run, and threads of the function.
    (
        "one thread that computes",
        |f, part| elsewhere(f, |f| &mut f.input_ns, part),
        Limit::InputList,
    ),
    (
        "a function that computes",
        |f, part| elsewhere(f, |f| &mut f.unknown_ns, part),
        Limit::Unknown,
    ),
    (
        "a function that sleeps",
        |f, part| {
            let before = f.helper_ns;
            shift(&mut f.function_ns, &mut f.helper_ns, part);
            f.user_ns += f.helper_ns - before;
        },
        Limit::Compute,
    ),
    // Children of the same application that do not belong to the calls.
    (
        "children that sleep",
        |f, part| shift(&mut f.children_faults, &mut f.calls, part),
        Limit::FunctionWaits,
    ),
];

#[test]
fn every_limit_is_found_in_recorded_evidence() {
    let all = recorded();
    assert!(all.len() >= 12, "{} plants", all.len());
    for limit in Limit::ALL {
        assert!(all.iter().any(|r| r.limit == limit.word()), "no plant for {limit:?}");
    }
    for Recorded { plant, limit, facts } in all {
        let verdict = decide(&facts);
        assert_eq!(verdict.limit.word(), limit, "{plant}: {}", verdict.sentence(&facts));
        consistent(&facts);
    }
}

#[test]
fn another_limit_decides_on_the_other_side_of_the_edge() {
    for (plant, change, after) in EDGES {
        let at = |part: f64| {
            let mut facts = of(plant);
            change(&mut facts, part);
            (decide(&facts), facts)
        };
        let before = decide(&of(plant)).limit;
        assert_eq!(at(1.0).0.limit, after, "{plant}: {}", at(1.0).0.sentence(&at(1.0).1));
        assert_ne!(before, after);
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..40 {
            let middle = (low + high) / 2.0;
            if at(middle).0.limit == before { low = middle } else { high = middle }
        }
        let (near, far) = (at(low).0, at(high).0);
        assert_eq!(near.limit, before, "{plant}");
        assert_ne!(far.limit, before, "{plant}");
        // Where shares decide, both sides of the edge name the other limit as close. A change of
        // what a wait counts as has no such edge.
        let (shares, others) = (near.shares.expect("shares"), far.shares.expect("shares"));
        let steps = shares.of(before).abs_diff(others.of(before));
        if steps <= 1 && far.limit != Limit::Unknown {
            assert_eq!(near.close, Some(far.limit), "{plant}: {}", near.sentence(&at(low).1));
            assert!(far.close.is_some(), "{plant}: {}", far.sentence(&at(high).1));
        }
        consistent(&at(low).1);
        consistent(&at(high).1);
    }
}

#[test]
fn too_little_evidence_gives_no_limit() {
    let mut short = of("a function that computes");
    short.elapsed_ns = JUDGED_FROM_NS - 1;
    assert_eq!(decide(&short).reason, Some(NoVerdict::TooShort));
    short.elapsed_ns = JUDGED_FROM_NS;
    assert_ne!(decide(&short).limit, Limit::Unknown);

    let mut failed = of("a function that always fails");
    assert_eq!(decide(&failed).reason, Some(NoVerdict::NoFiles));
    failed.files = 1;
    // The function and other programs took half of the time each.
    assert_eq!(decide(&failed).reason, None);

    assert_eq!(decide(&Facts::default()).reason, Some(NoVerdict::NothingRan));

    // Without the run-queue delay it is unknown whether others took the processors from us.
    let mut blind = of("processor hogs");
    blind.ready_ns = None;
    blind.unknown_ns += of("processor hogs").ready_ns.unwrap();
    assert_eq!(decide(&blind).reason, Some(NoVerdict::Unexplained));
    blind.others_ns = Some(0);
    blind.unknown_ns = 0;
    blind.function_ns = of("processor hogs").ready_ns.unwrap();
    assert_eq!(decide(&blind).limit, Limit::FunctionWaits);

    // Five causes with a fifth each.
    let ms = 1_000_000;
    let spread = Facts {
        elapsed_ns: 100 * ms,
        cores: 1,
        files: 1,
        threads: 1,
        threads_ns: 100 * ms,
        on_cpu_ns: 20 * ms,
        user_ns: 20 * ms,
        function_wall_ns: 40 * ms,
        ready_ns: Some(0),
        io_ns: 20 * ms,
        input_ns: 20 * ms,
        memory_ns: 20 * ms,
        function_ns: 20 * ms,
        ..Facts::default()
    };
    assert_eq!(decide(&spread).reason, Some(NoVerdict::Spread), "{:?}", decide(&spread));
    let more = Facts { on_cpu_ns: 30 * ms, user_ns: 30 * ms, function_wall_ns: 50 * ms, ..spread };
    assert_eq!(decide(&Facts { memory_ns: 10 * ms, ..more }).limit, Limit::Compute);
}

/// Runs of one small file on a busy machine: most of the time passed before a thread ran.
#[test]
fn a_time_that_no_thread_saw_is_unknown() {
    let late = Facts {
        elapsed_ns: 157_756_434,
        cores: 2,
        files: 1,
        threads: 1,
        threads_ns: 112_925,
        on_cpu_ns: 112_925,
        ready_ns: Some(0),
        fetch_wall_ns: 45_561,
        function_wall_ns: 21_859,
        calls: 1,
        user_ns: 112_925,
        ..Facts::default()
    };
    let waiting = Facts {
        elapsed_ns: 22_123_728,
        threads: 2,
        threads_ns: 21_787_070,
        on_cpu_ns: 140_516,
        ready_ns: Some(59_751),
        hand_over_ns: 21_546_196,
        unknown_ns: 40_607,
        user_ns: 140_516,
        ..late
    };
    for facts in [late, waiting] {
        let verdict = decide(&facts);
        assert_eq!(verdict.reason, Some(NoVerdict::Unexplained), "{}", verdict.sentence(&facts));
        consistent(&facts);
    }
    // A thread that runs for a tenth of the time explains that the other one waits for it.
    let working = Facts { on_cpu_ns: 2_212_372, user_ns: 2_212_372, ..waiting };
    assert_eq!(decide(&working).limit, Limit::HandOver);
}

#[test]
fn waits_in_the_function_of_a_mapped_plan_are_page_faults() {
    let mut mapped = of("a function that sleeps");
    assert_eq!(decide(&mapped).limit, Limit::FunctionWaits);
    mapped.mapped = true;
    assert_eq!(decide(&mapped).limit, Limit::Device);
}

#[test]
fn stolen_time_counts_as_other_programs() {
    let mut stolen = of("a function that computes");
    let all = u64::from(stolen.cores) * stolen.elapsed_ns;
    let ns = all * 3 / 4;
    (stolen.user_ns, stolen.kernel_ns, stolen.on_cpu_ns) = (all - ns, 0, all - ns);
    (stolen.ready_ns, stolen.others_ns) = (Some(0), Some(0));
    stolen.unknown_ns = ns;
    assert_eq!(decide(&stolen).limit, Limit::Unknown);
    stolen.steal_ns = ns;
    assert_eq!(decide(&stolen).limit, Limit::OtherPrograms);
}

#[test]
fn memory_counts_only_if_the_function_could_use_it() {
    let mut full = of("a budget held by the caller");
    assert_eq!(decide(&full).limit, Limit::Memory);
    // Every processor has a call of the function that sleeps: more data in memory changes nothing.
    full.function_wall_ns = u64::from(full.cores) * full.elapsed_ns;
    full.function_ns = full.function_wall_ns;
    assert_eq!(decide(&full).limit, Limit::FunctionWaits);
}

#[test]
fn user_time_outside_of_the_run_is_never_the_function() {
    for plant in ["slow producer", "a slow caller", "cold files", "a function that sleeps"] {
        let facts = of(plant);
        let before = decide(&facts);
        for part in [0.1, 0.5, 1.0, 7.0] {
            let user_ns = facts.user_ns + (facts.elapsed_ns as f64 * part) as u64;
            let busy = Facts { user_ns, ..facts };
            let verdict = decide(&busy);
            assert_eq!(verdict.limit, before.limit, "{plant}: {}", verdict.sentence(&busy));
            let computes = |verdict: &Verdict| verdict.shares.unwrap().of(Limit::Compute);
            assert!(computes(&verdict) <= computes(&before) + 1, "{}", verdict.sentence(&busy));
        }
    }
    // If threads of the run wait for a processor during that time, the cause is unknown.
    let mut crowded = of("processor hogs");
    crowded.user_ns += crowded.others_ns.take().unwrap();
    crowded.others_ns = Some(0);
    let verdict = decide(&crowded);
    assert_eq!(verdict.reason, Some(NoVerdict::Unexplained), "{}", verdict.sentence(&crowded));
}

/// A window whose 64 workers may run the function one at a time, on eight processors.
#[test]
fn processors_that_the_plan_does_not_use_are_not_usable() {
    let one = of("one thread that computes");
    let rest = 63 * one.elapsed_ns;
    let (threads_ns, hand_over_ns) = (one.threads_ns + rest, one.hand_over_ns + rest);
    let waiting = Facts { cores: 8, threads: 64, threads_ns, hand_over_ns, ..one };
    let verdict = decide(&waiting.permitted(None));
    assert_eq!(verdict.limit, Limit::HandOver, "{}", verdict.sentence(&waiting));
    let permitted = waiting.permitted(Some(1));
    let verdict = decide(&permitted);
    let sentence = verdict.sentence(&permitted);
    assert_eq!(verdict.limit, Limit::Compute, "{sentence}");
    assert!(sentence.contains("more threads"), "{sentence}");
    assert_eq!(waiting.permitted(Some(8)), waiting);
    assert_eq!(waiting.permitted(Some(7)).cores, 7);
}

#[test]
fn a_function_that_waits_for_its_reservation_waits_for_memory() {
    let mut waits = of("a function that sleeps");
    waits.reserve_ns = std::mem::take(&mut waits.function_ns);
    let verdict = decide(&waits);
    let sentence = verdict.sentence(&waits);
    assert_eq!(verdict.limit, Limit::Memory, "{sentence}");
    assert!(sentence.contains("smaller reservations"), "{sentence}");
    let thread = ThreadTime {
        elapsed_ns: 100,
        compute_blocked_ns: 90,
        output_ns: 20,
        reserve_ns: 30,
        child_ns: 5,
        child_ready_ns: 4,
        helper_ns: 15,
        ..ThreadTime::default()
    };
    let facts = Facts::of(&Measured { threads: vec![thread], ..Measured::default() }, 1, 1);
    assert_eq!((facts.function_ns, facts.output_ns, facts.reserve_ns), (20, 20, 30));
    assert_eq!((facts.child_ns, facts.child_ready_ns), (5, 4));
}

/// Two commands at once on two processors, and other programs on both.
#[test]
fn other_programs_displace_child_processes_that_are_ready() {
    let all = 2_000_000_000;
    let waiting = Facts {
        elapsed_ns: all / 2,
        cores: 2,
        files: 13,
        threads: 2,
        threads_ns: all,
        on_cpu_ns: all / 100,
        user_ns: all / 100,
        ready_ns: Some(0),
        function_wall_ns: all,
        calls: 13,
        child_ns: all - all / 100,
        children_ns: all * 15 / 100,
        children_faults: 13_000,
        others_ns: Some(all * 80 / 100),
        ..Facts::default()
    };
    let verdict = decide(&waiting);
    assert_eq!(verdict.limit, Limit::ChildProcesses, "{}", verdict.sentence(&waiting));
    assert_eq!(verdict.shares.unwrap().of(Limit::OtherPrograms), 0);
    let ready = Facts { child_ready_ns: all * 80 / 100, ..waiting };
    let verdict = decide(&ready);
    assert_eq!(verdict.limit, Limit::OtherPrograms, "{}", verdict.sentence(&ready));
    consistent(&ready);
    // They waited for each other.
    let crowded = Facts { others_ns: Some(0), ..ready };
    assert_eq!(decide(&crowded).limit, Limit::ChildProcesses);
}

/// Checks that a verdict and its sentence do not contradict themselves.
fn consistent(facts: &Facts) {
    let verdict = decide(facts);
    let sentence = verdict.sentence(facts);
    assert!(!sentence.is_empty());
    let Some(shares) = verdict.shares else {
        assert!(!sentence.contains('%'), "{sentence}");
        return;
    };
    let sum: u32 = Limit::ALL.into_iter().map(|limit| shares.of(limit)).sum();
    assert_eq!(sum, 100, "{shares:?}");
    // The share of one file is that of the elapsed time.
    let of_shares = sentence.split("; one file took").next().unwrap();
    let named: Vec<u32> = percentages(of_shares);
    let parts = sentence.contains("% running and") || sentence.contains("% on the processors and");
    let listed: u32 = named.iter().sum::<u32>() - if parts { named[1] + named[2] } else { 0 };
    assert_eq!(listed, 100, "{sentence}");
    if parts {
        assert_eq!(named[0], named[1] + named[2], "{sentence}");
    }
    if verdict.limit != Limit::Unknown {
        let most = shares.of(verdict.limit);
        assert!(Limit::ALL.iter().all(|limit| shares.of(*limit) <= most));
        assert_eq!(named[0], most, "{sentence}");
    }
    if let Some(close) = verdict.close {
        assert!(shares.of(verdict.limit) - shares.of(close) <= CLOSE_POINTS);
    }
}

fn percentages(sentence: &str) -> Vec<u32> {
    let words: Vec<&str> = sentence.split_whitespace().collect();
    let pairs = words.windows(2).filter(|pair| pair[1].starts_with('%'));
    pairs.map(|pair| pair[0].parse().expect("a number before %")).collect()
}

prop_compose! {
    fn facts()(
        times in prop::collection::vec(0_u64..40_000_000_000, 21),
        small in prop::collection::vec(0_u64..400, 3),
        (cores, threads, files) in (1_u32..200, 1_u32..600, 0_u64..5),
        ready in prop::option::of(0_u64..40_000_000_000),
        others in prop::option::of(0_u64..40_000_000_000),
        device_bytes in prop::option::of(0_u64..3),
        others_device in 0.0..1.0,
        mapped: bool,
    ) -> Facts {
        Facts {
            elapsed_ns: times[0] / 10,
            cores, fewer_permits: cores % 2 == 0, files, threads, mapped, device_bytes, others_device,
            threads_ns: times[1],
            on_cpu_ns: times[2],
            ready_ns: ready,
            io_ns: times[3],
            hand_over_ns: times[4],
            memory_ns: times[5],
            input_ns: times[6],
            function_ns: times[7],
            unknown_ns: times[8],
            fetch_wall_ns: times[9],
            function_wall_ns: times[10],
            user_ns: times[11],
            kernel_ns: times[12],
            children_ns: small[0] * 1_000_000,
            children_faults: small[1],
            calls: small[2],
            others_ns: others,
            steal_ns: times[13] / 100,
            output_ns: times[14],
            reserve_ns: times[15],
            helper_ns: times[16],
            child_ns: times[17],
            child_ready_ns: times[20],
            throttled_ns: times[18] / 10,
            bytes: times[19],
            largest_ns: times[19] / 10,
            costliest: None,
        }
    }
}

proptest! {
    #[test]
    fn shares_add_up_and_no_sentence_contradicts_itself(facts in facts()) {
        consistent(&facts);
    }

    #[test]
    fn ranked_shares_are_in_order(facts in facts()) {
        if let Some(shares) = decide(&facts).shares {
            let ranked: Vec<u32> = Shares::ranked(&shares).into_iter().map(|(_, p)| p).collect();
            prop_assert!(ranked.is_sorted_by(|a, b| a >= b));
        }
    }
}
