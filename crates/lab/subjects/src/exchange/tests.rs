use super::*;
use ioloom_model::Outcome;
use ioloom_model::record::Observe;
use ioloom_serve::StoreKind;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::{PoisonError, RwLock};
use tempfile::TempDir;

/// Servers run in this process and `select` cannot serve descriptors above 1023, so tests with many
/// connections must run one at a time.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

/// A plan that takes a few milliseconds.
const SHORT: &str = "exchange:cell/model=select,clients=1,orders=2,sleep=1ms,server=inside";

fn order(plan: &str, dir: &Path) -> RunOrder {
    RunOrder {
        plan: plan.parse().unwrap(),
        compute: Compute::None,
        dir: dir.to_owned(),
        set: None,
        files_max: None,
        seed: 1,
        spans_max: 0,
        observe: Observe::default(),
    }
}

/// Returns a directory accessible to a database server running as another user.
fn open_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

fn outcome(plan: &str) -> Outcome {
    outcome_in(plan, open_dir().path())
}

fn outcome_in(plan: &str, dir: &Path) -> Outcome {
    let floods = plan.starts_with("exchange:flood");
    let _alone = floods.then(|| DESCRIPTORS.write().unwrap_or_else(PoisonError::into_inner));
    let _beside = (!floods).then(|| DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner));
    let order = order(plan, dir);
    Exchange.explain(&order.plan).unwrap();
    let answer = Exchange.run(&order);
    let left = std::fs::read_dir(dir).unwrap().count();
    assert_eq!(left, 0, "{plan}: the run left files behind");
    answer.outcome
}

fn measured(plan: &str) -> Measured {
    match outcome(plan) {
        Outcome::Done { measured } => *measured,
        other => panic!("{plan}: {other:?}"),
    }
}

fn number(measured: &Measured, name: &str) -> f64 {
    *measured.extra.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", measured.extra))
}

/// Runs a plan until all of these numbers are positive. On a busy machine, a short load can end before the first
/// answers.
fn measured_with(plan: &str, names: &[&str]) -> Measured {
    let is_positive = |number: Option<&f64>| number.is_some_and(|number| *number > 0.0);
    let has_all = |m: &Measured| names.iter().all(|name| is_positive(m.extra.get(*name)));
    let attempt = || match outcome(plan) {
        Outcome::Done { measured } => Some(*measured).filter(has_all),
        Outcome::Failed { reason } if reason.contains("no request was answered") => None,
        other => panic!("{plan}: {other:?}"),
    };
    let found = (0..20).find_map(|_| attempt());
    found.unwrap_or_else(|| panic!("{plan}: no load has all of {names:?}"))
}

#[test]
fn cells_are_what_the_clients_sleep_in_every_model() {
    for (model, rounds) in [
        ("select", 1.0),
        ("pool,workers=2", 3.0),
        ("pool,workers=2,sharing=rw,show=per-stock", 3.0),
        ("request-pool,workers=2", 1.0),
        ("null", 1.0),
    ] {
        let plan =
            format!("exchange:cell/model={model},clients=5,orders=4,sleep=5ms,server=inside");
        let m = measured(&plan);
        assert_eq!(number(&m, "requests"), 20.0, "{plan}");
        assert_eq!(number(&m, "law_ns"), rounds * 4.0 * 5e6, "{plan}");
        // Sleeps cannot be shorter than requested; there is no check of how much longer they are.
        assert!(m.elapsed_ns as f64 >= number(&m, "law_ns"), "{plan}");
        assert_eq!(number(&m, "rounds"), rounds, "{plan}");
        assert_eq!(m.bytes, 20 * 8192, "{plan}");
    }
}

#[test]
fn every_model_serves_a_load_and_records_its_numbers() {
    for model in ["epoll", "select", "thread", "pool,workers=8", "request-pool", "reuseport"] {
        for dialect in ["padded", "v2"] {
            let plan = format!(
                "exchange:closed/model={model},connections=3,lasts=40ms,dialect={dialect},idle=2,\
                 halves=1,server=inside"
            );
            let names = ["requests_per_s", "requests", "latency_p99_ns"];
            let kinds = ["show_latency_p50_ns", "buy_latency_p50_ns"];
            let m = measured_with(&plan, &[&names[..], &kinds].concat());
            assert!(!m.extra.contains_key("server_cpu_ns"), "one process has one clock");
        }
    }
}

#[test]
fn requests_take_the_requested_processor_time() {
    for model in ["select", "reuseport", "pool,workers=3", "request-pool,workers=2"] {
        let plan = format!(
            "exchange:closed/model={model},connections=2,lasts=60ms,mix=trade,service=1ms,\
             server=inside"
        );
        let m = measured_with(&plan, &["buy_latency_p50_ns"]);
        assert!(number(&m, "buy_latency_p50_ns") >= 1e6, "{plan}");
    }
}

#[test]
fn time_inside_of_a_lock_is_bounded_by_what_is_held() {
    // With one lock or one stock, two requests never overlap. On any machine, the rate is at most
    // the inverse of the time.
    for plan in [
        "sharing=global",
        "sharing=writer",
        "sharing=stock,stocks=1",
        "sharing=rw,stocks=1",
        "sharing=shards,stocks=1",
    ] {
        let plan = format!(
            "exchange:closed/model=thread,{plan},connections=4,lasts=80ms,mix=trade,service=1ms,\
             in-lock=yes,server=inside"
        );
        let m = measured_with(&plan, &["request_ns"]);
        assert_eq!(number(&m, "law_request_ns"), 1e6, "{plan}");
        // Only requests sent and answered within the measured time count.
        assert!(number(&m, "request_ns") >= 0.99e6, "{plan}");
    }
}

#[test]
fn durable_loads_record_the_orders_per_commit() {
    let dir = tempfile::tempdir().unwrap();
    for store in StoreKind::ALL {
        if let Err(reason) = probe_store(*store, dir.path()) {
            println!("skipped: {reason}");
            continue;
        }
        let plan = format!(
            "exchange:closed/model=epoll,connections=4,lasts=60ms,durability=group,store={store},\
             mix=trade,server=inside"
        );
        let m = measured_with(&plan, &["commits", "orders_per_commit"]);
        assert!(number(&m, "commits") >= 1.0, "{plan}");
    }
}

#[test]
fn a_database_is_made_for_a_load_and_thrown_away() {
    let dir = open_dir();
    for durability in ["os", "group", "each"] {
        let plan = format!(
            "exchange:closed/model=epoll,connections=4,lasts=500ms,durability={durability},\
             store=postgres,mix=trade,dialect=v2,server=inside"
        );
        if let Err(reason) = Exchange.probe(&plan.parse().unwrap(), &Compute::None, dir.path()) {
            assert!(reason.contains("apt install") || reason.contains("--dir"), "{reason}");
            println!("skipped: {reason}");
            return;
        }
        let measured = measured_with(&plan, &["requests_per_s", "orders_per_commit"]);
        // For orders answered after the load has finished, the commits count but the orders do not.
        assert!(number(&measured, "orders_per_commit") > 0.9, "{durability}: {:?}", measured.extra);
    }
}

/// Like root's home directory, this is inaccessible to PostgreSQL, which does not run as root.
#[test]
fn a_database_is_made_for_a_load_in_a_directory_that_lets_nobody_in() {
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).unwrap();
    let dir = closed.path().join("work");
    std::fs::create_dir(&dir).unwrap();
    let plan = "exchange:closed/model=epoll,connections=2,lasts=500ms,durability=group,\
                store=postgres,mix=trade,dialect=v2,server=inside";
    if let Err(reason) = Exchange.probe(&plan.parse().unwrap(), &Compute::None, &dir) {
        // If /tmp is on a different disk, no other directory on the same disk is accessible.
        assert!(reason.contains("apt install") || reason.contains("--dir"), "{reason}");
        println!("skipped: {reason}");
        return;
    }
    // On a busy machine, a short load can end before the first answers.
    let unanswered = |outcome: &Outcome| format!("{outcome:?}").contains("no request was answered");
    let outcome = (0..9).map(|_| outcome_in(plan, &dir)).find(|outcome| !unanswered(outcome));
    assert!(matches!(outcome, Some(Outcome::Done { .. })), "{outcome:?}");
}

#[test]
fn histories_of_lists_of_one_moment_are_explained() {
    for model in ["thread,sharing=stock", "epoll", "reuseport,sharing=rw"] {
        let plan = format!(
            "exchange:histories/model={model},histories=2,connections=3,dialect=v2,stocks=50,\
             server=inside"
        );
        let m = measured(&plan);
        assert_eq!(number(&m, "histories"), 2.0, "{plan}");
        assert_eq!(number(&m, "histories_violated"), 0.0, "{plan}");
        assert!(number(&m, "requests") >= 1500.0, "{plan}");
    }
}

#[test]
fn visitors_are_served_whether_or_not_somebody_stays() {
    for held in ["yes", "no"] {
        let plan =
            format!("exchange:visits/model=select,visits=5,held={held},dialect=line,server=inside");
        let m = measured(&plan);
        assert!(number(&m, "visit_p50_ns") > 0.0 && number(&m, "visit_ns") > 0.0, "{plan}");
    }
}

#[test]
fn a_flooded_server_turns_away_and_serves_again() {
    let plan = "exchange:flood/model=select,connections=1050,dialect=line,server=inside";
    if let Err(reason) = Exchange.probe(&plan.parse().unwrap(), &Compute::None, Path::new("/")) {
        assert!(reason.contains("RLIMIT_NOFILE"), "{reason}");
        return;
    }
    let m = measured(plan);
    assert!(number(&m, "turned_away") > 0.0);
    assert_eq!(number(&m, "served_after"), 1.0);
}

#[test]
fn a_process_that_is_no_server_fails_the_run_with_its_words() {
    // The test program does not know these arguments, so it exits and the run fails.
    let Outcome::Failed { reason } = outcome("exchange:cell/model=select,clients=1") else {
        panic!("the run did not fail")
    };
    assert!(reason.starts_with("cannot start the server: it did not print"), "{reason}");
}

#[test]
fn a_directory_of_the_user_with_the_name_of_a_run_survives() {
    let _few = DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner);
    let dir = open_dir();
    let foreign = dir.path().join("exchange-run");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("keep"), "x").unwrap();
    let order = order(SHORT, dir.path());
    let refused = Exchange.probe(&order.plan, &Compute::None, dir.path()).unwrap_err();
    assert!(refused.contains("exchange-run': it exists and was not created"), "{refused}");
    assert!(refused.contains("--dir"), "{refused}");
    let outcome = Exchange.run(&order).outcome;
    assert!(matches!(&outcome, Outcome::Failed { .. }), "{outcome:?}");
    assert_eq!(ioloom_lab::clean(dir.path(), &FileSets).unwrap(), []);
    assert_eq!(std::fs::read_to_string(foreign.join("keep")).unwrap(), "x");
}

#[test]
fn what_a_killed_run_left_is_removed_unless_a_run_uses_it() {
    let _few = DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner);
    let dir = open_dir();
    let order = order(SHORT, dir.path());
    let leave = || {
        let scratch = Scratch::marked(dir.path()).unwrap();
        std::fs::write(scratch.path.join("stock.txt"), "1234").unwrap();
        scratch
    };
    // A killed process releases its lock, but does not remove its directory.
    let killed = || {
        let scratch = leave();
        let (from, aside) = (scratch.path.clone(), dir.path().join("aside"));
        std::fs::rename(&from, &aside).unwrap();
        drop(scratch);
        std::fs::rename(aside, from).unwrap();
    };
    let used = leave();
    let refused = Exchange.probe(&order.plan, &Compute::None, dir.path()).unwrap_err();
    assert!(refused.contains("locked by another process"), "{refused}");
    let cleaned = ioloom_lab::clean(dir.path(), &FileSets).unwrap();
    assert!(cleaned[0].failed.is_some() && used.path.join("stock.txt").exists(), "{cleaned:?}");
    drop(used);
    killed();
    let cleaned = ioloom_lab::clean(dir.path(), &FileSets).unwrap();
    assert_eq!((cleaned[0].files, cleaned[0].bytes, &cleaned[0].failed), (2, 4, &None));
    killed();
    Exchange.probe(&order.plan, &Compute::None, dir.path()).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    killed();
    let outcome = Exchange.run(&order).outcome;
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn wrong_plans_are_refused_before_anything_runs() {
    for (text, word) in [
        ("exchange:dance/model=select", "no scenario 'dance'"),
        ("exchange:cell/clients=4", "model=MODEL is missing"),
        ("exchange:cell/model=warp", "unknown model"),
        ("exchange:cell/model=select,rate=5", "unknown setting 'rate'"),
        ("exchange:cell/model=select,clients=0", "clients must be 1 to"),
        ("exchange:cell/model=select,sleep=2h", "at most 60 s"),
        ("exchange:cell/model=pool,sleep=2s", "at most 900ms"),
        ("exchange:cell/model=iterative", "one connection after the other"),
        ("exchange:cell/model=null,stocks=5", "null server has no stocks"),
        ("exchange:cell/model=null,service=5us", "null server has no service"),
        ("exchange:cell/model=select,service=2s", "service must be at most 1s"),
        ("exchange:closed/model=select,in-lock=yes", "needs a service time"),
        (
            "exchange:closed/model=select,service=5us,in-lock=yes,sharing=atomic",
            "does not lock anything",
        ),
        ("exchange:closed/model=select,service=5us,in-lock=yes,show=per-stock", "stock by stock"),
        ("exchange:closed/model=pool,connections=20", "as many workers"),
        ("exchange:closed/model=pool,connections=10,idle=1", "as many workers"),
        ("exchange:closed/model=select,mix=all-day", "mix must be one of"),
        (
            "exchange:closed/model=epoll,sharing=atomic,durability=group",
            "does not support durability",
        ),
        ("exchange:closed/model=epoll,store=redb,durability=os", "store redb"),
        ("exchange:closed/model=epoll,store=log-dsync,durability=os", "store log-dsync"),
        (
            "exchange:closed/model=epoll,store=log,durability=none",
            "write durability=os, group or each, or omit store",
        ),
        ("exchange:closed/model=epoll,store=sqlite", "store=sqlite is not used"),
        ("exchange:closed/model=epoll,workers=4", "omit workers, or write model=pool"),
        ("exchange:closed/model=select,sharing=rw,show=per-stock", "no effect with model select"),
        ("exchange:closed/model=thread,show=per-stock", "show=per-stock has no effect"),
        ("exchange:closed/model=epoll,store=postgres", "keeps every order"),
        (
            "exchange:closed/model=epoll,store=postgres,durability=os,sharing=global",
            "the database shares",
        ),
        (
            "exchange:closed/model=epoll,store=postgres,durability=os,show=per-stock",
            "one statement",
        ),
        ("exchange:cell/model=epoll,store=postgres,durability=os", "only for closed, "),
        ("exchange:open/model=epoll", "rate must be 1 to"),
        ("exchange:restart/model=epoll", "dialect=line"),
        ("exchange:histories/model=epoll", "dialect=v2"),
        ("exchange:histories/model=epoll,dialect=v2,connections=65", "connections must be 1 to 64"),
        ("exchange:histories/model=pool,dialect=v2,workers=2", "as many workers"),
        ("exchange:restart/model=epoll,dialect=line,server=inside", "cannot be killed"),
        ("walk:statx/threads=1", "not of the exchange"),
    ] {
        let error = Exchange.explain(&text.parse().unwrap()).unwrap_err();
        assert!(error.contains(word), "{text}: {error}");
    }
    let longest = "exchange:cell/model=pool,workers=5,clients=100".parse().unwrap();
    assert!((Exchange.takes_s(&longest, 0, 0) - 20.0).abs() < 1e-9);
    for text in [
        "exchange:cell/model=pool,workers=5,clients=100,sleep=100ms,mix=trade,sharing=rw",
        "exchange:open/model=uring,rate=5000,mix=show",
        "exchange:restart/model=epoll,dialect=line,end=kill,durability=group,store=fjall",
    ] {
        let plan = text.parse().unwrap();
        assert!(Exchange.explain(&plan).unwrap().len() > 20, "{text}");
    }
}
