//! The committed list of cells.

use anyhow::{Context, ensure};
use std::path::Path;

/// A cell: a run, and the prediction of its time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) subject: String,
    pub(super) condition: String,
    pub(super) regime: String,
    /// Words of the measured command, without the program.
    pub(super) run: String,
    /// Words of the prediction.
    pub(super) predict: String,
}

impl Cell {
    /// Returns the name of the calibration that predicts the cell, if one does.
    pub(super) fn calibration(&self) -> Option<&'static str> {
        if self.probed_server() {
            return Some("cold");
        }
        self.predict.contains("--device measured").then(|| match self.run.as_str() {
            run if run.contains("DIR/capped") => "capped",
            run if run.contains("DIR/fuse") => "fuse",
            _ if self.subject == "copy" && self.condition == "warm" => "warm",
            _ if self.subject == "walk" && self.condition == "warm" => "warm",
            _ => "cold",
        })
    }

    /// Reports whether the probes of a server predict the cell. Clients that sleep are predicted without.
    pub(super) fn probed_server(&self) -> bool {
        self.subject == "exchange" && self.predicts("--pool").is_none()
    }

    /// Returns the value of a flag of the prediction.
    pub(super) fn predicts(&self, flag: &str) -> Option<&str> {
        let mut words = self.predict.split_whitespace();
        words.find(|word| *word == flag)?;
        words.next()
    }
}

/// Reads the list in the newest directory of `results/predict-cells`.
pub(super) fn read(results: &Path) -> anyhow::Result<Vec<Cell>> {
    let mut lists = Vec::new();
    for entry in std::fs::read_dir(results).context("read results/predict-cells")? {
        let path = entry?.path().join("cells.csv");
        if path.is_file() {
            lists.push(path);
        }
    }
    ensure!(lists.len() == 1, "{} lists of cells; there must be one", lists.len());
    parse(&std::fs::read_to_string(&lists[0]).context("read the cells")?)
}

fn parse(text: &str) -> anyhow::Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for line in text.lines().skip(1) {
        let fields = fields(line);
        let [name, subject, condition, regime, run, predict] = <[String; 6]>::try_from(fields)
            .map_err(|fields| anyhow::anyhow!("{} fields in '{line}'", fields.len()))?;
        cells.push(Cell { name, subject, condition, regime, run, predict });
    }
    ensure!(!cells.is_empty(), "the list has no cells");
    Ok(cells)
}

/// Splits a line at commas that are not between quotes.
fn fields(line: &str) -> Vec<String> {
    let (mut all, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(String::new()),
            _ => all.last_mut().expect("one at least").push(c),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_list_has_sixty_cells_of_four_subjects() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/predict-cells");
        let cells = read(&results).unwrap();
        assert_eq!(cells.len(), 60);
        for subject in ["files", "walk", "copy", "exchange"] {
            assert!(cells.iter().filter(|cell| cell.subject == subject).count() >= 10, "{subject}");
        }
        for cell in &cells {
            assert!(cell.predict.starts_with(&format!("predict {} ", cell.subject)), "{cell:?}");
        }
        let names = |name| cells.iter().filter(|cell| cell.calibration() == Some(name)).count();
        assert_eq!(["capped", "fuse", "warm", "cold"].map(names), [4, 6, 12, 36]);
    }

    #[test]
    fn quoted_commas_do_not_separate() {
        let cells =
            parse("head\na,b,c,\"d, e\",\"each x --plan read/window:l=2,p=2\",f\n").unwrap();
        assert_eq!(cells[0].regime, "d, e");
        assert_eq!(cells[0].run, "each x --plan read/window:l=2,p=2");
        assert!(parse("head\na,b\n").is_err());
        let cell =
            Cell { predict: "predict copy --threads 8 --json".to_owned(), ..cells[0].clone() };
        assert_eq!(cell.predicts("--threads"), Some("8"));
        assert_eq!(cell.predicts("--size"), None);
    }
}
