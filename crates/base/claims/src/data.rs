//! Published tables of the source studies, compiled in.
//!
//! Each table is a CSV file under `studies/NAME/data/` with one header line and no comments or
//! quotes. A cell is a word or a number exactly as printed. Tables contain no computed values, so a
//! test can compare every number with the published text. `TABLE[CELL,CELL].COLUMN` names a number
//! in the row that starts with the specified cells.

use crate::ClaimsError;
pub use ioloom_studies::TABLES;

/// A table: a header and rows with the same number of cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Column names, with the unit as suffix.
    pub header: Vec<String>,
    /// Rows as printed.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Parses a table in which every row has as many cells as the header.
    ///
    /// # Errors
    /// Fails if the text is empty or a row has a different number of cells.
    pub fn parse(name: &str, text: &str) -> Result<Self, ClaimsError> {
        let wrong = |reason: String| ClaimsError::Table { table: name.to_owned(), reason };
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .flexible(true)
            .quoting(false)
            .from_reader(text.as_bytes());
        let cells = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect();
        let header: Vec<String> = cells(reader.headers().map_err(|e| wrong(e.to_string()))?);
        if header.is_empty() {
            return Err(wrong("it is empty".to_owned()));
        }
        let mut rows: Vec<Vec<String>> = Vec::new();
        for record in reader.records() {
            let row: Vec<String> = cells(&record.map_err(|e| wrong(e.to_string()))?);
            if row.len() != header.len() {
                return Err(wrong(format!(
                    "row '{}' has {} cells but the header has {}",
                    row.join(","),
                    row.len(),
                    header.len()
                )));
            }
            rows.push(row);
        }
        Ok(Self { header, rows })
    }
}

/// Returns a published table by name.
///
/// # Errors
/// Fails if there is no such table.
pub fn table(name: &str) -> Result<Table, ClaimsError> {
    let found = TABLES.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| ClaimsError::Table {
        table: name.to_owned(),
        reason: "no such table in studies/*/data".to_owned(),
    })?;
    Table::parse(name, text)
}

/// Returns a published number by its path, such as `000_roles[12,12].elapsed_ms`.
///
/// # Errors
/// Fails if the path is malformed, or if it matches no row, several rows or no number.
pub fn number(path: &str) -> Result<f64, ClaimsError> {
    let wrong =
        |reason: &str| ClaimsError::Path { path: path.to_owned(), reason: reason.to_owned() };
    let form = "use TABLE[CELL,CELL].COLUMN";
    let (name, rest) = path.split_once('[').ok_or_else(|| wrong(form))?;
    let (keys, column) = rest.split_once("].").ok_or_else(|| wrong(form))?;
    let table = table(name)?;
    let at =
        table.header.iter().position(|c| c == column).ok_or_else(|| wrong("no such column"))?;
    let keys: Vec<&str> = keys.split(',').map(str::trim).collect();
    let mut rows = table.rows.iter().filter(|row| {
        keys.len() <= row.len() && row.iter().zip(&keys).all(|(cell, key)| cell == key)
    });
    let row = rows.next().ok_or_else(|| wrong("no row starts with these cells"))?;
    if rows.next().is_some() {
        return Err(wrong("several rows start with these cells"));
    }
    row[at].parse().map_err(|_| wrong("the cell is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_row() {
        assert_eq!(number("000_roles[12,12].elapsed_ms").unwrap(), 439.0);
        assert_eq!(number("001_walk[1].nvme_s").unwrap(), 36.14);
        for (path, part) in [
            ("000_roles", "use TABLE"),
            ("000_roles[12].elapsed_ms", "several rows"),
            ("000_roles[99].elapsed_ms", "no row"),
            ("000_roles[12,12].elapsed_s", "no such column"),
            ("000_nothing[1].x", "no such table"),
            ("000_shares[sync,io].state", "not a number"),
        ] {
            let error = number(path).unwrap_err().to_string();
            assert!(error.contains(part), "{path}: {error}");
        }
    }

    #[test]
    fn every_table_is_rectangular() {
        for (name, text) in TABLES {
            let table = Table::parse(name, text).unwrap();
            assert!(!table.rows.is_empty(), "{name}");
            assert!(!text.contains(['"', '#']), "{name}: quotes or comments");
        }
        assert!(Table::parse("x", "").is_err());
        assert!(Table::parse("x", "a,b\n1\n").is_err());
    }
}
