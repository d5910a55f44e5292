//! Histories: short loads in which all requests are recorded with their times. A search tries to
//! find a sequential order of the requests that explains every answer.
//!
//! A list of all stocks is one request. A server that reads stocks one at a time, like the
//! published one, can return totals that never existed if orders for two stocks overlap with the
//! list. This depends on timing, so there are several histories, and the result is the number of
//! violations. The search is bounded; a history with too many possibilities counts as undecided.

use super::host::TestServer;
use super::numbers::{Numbers, answered};
use super::plan::{Histories, ServerSpec};
use ioloom_load::check::{Lists, STATES_MAX, Verdict, check};
use ioloom_load::{LoadPlan, Mix, Pace, Think};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Number of requests in a history.
const REQUESTS: u64 = 1500;
/// One list per 30 purchases and 30 sales.
const MIX: Mix = Mix { show: 1.0, buy: 30.0, sell: 30.0 };

pub(super) fn run(
    order: &RunOrder,
    spec: &ServerSpec,
    histories: Histories,
    dir: &Path,
) -> Result<Measured, String> {
    let host = TestServer::start(spec, dir)?;
    let mut numbers = Numbers::begin(&host);
    let (mut elapsed_s, mut requests) = (0.0, 0);
    let (mut violated, mut undecided) = (0, 0);
    for at in 0..histories.histories {
        let plan = LoadPlan {
            protocol: spec.protocol,
            pace: Pace::Closed { think: Think::None },
            connections: histories.connections,
            mix: MIX,
            requests_max: REQUESTS,
            random: order.seed.wrapping_add(u64::from(at)),
            keep_history: true,
            ..LoadPlan::new(host.address())
        };
        let ran = ioloom_load::run(&plan, &AtomicBool::new(false), &mut |_| {});
        let (run, history) = ran.map_err(|e| e.to_string())?;
        if let Some(lost) = run.lost {
            return Err(lost);
        }
        answered(&run.outcomes, &run.wrong_samples)?;
        let history = history.ok_or("the load recorded no history")?;
        match check(&history, Lists::Atomic, STATES_MAX) {
            Verdict::Explained => {}
            Verdict::Violated { .. } => violated += 1,
            Verdict::Undecided { .. } => undecided += 1,
        }
        elapsed_s += run.outcomes.answered as f64 / run.answered_per_s.max(1e-9);
        requests += run.outcomes.sent;
    }
    numbers.end(&host, (elapsed_s * 1e9) as u64, requests);
    numbers.put("histories", f64::from(histories.histories));
    numbers.put("histories_violated", f64::from(violated));
    numbers.put("histories_undecided", f64::from(undecided));
    numbers.close(host)
}
