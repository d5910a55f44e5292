//! Ladders of threads predicted from three of their times, drawn with what was measured.
//!
//! The prediction is that of `ioloom predict` for a calibrated machine. The three times it starts from
//! are on its curve by construction; all others are held out, and their misses are marked. A law is
//! worth something only if it misses less than the time of the nearest probe, so that is shown too.

use crate::estimate::Estimate;
use crate::figures::Figure;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::{Unit, percent};
use crate::svg::lines::{Line, Lines, Miss, Point};
use ioloom_predict::knee::Knee;
use ioloom_predict::walk_media::PROBES;

/// Fewest thread counts that are held out.
const HELD_OUT_MIN: usize = 2;

/// A measured ladder.
pub(super) struct Measured<'a> {
    pub(super) name: &'a str,
    /// Share of the time of all processors in the probe with most threads.
    pub(super) busy: f64,
    /// Threads, and seconds per file.
    pub(super) cells: Vec<(u32, f64)>,
}

/// A prediction of a ladder.
struct Predicted {
    probes: Vec<(u32, f64)>,
    /// Threads, predicted and measured seconds of the held-out cells.
    held: Vec<(u32, f64, f64)>,
}

impl Predicted {
    fn of(measured: &Measured<'_>) -> Option<(Knee, Self)> {
        let (probes, rest): (Vec<_>, Vec<_>) =
            measured.cells.iter().copied().partition(|(n, _)| PROBES.contains(n));
        if probes.len() < PROBES.len() || rest.len() < HELD_OUT_MIN {
            return None;
        }
        let knee = Knee::fit_busy(&probes, measured.busy).ok()?;
        let held = rest.into_iter().map(|(n, seconds)| (n, knee.seconds(n), seconds)).collect();
        Some((knee, Self { probes, held }))
    }

    /// Returns the mean absolute errors of the law and of the nearest probe.
    fn errors(&self) -> [f64; 2] {
        let nearest = |threads: u32| {
            let distance = |n: u32| (f64::from(n) / f64::from(threads)).ln().abs();
            let best = self.probes.iter().min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)));
            best.map_or(f64::NAN, |(_, seconds)| *seconds)
        };
        let mean = |predicted: &dyn Fn(&(u32, f64, f64)) -> f64| {
            let sum: f64 =
                self.held.iter().map(|cell| (predicted(cell) / cell.2 - 1.0).abs()).sum();
            sum / self.held.len() as f64
        };
        [mean(&|cell| cell.1), mean(&|cell| nearest(cell.0))]
    }
}

/// Writes a figure for each ladder with the three probes; nothing without one.
pub(super) fn write(m: &mut Markup, ladders: &[Measured<'_>]) {
    let known: Vec<_> = ladders.iter().filter_map(|one| Some((one, Predicted::of(one)?))).collect();
    if known.is_empty() {
        return;
    }
    m.tag("h3").text("What if: predicted from three thread counts");
    for (measured, (knee, predicted)) in &known {
        let [law, nearest] = predicted.errors();
        parts::figure(m, &figure(measured, knee, predicted), |m| {
            m.tag("b").text(&format!("Walk {}: predicted and measured.", measured.name));
            m.text(&format!(
                " The prediction starts from the times with 1, 4 and 64 threads, which are on its \
                 curve by construction. Bars mark its miss at the other counts: {} on average, and {} \
                 if each time is taken to be that of the nearest of the three.",
                percent(law),
                percent(nearest)
            ));
        });
    }
}

fn figure(measured: &Measured<'_>, knee: &Knee, predicted: &Predicted) -> Figure {
    let exact = |seconds: f64| Estimate { values: Vec::new(), median: seconds * 1e9, ends: None };
    let point = |n: u32, seconds: f64, note: String| Point {
        x: f64::from(n),
        y: exact(seconds),
        thin: None,
        note,
    };
    let measured_line = measured.cells.iter().map(|(n, s)| point(*n, *s, String::new())).collect();
    let held = |n: u32| predicted.held.iter().find(|cell| cell.0 == n);
    let curve = measured.cells.iter().map(|(n, _)| {
        let note = held(*n).map_or("a probe: not predicted".to_owned(), words);
        point(*n, knee.seconds(*n), note)
    });
    let miss = |cell: &(u32, f64, f64)| Miss {
        line: 1,
        x: f64::from(cell.0),
        values: [cell.1 * 1e9, cell.2 * 1e9],
        text: words(cell),
    };
    Figure::Lines(Lines {
        title: format!("Walk {}: predicted and measured time per file", measured.name),
        description: "Time per file by the number of threads, with the miss of each prediction."
            .to_owned(),
        x_title: "threads".to_owned(),
        x_unit: Unit::Number,
        y_title: "time per file".to_owned(),
        y_unit: Unit::Time,
        lines: vec![
            Line { name: "measured".to_owned(), points: measured_line },
            Line { name: "predicted".to_owned(), points: curve.collect() },
        ],
        levels: Vec::new(),
        plot_height: 260.0,
        misses: predicted.held.iter().map(miss).collect(),
    })
}

/// Formats the error of a held-out cell.
fn words(cell: &(u32, f64, f64)) -> String {
    format!("{:+.0} %", 100.0 * (cell.1 / cell.2 - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(cells: &[(u32, f64)]) -> String {
        let mut m = Markup::new();
        write(&mut m, &[Measured { name: "here, cold", busy: 0.0, cells: cells.to_vec() }]);
        m.into_string()
    }

    #[test]
    fn misses_are_marked_at_held_out_counts_only() {
        let cells = [(1, 8e-6), (2, 5e-6), (4, 2e-6), (16, 1.6e-6), (64, 2e-6)];
        let text = written(&cells);
        assert!(text.contains("predicted from three thread counts"), "{text}");
        let predicted =
            Predicted::of(&Measured { name: "x", busy: 0.0, cells: cells.to_vec() }).unwrap().1;
        assert_eq!(predicted.held.iter().map(|cell| cell.0).collect::<Vec<_>>(), [2, 16]);
        for cell in &predicted.held {
            assert!(text.contains(&words(cell)), "{}: {text}", words(cell));
        }
        let [law, nearest] = predicted.errors();
        assert!((nearest - (0.6 + 0.25) / 2.0).abs() < 0.01, "{nearest}");
        assert!(law > 0.0);
    }

    #[test]
    fn a_ladder_without_the_probes_is_not_drawn() {
        assert_eq!(written(&[(1, 8e-6), (2, 5e-6), (4, 2e-6), (16, 1.6e-6)]), "");
        assert_eq!(written(&[(1, 8e-6), (4, 2e-6), (64, 2e-6), (2, 5e-6)]), "");
    }
}
