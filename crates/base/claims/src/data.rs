//! The published tables of the seeds, compiled in.
//!
//! Each table is a CSV under `studies/NAME/data` with one header line, no comments and no quotes; a cell
//! is a number exactly as it was printed, or a word. Nothing in them is computed, so that a test
//! can hold every number against the published text. A number is named by
//! `TABLE[CELL,CELL].COLUMN`: the row whose first cells are the given ones.

use crate::ClaimsError;
pub use ioloom_studies::TABLES;

/// A table: a header and rows of as many cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns, units last.
    pub header: Vec<String>,
    /// Rows as printed.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Reads a table; every row has as many cells as the header.
    ///
    /// # Errors
    /// An empty text, or a row with another number of cells.
    pub fn parse(name: &str, text: &str) -> Result<Self, ClaimsError> {
        let cells = |line: &str| line.split(',').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
        let wrong = |reason: String| ClaimsError::Table { table: name.to_owned(), reason };
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let header = cells(lines.next().ok_or_else(|| wrong("it is empty".to_owned()))?);
        let rows: Vec<_> = lines.map(cells).collect();
        match rows.iter().find(|row| row.len() != header.len()) {
            None => Ok(Self { header, rows }),
            Some(row) => Err(wrong(format!(
                "row '{}' has {} cells and the header {}",
                row.join(","),
                row.len(),
                header.len()
            ))),
        }
    }
}

/// A published table by name.
///
/// # Errors
/// No such table.
pub fn table(name: &str) -> Result<Table, ClaimsError> {
    let found = TABLES.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| ClaimsError::Table {
        table: name.to_owned(),
        reason: "there is no such table in studies/*/data".to_owned(),
    })?;
    Table::parse(name, text)
}

/// A published number by its path, such as `000_roles[12,12].elapsed_ms`.
///
/// # Errors
/// A path that is not of this form, or one that leads to no row, several rows or no number.
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
    let row = rows.next().ok_or_else(|| wrong("no row begins with these cells"))?;
    if rows.next().is_some() {
        return Err(wrong("several rows begin with these cells"));
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
