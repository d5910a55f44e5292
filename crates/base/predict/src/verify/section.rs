//! The result of a comparison with published tables.

use crate::table::Cell;
use serde::Serialize;

/// Whether a cell was used to find the parameters that predict it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// The parameters were fitted to this cell, among others.
    Fitted,
    /// The parameters were fitted without this cell.
    HeldOut,
    /// The law has no parameters.
    NoParameters,
}

impl Use {
    /// Returns the words of tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::HeldOut => "held out",
            Self::NoParameters => "no parameters",
        }
    }
}

/// A fitted parameter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parameter {
    /// Name.
    pub name: String,
    /// Value.
    pub value: f64,
    /// Unit, or empty for a share.
    pub unit: &'static str,
}

/// A published cell and its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// The prediction, in the unit of the cell.
    pub predicted: f64,
    /// Relative error, 0 within the rounding interval.
    pub error: f64,
}

/// Cells that were predicted in the same way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Name.
    pub name: String,
    /// Whether the cells were fitted.
    #[serde(rename = "use")]
    pub usage: Use,
    /// The cells.
    pub rows: Vec<Row>,
    /// Largest mean error that was to be reached, if there is a goal.
    pub goal: Option<f64>,
}

/// A single figure with a goal, for example a regret.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Its value as a share.
    pub value: f64,
    /// Largest value that was to be reached, if there is a goal.
    pub goal: Option<f64>,
}

/// One law or family of laws, and its comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Section {
    /// Title.
    pub title: String,
    /// The law in one sentence.
    pub law: String,
    /// All parameters that were fitted.
    pub parameters: Vec<Parameter>,
    /// Predictions by group.
    pub groups: Vec<Group>,
    /// Other figures.
    pub figures: Vec<Figure>,
    /// What the figures do not cover, such as excluded cells.
    pub notes: Vec<String>,
}

impl Group {
    pub(super) fn new(
        name: impl Into<String>,
        usage: Use,
        rows: Vec<Row>,
        goal: Option<f64>,
    ) -> Self {
        Self { name: name.into(), usage, rows, goal }
    }

    /// Returns the mean of the absolute errors.
    pub fn mean(&self) -> f64 {
        self.rows.iter().map(|row| row.error.abs()).sum::<f64>() / self.rows.len().max(1) as f64
    }

    /// Returns the row with the largest absolute error.
    pub fn worst(&self) -> Option<&Row> {
        self.rows.iter().max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()))
    }

    /// Returns whether the goal is reached; `None` without a goal.
    pub fn reached(&self) -> Option<bool> {
        self.goal.map(|goal| self.mean() <= goal)
    }
}

impl Figure {
    /// Returns whether the goal is reached; `None` without a goal.
    pub fn reached(&self) -> Option<bool> {
        self.goal.map(|goal| self.value.abs() <= goal)
    }
}

impl Row {
    pub(super) fn new(cell: &Cell, predicted: f64) -> Self {
        Self { cell: cell.clone(), predicted, error: cell.error(predicted) }
    }
}

pub(super) fn parameter(name: impl Into<String>, value: f64, unit: &'static str) -> Parameter {
    Parameter { name: name.into(), value, unit }
}
