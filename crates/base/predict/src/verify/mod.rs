//! Predictions compared with the published tables, from data and code alone.
//!
//! Every section fits its parameters to the tables when it is called, and lists them with their number.
//! Cells that were fitted and cells that were held out are counted apart: an error of a fitted cell
//! shows whether the law has the right form, and only an error of a held-out cell shows what a
//! prediction is worth.
//! A missed goal is printed like any other figure.

mod exchange;
mod files;
mod section;
pub mod simulated;
mod walk;

pub use section::{Figure, Group, Parameter, Row, Section, Use};

use crate::PredictError;

/// Compares all laws with the tables of sources 000, 001 and 004.
///
/// # Errors
/// Fails if a table is malformed.
pub fn published() -> Result<Vec<Section>, PredictError> {
    Ok(vec![walk::section()?, files::section()?, files::reader()?, exchange::section()?])
}
