//! The built-in claims are complete, and every contrast refers to existing arms, levels and
//! locations.

use crate::expansion::{Expanded, arms, plan, studies};
use crate::synthetic::Store;
use ioloom_claims::contrast::ladder::Shape;
use ioloom_claims::contrast::ratio::Ratio;
use ioloom_claims::pattern::matches;
use ioloom_claims::{
    Claim, Contrast, Location, Rule, Test, Verdict, ledger, load, verdict, verdicts,
};
use ioloom_model::study::Experiment;
use ioloom_model::{Compute, Distribution, Measured, StudySpec};
use ioloom_stats::Claimed;
use std::collections::BTreeSet;

#[test]
fn every_claim_of_the_sources_is_present() {
    let claims = load(ioloom_studies::ALL.iter().map(|study| (study.name, study.claims))).unwrap();
    assert_eq!(claims, ledger());
    let all: BTreeSet<&str> = claims.iter().map(|c| c.id.as_str()).collect();
    // The source does not claim 001-W11, which an earlier ledger had.
    for n in (1..=10).chain([12]) {
        assert!(all.contains(format!("001-W{n}").as_str()), "001-W{n} is missing");
    }
    assert!(!all.contains("001-W11"));
    let pages = (1..=18).map(|n| format!("002-P{n}"));
    for id in pages.chain((16..=34).chain([40, 41]).map(|n| format!("002-{n}"))) {
        assert!(all.contains(id.as_str()), "{id} is missing");
    }
    for n in 1..=14 {
        assert!(all.contains(format!("003-C{n}").as_str()), "003-C{n} is missing");
    }
    for n in 1..=27 {
        assert!(all.contains(format!("004-{n:02}").as_str()), "004-{n:02} is missing");
    }
    let ids: BTreeSet<&str> = all.into_iter().filter(|id| id.starts_with("000-")).collect();
    let wanted = (1..=57)
        .map(|n| format!("000-P{n:02}"))
        .chain((1..=2).map(|n| format!("000-D{n}")))
        .chain((1..=7).map(|n| format!("000-S{n}")))
        .chain(["000-P08a".to_owned(), "000-P08b".to_owned()]);
    for id in wanted {
        assert!(ids.contains(id.as_str()), "{id} is missing");
    }
    assert_eq!(ids.len(), 68);
}

#[test]
fn claims_are_complete_sentences() {
    for claim in ledger() {
        for text in [&claim.statement, &claim.scope, &claim.confirms, &claim.refutes] {
            assert!(
                text.len() > 10 && text.is_ascii() && text.ends_with('.'),
                "{}: {text}",
                claim.id
            );
        }
        let caveat = claim.caveat.as_deref().unwrap_or("None, in words.");
        assert!(caveat.is_ascii() && caveat.ends_with('.'), "{}: {caveat}", claim.id);
        let untested = claim.contrasts.iter().all(|c| matches!(c.contrast, Contrast::Untested(_)));
        let only_said = claim.published.is_empty();
        assert!(
            !only_said || !claim.confounds.is_empty(),
            "{}: neither a number nor a confound",
            claim.id
        );
        if untested {
            let known = ["000-P05", "000-P21", "000-P30", "000-P57", "004-20"];
            assert!(known.contains(&claim.id.as_str()), "{} has no test", claim.id);
        }
    }
}

fn experiment<'a>(studies: &'a [StudySpec], place: &Location) -> &'a Experiment {
    let study = studies.iter().find(|s| s.name == place.study);
    let study = study.unwrap_or_else(|| panic!("no study {}", place.study));
    let found = study.experiments.iter().find(|e| e.name == place.experiment);
    found.unwrap_or_else(|| panic!("no experiment {}", place.experiment))
}

fn belongs(pattern: &str, arm: &Expanded) -> bool {
    matches(pattern, &arm.arm, &arm.factors)
}

fn demand_ns(compute: &Compute) -> Option<f64> {
    match compute {
        Compute::Sleep(Some(Distribution::Identical(ns)))
        | Compute::Spin(Some(Distribution::Identical(ns))) => Some(*ns as f64),
        _ => None,
    }
}

/// Checks that a location specifies one file set, condition and compute, unless the contrast varies
/// the compute.
fn check_place(experiment: &Experiment, place: &Location, contrast: &Contrast, id: &str) {
    let mut sets: BTreeSet<String> = experiment.sets.iter().cloned().collect();
    if sets.is_empty() {
        // Runs of a study without files have an unnamed file set.
        sets.insert(String::new());
    }
    let found: Vec<Expanded> = arms(experiment)
        .into_iter()
        .filter(|a| contrast.patterns().iter().any(|p| belongs(p, a)))
        .collect();
    if found.iter().any(|a| a.set.is_some()) {
        sets = found.iter().filter_map(|a| a.set.clone()).collect();
        assert!(sets.iter().all(|s| place.has_set(s)), "{id}: {} of {sets:?}", place.set);
    }
    assert!(sets.iter().any(|s| place.has_set(s)), "{id}: {} of {sets:?}", place.set);
    match place.condition {
        Some(condition) => assert!(experiment.conditions.contains(&condition), "{id}"),
        None => assert_eq!(experiment.conditions.len(), 1, "{id}: several conditions"),
    }
    match &place.compute {
        Some(compute) => assert!(experiment.computes.contains(compute), "{id}: {compute}"),
        None if contrast.axis() == Some("compute") => {
            assert!(experiment.computes.iter().all(|c| demand_ns(c).is_some()), "{id}");
        }
        None => assert_eq!(experiment.computes.len(), 1, "{id}: several computes"),
    }
}

/// Returns the levels in the study for a pattern of a contrast.
fn levels(experiment: &Experiment, pattern: &str, axis: &str) -> Vec<f64> {
    if axis == "compute" {
        return experiment.computes.iter().filter_map(demand_ns).collect();
    }
    let found = arms(experiment).into_iter().filter(|a| belongs(pattern, a));
    found.filter_map(|a| a.factors.get(axis).copied()).collect()
}

#[test]
fn every_contrast_can_be_run_by_the_study() {
    let studies = studies();
    for claim in ledger() {
        for contrast in claim.contrasts.iter().chain(&claim.notes) {
            for place in contrast.locations() {
                let experiment = experiment(&studies, place);
                check_place(experiment, place, contrast, &claim.id);
                let all = arms(experiment);
                for pattern in contrast.patterns() {
                    let found = all.iter().filter(|a| belongs(pattern, a)).count();
                    assert!(found > 0, "{}: no arm {pattern} in {}", claim.id, place.experiment);
                }
            }
            check_levels(&studies, contrast, &claim.id);
        }
    }
}

/// Without a chunk, the first request of a file has at most 64 KiB, and only that is measured as a read call.
/// A file that ends with a page is followed by a read of nothing, which would be every second call.
#[test]
fn read_calls_of_a_size_request_that_size() {
    let studies = studies();
    let mut checked = 0;
    for claim in ledger() {
        for contrast in claim.contrasts.iter().chain(&claim.notes) {
            if !contrast.metrics().iter().any(|metric| metric.contains("calls.read.")) {
                continue;
            }
            for place in contrast.locations() {
                let all = arms(experiment(&studies, place));
                let own = |a: &&Expanded| contrast.patterns().iter().any(|p| belongs(p, a));
                for arm in all.iter().filter(own) {
                    let Some(size) = arm.factors.get("size") else { continue };
                    let wanted = Some((*size as u64).max(4096));
                    assert_eq!(plan(arm).chunk_bytes, wanted, "{}: {}", claim.id, arm.arm);
                    let set = arm.set.as_ref().expect("a set of its own");
                    let set = studies.iter().find_map(|study| study.sets.get(set));
                    let Distribution::Identical(bytes) = set.expect("a set").full.size else {
                        panic!("{}: {}: files of several sizes", claim.id, arm.arm);
                    };
                    assert!(!bytes.is_multiple_of(4096), "{}: {}", claim.id, arm.arm);
                    checked += 1;
                }
            }
        }
    }
    assert!(checked >= 50, "{checked} arms");
}

/// What a study has is not what a test lacks.
#[test]
fn untested_contrasts_name_no_existing_arm() {
    let studies = studies();
    let experiments = studies.iter().flat_map(|study| &study.experiments);
    let names: BTreeSet<String> = experiments.flat_map(arms).map(|arm| arm.arm).collect();
    for claim in ledger() {
        for test in &claim.contrasts {
            let Contrast::Untested(untested) = &test.contrast else { continue };
            let words = untested.needs.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let known: Vec<&str> =
                words.filter(|word| word.contains('-') && names.contains(*word)).collect();
            assert!(known.is_empty(), "{}: {known:?}", claim.id);
        }
    }
}

fn check_levels(studies: &[StudySpec], contrast: &Contrast, id: &str) {
    let Some(axis) = contrast.axis() else { return };
    let experiment = experiment(studies, contrast.locations()[0]);
    for pattern in contrast.patterns() {
        let found = levels(experiment, pattern, axis);
        match contrast {
            Contrast::Gain(gain) => {
                let levels = &gain.levels;
                assert!(levels.iter().all(|l| found.contains(l)), "{id}: {levels:?} of {found:?}");
            }
            Contrast::Ladder(ladder) => {
                let [lo, hi] = ladder.levels.unwrap_or([f64::MIN, f64::MAX]);
                let used: Vec<f64> = found.into_iter().filter(|l| (lo..=hi).contains(l)).collect();
                assert!(
                    used.len() >= 3 || (ladder.shape == Shape::Flat && used.len() == 2),
                    "{id}: {used:?}"
                );
                if let Some([from, to]) = ladder.within {
                    assert!(used.iter().any(|l| (from..=to).contains(l)), "{id}: {used:?}");
                }
            }
            _ => assert!(found.len() >= 3, "{id}: {found:?}"),
        }
    }
}

/// Metrics of the exchange subject.
const EXCHANGE: [&str; 16] = [
    "extra.acknowledged_orders",
    "extra.buy_latency_p50_ns",
    "extra.buy_latency_p99_ns",
    "extra.kept_orders",
    "extra.latency_p99_ns",
    "extra.request_ns",
    "extra.requests_per_s",
    "extra.served_after",
    "extra.server_cores",
    "extra.server_cpu_per_request_ns",
    "extra.server_memory_bytes",
    "extra.server_peak_bytes",
    "extra.server_switches_per_request",
    "extra.stocks_that_differ",
    "extra.turned_away",
    "extra.visit_p50_ns",
];

/// Metrics of the copy subject that no other subject has.
const COPIES: [&str; 13] = [
    "extra.copy_even_ns",
    "extra.copy_median_ns",
    "extra.copy_odd_ns",
    "extra.copy_slowest_ns",
    "extra.flushes_copy",
    "extra.flushes_sync",
    "extra.odd_asked",
    "extra.odd_refused",
    "extra.place_turned_share",
    "extra.reader_device_bytes",
    "extra.reader_ns",
    "extra.tail_descriptors",
    "extra.verify_device_bytes",
];

/// Metrics of the page cache subject.
const PAGES: [&str; 61] = [
    "extra.again_device_bytes",
    "extra.available_bytes",
    "extra.background_limit_bytes",
    "extra.cache_growth_bytes",
    "extra.changed_before_bytes",
    "extra.changed_dropped_bytes",
    "extra.changed_gone_at_eighth_bytes",
    "extra.changed_gone_at_half_bytes",
    "extra.changed_synced_bytes",
    "extra.clean_before_bytes",
    "extra.clean_dropped_bytes",
    "extra.clean_gone_at_eighth_bytes",
    "extra.clean_gone_at_half_bytes",
    "extra.cold_ns",
    "extra.cold_off_cpu_ns",
    "extra.device_busy_cold_ns",
    "extra.device_cold_bytes",
    "extra.device_flushes",
    "extra.device_pages_after_advice_bytes",
    "extra.device_pages_by_device_bytes",
    "extra.device_pages_by_file_bytes",
    "extra.device_queue",
    "extra.device_rate_times_await",
    "extra.device_warm_bytes",
    "extra.device_written_bytes",
    "extra.dirty_background_ratio",
    "extra.dirty_bytes",
    "extra.dirty_limit_bytes",
    "extra.dirty_limit_held_bytes",
    "extra.background_limit_held_bytes",
    "extra.available_held_bytes",
    "extra.dirty_ratio",
    "extra.dirty_writeback_centisecs",
    "extra.durable_ns",
    "extra.fastest_ns",
    "extra.file_bytes",
    "extra.file_pages_by_device_bytes",
    "extra.fresh_bytes",
    "extra.fresh_old_after_sync_bytes",
    "extra.kind_bytes",
    "extra.other_process_device_bytes",
    "extra.other_shells",
    "extra.other_shells_began",
    "extra.pagein_cold_bytes",
    "extra.pagein_warm_bytes",
    "extra.pageout_bytes",
    "extra.privileged_shell_began",
    "extra.privileged_tee_wrote",
    "extra.range_bytes",
    "extra.resident_after_bytes",
    "extra.returned_ns",
    "extra.settled_ns",
    "extra.shared_synced_bytes",
    "extra.shells",
    "extra.slowest_ns",
    "extra.total_bytes",
    "extra.unwritten_bytes",
    "extra.unwritten_end_bytes",
    "extra.unwritten_most_bytes",
    "extra.warm_cpu_ns",
    "extra.warm_ns",
];

/// Every metric used in claims is present in a complete record.
#[test]
fn metrics_are_known() {
    let timed = ioloom_model::CallStats { count: 1, timed: 1, ..Default::default() };
    let fields = Measured {
        calls_end_ns: Some(1),
        first_compute_ns: Some(1),
        last_compute_ns: Some(1),
        device_busy: Some(0.5),
        threads: vec![ioloom_model::ThreadTime { elapsed_ns: 10, ..Default::default() }],
        calls: ioloom_model::CallKind::ALL.map(|kind| (kind, timed)).into(),
        ..Measured::default()
    };
    // Metrics of the walk and memory subjects.
    let walk = ["head_travel_bytes", "elapsed_per_file_ns", "cpu_per_file_ns", "access_ns"];
    let ours =
        [&["files", "bytes", "task_ns_mean"][..], &walk, &PAGES, &COPIES, &EXCHANGE].concat();
    for claim in ledger() {
        for contrast in claim.contrasts.iter().chain(&claim.notes) {
            for metric in contrast.metrics() {
                for name in ioloom_claims::formula::names(metric) {
                    let known = ours.contains(&name) || fields.metric(name).is_some();
                    assert!(known, "{}: no number {name}", claim.id);
                }
            }
        }
    }
}

#[test]
fn quick_mode_can_decide_some_claims() {
    let studies = studies();
    let headline = |place: &Location, pattern: &str| {
        arms(experiment(&studies, place)).iter().any(|a| a.headline && belongs(pattern, a))
    };
    let decided: Vec<&str> = ledger()
        .iter()
        .filter(|claim| {
            claim.contrasts.iter().any(|c| match &c.contrast {
                Contrast::Ratio(c) => {
                    headline(&c.at, &c.a) && headline(c.at_b.as_ref().unwrap_or(&c.at), &c.b)
                }
                Contrast::Every(c) => headline(&c.at, &c.arm),
                Contrast::Share(c) => headline(&c.at, &c.a) && headline(&c.at, &c.b),
                Contrast::RatioOfBest(c) => {
                    c.a.iter().any(|p| headline(&c.at, p)) && c.b.iter().any(|p| headline(&c.at, p))
                }
                _ => false,
            })
        })
        .map(|c| c.id.as_str())
        .collect();
    for id in [
        "001-W7", "001-W8", "000-P01", "000-P06", "000-P07", "000-P33", "000-P36", "000-P37",
        "000-D2", "002-P1", "002-P3", "002-17", "002-P7", "002-P16", "003-C1", "003-C3", "003-C5",
        "003-C7", "003-C13", "003-C14", "004-01", "004-03", "004-06", "004-07", "004-08", "004-11",
        "004-12", "004-18", "004-23", "004-25", "004-02", "004-04", "004-21", "004-27",
    ] {
        assert!(decided.contains(&id), "{id}: {decided:?}");
    }
}

#[test]
fn wrong_claims_are_refused_with_file_and_reason() {
    let good = "[[claim]]\nid = \"000-X1\"\nseed = 0\nstatement = \"s\"\nscope = \"s\"\n\
                confirms = \"c\"\nrefutes = \"r\"\n";
    let ratio = "[[claim.contrast]]\nkind = \"ratio\"\nat = { experiment = \"e\", set = \"E\" }\n\
                 a = \"x\"\nb = \"y\"\nclaim = \"less\"\n";
    assert_eq!(load([("x", format!("{good}{ratio}").as_str())]).unwrap().len(), 1);
    let published = "[[claim.contrast]]\nkind = \"published\"\nformula = \"a / b\"\n\
                     within = [0, 1]\nsays = \"s\"\n";
    let at_most = ratio.replace("less", "at-most");
    assert_eq!(load([("x", format!("{good}{at_most}margin = 0.1\n").as_str())]).unwrap().len(), 1);
    let gain = at_most.replace("ratio", "gain");
    let gain = format!("{gain}axis = \"n\"\nlevels = [1, 2]\nrelative = true\n");
    for (text, part) in [
        (good.to_owned(), "no contrast"),
        (format!("{good}contrast = []\n"), "no contrast"),
        (format!("{good}{ratio}metric = \"elapsed_ns -\"\n"), "expected a number at the end"),
        (format!("{good}{ratio}warp = 9\n"), "warp"),
        (format!("{good}same_as = \"000-X9\"\n"), "unknown claim 000-X9"),
        (format!("{good}same_as = \"000-X9\"\n{ratio}"), "cannot have tests"),
        (format!("{good}{ratio}times = 0.5\n"), "times must be above 1"),
        (format!("{good}{at_most}times = 2.0\n"), "requires the claim less or greater"),
        (format!("{good}{gain}"), "a gain has no margin"),
        (format!("{good}{ratio}no_size = \"unknown\"\n"), "direction only"),
        (format!("{good}{ratio}size = \"2\"\nno_size = \"direction only\"\n"), "either size"),
        (format!("{good}{published}values = {{ a = \"000_roles[12,12].elapsed_ms\" }}\n"), "'b'"),
        (format!("{good}{published}values = {{ a = \"000_roles\" }}\n"), "use TABLE"),
        (format!("{good}{ratio}\n{good}{ratio}"), "two claims"),
        (format!("{good}{ratio}").replace("000-X1", "001-X1"), "must start with"),
        (format!("{good}{ratio}").replace("\"less\"", "\"smaller\""), "smaller"),
    ] {
        let error = load([("mine.toml", text.as_str())]).unwrap_err().to_string();
        assert!(error.contains("mine.toml") && error.contains(part), "{part}: {error}");
    }
}

/// Reports whether a text says that something takes at most so much longer, or no longer.
fn is_at_most_longer(text: &str) -> bool {
    ["longer", "later", "slower"].iter().any(|word| {
        let percent = |rest: &str| rest.split(' ').nth(2) == Some(*word);
        text.contains(&format!(" no {word} ")) || text.split("at most ").skip(1).any(percent)
    })
}

/// A claim that something takes at most so much longer is not refuted by runs in which it takes less.
#[test]
fn less_time_does_not_refute_at_most_longer() {
    let mut store = Store::new(12);
    store.arm("a", &[], 80.0).arm("b", &[], 100.0);
    let at = Location {
        study: "pipeline".to_owned(),
        experiment: "e".to_owned(),
        set: "E".to_owned(),
        condition: None,
        compute: None,
        medium: None,
    };
    let mut tested = BTreeSet::new();
    for claim in ledger().iter().filter(|claim| is_at_most_longer(&claim.confirms)) {
        for test in &claim.contrasts {
            let Contrast::Ratio(own) = &test.contrast else { continue };
            if !matches!(own.claim, Claimed::Equal | Claimed::AtMost) {
                continue;
            }
            let contrast = Contrast::Ratio(Ratio {
                at: at.clone(),
                at_b: None,
                a: "a".to_owned(),
                b: "b".to_owned(),
                metric: "elapsed_ns".to_owned(),
                metric_b: None,
                ..own.clone()
            });
            let contrasts = vec![Test { contrast, ..test.clone() }];
            let one = Claim { contrasts, notes: Vec::new(), ..claim.clone() };
            let found = verdict(&one, &store.records, Rule::STANDARD);
            assert_eq!(found.verdict, Verdict::Confirmed, "{}: {}", claim.id, found.sentence);
            tested.insert(claim.id.as_str());
        }
    }
    for id in ["002-P10", "003-C13", "004-02", "004-04"] {
        assert!(tested.contains(id), "{id}: {tested:?}");
    }
}

/// An exact replication without noise must be able to confirm a claim: the threshold of a contrast
/// never exceeds the published effect. No claim is exempt by name.
#[test]
fn an_exact_replication_reaches_every_threshold() {
    let (mut sized, mut exempt) = (0, 0);
    for claim in ledger() {
        for test in &claim.contrasts {
            let Some(size) = test.published_size().unwrap() else { continue };
            sized += 1;
            let margin = |own: Option<f64>| 1.0 + own.unwrap_or(Rule::STANDARD.margin);
            let reached = |claimed: Claimed, factor: f64| match claimed {
                Claimed::Less => size <= 1.0 / factor,
                Claimed::Greater => size >= factor,
                Claimed::Equal => (1.0 / factor..=factor).contains(&size),
                Claimed::AtMost => size <= factor,
            };
            let reaches = match &test.contrast {
                Contrast::Ratio(c) => reached(c.claim, c.times.unwrap_or(margin(c.margin))),
                Contrast::RatioOfBest(c) => reached(c.claim, margin(c.margin)),
                Contrast::Share(c) => size * c.points.signum() >= c.points.abs(),
                Contrast::Ladder(c) => match c.shape {
                    Shape::Falling => reached(Claimed::Less, margin(c.margin)),
                    Shape::Rising => reached(Claimed::Greater, margin(c.margin)),
                    Shape::Flat => reached(Claimed::Equal, margin(c.margin)),
                    Shape::Knee | Shape::Lowest => true,
                },
                _ => true,
            };
            // Otherwise the publication itself must contradict the statement: its effect has the
            // opposite direction, so an exact replication refutes the claim, or its numbers fail a
            // contrast that recomputes them.
            let opposite = match &test.contrast {
                Contrast::Ratio(c) => match c.claim {
                    Claimed::Less => size > 1.0,
                    Claimed::Greater => size < 1.0,
                    Claimed::Equal => false,
                    Claimed::AtMost => size > margin(c.margin),
                },
                _ => false,
            };
            let inconsistent = || {
                let parts = verdict(claim, &[], Rule::STANDARD).parts;
                parts.iter().any(|part| part.kind == "published" && part.holds == Some(false))
            };
            assert!(
                reaches || opposite || inconsistent(),
                "{}: published {size}, {test:?}",
                claim.id
            );
            exempt += usize::from(!reaches);
        }
    }
    assert!(exempt <= 3, "{exempt} contrasts cannot be confirmed by an exact replication");
    assert!(sized >= 45, "{sized} contrasts state the published size");
}

/// Every contrast on runs states the published size or why it states none. The tests of some claims
/// were registered before their first runs, so a size would change them; their number can only fall.
#[test]
fn contrasts_without_a_published_size_become_fewer() {
    const WITHOUT_MAX: usize = 62;
    let mut without = Vec::new();
    for claim in ledger().iter().filter(|claim| claim.same_as.is_none()) {
        for (at, test) in claim.contrasts.iter().enumerate() {
            let stated = test.size.is_some() || test.no_size.is_some();
            if !stated && !test.locations().is_empty() {
                without.push(format!("{} contrast {at}", claim.id));
            }
        }
    }
    assert!(without.len() <= WITHOUT_MAX, "{} without a size: {without:?}", without.len());
}

#[test]
fn equivalent_claims_share_their_tests() {
    let all = ledger();
    let again: Vec<_> = all.iter().filter(|claim| claim.same_as.is_some()).collect();
    assert!(again.len() > 10);
    for claim in again {
        let first = all.iter().find(|c| Some(&c.id) == claim.same_as.as_ref()).unwrap();
        assert_eq!(claim.contrasts, first.contrasts, "{}", claim.id);
        assert_eq!(claim.combine, first.combine, "{}", claim.id);
    }
}

/// Runs on this machine cannot confirm a statement about hardware that it does not have.
#[test]
fn statements_about_hardware_name_it() {
    const HARDWARE: [&str; 8] =
        ["hard disk", "NVMe", "USB", "SATA", "flash drive", "hardware threads", "Ryzen", "Xeon"];
    for claim in ioloom_claims::ledger() {
        let measured = claim.contrasts.iter().any(|test| !test.locations().is_empty());
        let named = HARDWARE.iter().find(|name| claim.statement.contains(**name));
        if let (Some(named), true) = (named, measured) {
            assert!(claim.hardware.is_some(), "{} is about a {named}", claim.id);
        }
    }
}

#[test]
fn every_open_claim_says_what_would_decide_it() {
    let all: Vec<&Claim> = ledger().iter().collect();
    for found in verdicts(&all, &[], Rule::STANDARD) {
        let is_open = matches!(found.verdict, Verdict::Undecided | Verdict::NotTestableHere);
        assert_eq!(is_open, !found.needs.is_empty(), "{}: {:?}", found.id, found.needs);
    }
}
