//! Load without sleep: connections that send the next request immediately, or requests that arrive
//! at a fixed rate. Other connections may be idle or have sent a partial line.

use super::client::{Client, counter, until_open};
use super::host::TestServer;
use super::law;
use super::numbers::{Numbers, answered};
use super::plan::{Answers, ServerSpec, Steady};
use ioloom_load::{Arrival, LoadPlan, Pace, Think};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_serve::Durability;
use ioloom_sys::proc;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The warm-up is this fraction of a load; it is not counted because connections are still being
/// opened.
const WARM_UP: u32 = 10;

pub(super) fn run(
    order: &RunOrder,
    spec: &ServerSpec,
    steady: &Steady,
    dir: &Path,
) -> Result<Measured, String> {
    assert!(!steady.lasts.is_zero(), "rates are divided by the load duration");
    let host = TestServer::start(spec, dir)?;
    let silent = idle_clients(host.address(), spec, steady)?;
    let pace = match steady.rate_per_s {
        Some(rate_per_s) => Pace::Open { rate_per_s, arrival: Arrival::Poisson },
        None => Pace::Closed { think: Think::None },
    };
    let plan = LoadPlan {
        protocol: spec.protocol,
        pace,
        connections: steady.connections,
        pipeline: steady.pipeline,
        mix: steady.mix,
        duration: steady.lasts,
        warm_up: steady.lasts / WARM_UP,
        random: order.seed,
        conserve: spec.answers != Answers::Null,
        ..LoadPlan::new(host.address())
    };
    let mut numbers = Numbers::begin(&host);
    let ran = ioloom_load::run(&plan, &AtomicBool::new(false), &mut |_| {});
    let (run, _) = ran.map_err(|e| e.to_string())?;
    if let Some(lost) = run.lost {
        return Err(lost);
    }
    numbers.end(&host, steady.lasts.as_nanos() as u64, run.outcomes.sent);
    answered(&run.outcomes, &run.wrong_samples)?;
    if plan.conserve {
        numbers.conserved(&run.conservation)?;
    }
    if spec.durability != Durability::None {
        let commits = counter(host.address(), "ioloom_commits_total ")?;
        numbers.put("commits", commits as f64);
        if commits > 0 {
            numbers.put("orders_per_commit", run.outcomes.traded as f64 / commits as f64);
        }
    }
    drop(silent);
    let cpus = u64::from(proc::affinity_cpus().unwrap_or(1));
    if let Some(ns) = law::request_ns(spec, steady, cpus) {
        numbers.put("law_request_ns", ns);
    }
    numbers.rate(run.answered_per_s);
    numbers.latency("", &run.latency.corrected);
    for (command, latencies) in &run.commands {
        if latencies.corrected.count > 0 {
            numbers.latency(&format!("{command}_"), &latencies.corrected);
        }
    }
    let generator = &run.generator;
    numbers.put("received_bytes_per_s", per_second(run.outcomes.received_bytes, steady));
    numbers.put("load_late_p99_ns", generator.late.p99_ns as f64);
    if let Some(share) = generator.busy_share {
        numbers.put("load_busy_share", share);
    }
    numbers.put("load_kept_up", f64::from(u8::from(generator.kept_up)));
    match (&generator.reason, steady.rate_per_s) {
        // A result requires that the rate was offered; a closed loop has no target rate.
        (Some(reason), Some(_)) => Err(format!("the load generator did not keep up: {reason}")),
        _ => numbers.close(host),
    }
}

fn per_second(count: u64, steady: &Steady) -> f64 {
    count as f64 / steady.lasts.as_secs_f64()
}

/// Opens the idle connections and returns when the server has accepted them.
fn idle_clients(
    address: SocketAddr,
    spec: &ServerSpec,
    steady: &Steady,
) -> Result<Vec<Client>, String> {
    let mut idle_clients = Vec::with_capacity(steady.idle + steady.halves);
    for _ in 0..steady.idle + steady.halves {
        idle_clients.push(Client::connect(address)?);
    }
    for half in idle_clients.iter().take(steady.halves) {
        half.send(b"sell 1")?;
    }
    if !idle_clients.is_empty() && spec.answers != Answers::Null {
        until_open(address, idle_clients.len())?;
    }
    Ok(idle_clients)
}
