//! The stock exchange as a subject: a server, a load, and what became of both.
//!
//! A plan is `exchange:PLAY/SETTINGS`. Plays are `cell` (the published clients with their sleep),
//! `closed` and `open` (load without one), `visits` (clients that come and go), `restart` (what is
//! left of acknowledged orders), `flood` (more connections than there is room for) and `histories`
//! (every request kept, and checked for an order that explains the answers); `model=null` is a server
//! that only answers. Every run starts a server of its own in a process of its own,
//! loads it from the run's process, verifies every answer and the stocks at the end, and ends it.
//!
//! Client and server share the machine, so rates are those of both; the processor time of the server
//! stands apart. A wrong answer makes the run fail; a stock that is not what the answers say is an
//! error of it.

mod cell;
mod client;
mod histories;
mod host;
mod law;
mod numbers;
mod plan;
mod steady;
mod visits;

use crate::sets::{FileSets, Scratch};
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

/// Directory of a run in the work directory: stock file and store.
const SCRATCH: &str = "exchange-run";
/// Descriptors beside those of connections.
const DESCRIPTORS_OTHER: u64 = 128;

/// The stock exchange.
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
                "{} connections need {needed} open files of one process, and the limit is {limit} \
                 (RLIMIT_NOFILE); remedy: raise it (ulimit -Hn)",
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
        // Every answer was verified in the run; one that was wrong makes it fail.
        Vec::new()
    }
}

/// Whether the system lets a model have its ring, found by making one.
fn ring(model: Model) -> Result<(), String> {
    let many = model != Model::Uring;
    // On a thread of its own: what the kernel clears up after a ring interrupts calls of the thread
    // that made it.
    let made = std::thread::spawn(move || NetRing::new(many).map(drop)).join();
    let made = made.map_err(|_| "the probe of io_uring panicked".to_owned())?;
    made.map_err(|e| {
        format!("model {model} needs io_uring, and the system refuses it: {e}; remedy: model=epoll")
    })
}

fn result(order: &RunOrder) -> Result<Measured, String> {
    let Scenario { spec, action } = Scenario::of(&order.plan)?;
    let scratch = Scratch::fresh(order.dir.join(SCRATCH))?;
    let dir = scratch.path.as_path();
    host::stock_file(&spec, dir)?;
    // Without the right to raise it the old limit stays, and the load looks at it.
    let _ = proc::raise_open_files_limit();
    match action {
        Action::Cell(cell) => cell::run(order, &spec, &cell, dir),
        Action::Steady(steady) => steady::run(order, &spec, &steady, dir),
        Action::Visits(visits) => visits::visits(&spec, visits, dir),
        Action::Restart(end, orders) => visits::restart(&spec, end, orders, dir),
        Action::Flood(connections) => visits::flood(&spec, connections, dir),
        Action::Histories(asked) => histories::run(order, &spec, asked, dir),
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test that cannot run here says so")]
mod tests;
