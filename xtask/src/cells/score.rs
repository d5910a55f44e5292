//! The scored table.

use super::list::Cell;
use ioloom_stats::median;
use serde_json::Value;
use std::fmt::Write as _;

/// Error of the throughput within which a prediction counts as good.
const GOOD: f64 = 0.10;
/// Share of the cells that should be good.
const GOAL: f64 = 0.90;

/// A scored cell.
#[derive(Debug, PartialEq)]
struct Scored {
    measured: f64,
    runs: usize,
    predicted: f64,
    naive: Option<f64>,
}

impl Scored {
    /// Returns the relative error of a throughput.
    fn error(&self, seconds: f64) -> f64 {
        self.measured / seconds - 1.0
    }
}

/// Returns the predicted and the median measured seconds of a cell.
fn scored(cell: &Cell, raw: &[Value]) -> Result<Scored, String> {
    let of = |phase: &'static str| {
        raw.iter().filter(move |run| run["phase"] == phase && run["cell"] == cell.name.as_str())
    };
    let predicted = of("predicted").next().ok_or("not predicted")?;
    let times: Vec<f64> = of("run")
        .filter(|run| run["failure"].is_null())
        .filter_map(|run| run["seconds"].as_f64())
        .collect();
    if times.is_empty() {
        let failure = of("run").find_map(|run| run["failure"].as_str());
        return Err(failure.unwrap_or("not measured").to_owned());
    }
    Ok(Scored {
        measured: median(&times),
        runs: times.len(),
        predicted: predicted["elapsed_s"].as_f64().ok_or("not predicted")?,
        naive: predicted["naive_s"].as_f64(),
    })
}

/// Returns the table as Markdown.
pub(super) fn summary(cells: &[&Cell], raw: &[Value]) -> String {
    let mut all = String::from(
        "| cell | condition | regime | runs | measured, s | predicted, s | throughput error | nearest \
         probe |\n|---|---|---|---:|---:|---:|---:|---:|\n",
    );
    let (mut law, mut near, mut failed) = (Vec::new(), Vec::new(), 0);
    for cell in cells {
        let head = format!("| {} | {} | {} |", cell.name, cell.condition, cell.regime);
        match scored(cell, raw) {
            Ok(scored) => {
                let error = scored.error(scored.predicted);
                law.push(error);
                let naive = scored.naive.map(|naive| scored.error(naive));
                near.extend(naive);
                let naive = naive.map_or("–".to_owned(), |e| format!("{:+.1} %", 100.0 * e));
                let _ = writeln!(
                    all,
                    "{head} {} | {:.3} | {:.3} | {:+.1} % | {naive} |",
                    scored.runs,
                    scored.measured * scale(cell),
                    scored.predicted * scale(cell),
                    100.0 * error
                );
            }
            Err(reason) => {
                failed += 1;
                let reason = reason.replace(['|', '\n'], " ");
                let _ = writeln!(all, "{head} 0 | not scored: {reason} | | | |");
            }
        }
    }
    all.push_str(
        "\nTimes of the exchange without sleeping clients are milliseconds per 1,000 requests.\n\n",
    );
    let line = |name: &str, errors: &[f64], of: usize| {
        let good = errors.iter().filter(|error| error.abs() <= GOOD).count();
        let sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        format!(
            "{name}: {good} of {of} cells within 10 % ({:.0} %), median error {:.1} %\n",
            100.0 * good as f64 / of.max(1) as f64,
            100.0 * median(&sizes)
        )
    };
    all += &line("predicted", &law, cells.len());
    all += &line("nearest probe", &near, near.len());
    let good = law.iter().filter(|error| error.abs() <= GOOD).count() as f64;
    let reached = good >= GOAL * cells.len() as f64;
    let _ = writeln!(
        all,
        "goal of 90 % within 10 %: {}{}",
        if reached { "reached" } else { "MISSED" },
        if failed > 0 {
            format!("; {failed} cells not scored count as missed")
        } else {
            String::new()
        }
    );
    all
}

/// Requests are stored as seconds per request.
fn scale(cell: &Cell) -> f64 {
    if cell.subject == "exchange" && cell.predicts("--pool").is_none() { 1e6 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn medians_are_scored_and_failures_count_as_missed() {
        let cell = |name: &str| Cell {
            name: name.to_owned(),
            subject: "walk".to_owned(),
            condition: "cold".to_owned(),
            regime: "r".to_owned(),
            run: String::new(),
            predict: String::new(),
        };
        let (a, b) = (cell("a"), cell("b"));
        let run = |cell: &str, seconds: f64, failure: Value| json!({"phase": "run", "cell": cell, "seconds": seconds, "failure": failure});
        let raw = [
            json!({"phase": "predicted", "cell": "a", "elapsed_s": 2.1, "naive_s": 4.0}),
            json!({"phase": "predicted", "cell": "b", "elapsed_s": 1.0, "naive_s": null}),
            run("a", 9.0, Value::Null),
            run("a", 2.0, Value::Null),
            run("a", 1.0, Value::Null),
            run("a", 0.1, "not cold".into()),
            run("b", 1.0, "not warm".into()),
        ];
        let text = summary(&[&a, &b], &raw);
        assert!(text.contains("| a | cold | r | 3 | 2.000 | 2.100 | -4.8 % | -50.0 % |"), "{text}");
        assert!(text.contains("not scored: not warm"), "{text}");
        assert!(text.contains("predicted: 1 of 2 cells within 10 % (50 %)"), "{text}");
        assert!(text.contains("MISSED; 1 cells not scored"), "{text}");
        // Errors of 50 % and 10 %: the median of two is between them.
        let raw = [
            json!({"phase": "predicted", "cell": "a", "elapsed_s": 2.0, "naive_s": null}),
            json!({"phase": "predicted", "cell": "b", "elapsed_s": 1.0, "naive_s": null}),
            run("a", 1.0, Value::Null),
            run("b", 0.9, Value::Null),
        ];
        let text = summary(&[&a, &b], &raw);
        assert!(text.contains("median error 30.0 %"), "{text}");
    }
}
