//! What a load does not do: clients that come and go, a server that ends and starts again, more
//! connections than there is room for.

use super::client::Client;
use super::host::{LEFT, STOCK_FILE, TestServer};
use super::numbers::Numbers;
use super::plan::{EndBy, ServerSpec, Visits};
use ioloom_model::Measured;
use ioloom_sys::clock::monotonic_ns;
use std::path::Path;
use std::time::Duration;

/// How long the stock file is looked at after the last client has left.
const WRITTEN_NS: u64 = 2_000_000_000;
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How long a connection is given to hear that there is no room.
const REFUSAL_WAIT: Duration = Duration::from_millis(200);

/// One client after the other: connect, one order, leave.
pub(super) fn visits(spec: &ServerSpec, visits: Visits, dir: &Path) -> Result<Measured, String> {
    let host = TestServer::start(spec, dir)?;
    let address = host.address();
    let held = visits.held.then(|| Client::connect(address)).transpose()?;
    if let Some(held) = &held {
        // So that it is there before the first visit.
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
    let asked = Client::connect(address)?.left()?;
    if asked != LEFT + visits.visits {
        return Err(format!("{} orders changed the stock to {asked}", visits.visits));
    }
    drop(held);
    each.sort_unstable();
    let at = |share: f64| each[((each.len() - 1) as f64 * share) as usize] as f64;
    numbers.put("visit_p50_ns", at(0.5));
    numbers.put("visit_p99_ns", at(0.99));
    numbers.put("visit_ns", (before_ns - start_ns) as f64 / f64::from(visits.visits));
    numbers.close(host)
}

/// Orders are acknowledged, the server ends one way or the other, and is asked again afterwards.
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
        return Err(format!("{orders} orders were acknowledged, and the stock is {left}"));
    }
    numbers.put("acknowledged_orders", f64::from(orders));
    numbers.put("kept_orders", kept);
    numbers.put("lost_orders", f64::from(orders) - kept);
    numbers.close(again)
}

/// Whether the stock file came to hold so much of the first stock.
fn written(dir: &Path, left: u32) -> Result<bool, String> {
    let path = dir.join(STOCK_FILE);
    let wanted = format!("1 {left} ");
    let until_ns = monotonic_ns() + WRITTEN_NS;
    loop {
        let text = std::fs::read_to_string(&path);
        if text.map_err(|e| format!("read {}: {e}", path.display()))?.starts_with(&wanted) {
            return Ok(true);
        }
        if monotonic_ns() > until_ns {
            return Ok(false);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// More connections than the model takes; then they leave, and one more comes.
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
    // The latest came when there was no room; the first that stays silent ends the search.
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

/// Whether a new client is served once the others have left; the server sees that bit by bit.
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
