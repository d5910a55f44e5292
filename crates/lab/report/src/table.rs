//! A table of texts, written as CSV, Markdown or plain columns, and the two tables of the seeds:
//! medium × threads (seed 001) and roles with calls end, waiting share and elapsed time (seed 000).

use crate::group::{ArmRuns, Group};
use crate::input::Input;
use crate::quantity::{Unit, bracketed, percent};
use ioloom_model::Schedule;

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Title for people.
    pub title: String,
    /// Names of columns.
    pub columns: Vec<String>,
    /// Rows of as many texts as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Comma-separated text after RFC 4180, with a line of names.
    pub fn csv(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<_> = cells.iter().map(|c| csv_cell(c)).collect();
            cells.join(",") + "\n"
        };
        std::iter::once(&self.columns).chain(&self.rows).map(|r| line(r)).collect()
    }

    /// A Markdown table under its title.
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

fn csv_cell(text: &str) -> String {
    // A leading sign makes some spreadsheets run the cell as a formula.
    let risky = text.starts_with(['=', '@', '+', '-']) && text.parse::<f64>().is_err();
    let text = if risky { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
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

/// Threads down, media across, as seed 001 prints it: one table for each experiment, set,
/// condition and compute with a plain thread ladder. Cells are medians with their ends and count.
pub fn medium_by_threads(groups: &[Group<'_>]) -> Vec<Table> {
    let mut out: Vec<Table> = Vec::new();
    let mut done: Vec<(&str, &str, String)> = Vec::new();
    for g in groups {
        let rest = format!("{} {}", g.condition, g.compute);
        let key = (g.experiment.name.as_str(), g.set.as_str(), rest);
        if done.contains(&key) {
            continue;
        }
        let media: Vec<&Group<'_>> = groups
            .iter()
            .filter(|o| {
                o.experiment.name == g.experiment.name
                    && o.set == g.set
                    && o.condition == g.condition
                    && o.compute == g.compute
            })
            .collect();
        done.push(key);
        let mut methods: Vec<_> = media
            .iter()
            .flat_map(|m| &m.arms)
            .filter(|a| threads(a).is_some())
            .map(|a| a.plan.method())
            .collect();
        methods.sort_unstable();
        methods.dedup();
        for method in methods {
            let cells = |m: &Group<'_>, n: u32| {
                m.arms
                    .iter()
                    .find(|a| a.plan.method() == method && threads(a) == Some(n))
                    .map_or(String::new(), |a| cell(a, g.unit()))
            };
            let mut counts: Vec<u32> = media
                .iter()
                .flat_map(|m| &m.arms)
                .filter(|a| a.plan.method() == method)
                .filter_map(threads)
                .collect();
            counts.sort_unstable();
            counts.dedup();
            if counts.len() < 2 {
                continue;
            }
            out.push(Table {
                title: format!("{}: {method} on {}", g.experiment.name, g.work_place()),
                columns: std::iter::once("threads".to_owned())
                    .chain(media.iter().map(|m| m.medium.to_owned()))
                    .collect(),
                rows: counts
                    .into_iter()
                    .map(|n| {
                        std::iter::once(n.to_string())
                            .chain(media.iter().map(|m| cells(m, n)))
                            .collect()
                    })
                    .collect(),
            });
        }
    }
    out
}

fn threads(arm: &ArmRuns<'_>) -> Option<u32> {
    arm.plan.plain_threads()
}

fn cell(arm: &ArmRuns<'_>, unit: Unit) -> String {
    arm.estimate.as_ref().map_or_else(
        || arm.not_done.first().map_or(String::new(), |(word, _, _)| (*word).to_owned()),
        |e| with_ends(unit, e),
    )
}

fn with_ends(unit: Unit, e: &crate::estimate::Estimate) -> String {
    let ends = e.ends.map_or_else(|| "no interval".to_owned(), |ends| unit.format_ends(ends));
    format!("{} {ends} n={}", unit.format(e.median), e.values.len())
}

/// Roles as seed 000 prints them: readers, hybrids, computers, when the read calls ended, the share
/// of time waiting for input, and the elapsed time. One table for each comparison with role arms.
pub fn roles(groups: &[Group<'_>], input: &Input) -> Vec<Table> {
    let mut out = Vec::new();
    for g in groups {
        let mut arms: Vec<_> = g
            .arms
            .iter()
            .filter(|a| roles_of(a).is_some())
            .filter(|a| a.metric("elapsed_ns", input.seed).is_some())
            .collect();
        arms.sort_by_key(|a| roles_of(a));
        if arms.is_empty() {
            continue;
        }
        let rows = arms.into_iter().map(|a| role_row(a, input.seed)).collect();
        let columns = ["readers", "hybrids", "computers", "calls end", "waiting", "elapsed", "n"];
        out.push(Table {
            title: format!("{}: roles on {}", g.experiment.name, g.place()),
            columns: columns.map(str::to_owned).to_vec(),
            rows,
        });
    }
    out
}

/// Readers, hybrids and computers of a plan with roles.
fn roles_of(arm: &ArmRuns<'_>) -> Option<(u32, u32, u32)> {
    match arm.plan.files()?.schedule {
        Schedule::Roles { readers, hybrids, computers, .. } => Some((readers, hybrids, computers)),
        _ => None,
    }
}

fn role_row(arm: &ArmRuns<'_>, seed: u64) -> Vec<String> {
    let Some((readers, hybrids, computers)) = roles_of(arm) else {
        return Vec::new();
    };
    let show = |metric: &str, format: &dyn Fn(f64) -> String| {
        arm.metric(metric, seed).map_or_else(
            || "not measured".to_owned(),
            |e| match e.ends {
                Some(ends) => format!("{} {}", format(e.median), bracketed(ends, format)),
                None => format!("{} no interval", format(e.median)),
            },
        )
    };
    let time = |v: f64| Unit::Time.format(v);
    vec![
        readers.to_string(),
        hybrids.to_string(),
        computers.to_string(),
        show("calls_end_ns", &time),
        show("share.io", &percent),
        show("elapsed_ns", &time),
        arm.runs.len().to_string(),
    ]
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
        };
        assert_eq!(table.csv(), "x,y\n\"1,5 \"\"s\"\"\",'=cmd|'x'\n");
        assert_eq!(
            table.markdown(),
            "**a\\|b**\n\n| x | y |\n|---|---|\n| 1,5 \"s\" | =cmd\\|'x' |\n"
        );
    }
}
