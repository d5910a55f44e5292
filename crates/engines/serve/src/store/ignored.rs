//! A store that a server without a store would ignore, and with it the orders of another server.

use super::interface::StoreError;
use super::mark::Found;
use super::tool::lock_to_read;
use super::{hashes, make, path, prove};
use crate::choice::Durability;
use crate::options::StoreChoice;
use ioloom_exchange::Exchange;
use ioloom_failure::Operation;

/// Returns true if a store continues a stock file with this hash and has other stocks. Changes nothing.
pub(crate) fn continues(
    choice: &StoreChoice,
    stocks: &Exchange,
    file_hash: u64,
) -> Result<bool, StoreError> {
    let path = path::resolve(&choice.path);
    let found = make::found(&path).map_err(StoreError::unusable(Operation::Open, &path))?;
    let Some(kind) = found else { return Ok(false) };
    let guard = lock_to_read(&path)?;
    let proven = prove(kind, &path, Durability::Os, &mut |_| {})?;
    let mark = match guard.as_ref().map(|guard| &guard.found) {
        Some(Found::Mark(mark, _)) => Some(mark),
        _ => None,
    };
    Ok(hashes(&proven, mark).contains(&file_hash) && proven.state.exchange() != stocks)
}
