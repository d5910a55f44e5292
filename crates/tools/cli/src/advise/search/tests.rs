use super::*;

#[test]
fn the_condition_follows_from_the_share_of_the_device() {
    let of = |share| condition(share).word();
    assert_eq!(of(Some(0.0)), "warm");
    assert_eq!(of(Some(0.5)), "mixed");
    assert_eq!(of(Some(0.99)), "cold");
    assert_eq!(of(None), "unknown");
}

#[test]
fn a_few_cached_files_do_not_make_a_job_warm() {
    assert_eq!(before(Some(0.1), Some(0.0)), Condition::Mixed);
    assert_eq!(before(Some(0.02), Some(0.0)), Condition::Cold);
    assert_eq!(before(Some(1.0), Some(0.0)), Condition::Warm);
    assert_eq!(before(Some(1.0), Some(1.0)), Condition::Cold);
    assert_eq!(
        (before(None, Some(1.0)), before(None, None)),
        (Condition::Cold, Condition::Unknown)
    );
    assert_eq!(after(Condition::Warm, Some(0.5)), Condition::Mixed);
    assert_eq!(after(Condition::Cold, Some(0.99)), Condition::Cold);
}

#[test]
fn files_on_several_file_systems_are_not_counted() {
    let medium = |id, disk: Option<&str>| {
        let mut medium = ioloom_sys::mount::medium(std::path::Path::new("/proc")).unwrap();
        (medium.mount.id, medium.disk) = (id, disk.map(str::to_owned));
        Some(medium)
    };
    let (first, second) = (medium(1, Some("sda")), medium(2, Some("sda")));
    assert!(is_counted(&[first.clone(), first.clone()]));
    assert!(!is_counted(&[first.clone(), second]));
    assert!(!is_counted(&[first, medium(1, None), None]));
    assert!(!is_counted(&[medium(3, None)]));
    assert!(!is_counted(&[]));
}

#[test]
fn evictions_take_time_of_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..200 {
        std::fs::write(dir.path().join(i.to_string()), "text").unwrap();
    }
    let budget = Budget { time: Duration::from_secs(1_000), bytes: 1 << 40 };
    let (paths, compute, stop) = ([dir.path().to_owned()], Compute::None, Arc::default());
    let mut search = Search::new(&paths, &compute, budget, (true, false), stop);
    let first = Trial { files: 10, elapsed_ns: 10_000_000_000, ..Trial::default() };
    let plans: [Plan; 1] = ["read/threads:n=2".parse().unwrap()];
    let (without, _) = search.shares(&first, 4.0, &plans);
    (search.evicting, search.evicted) = (Duration::from_secs(90), 10);
    let (with, _) = search.shares(&first, 4.0, &plans);
    assert!(with > 0 && 5 * with < without, "{with} {without}");
}

/// Runs that are not part of the comparison meet files as well.
#[test]
fn errors_of_all_runs_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    for i in 10..50 {
        std::fs::write(dir.path().join(format!("file-{i}")), "text").unwrap();
    }
    let budget = Budget { time: Duration::from_secs(1_000), bytes: 1 << 30 };
    let (paths, compute, stop) = ([dir.path().to_owned()], Compute::None, Arc::default());
    let mut search = Search::new(&paths, &compute, budget, (false, false), stop);
    assert_eq!(search.first_error(), None);
    let first = search.sample.first().unwrap().to_owned();
    std::fs::remove_file(&first).unwrap();
    search.first_impression("read/threads:n=2".parse().unwrap()).unwrap();
    let named = first.file_name().unwrap().to_str().unwrap();
    assert!(search.first_error().unwrap().contains(named), "{:?}", search.first_error());
    assert_eq!(search.errors, 1);
    // A sweep has its own count.
    search.error = None;
    search.exhaustive(4.0, "read/threads:n=2".parse().unwrap()).unwrap();
    assert!(search.first_error().is_some());
    assert_eq!(search.errors, 1);
}

fn tried(ns: u64) -> Tried {
    let trial = Trial { files: 1, elapsed_ns: ns, ..Trial::default() };
    let mut one = Tried::new("read/threads:n=1".parse().unwrap());
    one.trials.push(trial);
    one
}

#[test]
fn only_a_comparison_in_the_expected_condition_is_kept() {
    let known: Plan = "nowait/window:l=8,p=2".parse().unwrap();
    let with_known = |mut one: Tried| {
        one.plan = known;
        one
    };
    let found = |tried: Vec<Tried>, condition| Found {
        tried,
        chosen: Some(0),
        mean: 1.0,
        before: Condition::Cold,
        condition,
        cold: None,
        spent: Duration::ZERO,
        left_out: 0,
    };
    let both = || vec![tried(1), with_known(tried(2))];
    assert!(found(both(), Condition::Cold).teaches(Some(known), false));
    assert!(!found(both(), Condition::Mixed).teaches(Some(known), false));
    assert!(found(both(), Condition::Mixed).teaches(Some(known), true), "evicted before each run");
    assert!(!found(vec![tried(1)], Condition::Cold).teaches(None, false));
    let others = || vec![tried(1), tried(2)];
    assert!(found(others(), Condition::Cold).teaches(None, false));
    assert!(
        !found(others(), Condition::Cold).teaches(Some(known), false),
        "the known one is missing"
    );
    let mut refused = with_known(tried(2));
    refused.refused = Some("here".to_owned());
    let with_refused = |mut tried: Vec<Tried>| {
        tried.push(refused.clone());
        found(tried, Condition::Cold).teaches(Some(known), false)
    };
    assert!(!with_refused(vec![tried(1)]));
    assert!(with_refused(others()), "the known one cannot run here any more");
}

#[test]
fn the_default_is_always_a_finalist() {
    assert_eq!(finalists(&[9, 4, 3, 2, 1].map(tried)), [4, 3, 0]);
    assert_eq!(finalists(&[1, 4, 3].map(tried)), [0, 2, 1]);
}

#[test]
fn all_finalists_have_as_many_runs_within_a_small_budget() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..4_000 {
        std::fs::write(dir.path().join(i.to_string()), [1; 4096]).unwrap();
    }
    let budget = Budget { time: Duration::from_secs(20), bytes: 13 << 20 };
    let paths = [dir.path().to_owned()];
    let stop = Arc::new(AtomicBool::new(false));
    let compute = Compute::None;
    let search = Search::new(&paths, &compute, budget, (false, false), stop);
    let (search, found) = search.compare(|_, _| None).unwrap();
    assert!(search.bytes <= budget.bytes, "{}", search.bytes);
    let has_run = |one: &&Tried| one.refused.is_none();
    // A plan that lost in the first rounds can be among the best at the end.
    let runs: Vec<usize> = found.tried.iter().filter(has_run).map(|one| one.trials.len()).collect();
    let most = runs.iter().copied().max().unwrap();
    let among = runs.iter().filter(|count| **count == most).count();
    assert!(most > FIRST_ROUNDS && among > 1, "{runs:?}");
    assert!(runs.iter().all(|count| [FIRST_ROUNDS, most].contains(count)), "{runs:?}");
    let trials = || found.tried.iter().filter(has_run).flat_map(|one| &one.trials);
    assert!(trials().all(|trial| !trial.cut && trial.files > 0), "{:?}", found.tried);
}
