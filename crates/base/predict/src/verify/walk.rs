//! Source 001: 36 times of a walk, four media with 1 to 256 threads.

use super::section::{Figure, Group, Row, Section, Use, parameter};
use crate::walk_media::{self, Medium, PROBES};
use crate::{PredictError, WalkModel};

/// Smallest gain for which the choice of threads changes.
const TOLERANCE: f64 = 0.02;

pub(super) fn section() -> Result<Section, PredictError> {
    let media = walk_media::media()?;
    let all: Vec<&Medium> = media.iter().collect();
    let (shared, models, _) = walk_media::together(&all)?;
    let mut parameters = Vec::new();
    let mut fitted = Vec::new();
    for (medium, model) in media.iter().zip(&models) {
        let name = medium.name;
        parameters.push(parameter(format!("processor time, {name}"), model.cpu_s, "s"));
        parameters.push(parameter(format!("device time, {name}"), model.device_s, "s"));
        fitted.extend(rows(medium, model, |_| true)?);
    }
    parameters.push(parameter("contention, all media", shared.contention.0, ""));
    if let Some((growth, _)) = shared.interleave {
        parameters.push(parameter("growth by interleaving, hdd and usb2", growth, ""));
    }
    let mut groups = vec![Group::new("36 cells", Use::Fitted, fitted, Some(0.03))];
    let (mut held_out, mut each, mut regrets) = (Vec::new(), Vec::new(), Vec::new());
    for (medium, model) in &walk_media::held_out()? {
        let rest = rows(medium, model, |n| !PROBES.contains(&n))?;
        held_out.extend(rest.clone());
        let name = format!("{} from its probes and the other media", medium.name);
        each.push(Group::new(name, Use::HeldOut, rest, None));
        regrets.push(regret(medium, model)?);
    }
    let name = "all media, each from 3 probes and the other media";
    groups.push(Group::new(name, Use::HeldOut, held_out, Some(0.05)));
    groups.extend(each);
    let mean = |of: &dyn Fn(&Regret) -> f64| regrets.iter().map(of).sum::<f64>() / 4.0;
    let figures = vec![
        Figure {
            name: "loss of the chosen thread count, without a check".to_owned(),
            value: mean(&|r| r.unchecked),
            goal: None,
        },
        Figure {
            name: "loss of the chosen thread count, after one local check".to_owned(),
            value: mean(&|r| r.checked),
            goal: Some(0.005),
        },
    ];
    Ok(Section {
        title: "Source 001: time of a walk over threads and media".to_owned(),
        law: "closed network of a processor with contention and a device, solved exactly; the \
              device time grows as directories interleave"
            .to_owned(),
        parameters,
        groups,
        figures,
        notes: vec![
            "the thread count with half of the growth, 32, is the queue length of SATA and was not \
             fitted"
                .to_owned(),
            "that hdd and usb2 interleave and nvme and usb3.2 do not was decided after seeing all \
             cells"
                .to_owned(),
            "the published times are single runs".to_owned(),
        ],
    })
}

fn rows(
    medium: &Medium,
    model: &WalkModel,
    which: impl Fn(u32) -> bool,
) -> Result<Vec<Row>, PredictError> {
    let chosen = medium.cells.iter().filter(|(n, _)| which(*n));
    chosen.map(|(n, cell)| Ok(Row::new(cell, model.elapsed_s(*n)?))).collect()
}

struct Regret {
    unchecked: f64,
    checked: f64,
}

/// Chooses the thread count from the probes, with and without a check, and compares with the best.
fn regret(medium: &Medium, model: &WalkModel) -> Result<Regret, PredictError> {
    let ladder: Vec<u32> = medium.cells.iter().map(|(n, _)| *n).collect();
    let measured =
        |n: u32| medium.cells.iter().find(|(at, _)| *at == n).map(|(_, cell)| cell.value);
    let best = medium.cells.iter().map(|(_, cell)| cell.value).fold(f64::INFINITY, f64::min);
    let loss = |n: u32| measured(n).map_or(f64::INFINITY, |time| time / best - 1.0);
    let choice = walk_media::choose(model, &ladder, TOLERANCE)?;
    let checked = walk_media::check(choice, TOLERANCE, measured);
    Ok(Regret { unchecked: loss(choice), checked: loss(checked) })
}
