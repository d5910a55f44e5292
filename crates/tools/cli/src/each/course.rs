//! A picture of a run with a controller: files in flight, throughput and idle time over time.

use ioloom::measured::{Tuned, TunedPoint};
use ioloom_model::units::{format_count, format_ns};

/// Columns left and right of the picture: the title and the largest value.
const OTHER_COLUMNS: usize = 24;
/// Points and nanoseconds below which a picture shows nothing.
const POINTS_LEAST: usize = 8;
const SHOWN_NS: u64 = 1_000_000_000;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What a line shows.
type Quantity = fn(&TunedPoint) -> f64;

/// Returns one line of `width` columns for each quantity; nothing for a short run.
pub(super) fn picture(tuned: &Tuned, width: usize) -> String {
    let columns = width.saturating_sub(OTHER_COLUMNS);
    let points = &tuned.points;
    let Some(last) = points.last() else { return String::new() };
    let total_ns = last.at_ns + last.elapsed_ns;
    if points.len() < POINTS_LEAST || total_ns < SHOWN_NS {
        return String::new();
    }
    let rows: [(&str, Quantity); 3] = [
        ("limit, log2", |point| point.window.max(1.0).log2()),
        ("files/s", |point| point.files_per_s),
        ("idle", |point| point.idle),
    ];
    let mut text = String::new();
    for (title, of) in rows {
        let part = |i| mean(points, column(total_ns, i, columns), of);
        let means: Vec<f64> = (0..columns).map(part).collect();
        let most = match title {
            "idle" => 1.0,
            _ => means.iter().copied().fold(f64::MIN_POSITIVE, f64::max),
        };
        let bars: String =
            means.iter().map(|x| BARS[((x / most * 7.0).round() as usize).min(7)]).collect();
        let most = match title {
            "idle" => "100 %".to_owned(),
            "files/s" => format_count(most as u64),
            _ => format_count(most.exp2() as u64),
        };
        text += &format!("{title:11} {bars} up to {most}\n");
    }
    text + &format!("{:11} over {}\n", "", format_ns(total_ns as f64))
}

/// Returns the start and the end of a column.
fn column(total_ns: u64, i: usize, columns: usize) -> (f64, f64) {
    let width = total_ns as f64 / columns as f64;
    (i as f64 * width, (i + 1) as f64 * width)
}

/// Returns the mean over a part of the run, weighted by time.
fn mean(points: &[TunedPoint], (from, to): (f64, f64), of: Quantity) -> f64 {
    let (mut sum, mut time) = (0.0, 0.0);
    for point in points {
        let (start, end) = (point.at_ns as f64, (point.at_ns + point.elapsed_ns) as f64);
        let part = end.min(to) - start.max(from);
        if part > 0.0 {
            sum += of(point) * part;
            time += part;
        }
    }
    sum / f64::max(time, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: u64, ns: u64) -> Tuned {
        let points = (0..count).map(|i| TunedPoint {
            at_ns: i * ns,
            elapsed_ns: ns,
            window: if 2 * i < count { 512.0 } else { 2.0 },
            in_flight: 1.0,
            files_per_s: if 2 * i < count { 100.0 } else { 800.0 },
            bytes_per_s: 0.0,
            idle: 0.5,
        });
        Tuned { points: points.collect(), ..Tuned::default() }
    }

    #[test]
    fn the_picture_shows_when_the_limit_fell() {
        let text = picture(&points(100, 20_000_000), 80);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        let bars = |line: &str| line.chars().filter(|c| BARS.contains(c)).collect::<String>();
        assert_eq!(bars(lines[0]), "█".repeat(28) + &"▂".repeat(28));
        assert_eq!(bars(lines[1]), "▂".repeat(28) + &"█".repeat(28));
        assert!(lines[0].ends_with("up to 512") && lines[1].ends_with("up to 800"), "{text}");
        assert!(lines[3].ends_with("over 2.00 s"), "{text}");
    }

    #[test]
    fn a_short_run_has_no_picture() {
        assert_eq!(picture(&points(7, 1_000_000_000), 80), "");
        assert_eq!(picture(&points(100, 1_000_000), 80), "");
        assert_eq!(picture(&Tuned::default(), 80), "");
    }
}
