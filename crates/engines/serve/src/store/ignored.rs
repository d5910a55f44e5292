//! A store that a server without a store would ignore, and with it the orders of another server.

use super::interface::StoreError;
use super::mark::Found;
use super::tool::{lock_to_read, missing};
use super::{fjall, hashes, make, path, prove};
use crate::choice::{Durability, StoreKind};
use crate::options::StoreChoice;
use ioloom_exchange::Exchange;
use ioloom_failure::Operation;

/// Advice for a store that cannot be read.
const UNCOMPARED: &str = "durability none ignores stores, but the orders of this one could not be \
     compared with the stock file; fix the cause, or continue without them with --accept-loss";

/// What a stock file lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// Nothing is known to be missing, or the file was changed by the user.
    Nothing,
    /// Orders in the store.
    Orders,
    /// Possibly orders that the store has lost.
    Lost,
}

/// Compares a store and its mark with the stocks of a file with this hash. Changes nothing, except that
/// storage engines may create an empty log or a temporary copy to read the store.
pub(crate) fn compare(
    choice: &StoreChoice,
    stocks: &Exchange,
    file_hash: u64,
) -> Result<Ignored, StoreError> {
    try_compare(choice, stocks, file_hash).map_err(|error| error.with_advice(UNCOMPARED))
}

fn try_compare(
    choice: &StoreChoice,
    stocks: &Exchange,
    file_hash: u64,
) -> Result<Ignored, StoreError> {
    let path = path::resolve(&choice.path);
    let guard = lock_to_read(&path)?;
    let mark = match guard.as_ref().map(|guard| &guard.found) {
        Some(Found::Mark(mark, _)) => Some(mark),
        _ => None,
    };
    let found = make::found(&path).map_err(StoreError::unusable(Operation::Open, &path))?;
    // Another directory of the user is not a store.
    let is_store = |kind: &StoreKind| *kind != StoreKind::Fjall || fjall::is_database(&path);
    let Some(kind) = found.filter(is_store) else {
        let had_orders =
            mark.is_some_and(|mark| mark.acknowledged > 0 && mark.hashes.contains(&file_hash));
        return Ok(if had_orders { Ignored::Lost } else { Ignored::Nothing });
    };
    let proven = prove(kind, &path, Durability::Os, &mut |_| {})?;
    let has_lost = missing(guard.as_ref(), &proven, &path).is_some();
    // The latest hashes of a store can be missing too; its mark has them.
    let is_known = hashes(&proven, mark).contains(&file_hash) || (has_lost && mark.is_none());
    Ok(match is_known {
        true if has_lost => Ignored::Lost,
        true if proven.state.exchange() != stocks => Ignored::Orders,
        _ => Ignored::Nothing,
    })
}
