//! Evidence levels on the command line.

use ioloom_model::Level;

/// Returns the level with this number.
pub(crate) fn level(number: u8) -> Option<Level> {
    [Level::Account, Level::Switch, Level::Kernel].into_iter().find(|l| l.number() == number)
}
