//! Reads in flight over the time of one run, as a small step chart.

use super::{Svg, label, line, text_width};
use crate::markup::{Markup, coordinate};
use crate::quantity::{Unit, plain};

/// The content of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Spark {
    /// Title for screen readers.
    pub title: String,
    /// Description for screen readers.
    pub description: String,
    /// Pairs of time since the start in nanoseconds and number of reads, in order.
    pub steps: Vec<(u64, u32)>,
    /// End of the run in nanoseconds.
    pub end_ns: u64,
    /// Mean, weighted by time.
    pub mean: f64,
    /// Maximum.
    pub max: u32,
}

/// Minimum width of a step in pixels. Closer steps are merged to their maximum, which preserves
/// peaks: a run has thousands of steps, and a page has dozens of runs.
const STEP_PIXELS: f64 = 2.5;

/// Draws the steps for a column of `width` pixels.
pub fn draw(chart: &Spark, width: f64) -> Svg {
    let mean_text = format!("mean {}", plain(chart.mean));
    let right = width - text_width(&mean_text, 11.5) - 10.0;
    let (left, top, bottom) = (34.0, 10.0, 74.0);
    let end = chart.end_ns.max(1) as f64;
    let high = f64::from(chart.max.max(1));
    let x = |ns: u64| left + (ns as f64 / end).min(1.0) * (right - left);
    let y = |n: f64| bottom - (n / high).min(1.0) * (bottom - top);
    let mut d = format!("M{},{}", coordinate(left), coordinate(bottom));
    let short = |v: f64| (v * 10.0).round() / 10.0;
    let steps_max = ((right - left) / STEP_PIXELS).max(1.0) as usize;
    let steps = merged(&chart.steps, steps_max);
    for (ns, n) in &steps {
        let (ns, n) = (*ns, *n);
        d.push_str(&format!("H{}V{}", short(x(ns)), short(y(f64::from(n)))));
    }
    d.push_str(&format!("H{}", short(right)));
    let mut m = Markup::new();
    m.tag("path").a("class", "step").a("d", d.as_str()).void();
    d.push_str(&format!("V{bottom}Z"));
    // The values for readers of the page, once: the drawing for narrow screens has none.
    let values = steps.iter().map(|(ns, n)| format!("{},{n}", ns / 1000)).collect::<Vec<_>>();
    let values = (width >= super::WIDE).then(|| values.join(" "));
    m.tag("path").a("class", "area").maybe("data-steps", values).a("d", d).void();
    line(&mut m, "base", (left, bottom), (right, bottom));
    let mean = y(chart.mean);
    line(&mut m, "mean", (left, mean), (right, mean));
    label(&mut m, "te", left - 7.0, top + 4.0, &chart.max.to_string());
    label(&mut m, "te", left - 7.0, bottom + 4.0, "0");
    label(&mut m, "t", right + 6.0, mean + 4.0, &mean_text);
    label(&mut m, "t", left, bottom + 17.0, "0");
    label(&mut m, "te", right, bottom + 17.0, &Unit::Time.format(end));
    Svg {
        width,
        height: bottom + 22.0,
        title: chart.title.clone(),
        description: chart.description.clone(),
        body: m,
    }
}

fn merged(steps: &[(u64, u32)], steps_max: usize) -> Vec<(u64, u32)> {
    let chunk = steps.len().div_ceil(steps_max).max(1);
    steps.chunks(chunk).filter_map(|c| Some((c.first()?.0, c.iter().map(|s| s.1).max()?))).collect()
}
