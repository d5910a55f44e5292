//! The section on traced runs: the states of every thread over time, with two runs on one axis.
//!
//! Traces are the largest part of a page, so all traces of a page share a byte budget; a trace that
//! does not fit is listed and remains a separate file. Traced runs are not part of the blocks or of
//! any statistics, which the section states.

use super::weight::{EXPORT, PAGE_MAX};
use crate::input::{Input, PictureRow};
use crate::markup::Markup;
use crate::timeline;
use ioloom_model::Compute;
use ioloom_trace::{Trace, viewer};

/// Maximum total size of the traces in one page, in bytes of text. It leaves most of a page to its charts
/// and numbers.
pub(super) const TRACES_BYTES_MAX: usize = PAGE_MAX / 3;

/// Writes the timelines; empty if no run was traced. `left` is the number of bytes that this and the
/// following studies can use for traces.
pub(crate) fn timelines(input: &Input, left: &mut usize) -> Markup {
    let mut m = Markup::new();
    if input.pictures.is_empty() {
        return m;
    }
    m.tag("p").a("class", "lead").text(
        "These runs were traced in as much detail as this system allows and are not part of any \
        statistics. Two runs share one axis; use the lists above the lanes to select others.",
    );
    for (experiment, question) in questions(input) {
        m.tag("p").body(|m| {
            m.tag("b").text(experiment);
            m.text(": ").text(question);
        });
    }
    if input.pictures.iter().any(|p| matches!(p.compute, Compute::Sleep(_))) {
        m.tag("p").text(
            "If compute is simulated by sleeping, the state sleep represents computing on a \
            separate CPU: this machine has fewer CPUs than these runs have threads.",
        );
    }
    let (shown, left_out) = within_budget(&input.pictures, left);
    for picture in left_out {
        m.tag("p").a("class", "tl-warning").text(&format!(
            "The trace of {} is too large for this page; `{EXPORT}` writes a page for it.",
            picture.trace.title
        ));
    }
    if !shown.is_empty() {
        m.append(&timeline::section(&shown));
    }
    m
}

/// Returns the distinct experiments of the traced runs with their questions.
fn questions(input: &Input) -> Vec<(&str, &str)> {
    let mut all: Vec<(&str, &str)> = Vec::new();
    for picture in &input.pictures {
        let name = picture.experiment.as_str();
        if all.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let known = input.study.experiments.iter().find(|e| e.name == name);
        all.push((name, known.map_or("", |e| e.question.as_str())));
    }
    all
}

/// Returns the traces that fit and the runs whose traces do not, in order, and subtracts the size of the
/// former from `left`.
fn within_budget<'p>(
    pictures: &'p [PictureRow],
    left: &mut usize,
) -> (Vec<Trace>, Vec<&'p PictureRow>) {
    let (mut shown, mut left_out) = (Vec::new(), Vec::new());
    for picture in pictures {
        match left.checked_sub(viewer::embedded(&picture.trace, &[]).len()) {
            Some(rest) => {
                *left = rest;
                shown.push(picture.trace.clone());
            }
            None => left_out.push(picture),
        }
    }
    (shown, left_out)
}
