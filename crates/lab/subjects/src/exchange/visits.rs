//! Scenarios other than loads: clients that connect for one order, a server that exits and
//! restarts, and more connections than the limit.

use super::client::Client;
use super::host::{LEFT, STOCK_FILE, TestServer};
use super::numbers::Numbers;
use super::plan::{EndBy, ServerSpec, Visits};
use ioloom_failure::{Operation, PathError};
use ioloom_model::Measured;
use ioloom_sys::clock::monotonic_ns;
use std::path::Path;
use std::time::Duration;

/// Time limit in ns for the stock file after the last client has disconnected.
const WRITTEN_NS: u64 = 2_000_000_000;
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time to wait for a connection to be rejected.
const REFUSAL_WAIT: Duration = Duration::from_millis(200);

/// Runs clients one after another: connect, send one order, disconnect.
pub(super) fn visits(spec: &ServerSpec, visits: Visits, dir: &Path) -> Result<Measured, String> {
    assert!(visits.visits > 0, "percentiles need at least one visit");
    let host = TestServer::start(spec, dir)?;
    let address = host.address();
    let held = visits.held.then(|| Client::connect(address)).transpose()?;
    if let Some(held) = &held {
        // Ensure that it is served before the first visit.
        held.left()?;
    }
    let mut each = Vec::with_capacity(visits.visits as usize);
    let mut numbers = Numbers::begin(&host);
    let start_ns = monotonic_ns();
    let mut before_ns = start_ns;
    for _ in 0..visits.visits {
        Client::connect(address)?.sell()?;
        let now_ns = monotonic_ns();
        each.push(now_ns - before_ns);
        before_ns = now_ns;
    }
    numbers.end(&host, before_ns - start_ns, u64::from(visits.visits));
    let left = Client::connect(address)?.left()?;
    if left != LEFT + visits.visits {
        return Err(format!("{} orders changed the stock to {left}", visits.visits));
    }
    drop(held);
    each.sort_unstable();
    let at = |share: f64| each[((each.len() - 1) as f64 * share) as usize] as f64;
    numbers.put("visit_p50_ns", at(0.5));
    numbers.put("visit_p99_ns", at(0.99));
    numbers.put("visit_ns", (before_ns - start_ns) as f64 / f64::from(visits.visits));
    numbers.close(host)
}

/// Sends orders until they are acknowledged, stops the server, restarts it and counts the surviving
/// orders.
pub(super) fn restart(
    spec: &ServerSpec,
    end: EndBy,
    orders: u32,
    dir: &Path,
) -> Result<Measured, String> {
    let host = TestServer::start(spec, dir)?;
    let mut numbers = Numbers::begin(&host);
    let start_ns = monotonic_ns();
    let client = Client::connect(host.address())?;
    for _ in 0..orders {
        client.sell()?;
    }
    numbers.end(&host, monotonic_ns() - start_ns, u64::from(orders));
    match end {
        EndBy::Leave => {
            drop(client);
            numbers.put("stock_file_written", f64::from(u8::from(written(dir, LEFT + orders)?)));
            host.kill()?;
        }
        EndBy::Term => {
            host.stop()?;
            drop(client);
        }
        EndBy::Kill => {
            host.kill()?;
            drop(client);
        }
    }
    let again = TestServer::start(spec, dir)?;
    let left = Client::connect(again.address())?.left()?;
    let kept = f64::from(left) - f64::from(LEFT);
    if !(0.0..=f64::from(orders)).contains(&kept) {
        return Err(format!("{orders} orders were acknowledged, but the stock is {left}"));
    }
    numbers.put("acknowledged_orders", f64::from(orders));
    numbers.put("kept_orders", kept);
    numbers.put("lost_orders", f64::from(orders) - kept);
    numbers.close_other(again)
}

/// Waits until the stock file contains `left` items of the first stock. Returns false on timeout.
fn written(dir: &Path, left: u32) -> Result<bool, String> {
    let path = dir.join(STOCK_FILE);
    let wanted = format!("1 {left} ");
    let until_ns = monotonic_ns() + WRITTEN_NS;
    loop {
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|e| PathError::new(Operation::Read, &path, e).to_string())?;
        if text.starts_with(&wanted) {
            return Ok(true);
        }
        if monotonic_ns() > until_ns {
            return Ok(false);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Opens more connections than the model accepts, closes them, and opens another one.
pub(super) fn flood(spec: &ServerSpec, connections: usize, dir: &Path) -> Result<Measured, String> {
    let host = TestServer::start(spec, dir)?;
    let address = host.address();
    let mut numbers = Numbers::begin(&host);
    let start_ns = monotonic_ns();
    let mut all = Vec::with_capacity(connections);
    for _ in 0..connections {
        all.push(Client::connect(address)?);
    }
    let elapsed_ns = monotonic_ns() - start_ns;
    numbers.end(&host, elapsed_ns, connections as u64);
    // The last connections were rejected. Counting from the end stops at the first accepted one.
    let mut away = 0;
    for client in all.iter().rev() {
        if !client.is_turned_away(REFUSAL_WAIT)? {
            break;
        }
        away += 1;
    }
    drop(all);
    let served = served_again(&host)?;
    numbers.put("turned_away", f64::from(away));
    numbers.put("served_after", f64::from(u8::from(served)));
    numbers.close(host)
}

/// Returns whether a new client is served after the others have disconnected, which the server
/// notices one by one.
fn served_again(host: &TestServer) -> Result<bool, String> {
    let until_ns = monotonic_ns() + WRITTEN_NS;
    loop {
        let client = Client::connect(host.address())?;
        if client.left().is_ok() {
            return Ok(true);
        }
        if monotonic_ns() > until_ns {
            return Ok(false);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
