//! The chapter of traced runs: what every thread did when, two runs on one axis.
//!
//! Traces are the largest thing in a page, so they share a budget of bytes; what does not fit is named
//! and stays a file. The runs stand beside the blocks and in no statistics, and the chapter says so.

use crate::input::{Input, PictureRow};
use crate::markup::Markup;
use crate::timeline;
use ioloom_model::Compute;
use ioloom_trace::{Trace, viewer};

/// Bytes of all traces in one page, as text: the page of a full study stays below 5 MiB with them.
const TRACES_BYTES_MAX: usize = 1 << 20;

/// The timelines, or nothing where no run was traced.
pub(crate) fn timelines(input: &Input) -> Markup {
    let mut m = Markup::new();
    if input.pictures.is_empty() {
        return m;
    }
    m.tag("p").a("class", "lead").text(
        "Each of these runs stands beside the blocks and in no statistics: it was watched as closely \
         as this system allows. Two stand on one axis; the lists above the lanes choose others.",
    );
    for (experiment, question) in questions(input) {
        m.tag("p").body(|m| {
            m.tag("b").text(experiment);
            m.text(": ").text(question);
        });
    }
    if input.pictures.iter().any(|p| matches!(p.compute, Compute::Sleep(_))) {
        m.tag("p").text(
            "Where the work is sleep, the state sleep stands for computing on a processor of one's \
             own: this machine has fewer processors than these runs have threads.",
        );
    }
    let (shown, left_out) = within_budget(&input.pictures);
    for picture in left_out {
        m.tag("p").a("class", "tl-warning").text(&format!(
            "The trace of {} is too large for this page; `ioloom trace export` makes one of it.",
            picture.trace.title
        ));
    }
    if !shown.is_empty() {
        m.append(&timeline::section(&shown));
    }
    m
}

/// The experiments of the pictures with their questions, each once.
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

/// The traces that fit, and the pictures that do not, in their order.
fn within_budget(pictures: &[PictureRow]) -> (Vec<Trace>, Vec<&PictureRow>) {
    let mut left = TRACES_BYTES_MAX;
    let (mut shown, mut left_out) = (Vec::new(), Vec::new());
    for picture in pictures {
        match left.checked_sub(viewer::embedded(&picture.trace, &[]).len()) {
            Some(rest) => {
                left = rest;
                shown.push(picture.trace.clone());
            }
            None => left_out.push(picture),
        }
    }
    (shown, left_out)
}
