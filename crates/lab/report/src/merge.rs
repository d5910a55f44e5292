//! Results of several machines or sessions side by side, from exported documents.
//!
//! Values are shown next to each other and never pooled: machines differ in more than the arm. Within a
//! document, each arm is compared with the best of its comparison, so readers see whether the same plan
//! is best elsewhere. An arm whose plan differs between documents is marked, because its name alone does
//! not make it the same.

use crate::data::DATA_SCHEMA;
use crate::estimate::Ends;
use crate::markdown::escaped;
use crate::quantity::{Better, Unit, ratio};
use ioloom_model::units::format_size;
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns exported documents side by side as Markdown. Each comes with a name for messages.
///
/// # Errors
/// Names the first document that is not an exported report, or of another version.
pub fn merge(documents: &[(String, Value)]) -> Result<String, String> {
    for (name, document) in documents {
        match document["schema"].as_u64() {
            Some(schema) if schema == u64::from(DATA_SCHEMA) => {}
            Some(schema) => {
                return Err(format!(
                    "{name} has version {schema}, but this program reads version {DATA_SCHEMA}"
                ));
            }
            None => return Err(format!("{name} is not an exported report")),
        }
    }
    let mut out = String::from("# Results side by side\n\n");
    out.push_str("Medians with 95 % intervals in brackets, or with the minimum and maximum of fewer than six ");
    out.push_str("blocks. They are compared with the best arm of the same column. ");
    out.push_str("Nothing is pooled.\n\n");
    for (i, (name, document)) in documents.iter().enumerate() {
        out.push_str(&format!("- **{}**: {}, {}\n", letter(i), escaped(name), machine(document)));
    }
    for (place, columns) in comparisons(documents) {
        table(&mut out, &place, &columns, documents.len());
    }
    Ok(out.replace(['\u{A0}', '\u{202F}'], " "))
}

/// Returns the name of a column: A to Z, then numbers.
fn letter(i: usize) -> String {
    let one = u8::try_from(i).ok().filter(|i| *i < 26).map(|i| char::from(b'A' + i));
    one.map_or_else(|| (i + 1).to_string(), String::from)
}

/// Describes the machine of the first study in a document.
fn machine(document: &Value) -> String {
    let m = &document["studies"][0]["machine"];
    let word = |key: &str| m[key].as_str().unwrap_or("unknown").to_owned();
    let memory = m["memory_bytes"].as_u64().map_or("unknown".to_owned(), format_size);
    let cpus = m["cpus_usable"].as_u64().unwrap_or(0);
    escaped(&format!("{}, {cpus} CPUs, {memory} of memory, {}", word("cpu_model"), word("kernel")))
}

/// Experiment, set, condition, work and medium of a comparison, in the order of the first document.
type Place = (usize, String);

/// Returns each comparison with its group in every document that has it.
fn comparisons(documents: &[(String, Value)]) -> Vec<(String, BTreeMap<usize, &Value>)> {
    let mut order: BTreeMap<String, Place> = BTreeMap::new();
    let mut found: BTreeMap<Place, BTreeMap<usize, &Value>> = BTreeMap::new();
    for (i, (_, document)) in documents.iter().enumerate() {
        for study in list(&document["studies"]) {
            for group in list(&study["groups"]) {
                let part = |key: &str| match &group[key] {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let mut words: Vec<String> =
                    ["experiment", "set", "condition", "compute"].map(part).into();
                // A study on a single medium does not name it.
                let medium = group["medium"].as_str().filter(|medium| *medium != "work");
                words.extend(medium.map(str::to_owned));
                let name = format!("{}: {}", part_of(study, "study"), words.join(", "));
                let next = order.len();
                let place = order.entry(name.clone()).or_insert((next, name)).clone();
                found.entry(place).or_default().insert(i, group);
            }
        }
    }
    found.into_iter().map(|((_, name), groups)| (name, groups)).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn part_of<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or("")
}

/// Writes the arms of a comparison, one column per document.
fn table(out: &mut String, place: &str, columns: &BTreeMap<usize, &Value>, documents: usize) {
    let mut arms: Vec<&str> = Vec::new();
    for arm in columns.values().flat_map(|group| list(&group["arms"])) {
        let name = part_of(arm, "arm");
        if arm["median"].is_number() && !arms.contains(&name) {
            arms.push(name);
        }
    }
    if arms.is_empty() {
        return;
    }
    out.push_str(&format!("\n## {}\n\n| arm |", escaped(place)));
    (0..documents).for_each(|i| out.push_str(&format!(" {} |", letter(i))));
    out.push_str(&format!("\n|---|{}\n", "---:|".repeat(documents)));
    for name in arms {
        let cells: Vec<Option<&Value>> = (0..documents)
            .map(|i| list(&columns.get(&i)?["arms"]).iter().find(|arm| part_of(arm, "arm") == name))
            .collect();
        let mut plans: Vec<&str> = cells.iter().flatten().map(|a| part_of(a, "plan")).collect();
        plans.dedup();
        let mark = if plans.len() > 1 { " (plans differ)" } else { "" };
        out.push_str(&format!("| {}{mark} |", escaped(name)));
        for (i, cell) in cells.iter().enumerate() {
            let text =
                cell.and_then(|arm| value(arm, columns[&i])).unwrap_or_else(|| "–".to_owned());
            out.push_str(&format!(" {text} |"));
        }
        out.push('\n');
    }
}

/// Formats the median of an arm with its interval and its ratio to the best arm of the group.
fn value(arm: &Value, group: &Value) -> Option<String> {
    let metric = part_of(group, "metric");
    let unit = Unit::of(metric);
    let median = arm["median"].as_f64()?;
    let ends = arm["low"].as_f64().zip(arm["high"].as_f64()).map(|(low, high)| Ends {
        low,
        high,
        confidence: arm["confidence"].as_f64().unwrap_or(0.0),
    });
    let ends = ends.map_or(String::new(), |ends| format!(" {}", unit.format_ends(ends)));
    let medians = list(&group["arms"]).iter().filter_map(|arm| arm["median"].as_f64());
    let best = match Better::of(metric) {
        Better::Lower => medians.reduce(f64::min).map(|best| median / best),
        Better::Higher => medians.reduce(f64::max).map(|best| best / median),
        Better::Neither => None,
    };
    let best = best.filter(|slower| slower.is_finite()).map_or(String::new(), |slower| {
        if slower <= 1.0 {
            " (best)".to_owned()
        } else {
            match Better::of(metric) {
                Better::Higher => format!(" (the best has {})", ratio(slower)),
                _ => format!(" ({} the best)", ratio(slower)),
            }
        }
    });
    Some(format!("{}{ends}{best}", unit.format(median)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(cpu: &str, times: [f64; 2], plan: &str) -> Value {
        let arm = |name: &str, median: f64, plan: &str| {
            json!({"arm": name, "plan": plan, "median": median, "low": median * 0.9, "high": median * 1.1,
                   "confidence": 0.96})
        };
        json!({"schema": DATA_SCHEMA, "studies": [{
            "study": "pipeline",
            "machine": {"cpu_model": cpu, "cpus_usable": 2, "memory_bytes": 1 << 30, "kernel": "Linux 6.1"},
            "groups": [{
                "experiment": "e", "set": "E", "condition": "cold", "compute": "xxh3",
                "metric": "elapsed_ns",
                "arms": [arm("one|two", times[0], "read/threads:n=1"), arm("many", times[1], plan)],
            }],
        }]})
    }

    #[test]
    fn columns_are_documents_and_each_has_its_own_best() {
        let plan = "read/threads:n=8";
        let all = [
            ("a.json".to_owned(), document("X", [4e6, 2e6], plan)),
            ("b.json".to_owned(), document("Y", [1e6, 3e6], plan)),
        ];
        let text = merge(&all).unwrap();
        assert!(
            text.contains("- **A**: a.json, X, 2 CPUs, 1.00 GiB of memory, Linux 6.1\n"),
            "{text}"
        );
        assert!(text.contains("## pipeline: e, E, cold, xxh3\n\n| arm | A | B |\n"), "{text}");
        let line = |name: &str| text.lines().find(|l| l.contains(name)).unwrap().to_owned();
        assert!(
            line("one\\|two").contains("4.00 ms [3.60 ms, 4.40 ms] (2.00× the best) | 1.00 ms")
        );
        assert!(line("| many |").contains("2.00 ms [1.80 ms, 2.20 ms] (best) | 3.00 ms"), "{text}");
        let other =
            [all[0].clone(), ("c".to_owned(), document("Z", [1e6, 3e6], "read/threads:n=9"))];
        assert!(merge(&other).unwrap().contains("| many (plans differ) |"));
    }

    #[test]
    fn media_are_compared_apart() {
        let mut one = document("X", [4e6, 2e6], "read/threads:n=8");
        let groups = one["studies"][0]["groups"].as_array_mut().unwrap();
        let mut slow = groups[0].clone();
        groups[0]["medium"] = "work".into();
        slow["medium"] = "xfs".into();
        slow["arms"][0]["median"] = 8e6.into();
        groups.push(slow);
        let text = merge(&[("a.json".to_owned(), one)]).unwrap();
        assert!(text.contains("## pipeline: e, E, cold, xxh3\n"), "{text}");
        assert!(text.contains("## pipeline: e, E, cold, xxh3, xfs\n"), "{text}");
        assert!(text.contains("4.00 ms") && text.contains("8.00 ms"), "{text}");
    }

    #[test]
    fn other_documents_are_refused() {
        let refused = |value: Value| merge(&[("x.json".to_owned(), value)]).unwrap_err();
        assert_eq!(refused(json!({})), "x.json is not an exported report");
        assert!(refused(json!({"schema": 1})).contains("x.json has version 1"));
    }
}
