//! An answer as text with a curve, and as JSON.

use super::saved::Calibration;
use crate::out;
use ioloom_model::units::format_count;
use ioloom_predict::answer::{Answer, Point, format_time as time, format_whole};
use serde::Serialize;

/// Version of the `--json` document.
const SCHEMA: u32 = 1;
/// Columns of texts.
pub(super) const WIDTH: usize = 80;
/// Columns of the curve on a terminal with room for it.
const CURVE_MAX: usize = 40;
/// Columns of the curve at least.
const CURVE_MIN: usize = 12;
/// What separates two columns of a table.
const GAP: &str = "  ";

/// The document of `predict WHAT --json`.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: u32,
    command: &'static str,
    subject: &'a str,
    /// Predictions are never measurements.
    evidence: &'static str,
    #[serde(flatten)]
    answer: &'a Answer,
    #[serde(skip_serializing_if = "Option::is_none")]
    calibration: Option<&'a Calibration>,
}

pub(super) fn document<'a>(
    subject: &'a str,
    answer: &'a Answer,
    calibration: Option<&'a Calibration>,
) -> Document<'a> {
    let (command, evidence) = ("predict", "predicted");
    Document { schema: SCHEMA, command, subject, evidence, answer, calibration }
}

pub(super) fn text(answer: &Answer, saved: Option<&Calibration>, width: usize) -> String {
    let mut all = out::wrap(&answer.question, width, 2);
    all.push('\n');
    let head = [answer.axis, "predicted", "from", "to", answer.unit, "limit"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows[0][4].push_str("/s");
    for point in &answer.points {
        rows.push(vec![
            point.threads.to_string(),
            time(point.elapsed_s),
            time(point.low_s),
            time(point.high_s),
            rate(point.rate_per_s),
            point.limit.name().to_owned(),
        ]);
    }
    all.push_str(&table(&rows, 5));
    all.push('\n');
    let slowest = answer.points.iter().map(|point| point.high_s).fold(0.0, f64::max);
    let mut rows = vec![[answer.axis, "calibration"].map(str::to_owned).to_vec()];
    for point in &answer.points {
        rows.push(vec![point.threads.to_string(), beyond(point, answer.axis)]);
    }
    let before: usize = widths(&rows).iter().map(|columns| columns + GAP.len()).sum();
    let columns = width.saturating_sub(before).clamp(CURVE_MIN, CURVE_MAX);
    rows[0].push(format!("0 to {}", time(slowest)));
    for (row, point) in rows[1..].iter_mut().zip(&answer.points) {
        row.push(curve(point, slowest, columns));
    }
    all.push_str(&table(&rows, 1));
    all.push('\n');
    let mut say = |head: &str, text: &str| all.push_str(&out::labelled(head, 11, text, width));
    say("enough", &format!("{} (within 2 % of the highest rate)", enough(answer)));
    say("method", &answer.method);
    say("parameters", &answer.parameters);
    if let Some(saved) = saved {
        say("calibrated", &saved.context());
    }
    for note in &answer.notes {
        say("note", note);
    }
    all
}

fn enough(answer: &Answer) -> String {
    let axis = match answer.enough {
        1 => answer.axis.strip_suffix('s').unwrap_or(answer.axis),
        _ => answer.axis,
    };
    format!("{} {axis}", format_count(u64::from(answer.enough)))
}

/// Formats a rate with three significant digits, and tiny ones with an exponent.
fn rate(per_s: f64) -> String {
    let (value, unit) = match per_s {
        _ if per_s > 0.0 && per_s < 1e-3 => return format!("{per_s:.2e}"),
        _ if per_s >= 999_500.0 => (per_s / 1e6, "M"),
        _ if per_s >= 999.5 => (per_s / 1e3, "k"),
        _ => (per_s, ""),
    };
    // The exponent of the rounded value.
    let scientific = format!("{value:.2e}");
    let exponent = scientific.split_once('e').and_then(|(_, digits)| digits.parse::<i32>().ok());
    let decimals = usize::try_from(2 - exponent.unwrap_or_default()).unwrap_or_default();
    format!("{value:.decimals$}{unit}")
}

/// Formats the distance from the calibration.
fn beyond(point: &Point, axis: &str) -> String {
    let Some(beyond) = point.beyond else { return "not calibrated".to_owned() };
    let factor = |value: f64, what: &str| {
        (value > 1.0).then(|| match value < 10.0 {
            true => format!("{what} ×{value:.1}"),
            false => format!("{what} ×{}", format_whole(value)),
        })
    };
    let all = [
        (beyond.threads, axis),
        (beyond.files, "files"),
        (beyond.size, "size"),
        (beyond.cores, "cores"),
        (beyond.disks, "disks"),
    ];
    let parts: Vec<String> =
        all.into_iter().filter_map(|(value, what)| factor(value, what)).collect();
    if parts.is_empty() { "inside".to_owned() } else { parts.join(", ") }
}

/// Draws the interval as a line and the prediction as a point, from 0 to the slowest, in `columns`, at least 1.
fn curve(point: &Point, slowest: f64, columns: usize) -> String {
    let column = |seconds: f64| {
        let share = if slowest > 0.0 { seconds / slowest } else { 0.0 };
        ((share * (columns - 1) as f64).round() as usize).min(columns - 1)
    };
    let (low, at, high) = (column(point.low_s), column(point.elapsed_s), column(point.high_s));
    let mark = |i: usize| match i {
        _ if i == at => '●',
        _ if (low..=high).contains(&i) => '─',
        _ => ' ',
    };
    (0..=high).map(mark).collect()
}

/// Returns the width of each column of rows of equal length.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let wide =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    (0..columns).map(wide).collect()
}

/// Aligns the first `right` columns to the right and the others to the left.
fn table(rows: &[Vec<String>], right: usize) -> String {
    let widths = widths(rows);
    let mut all = String::new();
    for row in rows {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            let gap = " ".repeat(widths[i] - cell.chars().count());
            line += &if i < right { gap + cell } else { cell.clone() + &gap };
            line += GAP;
        }
        all.push_str(line.trim_end());
        all.push('\n');
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{enough, rate, text};
    use ioloom_predict::answer::profile::Class;
    use ioloom_predict::answer::walk;

    #[test]
    fn rates_have_three_significant_digits() {
        for (per_s, expected) in [
            (9.5184e-7, "9.52e-7"),
            (0.001, "0.00100"),
            (0.0171, "0.0171"),
            (1.0, "1.00"),
            (9.999, "10.0"),
            (999.6, "1.00k"),
            (1024.0, "1.02k"),
            (8192.0, "8.19k"),
            (147_600.0, "148k"),
            (1.5e6, "1.50M"),
            (0.0, "0.00"),
        ] {
            assert_eq!(rate(per_s), expected);
        }
    }

    #[test]
    fn the_curve_fits_the_width() {
        let (class, measured, cores) = (Class::Hdd, None, None);
        let asked = walk::Question { class, measured, files: 1000, threads_max: 64, cores };
        let answer = walk::answer(&asked).unwrap();
        let longest = |width: usize| {
            let all = text(&answer, None, width);
            let (_, curves) = all.split_once("calibration").unwrap();
            let (curves, _) = curves.split_once("enough").unwrap();
            curves.lines().map(|line| line.chars().count()).max().unwrap()
        };
        assert!(longest(40) <= 40 && longest(52) <= 52, "{} {}", longest(40), longest(52));
        assert!(longest(52) > 40 && longest(80) == longest(100));
    }

    #[test]
    fn one_thread_is_singular() {
        let (class, measured, cores) = (Class::Hdd, None, None);
        let asked = walk::Question { class, measured, files: 1, threads_max: 1, cores };
        let answer = walk::answer(&asked).unwrap();
        assert_eq!(answer.question, "walk of 1 file on hdd");
        assert_eq!(enough(&answer), "1 thread");
    }
}
