//! Source 004: 42 runs of the stock server with sleeping clients.

use super::section::{Group, Row, Section, Use};
use crate::PredictError;
use crate::closed_loop::sleepers_elapsed_s;
use crate::table::{Digits, Table};

/// Sleep after each order, in seconds.
const SLEEP_S: f64 = 1.0;

pub(super) fn section() -> Result<Section, PredictError> {
    let table = Table::find("004_exchange")?;
    let (models, threads) = (table.words("model")?, table.numbers("threads")?);
    let (clients, orders) = (table.numbers("clients")?, table.numbers("orders_per_client")?);
    let work = table.words("workload")?;
    let label = |row: usize| {
        format!("{} {}, {}, {} clients", models[row], threads[row], work[row], clients[row])
    };
    let cells = table.cells("elapsed_us", Digits::Own, label)?;
    let rows = cells
        .iter()
        .enumerate()
        .map(|(row, cell)| {
            let pool = (models[row] == "pool").then_some(threads[row] as u64);
            let law = sleepers_elapsed_s(clients[row] as u64, pool, orders[row] as u64, SLEEP_S);
            Row::new(cell, law * 1e6)
        })
        .collect();
    Ok(Section {
        title: "Source 004: a stock server with sleeping clients".to_owned(),
        law: "clients in whole rounds of the pool, times orders, times the sleep; an event loop \
              serves all clients in one round"
            .to_owned(),
        parameters: Vec::new(),
        groups: vec![Group::new("42 runs", Use::NoParameters, rows, Some(0.03))],
        figures: Vec::new(),
        notes: vec!["the law ignores the server: it holds while the sleep dominates".to_owned()],
    })
}
