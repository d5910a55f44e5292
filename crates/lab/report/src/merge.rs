//! Results of several machines or sessions side by side, from exported documents.
//!
//! Values are shown next to each other and never pooled: machines differ in more than the arm. Within a
//! document, the best median among the arms that did the same work is marked, so readers see whether the same
//! plan has it elsewhere. A median does not show that an arm is faster, so a factor is given only if the
//! paired ratio of the document excludes 1. Doubts are those of the document. An arm whose plan or files
//! differ between documents is marked, because its name alone does not make it the same. A session that
//! occurs twice is refused: it would look like two. So is a document with one comparison twice.

use crate::data::DATA_SCHEMA;
use crate::estimate::Ends;
use crate::input::time;
use crate::markdown::escaped;
use crate::quantity::{Better, Unit, ratio};
use ioloom_model::study::AGAIN;
use ioloom_model::units::format_size;
use ioloom_model::{AnyPlan, Doubt};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Returns exported documents side by side as Markdown. Each comes with a name for messages.
///
/// # Errors
/// Names the first document that is not an exported report, is of another version, contains a session
/// that it or another document also contains, or has one comparison in several sessions.
pub fn merge(documents: &[(String, Value)]) -> Result<String, String> {
    for (name, document) in documents {
        // Other documents of ioloom have a version, too.
        match document["schema"].as_u64().filter(|_| document["studies"].is_array()) {
            Some(schema) if schema == u64::from(DATA_SCHEMA) => {}
            Some(schema) => {
                return Err(format!(
                    "{name} has version {schema}, but this program reads version {DATA_SCHEMA}"
                ));
            }
            None => {
                return Err(format!(
                    "{name} is not an exported report; expected a document of `study --export` or \
                     `report --format json`"
                ));
            }
        }
    }
    refuse_repeated(documents)?;
    let mut out = String::from("# Results side by side\n\n");
    out.push_str("Medians with 95 % intervals in brackets, or with the minimum and maximum of fewer than six ");
    out.push_str("blocks. The lowest median of the arms of a column that did the same work is ");
    out.push_str("marked (the highest if more is better). It does not show that the arm is ");
    out.push_str("faster: a factor is given only if the interval of the ratio of common blocks ");
    out.push_str("excludes 1. ◇ marks doubts. Nothing is pooled.\n\n");
    for (i, (name, document)) in documents.iter().enumerate() {
        out.push_str(&format!("- **{}**: {}, {}\n", letter(i), escaped(name), machine(document)));
    }
    doubts(&mut out, documents);
    for (place, columns) in comparisons(documents)? {
        table(&mut out, &place, &columns, documents.len());
    }
    Ok(out.replace(['\u{A0}', '\u{202F}'], " "))
}

/// Refuses a session that occurs twice. Sessions of two machines have one name if they start in the
/// same second. The fingerprint of a machine is not in every document.
fn refuse_repeated(documents: &[(String, Value)]) -> Result<(), String> {
    let mut seen: BTreeMap<(&str, &str, [String; 5]), usize> = BTreeMap::new();
    for (at, (name, document)) in documents.iter().enumerate() {
        for study in list(&document["studies"]) {
            let machine = &study["machine"];
            let [cpu, cpus, memory, kernel] =
                ["cpu_model", "cpus_usable", "memory_bytes", "kernel"]
                    .map(|key| machine[key].to_string());
            let place = [study["started_unix_ms"].to_string(), cpu, cpus, memory, kernel];
            let session = (part_of(study, "study"), part_of(study, "session"), place);
            if session.1.is_empty() {
                continue;
            }
            let id = session.1.escape_debug();
            match seen.insert(session, at) {
                None => {}
                Some(first) if first == at => {
                    return Err(format!("{name} contains the session {id} twice"));
                }
                Some(first) => {
                    let first = &documents[first].0;
                    return Err(format!("{first} and {name} both contain the session {id}"));
                }
            }
        }
    }
    Ok(())
}

/// Returns the name of a column: A to Z, then numbers.
fn letter(i: usize) -> String {
    let one = u8::try_from(i).ok().filter(|i| *i < 26).map(|i| char::from(b'A' + i));
    one.map_or_else(|| (i + 1).to_string(), String::from)
}

/// Describes the machine of the first study in a document and when it started, and the modes and program versions
/// of its studies.
fn machine(document: &Value) -> String {
    let m = &document["studies"][0]["machine"];
    let word = |key: &str| m[key].as_str().unwrap_or("unknown").to_owned();
    let memory = m["memory_bytes"].as_u64().map_or("unknown".to_owned(), format_size);
    let cpus = m["cpus_usable"].as_u64().unwrap_or(0);
    let mut modes: Vec<String> = list(&document["studies"])
        .iter()
        .map(|study| part_of(study, "mode"))
        .filter(|mode| !mode.is_empty())
        .map(|mode| format!(", {mode} mode"))
        .collect();
    modes.dedup();
    modes.extend(list(&document["studies"]).iter().filter_map(unfinished));
    let started = document["studies"][0]["started_unix_ms"].as_u64();
    modes.extend(started.map(|unix_ms| format!(", started {}", time(unix_ms))));
    let mut versions: Vec<&str> =
        list(&document["studies"]).iter().map(|study| part_of(study, "version")).collect();
    versions.sort_unstable();
    versions.dedup();
    let known = versions.into_iter().filter(|version| !version.is_empty());
    modes.extend(known.map(|version| format!(", ioloom {version}")));
    let (cpu, kernel) = (word("cpu_model"), word("kernel"));
    escaped(&format!("{cpu}, {cpus} CPUs, {memory} of memory, {kernel}{}", modes.concat()))
}

/// Says that a study has not ended. Documents of earlier versions do not show it.
fn unfinished(study: &Value) -> Option<String> {
    let is_unfinished = study["ended"].as_bool() == Some(false);
    let (name, done) = (part_of(study, "study"), &study["runs"]["count"]);
    let planned = &study["runs_planned"];
    is_unfinished.then(|| format!(", {name} not finished ({done} of {planned} runs)"))
}

/// Writes every doubt of each study with its experiments and what to do.
fn doubts(out: &mut String, documents: &[(String, Value)]) {
    let mut lines = String::new();
    for (i, (_, document)) in documents.iter().enumerate() {
        for study in list(&document["studies"]) {
            let mut seen: BTreeMap<(String, &str), BTreeSet<&str>> = BTreeMap::new();
            for group in list(&study["groups"]) {
                for doubt in list(&group["arms"]).iter().flat_map(|arm| list(&arm["doubts"])) {
                    seen.entry(named(doubt)).or_default().insert(part_of(group, "experiment"));
                }
            }
            for row in list(&study["doubts"]) {
                seen.entry(named(&row["doubt"])).or_default().extend(row["experiment"].as_str());
            }
            for ((doubt, advice), experiments) in seen {
                let place = match experiments.is_empty() {
                    true => "the whole study".to_owned(),
                    false => experiments.into_iter().collect::<Vec<_>>().join(", "),
                };
                let name = part_of(study, "study");
                let line = escaped(&format!("{name}: {doubt} ({place}): {advice}"));
                lines.push_str(&format!("- ◇ {}, {line}\n", letter(i)));
            }
        }
    }
    if !lines.is_empty() {
        out.push_str(&format!("\nDoubts:\n\n{lines}"));
    }
}

/// Returns the name of a doubt and what to do.
fn named(doubt: &Value) -> (String, &'static str) {
    match serde_json::from_value::<Doubt>(doubt.clone()) {
        Ok(doubt) => (doubt.name().to_owned(), doubt.advice()),
        Err(_) => (doubt.as_str().unwrap_or("unknown").to_owned(), "unknown to this program"),
    }
}

/// A comparison in a document, with its study.
#[derive(Clone, Copy)]
struct Column<'v> {
    study: &'v Value,
    group: &'v Value,
}

/// The groups of a comparison by document.
type Columns<'v> = BTreeMap<usize, Column<'v>>;

/// Experiment, set, condition, work and medium of a comparison, in the order of the first document.
type Place = (usize, String);

/// Returns each comparison with its group in every document that has it. Refuses a document that has one
/// in two studies: a column shows one of them.
fn comparisons(documents: &[(String, Value)]) -> Result<Vec<(String, Columns<'_>)>, String> {
    let mut order: BTreeMap<String, Place> = BTreeMap::new();
    let mut found: BTreeMap<Place, Columns<'_>> = BTreeMap::new();
    for (i, (file, document)) in documents.iter().enumerate() {
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
                let first = found.entry(place).or_default().insert(i, Column { study, group });
                if first.is_some_and(|first| !std::ptr::eq(first.study, study)) {
                    let study = part_of(study, "study").escape_debug();
                    return Err(format!(
                        "{file} contains several sessions of {study}; export each separately"
                    ));
                }
            }
        }
    }
    Ok(found.into_iter().map(|((_, name), groups)| (name, groups)).collect())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn part_of<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or("")
}

/// Writes the arms of a comparison, one column per document.
fn table(out: &mut String, place: &str, columns: &Columns<'_>, documents: usize) {
    let key = |arm| (part_of(arm, "arm"), part_of(arm, "set"));
    let mut arms: Vec<(&str, &str)> = Vec::new();
    // Only a comparison that merges file sets has an arm on several.
    let merges = columns.values().any(|column| merges_sets(column.group));
    for arm in columns.values().flat_map(|column| list(&column.group["arms"])) {
        let known = arms.iter().any(|k| if merges { *k == key(arm) } else { k.0 == key(arm).0 });
        if arm["median"].is_number() && !known {
            arms.push(key(arm));
        }
    }
    if arms.is_empty() {
        return;
    }
    out.push_str(&format!("\n## {}\n\n| arm |", escaped(place)));
    (0..documents).for_each(|i| out.push_str(&format!(" {} |", letter(i))));
    out.push_str(&format!("\n|---|{}\n", "---:|".repeat(documents)));
    for (name, set) in &arms {
        let several = arms.iter().filter(|(other, _)| other == name).count() > 1;
        let is_it = |arm: &&Value| {
            part_of(arm, "arm") == *name && (!several || part_of(arm, "set") == *set)
        };
        let cells: Vec<Option<&Value>> = (0..documents)
            .map(|i| list(&columns.get(&i)?.group["arms"]).iter().find(is_it))
            .collect();
        let label = if several { format!("{name}, {set}") } else { (*name).to_owned() };
        out.push_str(&format!("| {}{} |", escaped(&label), differences(&cells, columns)));
        for (i, cell) in cells.iter().enumerate() {
            let text =
                cell.and_then(|arm| value(arm, columns[&i])).unwrap_or_else(|| "–".to_owned());
            out.push_str(&format!(" {text} |"));
        }
        out.push('\n');
    }
}

/// Reports whether the arms of a comparison have different file sets. Documents of earlier programs do not
/// record it.
fn merges_sets(group: &Value) -> bool {
    group["merges_sets"].as_bool().unwrap_or_else(|| {
        let mut sets: BTreeMap<&str, &str> = BTreeMap::new();
        let arms = list(&group["arms"]).iter();
        arms.map(|arm| (part_of(arm, "arm"), part_of(arm, "set")))
            .any(|(name, set)| sets.insert(name, set).is_some_and(|first| first != set))
    })
}

/// Returns the arms that are ranked. Documents of earlier programs do not record them: those with the
/// work of the first one, if known, except repetitions and plans that read nothing.
fn ranked(group: &Value) -> Vec<&Value> {
    let arms = list(&group["arms"]).iter();
    if list(&group["arms"]).iter().any(|arm| arm["comparable"].is_boolean()) {
        return arms.filter(|arm| arm["comparable"] == true).collect();
    }
    if merges_sets(group) {
        return Vec::new();
    }
    let reads = |arm: &&Value| {
        let plan = part_of(arm, "plan");
        let is_null = plan.parse::<AnyPlan>().is_ok_and(|plan| plan.is_null());
        arm["median"].is_number() && !part_of(arm, "arm").ends_with(AGAIN) && !is_null
    };
    let mut ranked: Vec<&Value> = arms.filter(reads).collect();
    if let Some(work) = ranked.first().map(|arm| &arm["work"]) {
        ranked.retain(|arm| arm["work"] == *work);
    }
    ranked
}

/// Returns what differs between the arms of a row, in parentheses.
fn differences(cells: &[Option<&Value>], columns: &Columns<'_>) -> String {
    let differs = |keys: &[&str]| {
        keys.iter().any(|key| {
            let mut known = cells.iter().flatten().map(|arm| &arm[*key]).filter(|v| !v.is_null());
            known.next().is_some_and(|first| known.any(|other| other != first))
        })
    };
    let all = [("plans", &["plan"][..]), ("files", &["set_hash", "work"])];
    let mut words: Vec<&str> =
        all.into_iter().filter(|(_, keys)| differs(keys)).map(|(word, _)| word).collect();
    let here = columns.iter().filter(|(i, _)| cells.get(**i).is_some_and(Option::is_some));
    let metrics: BTreeSet<&str> = here.map(|(_, c)| part_of(c.group, "metric")).collect();
    words.extend((metrics.len() > 1).then_some("metrics"));
    if words.is_empty() { String::new() } else { format!(" ({} differ)", words.join(" and ")) }
}

/// Formats the median of an arm with its interval, its rank and its doubts.
fn value(arm: &Value, column: Column<'_>) -> Option<String> {
    let unit = Unit::of(part_of(column.group, "metric"));
    let median = arm["median"].as_f64()?;
    let ends = ends(arm).map_or(String::new(), |ends| format!(" {}", unit.format_ends(ends)));
    let rank = rank(arm, column).map_or(String::new(), |words| format!(" ({words})"));
    let doubts: Vec<String> = list(&arm["doubts"]).iter().map(|doubt| named(doubt).0).collect();
    let doubts = match doubts.is_empty() {
        true => String::new(),
        false => format!(" ◇ {}", escaped(&doubts.join(", "))),
    };
    Some(format!("{}{ends}{rank}{doubts}", unit.format(median)))
}

/// Returns the ends of a median or ratio, if recorded.
fn ends(value: &Value) -> Option<Ends> {
    let (low, high) = value["low"].as_f64().zip(value["high"].as_f64())?;
    Some(Ends { low, high, confidence: value["confidence"].as_f64().unwrap_or(0.0) })
}

/// Describes an arm that did the same work as others: whether its median is the best, or by which factor the
/// arm with the best median is shown to be better.
fn rank(arm: &Value, Column { study, group }: Column<'_>) -> Option<String> {
    let ranked = ranked(group);
    if !ranked.iter().any(|other| std::ptr::eq(*other, arm)) {
        return None;
    }
    let medians = ranked.iter().filter_map(|arm| Some((arm["median"].as_f64()?, *arm)));
    let better = Better::of(part_of(group, "metric"));
    let (best, first) = match better {
        Better::Lower => medians.min_by(|a, b| a.0.total_cmp(&b.0))?,
        Better::Higher => medians.max_by(|a, b| a.0.total_cmp(&b.0))?,
        Better::Neither => return None,
    };
    if arm["median"].as_f64()?.total_cmp(&best).is_eq() {
        let word = if better == Better::Higher { "highest" } else { "lowest" };
        return Some(format!("{word} median"));
    }
    let is_shown = |paired: &&Value| {
        let is_of_both = paired["best"] == first["id"] && paired["against"] == arm["id"];
        is_of_both && ends(paired).is_some_and(|ends| ends.is_interval() && ends.low > 1.0)
    };
    let ids = [first, arm].iter().all(|arm| arm["id"].is_string());
    let paired = list(&study["ratios"]).iter().find(is_shown).filter(|_| ids)?;
    let factor = ratio(paired["ratio"].as_f64()?);
    Some(match better {
        Better::Higher => format!("the highest has {factor}"),
        _ => format!("{factor} the lowest"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(cpu: &str, times: [f64; 2], plan: &str) -> Value {
        let arm = |name: &str, median: f64, plan: &str| {
            json!({"arm": name, "plan": plan, "median": median, "low": median * 0.9, "high": median * 1.1,
                   "confidence": 0.96, "comparable": true, "set_hash": "aa",
                   "work": {"files": 10, "bytes": 40}})
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
        assert!(line("one\\|two").contains("4.00 ms [3.60 ms, 4.40 ms] | 1.00 ms"));
        assert!(
            line("| many |").contains("2.00 ms [1.80 ms, 2.20 ms] (lowest median) | 3.00 ms"),
            "{text}"
        );
        let other =
            [all[0].clone(), ("c".to_owned(), document("Z", [1e6, 3e6], "read/threads:n=9"))];
        assert!(merge(&other).unwrap().contains("| many (plans differ) |"));
    }

    /// The lower of two medians is not shown to be the better one.
    #[test]
    fn factors_are_those_of_paired_ratios_and_doubts_are_shown() {
        let mut one = document("X", [2.1e6, 2e6], "read/threads:n=8");
        let study = &mut one["studies"][0];
        study["doubts"] = json!([{"doubt": "few-samples", "experiment": null, "arm": null}]);
        for (i, arm) in study["groups"][0]["arms"].as_array_mut().unwrap().iter_mut().enumerate() {
            arm["id"] = format!("g0.a{i}").into();
        }
        study["groups"][0]["arms"][1]["doubts"] = json!(["two-regimes"]);
        let merged = |low: f64| {
            let mut one = one.clone();
            one["studies"][0]["ratios"] = json!([{"best": "g0.a1", "against": "g0.a0", "ratio": 1.05,
                                                  "low": low, "high": 1.1, "confidence": 0.96}]);
            merge(&[("a.json".to_owned(), one)]).unwrap()
        };
        let text = merged(0.95);
        assert!(text.contains("(lowest median) ◇ two regimes |"), "{text}");
        assert!(text.contains("- ◇ A, pipeline: few samples (the whole study): "), "{text}");
        assert!(text.contains("- ◇ A, pipeline: two regimes (e): "), "{text}");
        assert!(!text.contains("(best)") && !text.contains('×'), "{text}");
        assert!(merged(1.01).contains("(1.05× the lowest)"));
    }

    /// Sessions of one machine differ in their time, and perhaps in the program.
    #[test]
    fn columns_name_their_time_and_program() {
        let mut one = document("X", [4e6, 2e6], "read/threads:n=8");
        one["studies"][0]["started_unix_ms"] = 1_795_320_503_000_u64.into();
        one["studies"][0]["version"] = "0.2.0 (abc)".into();
        let text = merge(&[("a.json".to_owned(), one)]).unwrap();
        let line = ", Linux 6.1, started 2026-11-22 04:08:23 UTC, ioloom 0.2.0 (abc)\n";
        assert!(text.contains(line), "{text}");
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
    fn only_arms_with_the_same_work_are_ranked() {
        let mut one = document("X", [4e6, 2e6], "read/threads:n=8");
        let arms = &mut one["studies"][0]["groups"][0]["arms"];
        arms[1]["comparable"] = false.into();
        let text = merge(&[("a.json".to_owned(), one.clone())]).unwrap();
        assert!(text.contains("| many | 2.00 ms [1.80 ms, 2.20 ms] |"), "{text}");
        assert!(text.contains("4.00 ms [3.60 ms, 4.40 ms] (lowest median)"), "{text}");
        // Two arms of one name on two sets are two rows.
        let group = &mut one["studies"][0]["groups"][0];
        group["merges_sets"] = true.into();
        for (arm, set) in group["arms"].as_array_mut().unwrap().iter_mut().zip(["G-1", "G-2"]) {
            arm["arm"] = "read".into();
            arm["set"] = set.into();
        }
        let text = merge(&[("a.json".to_owned(), one)]).unwrap();
        assert!(text.contains("| read, G-1 | 4.00 ms"), "{text}");
        assert!(text.contains("| read, G-2 | 2.00 ms"), "{text}");
    }

    /// Documents of earlier programs have the same version without some of the fields.
    #[test]
    fn arms_of_documents_without_marks_are_ranked_by_their_work() {
        let old = |times, keys: &[&str]| {
            let mut one = document("X", times, "read/threads:n=8");
            for arm in one["studies"][0]["groups"][0]["arms"].as_array_mut().unwrap() {
                keys.iter().for_each(|key| drop(arm.as_object_mut().unwrap().remove(*key)));
            }
            one
        };
        let merged = |one: &Value| merge(&[("a.json".to_owned(), one.clone())]).unwrap();
        for keys in [&["comparable"][..], &["comparable", "work"]] {
            let text = merged(&old([4e6, 2e6], keys));
            assert!(text.contains("2.20 ms] (lowest median)"), "{text}");
        }
        let mut other = old([4e6, 2e6], &["comparable"]);
        let first = &mut other["studies"][0]["groups"][0]["arms"];
        first[1]["work"]["files"] = 9.into();
        let text = merged(&other);
        assert!(text.contains("4.00 ms [3.60 ms, 4.40 ms] (lowest median)"), "{text}");
        assert!(text.contains("| many | 2.00 ms [1.80 ms, 2.20 ms] |"), "{text}");
        for (key, value) in [("arm", "one|two (again)"), ("plan", "null/threads:n=1")] {
            let mut other = old([4e6, 2e6], &["comparable", "work"]);
            other["studies"][0]["groups"][0]["arms"][1][key] = value.into();
            assert!(merged(&other).contains("4.40 ms] (lowest median)"), "{key}");
        }
    }

    /// An arm on several sets has a row for each, whichever document records that.
    #[test]
    fn sets_of_documents_without_marks_have_their_rows() {
        let of = |marked: bool| {
            let mut one = document("X", [4e6, 2e6], "read/threads:n=8");
            let group = &mut one["studies"][0]["groups"][0];
            if marked {
                group["merges_sets"] = true.into();
            }
            for (arm, set) in group["arms"].as_array_mut().unwrap().iter_mut().zip(["G-1", "G-2"]) {
                arm["arm"] = "read".into();
                arm["set"] = set.into();
                match marked {
                    true => arm["comparable"] = false.into(),
                    false => drop(arm.as_object_mut().unwrap().remove("comparable")),
                }
            }
            (marked.to_string(), one)
        };
        for all in [vec![of(false)], vec![of(false), of(true)], vec![of(true), of(false)]] {
            let text = merge(&all).unwrap();
            assert!(text.contains("| read, G-1 | 4.00 ms"), "{text}");
            assert!(text.contains("| read, G-2 | 2.00 ms"), "{text}");
            assert!(!text.contains("(lowest median)"), "{text}");
        }
    }

    #[test]
    fn arms_on_other_files_are_marked() {
        let plan = "read/threads:n=8";
        let marked = |key: &str, value: Value| {
            let mut other = document("Y", [4e6, 2e6], plan);
            other["studies"][0]["groups"][0]["arms"][1][key] = value;
            let first = ("a".to_owned(), document("X", [4e6, 2e6], plan));
            merge(&[first, ("b".to_owned(), other)]).unwrap()
        };
        assert!(marked("set_hash", "bb".into()).contains("| many (files differ) |"));
        let work = json!({"files": 5, "bytes": 40});
        assert!(marked("work", work).contains("| many (files differ) |"));
        assert!(marked("work", Value::Null).contains("| many |"), "unknown");
    }

    #[test]
    fn other_metrics_are_marked() {
        let plan = "read/threads:n=8";
        let mut other = document("Y", [4e6, 2e6], plan);
        other["studies"][0]["groups"][0]["metric"] = "calls.read.p50_ns".into();
        let first = ("a".to_owned(), document("X", [4e6, 2e6], plan));
        let text = merge(&[first.clone(), ("b".to_owned(), other)]).unwrap();
        assert!(text.contains("| many (metrics differ) |"), "{text}");
        assert!(!merge(&[first.clone(), first]).unwrap().contains("differ)"));
    }

    /// A column has room for one of them.
    #[test]
    fn two_sessions_of_a_study_in_a_document_are_refused() {
        let mut one = document("X", [4e6, 2e6], "read/threads:n=8");
        let studies = one["studies"].as_array_mut().unwrap();
        let again = studies[0].clone();
        studies.push(again);
        for (study, session) in studies.iter_mut().zip(["s1", "s2"]) {
            study["session"] = session.into();
        }
        let merged = |one: &Value| merge(&[("a.json".to_owned(), one.clone())]);
        let wanted = "a.json contains several sessions of pipeline; export each separately";
        assert_eq!(merged(&one).unwrap_err(), wanted);
        let mut twice = one.clone();
        twice["studies"][1]["session"] = "s1".into();
        assert_eq!(merged(&twice).unwrap_err(), "a.json contains the session s1 twice");
        one["studies"][1]["groups"][0]["experiment"] = "f".into();
        let text = merged(&one).unwrap();
        assert!(text.contains("## pipeline: e, ") && text.contains("## pipeline: f, "), "{text}");
    }

    #[test]
    fn a_session_is_not_compared_with_itself() {
        let of = |session: &str, mode: &str| {
            let mut one = document("X", [4e6, 2e6], "read/threads:n=8");
            one["studies"][0]["session"] = session.into();
            one["studies"][0]["mode"] = mode.into();
            one
        };
        let documents =
            |second| [("a".to_owned(), of("s1", "quick")), ("b".to_owned(), of(second, "full"))];
        assert_eq!(merge(&documents("s1")).unwrap_err(), "a and b both contain the session s1");
        // Two machines in the same second.
        for (key, value) in [("started_unix_ms", json!(7)), ("machine", json!({"cpu_model": "Y"}))]
        {
            let mut other = documents("s1");
            other[1].1["studies"][0][key] = value;
            assert!(merge(&other).is_ok(), "{key}");
        }
        let text = merge(&documents("s2")).unwrap();
        assert!(text.contains("Linux 6.1, quick mode\n"), "{text}");
        assert!(text.contains("Linux 6.1, full mode\n"), "{text}");
    }

    #[test]
    fn other_documents_are_refused() {
        let refused = |value: Value| merge(&[("x.json".to_owned(), value)]).unwrap_err();
        for other in [json!({}), json!({"schema": 1, "claims": []})] {
            assert!(refused(other).starts_with("x.json is not an exported report; expected"));
        }
        assert!(refused(json!({"schema": 1, "studies": []})).contains("x.json has version 1"));
    }
}
