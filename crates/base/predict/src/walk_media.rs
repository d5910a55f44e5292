//! The media of source 001: a processor and a device time each, and what they share.
//!
//! Ten parameters for 36 cells: two times per medium, one contention of the processor for all media,
//! and one growth by interleaving for the two media that show it. The growth reaches half of its
//! value at [`HALF_THREADS`], which is the queue length of SATA (32 commands) and not fitted. Which
//! media interleave was decided after seeing all cells: a disk has one head, and a USB 2 stick
//! without a queue keeps few regions open.
//!
//! A medium can also be fitted from a few probes. What the other media share then acts as a prior:
//! its logarithm with its standard error counts as one more measurement. A contention that the others
//! cannot show, because their devices are too slow to load the processor, has a large error and so
//! hardly counts.

use crate::least_squares::{self, Fit};
use crate::table::{Cell, Digits, Table};
use crate::{PredictError, WalkModel};

/// Files of the published tree.
pub const FILES: f64 = 2_835_154.0;
/// Threads at which half of the growth by interleaving is reached.
pub const HALF_THREADS: f64 = 32.0;
/// Thread counts of the probes.
pub const PROBES: [u32; 3] = [1, 4, 64];
/// Media differ in their growth by a factor of two or so, whatever the error of the fit.
const BETWEEN_MEDIA: f64 = std::f64::consts::LN_2;
/// Relative error of a time if the others leave nothing to judge by.
const ERROR_DEFAULT: f64 = 0.03;

/// A medium with its measured times.
#[derive(Debug, Clone, PartialEq)]
pub struct Medium {
    /// Name as in the table.
    pub name: &'static str,
    /// Whether interleaved directories slow the device down.
    pub interleaves: bool,
    /// Thread counts and times in seconds.
    pub cells: Vec<(u32, Cell)>,
}

/// What all media of one machine share, with the standard errors of the logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shared {
    /// Slowdown per additional thread on the processor.
    pub contention: (f64, f64),
    /// Growth by interleaving; `None` if no medium showed it.
    pub interleave: Option<(f64, f64)>,
    /// Root mean square of the relative errors.
    pub error: f64,
}

/// The media of source 001.
///
/// # Errors
/// Fails if the table is malformed.
pub fn media() -> Result<Vec<Medium>, PredictError> {
    let table = Table::find("001_walk")?;
    let threads = table.numbers("threads")?;
    let columns = [
        ("nvme", "nvme_s", false),
        ("hdd", "hdd_s", true),
        ("usb2", "usb2_s", true),
        ("usb3.2", "usb3_2_s", false),
    ];
    let medium = |(name, column, interleaves): (&'static str, &str, bool)| {
        let label = |row: usize| format!("{name}, {} threads", threads[row]);
        let cells = table.cells(column, Digits::Column, label)?;
        let cells = threads.iter().map(|n| *n as u32).zip(cells).collect();
        Ok(Medium { name, interleaves, cells })
    };
    columns.into_iter().map(medium).collect()
}

fn model(cpu_s: f64, device_s: f64, contention: f64, interleave: f64) -> WalkModel {
    WalkModel { cpu_s, device_s, contention, interleave, interleave_half_threads: HALF_THREADS }
}

/// Returns a start for the two times: what more threads save, and what remains.
fn start(cells: impl Iterator<Item = (u32, f64)> + Clone) -> [f64; 2] {
    let best = cells.clone().map(|(_, s)| s).fold(f64::INFINITY, f64::min);
    let first = cells.min_by_key(|(n, _)| *n).map_or(best, |(_, s)| s);
    [(first - best).max(first * 0.05), best * 0.95]
}

fn log_error(model: &WalkModel, threads: u32, seconds: f64) -> f64 {
    model.elapsed_s(threads).map_or(f64::INFINITY, |predicted| (predicted / seconds).ln())
}

/// Fits media together: returns what they share and one model each.
///
/// # Errors
/// Fails if there are fewer cells than parameters.
pub fn together(media: &[&Medium]) -> Result<(Shared, Vec<WalkModel>, Fit), PredictError> {
    let interleaves = media.iter().any(|medium| medium.interleaves);
    let times = 2 * media.len();
    let models = |p: &[f64]| -> Vec<WalkModel> {
        let growth = |m: &Medium| if m.interleaves { p[times + 1] } else { 0.0 };
        let each = media.iter().enumerate();
        each.map(|(i, m)| model(p[2 * i], p[2 * i + 1], p[times], growth(m))).collect()
    };
    let mut from: Vec<f64> = media
        .iter()
        .flat_map(|medium| start(medium.cells.iter().map(|(n, cell)| (*n, cell.value))))
        .collect();
    from.push(0.05);
    if interleaves {
        from.push(0.2);
    }
    let fit = least_squares::fit(&from, |p| {
        let each = models(p).into_iter().zip(media);
        each.flat_map(|(model, medium)| {
            medium.cells.iter().map(move |(n, cell)| log_error(&model, *n, cell.value))
        })
        .collect()
    })?;
    let cells: usize = media.iter().map(|medium| medium.cells.len()).sum();
    let spare = cells.saturating_sub(from.len()).max(1) as f64;
    let both = |i: usize| (fit.parameters[i], fit.errors[i]);
    let shared = Shared {
        contention: both(times),
        interleave: interleaves.then(|| both(times + 1)),
        error: (fit.sum / spare).sqrt(),
    };
    Ok((shared, models(&fit.parameters), fit))
}

/// Fits one medium from a few times, with what other media share as prior.
///
/// # Errors
/// Fails if there are no times, or one is not above zero.
pub fn from_probes(
    probes: &[(u32, f64)],
    interleaves: bool,
    shared: &Shared,
) -> Result<WalkModel, PredictError> {
    let noise = if shared.error > 0.0 { shared.error } else { ERROR_DEFAULT };
    let growth = shared.interleave.filter(|_| interleaves);
    let [cpu_s, device_s] = start(probes.iter().copied());
    let mut from = vec![cpu_s, device_s, shared.contention.0];
    from.extend(growth.map(|(mean, _)| mean));
    let of = |p: &[f64]| model(p[0], p[1], p[2], p.get(3).copied().unwrap_or(0.0));
    let fit = least_squares::fit(&from, |p| {
        let model = of(p);
        let times = probes.iter().map(|(n, s)| log_error(&model, *n, *s) / noise);
        let (mean, error) = shared.contention;
        let contention = (p[2] / mean).ln() / error.max(1e-3);
        let interleave =
            growth.map(|(mean, error)| (p[3] / mean).ln() / error.hypot(BETWEEN_MEDIA));
        times.chain([contention]).chain(interleave).collect()
    })?;
    Ok(of(&fit.parameters))
}

/// Returns each medium as predicted from its probes and what the other media share.
///
/// # Errors
/// Fails if the table is malformed.
pub fn held_out() -> Result<Vec<(Medium, WalkModel)>, PredictError> {
    let media = media()?;
    let one = |i: usize| {
        let others: Vec<&Medium> =
            media.iter().enumerate().filter(|(k, _)| *k != i).map(|(_, m)| m).collect();
        let (shared, _, _) = together(&others)?;
        let probed = media[i].cells.iter().filter(|(n, _)| PROBES.contains(n));
        let probes: Vec<(u32, f64)> = probed.map(|(n, cell)| (*n, cell.value)).collect();
        Ok((media[i].clone(), from_probes(&probes, media[i].interleaves, &shared)?))
    };
    (0..media.len()).map(one).collect()
}

/// Returns the smallest thread count of a ladder whose predicted time exceeds the best by no more than
/// `tolerance`.
///
/// # Errors
/// Fails if the model is out of range.
pub fn choose(model: &WalkModel, ladder: &[u32], tolerance: f64) -> Result<u32, PredictError> {
    let times: Result<Vec<f64>, _> = ladder.iter().map(|n| model.elapsed_s(*n)).collect();
    let times = times?;
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    let at = times.iter().position(|t| *t <= best * (1.0 + tolerance)).unwrap_or(0);
    Ok(ladder[at])
}

/// Returns the choice after one local check: half and twice as many threads are measured once, and the
/// fastest is taken if it is more than `tolerance` faster.
pub fn check(choice: u32, tolerance: f64, measured: impl Fn(u32) -> Option<f64>) -> u32 {
    let mut best = (choice, measured(choice).unwrap_or(f64::INFINITY));
    let limit = best.1 * (1.0 - tolerance);
    for other in [choice / 2, choice * 2] {
        if let Some(time) = measured(other).filter(|time| *time < limit && *time < best.1) {
            best = (other, time);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_of_a_known_medium_are_continued() {
        let truth = model(30.0, 90.0, 0.06, 0.3);
        let probes = PROBES.map(|n| (n, truth.elapsed_s(n).unwrap()));
        let shared = Shared { contention: (0.06, 0.01), interleave: Some((0.2, 0.1)), error: 0.03 };
        let found = from_probes(&probes, true, &shared).unwrap();
        for n in [2, 8, 16, 32, 128, 256] {
            let ratio = found.elapsed_s(n).unwrap() / truth.elapsed_s(n).unwrap();
            assert!((ratio - 1.0).abs() < 0.01, "{ratio} at {n} threads");
        }
    }

    #[test]
    fn the_check_moves_only_for_more_than_the_tolerance() {
        let times = |n: u32| match n {
            4 => Some(100.0),
            8 => Some(97.0),
            16 => Some(90.0),
            _ => None,
        };
        assert_eq!(check(4, 0.02, times), 8);
        assert_eq!(check(4, 0.05, times), 4);
        assert_eq!(check(8, 0.02, times), 16);
        assert_eq!(check(32, 0.02, times), 16);
    }
}
