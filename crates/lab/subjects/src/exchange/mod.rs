//! The stock exchange as a subject: a server under load.
//!
//! A plan is `exchange:SCENARIO/SETTINGS`. Scenarios are `cell` (the published clients, which
//! sleep), `closed` and `open` (load without sleep), `visits` (clients that connect for one order),
//! `restart` (which acknowledged orders survive), `flood` (more connections than the limit) and
//! `histories` (all requests are recorded and checked for an order that explains the answers). With
//! `model=null`, the server only answers. Every run starts a server in a separate process, loads it
//! from the run's process, verifies every answer and the final stocks, and stops it.
//!
//! Clients and server share the machine, so rates include both; the server's CPU time is recorded
//! separately. A wrong answer makes the run fail. A stock that contradicts the answers counts as an
//! error.

mod cell;
mod client;
mod histories;
mod host;
mod law;
mod numbers;
mod plan;
mod steady;
mod visits;

use crate::sets::{FileSets, Scratch, make_way};
use ioloom_lab::ChildAnswer;
use ioloom_lab::subject::{Sets, Subject, Touches};
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, Measured};
use ioloom_postgres::Programs;
use ioloom_serve::{Durability, Model, OrderStore, probe_store};
use ioloom_sys::proc;
use ioloom_sys_net::ring::NetRing;
use plan::{Action, Answers, Placement, Scenario};
use std::path::Path;

/// File descriptors needed in addition to connections.
const DESCRIPTORS_OTHER: u64 = 128;

/// The subject `exchange`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exchange;

impl Subject for Exchange {
    fn name(&self) -> &str {
        "exchange"
    }

    fn sets(&self) -> &dyn Sets {
        &FileSets
    }

    fn touches(&self) -> Touches {
        Touches::Nothing
    }

    fn explain(&self, plan: &AnyPlan) -> Result<String, String> {
        Ok(Scenario::of(plan)?.sentence())
    }

    fn probe(&self, plan: &AnyPlan, _: &Compute, dir: &Path) -> Result<(), String> {
        let scenario = Scenario::of(plan)?;
        make_way(dir)?;
        match scenario.spec.store {
            OrderStore::Postgres => Programs::find()?.probe(dir)?,
            OrderStore::Own(_) if scenario.spec.durability == Durability::None => {}
            OrderStore::Own(store) => probe_store(store, dir)?,
        }
        if let Answers::Exchange(model) = scenario.spec.answers
            && model.needs_ring()
        {
            ring(model)?;
        }
        let limit = proc::raise_open_files_limit().unwrap_or_else(|_| proc::open_files_limit());
        let sides = if scenario.spec.placement == Placement::Inside { 2 } else { 1 };
        let needed = scenario.connections() as u64 * sides + DESCRIPTORS_OTHER;
        match limit.filter(|limit| *limit < needed) {
            None => Ok(()),
            Some(limit) => Err(format!(
                "{} connections need {needed} open files in one process, but the limit is {limit} \
                (RLIMIT_NOFILE); raise it (ulimit -Hn)",
                scenario.connections()
            )),
        }
    }

    fn takes_s(&self, plan: &AnyPlan, _: u64, _: u64) -> f64 {
        Scenario::of(plan).map_or(0.0, |scenario| scenario.takes_s())
    }

    fn run(&self, order: &RunOrder) -> ChildAnswer {
        result(order).into()
    }

    fn verify(&self, _: &RunOrder, _: &FileSetRealised, _: &Measured) -> Vec<Doubt> {
        // The run itself verifies every answer and fails if one is wrong.
        Vec::new()
    }
}

/// Checks that the system permits a model's io_uring by creating one.
fn ring(model: Model) -> Result<(), String> {
    let many = model != Model::Uring;
    // Use another thread: the kernel's ring cleanup interrupts system calls of the thread that
    // created the ring.
    let made = std::thread::spawn(move || NetRing::new(many).map(drop)).join();
    let made = made.map_err(|_| "the probe of io_uring panicked".to_owned())?;
    made.map_err(|e| format!("model {model} needs io_uring: {e}; use model=epoll"))
}

fn result(order: &RunOrder) -> Result<Measured, String> {
    let Scenario { spec, action } = Scenario::of(&order.plan)?;
    // The stock file and the store of the run.
    let scratch = Scratch::marked(&order.dir)?;
    let dir = scratch.path.as_path();
    host::stock_file(&spec, dir)?;
    // If raising the limit fails, the load checks the old limit.
    let _ = proc::raise_open_files_limit();
    match action {
        Action::Cell(cell) => cell::run(order, &spec, &cell, dir),
        Action::Steady(steady) => steady::run(order, &spec, &steady, dir),
        Action::Visits(visits) => visits::visits(&spec, visits, dir),
        Action::Restart(end, orders) => visits::restart(&spec, end, orders, dir),
        Action::Flood(connections) => visits::flood(&spec, connections, dir),
        Action::Histories(histories) => histories::run(order, &spec, histories, dir),
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "tests that cannot run here report it")]
mod tests;
