//! An upper bound on the request rate, based on the CPU time of requests.
//!
//! If requests take CPU time, the time between two answers is at least that time divided by the
//! number of requests that can spend it concurrently. This number is the minimum of three: the
//! threads that execute requests, the CPUs, and, if stocks are locked for that time, the locks that
//! can be held at once. All other costs are ignored, including the load's CPU time, so this is a
//! bound rather than a forecast.

use super::plan::{Answers, ServerSpec, Steady};
use ioloom_serve::{Model, Sharing};

/// Returns the minimum time between two answers in ns. `None` without a service time, or with
/// lists, which take different locks than orders.
pub(super) fn request_ns(spec: &ServerSpec, steady: &Steady, cpus: u64) -> Option<f64> {
    if spec.service.is_zero() || steady.mix.show > 0.0 {
        return None;
    }
    let Answers::Exchange(model) = spec.answers else { return None };
    let at_once = at_once(model, spec, steady.connections as u64, cpus);
    Some(spec.service.as_nanos() as f64 / at_once.max(1) as f64)
}

fn at_once(model: Model, spec: &ServerSpec, connections: u64, cpus: u64) -> u64 {
    let threads = match model {
        Model::Iterative
        | Model::Select
        | Model::Poll
        | Model::Epoll
        | Model::EpollEdge
        | Model::Uring
        | Model::UringMany => 1,
        Model::Thread => connections,
        Model::Pool | Model::RequestPool => connections.min(spec.threads.into()),
        Model::ReusePort | Model::IoThreads | Model::UringPerCore | Model::Tokio => cpus,
    };
    let stocks = u64::from(spec.stocks);
    let held = match spec.sharing {
        _ if !spec.in_lock => threads,
        Sharing::Global | Sharing::Writer => 1,
        Sharing::Stock | Sharing::ReadWrite => threads.min(stocks),
        // These cannot spend time with stocks locked; such plans are refused.
        Sharing::Atomic | Sharing::Database => threads,
        // The threads that own stocks do the work, and other threads wait for them.
        Sharing::Shards => stocks,
    };
    held.min(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::plan::{Action, Scenario};

    /// Returns the number of concurrent requests on four CPUs.
    fn at_once(settings: &str) -> Option<f64> {
        let plan = format!("exchange:closed/connections=16,service=100us,{settings}");
        let scenario = Scenario::of(&plan.parse().unwrap()).unwrap();
        let Action::Steady(steady) = scenario.action else { panic!("{plan}") };
        request_ns(&scenario.spec, &steady, 4).map(|ns| 1e5 / ns)
    }

    #[test]
    fn the_narrowest_of_threads_processors_and_locks_counts() {
        for (settings, expected) in [
            ("mix=trade,model=select", 1.0),
            ("mix=trade,model=reuseport", 4.0),
            ("mix=trade,model=thread", 4.0),
            ("mix=trade,model=pool,workers=16", 4.0),
            ("mix=trade,model=request-pool,workers=3", 3.0),
            ("mix=trade,model=thread,in-lock=yes", 1.0),
            ("mix=trade,model=thread,in-lock=yes,sharing=writer", 1.0),
            ("mix=trade,model=thread,in-lock=yes,sharing=stock", 4.0),
            ("mix=trade,model=thread,in-lock=yes,sharing=rw,stocks=2", 2.0),
            ("mix=trade,model=select,in-lock=yes,sharing=stock", 1.0),
            ("mix=trade,model=select,in-lock=yes,sharing=shards", 4.0),
        ] {
            assert_eq!(at_once(settings), Some(expected), "{settings}");
        }
        assert_eq!(at_once("mix=all,model=select"), None, "lists take different locks");
    }
}
