//! Published tables as cells with their rounding intervals.
//!
//! The tables are those of the crate `studies`, printed numbers only. A number printed with two
//! decimals may be any value within half a unit of the last one; a prediction inside that interval
//! has no error, and one outside is compared with the nearer end.

use crate::PredictError;
use serde::Serialize;

/// A table: a header and rows, as printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    name: &'static str,
    header: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

/// Which digits of a column were printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digits {
    /// Each number has its own number of decimals.
    Own,
    /// All numbers of the column have as many decimals as the longest; zeros at the end were dropped
    /// from the table.
    Column,
}

/// One published number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// The table.
    pub table: &'static str,
    /// What the number belongs to, for example `hdd, 8 threads`.
    pub label: String,
    /// The number.
    pub value: f64,
    /// Least value that is printed like this.
    pub low: f64,
    /// Largest value that is printed like this.
    pub high: f64,
}

impl Table {
    /// Returns a table by name.
    ///
    /// # Errors
    /// Fails if there is no such table, or a row has too few cells.
    pub fn find(name: &'static str) -> Result<Self, PredictError> {
        let missing = PredictError::Table { table: name };
        let text = ioloom_studies::TABLES.iter().find(|(known, _)| *known == name);
        let mut lines = text.ok_or(missing)?.1.lines().map(|line| line.split(',').collect());
        let header: Vec<&str> = lines.next().ok_or(missing)?;
        let rows: Vec<Vec<&str>> = lines.collect();
        if rows.iter().any(|row| row.len() != header.len()) {
            return Err(missing);
        }
        Ok(Self { name, header, rows })
    }

    /// Returns the words of a column.
    ///
    /// # Errors
    /// Fails if there is no such column.
    pub fn words(&self, column: &str) -> Result<Vec<&'static str>, PredictError> {
        let at = self.header.iter().position(|name| *name == column);
        let at = at.ok_or(PredictError::Table { table: self.name })?;
        Ok(self.rows.iter().map(|row| row[at]).collect())
    }

    /// Returns the numbers of a column.
    ///
    /// # Errors
    /// Fails if there is no such column, or a cell is not a number.
    pub fn numbers(&self, column: &str) -> Result<Vec<f64>, PredictError> {
        let number = |word: &str| word.parse();
        let all: Result<Vec<f64>, _> = self.words(column)?.into_iter().map(number).collect();
        all.map_err(|_| PredictError::Table { table: self.name })
    }

    /// Returns the cells of a column, labelled by row.
    ///
    /// # Errors
    /// Fails as [`Table::numbers`] does.
    pub fn cells(
        &self,
        column: &str,
        digits: Digits,
        label: impl Fn(usize) -> String,
    ) -> Result<Vec<Cell>, PredictError> {
        let words = self.words(column)?;
        let most = words.iter().map(|word| decimals(word)).max().unwrap_or(0);
        let cell = |(row, (word, value)): (usize, (&&str, f64))| {
            let decimals = if digits == Digits::Own { decimals(word) } else { most };
            let half = 0.5 * 0.1f64.powi(decimals as i32);
            let (low, high) = (value - half, value + half);
            Cell { table: self.name, label: label(row), value, low, high }
        };
        Ok(words.iter().zip(self.numbers(column)?).enumerate().map(cell).collect())
    }
}

impl Cell {
    /// Returns the relative error of a prediction: 0 within the rounding interval, else relative to
    /// the nearer end.
    pub fn error(&self, predicted: f64) -> f64 {
        if predicted > self.high {
            predicted / self.high - 1.0
        } else if predicted < self.low {
            predicted / self.low - 1.0
        } else {
            0.0
        }
    }
}

/// Returns the number of decimals of a printed number.
fn decimals(word: &str) -> usize {
    word.split_once('.').map_or(0, |(_, decimals)| decimals.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_within_the_rounding_has_no_error() {
        let table = Table::find("000_call_cost").unwrap();
        let label = |row: usize| format!("row {row}");
        let cells = table.cells("read_file_ms", Digits::Own, label).unwrap();
        assert_eq!((cells.len(), cells[2].value, cells[2].label.as_str()), (11, 4.3, "row 2"));
        assert_eq!(cells[2].error(4.26), 0.0);
        assert!((cells[2].error(4.4) - (4.4 / 4.35 - 1.0)).abs() < 1e-12);
        assert!((cells[0].error(50.0) - (50.0 / 55.5 - 1.0)).abs() < 1e-12);
    }

    #[test]
    fn dropped_zeros_count_as_printed() {
        let walk = Table::find("001_walk").unwrap();
        let cells = walk.cells("nvme_s", Digits::Column, |_| String::new()).unwrap();
        assert_eq!(cells[1].value, 19.0);
        assert!((cells[1].high - 19.005).abs() < 1e-9, "{:?}", cells[1]);
    }

    #[test]
    fn an_unknown_table_or_column_is_an_error() {
        assert!(Table::find("no such").is_err());
        assert!(Table::find("001_walk").unwrap().words("no such").is_err());
        assert!(Table::find("000_million").unwrap().numbers("set").is_err());
    }
}
