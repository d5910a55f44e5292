//! Runs a cell of the published tables: several clients each send an order, read the whole answer
//! and sleep, ten times. The time runs from before the first client starts until after the last one
//! exits. The closed-loop law for sleeping clients, which ignores the server, is recorded for
//! comparison.

use super::host::TestServer;
use super::numbers::{Numbers, answered};
use super::plan::{Answers, Cell, ServerSpec};
use ioloom_load::{LoadPlan, Multiclient, multiclient};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(super) fn run(
    order: &RunOrder,
    spec: &ServerSpec,
    cell: &Cell,
    dir: &Path,
) -> Result<Measured, String> {
    assert!(cell.clients > 0 && cell.orders > 0, "the number of orders must not be zero");
    let host = TestServer::start(spec, dir)?;
    let plan = LoadPlan {
        protocol: spec.protocol,
        mix: cell.mix,
        random: order.seed,
        timeout: Duration::from_secs(60),
        conserve: spec.answers != Answers::Null,
        ..LoadPlan::new(host.address())
    };
    let multi = Multiclient {
        clients: cell.clients,
        orders: cell.orders,
        sleep: cell.sleep,
        pool: spec.is_pool().then(|| u32::from(spec.threads)),
    };
    let mut numbers = Numbers::begin(&host);
    let run = multiclient(&plan, &multi, &AtomicBool::new(false), &mut |_| {});
    let run = run.map_err(|e| e.to_string())?;
    numbers.end(&host, run.elapsed_ns, run.outcomes.sent);
    answered(&run.outcomes, &run.wrong_samples)?;
    if plan.conserve {
        numbers.conserved(&run.conservation)?;
    }
    let all = cell.clients as u64 * u64::from(cell.orders);
    if run.outcomes.answered != all {
        return Err(format!("{} of {all} orders were answered", run.outcomes.answered));
    }
    let sleep_ns = cell.sleep.as_nanos() as f64;
    numbers.bytes(run.outcomes.received_bytes);
    numbers.put("law_ns", run.law_ns as f64);
    if let Some(error) = run.law_error {
        numbers.put("law_error_share", error);
    }
    numbers.put("beyond_law_ns", run.elapsed_ns as f64 - run.law_ns as f64);
    numbers.put("sleep_ns", sleep_ns);
    // The time per order consists of the sleep, the answer, and a share of the wait for a thread.
    numbers.put("order_ns", run.elapsed_ns as f64 / f64::from(cell.orders));
    numbers.put("rounds", run.law_ns as f64 / (sleep_ns * f64::from(cell.orders)));
    numbers.rate(run.orders_per_s);
    numbers.latency("", &run.latency);
    numbers.close(host)
}
