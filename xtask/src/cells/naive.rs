//! The prediction that a cell takes as long per file as the nearest probe.
//!
//! Nearest is the probe of the same kind whose number in flight differs by the smallest factor. Files
//! of 1 MiB or more are compared with the large probes, per byte: per file, the naive prediction would
//! be wrong by the ratio of the sizes. Requests are compared with the probes of their durability; for
//! clients that sleep, nothing comparable was measured.

use super::list::Cell;
use serde_json::Value;

/// Sizes from which the large probes are nearer.
const LARGE: f64 = 1048576.0;

/// Returns the naive prediction in seconds, or for the exchange in seconds per request; `None` if
/// nothing comparable was measured.
pub(super) fn seconds(cell: &Cell, calibration: &Value) -> Option<f64> {
    let measured = &calibration["measured"];
    let number = |flag: &str| cell.predicts(flag).and_then(count);
    if cell.subject == "exchange" {
        if !cell.probed_server() {
            return None;
        }
        let probes = format!("{}_s", cell.predicts("--durability")?);
        return nearest(&measured["exchange"][probes], number("--clients")?);
    }
    let threads = number("--threads");
    let files = number("--files");
    let size = number("--size").unwrap_or(0.0);
    let (probes, bytes) = match cell.subject.as_str() {
        "walk" => ("walk_s", false),
        "copy" if size >= LARGE => ("copy_large_s", true),
        "copy" => ("copy_s", false),
        _ if cell.condition == "warm" => ("warm_s", false),
        _ if size >= LARGE => ("large_s", true),
        _ => ("cold_s", false),
    };
    let each = nearest(&measured[probes], threads?)?;
    let scale = if bytes { size / measured["large_bytes"].as_f64()? } else { 1.0 };
    Some(files? * each * scale)
}

/// Returns the value of the probe whose number is nearest by quotient.
fn nearest(probes: &Value, threads: f64) -> Option<f64> {
    let distance = |probe: &Value| Some((probe[0].as_f64()? / threads).ln().abs());
    let known = probes.as_array()?.iter().filter_map(|probe| Some((distance(probe)?, probe)));
    known.min_by(|a, b| a.0.total_cmp(&b.0)).and_then(|(_, probe)| probe[1].as_f64())
}

/// Parses `20k` or `4KiB`.
fn count(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1.0,
        "k" => 1e3,
        "KiB" => 1024.0,
        "MiB" => LARGE,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(subject: &str, predict: &str) -> Cell {
        Cell {
            name: "x".to_owned(),
            subject: subject.to_owned(),
            condition: "cold".to_owned(),
            regime: String::new(),
            run: String::new(),
            predict: predict.to_owned(),
        }
    }

    #[test]
    fn the_nearest_probe_is_scaled_by_files_and_bytes() {
        let calibration = json!({"measured": {
            "cold_s": [[1, 1e-3], [4, 4e-4], [64, 1e-4]],
            "large_s": [[1, 0.016], [4, 0.008]], "large_bytes": 16777216,
            "exchange": {"group_s": [[1, 2e-4], [8, 4e-5], [64, 1e-5]]},
        }});
        let small = cell("files", "predict files --files 20k --size 4KiB --threads 8");
        assert_eq!(seconds(&small, &calibration), Some(20e3 * 4e-4));
        let large = cell("files", "predict files --files 400 --size 1MiB --threads 1");
        assert!((seconds(&large, &calibration).unwrap() - 0.4).abs() < 1e-9);
        let server = cell("exchange", "predict exchange --clients 32 --durability group");
        assert_eq!(seconds(&server, &calibration), Some(1e-5));
        let pool = cell("exchange", "predict exchange --clients 40 --pool 10");
        assert_eq!(seconds(&pool, &calibration), None);
    }
}
