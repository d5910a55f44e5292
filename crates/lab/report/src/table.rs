//! A text table, written as CSV, Markdown or plain columns.

use std::borrow::Cow;

/// A table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Title for display.
    pub title: String,
    /// Names of columns.
    pub columns: Vec<String>,
    /// Rows with one cell per column.
    pub rows: Vec<Vec<String>>,
    /// Numbers by which a page sorts the cells, by row and column. Cells without one are sorted by their
    /// text.
    pub numbers: Vec<Vec<Option<f64>>>,
}

/// The text of a cell, and the number by which it is sorted unless the text is that number.
pub(crate) type Cell = (String, Option<f64>);

impl Table {
    /// Returns a table of cells.
    pub(crate) fn of_cells(title: String, columns: Vec<String>, cells: Vec<Vec<Cell>>) -> Self {
        let split = |row: Vec<Cell>| row.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        let (rows, numbers) = cells.into_iter().map(split).unzip();
        Self { title, columns, rows, numbers }
    }

    /// Returns the table as CSV (RFC 4180) with a header line.
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            writer
                .write_record(row.iter().map(|cell| spreadsheet_cell(cell).into_owned()))
                .expect("rows have one cell per column and memory accepts writes");
        }
        let bytes = writer.into_inner().expect("memory accepts writes");
        String::from_utf8(bytes).expect("cells are UTF-8")
    }

    /// Returns the table as Markdown below its title.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<_> = cells.iter().map(|c| markdown_cell(c)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = vec!["---".to_owned(); self.columns.len()];
        let mut out = format!("**{}**\n\n", markdown_cell(&self.title));
        out.push_str(&line(&self.columns));
        out.push_str(&format!("|{}|\n", rule.join("|")));
        out.extend(self.rows.iter().map(|r| line(r)));
        out
    }
}

/// Escapes a cell whose first character would make some spreadsheets evaluate it as a formula.
fn spreadsheet_cell(text: &str) -> Cow<'_, str> {
    let formula = text.starts_with(['=', '@', '+', '-']) && text.parse::<f64>().is_err();
    if formula { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

fn markdown_cell(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#' => {
                out.push('\\');
                out.push(c);
            }
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted() {
        let table = Table {
            title: "a|b".to_owned(),
            columns: vec!["x".to_owned(), "y".to_owned()],
            rows: vec![vec!["1,5 \"s\"".to_owned(), "=cmd|'x'".to_owned()]],
            ..Table::default()
        };
        assert_eq!(table.csv(), "x,y\n\"1,5 \"\"s\"\"\",'=cmd|'x'\n");
        assert_eq!(
            table.markdown(),
            "**a\\|b**\n\n| x | y |\n|---|---|\n| 1,5 \"s\" | =cmd\\|'x' |\n"
        );
    }
}
