//! Display names of metrics.

use std::collections::BTreeMap;

/// Returns the display name of a metric: its entry in `names` if there is one, otherwise its name
/// without the unit.
pub fn metric_name(metric: &str, names: &BTreeMap<String, String>) -> String {
    match metric {
        "elapsed_ns" => return "elapsed time".to_owned(),
        "files_per_s" => return "files per second".to_owned(),
        "bytes_per_s" => return "bytes per second".to_owned(),
        _ => {}
    }
    let mut words = metric.to_owned();
    for (suffix, with) in [("_ns", ""), ("_bytes", ""), ("_per_s", " per second")] {
        if let Some(stem) = words.strip_suffix(suffix) {
            words = format!("{stem}{with}");
        }
    }
    let words = words.strip_prefix("extra.").unwrap_or(&words);
    match words.strip_prefix("calls.").and_then(|w| w.split_once('.')) {
        Some((kind, field)) => format!("{kind} call, {field}"),
        None => match words.strip_prefix("share.") {
            Some(state) => format!("share of time: {state}"),
            None => names.get(words).cloned().unwrap_or_else(|| words.replace('_', " ")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_subject_come_before_those_of_the_spelling() {
        let names = BTreeMap::from([("copy_median".to_owned(), "median of the copies".to_owned())]);
        for (metric, wanted) in [
            ("elapsed_ns", "elapsed time"),
            ("extra.copy_median_ns", "median of the copies"),
            ("extra.copy_first_ns", "copy first"),
            ("calls.read.total_ns", "read call, total"),
            ("share.on_cpu", "share of time: on_cpu"),
        ] {
            assert_eq!(metric_name(metric, &names), wanted);
        }
    }
}
