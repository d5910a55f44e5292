//! Turns comparisons into charts.

use crate::estimate::{Ends, Estimate, ends_words};
use crate::group::{ArmRuns, Group, factor_unit};
use crate::headline::Headline;
use crate::input::Input;
use crate::quantity::{Better, Unit, plain, ratio_ends};
use crate::svg::{Svg, dots, heat, lines, spark, stacks, stages, tip, treemap};
use ioloom_model::study::Chart;
use ioloom_model::units::format_count;
use ioloom_model::{CallKind, Measured, Schedule};
use std::collections::BTreeMap;

/// A chart that has not been laid out for a width yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Figure {
    /// Lines over a factor.
    Lines(lines::Lines),
    /// Dots with their ends.
    Dots(dots::Dots),
    /// Readers × compute threads.
    Heat(heat::Heat),
    /// Shares of time.
    Stacks(stacks::Stacks),
    /// End of each stage of an operation.
    Stages(stages::Stages),
    /// In flight over time.
    Spark(spark::Spark),
    /// Sizes of directories as areas.
    Map(treemap::Treemap),
}

impl Figure {
    /// Draws the chart for a column of `width` pixels.
    pub fn draw(&self, width: f64) -> Svg {
        match self {
            Self::Lines(c) => lines::draw(c, width),
            Self::Dots(c) => dots::draw(c, width),
            Self::Heat(c) => heat::draw(c, width),
            Self::Stacks(c) => stacks::draw(c, width),
            Self::Stages(c) => stages::draw(c, width),
            Self::Spark(c) => spark::draw(c, width),
            Self::Map(c) => treemap::draw(c, width),
        }
    }

    /// Returns the meaning of the ends of the chart's marks.
    pub fn ends_words(&self) -> &'static str {
        let ends: Vec<Ends> = match self {
            Self::Lines(c) => {
                let points = c.lines.iter().flat_map(|l| &l.points).map(|p| &p.y);
                points.chain(c.levels.iter().map(|l| &l.y)).filter_map(|e| e.ends).collect()
            }
            Self::Dots(c) => c.rows.iter().filter_map(|row| row.value.ends).collect(),
            Self::Heat(c) => {
                let values = c.cells.iter().filter_map(|(_, cell)| match cell {
                    heat::Cell::Value { value, .. } => Some(value),
                    _ => None,
                });
                values.filter_map(|e| e.ends).collect()
            }
            Self::Stages(c) => c
                .rows
                .iter()
                .flat_map(|row| row.ends.iter().flatten())
                .filter_map(|e| e.ends)
                .collect(),
            _ => Vec::new(),
        };
        ends_words(ends)
    }
}

/// Returns the display name of a factor.
fn factor_words(factor: &str) -> String {
    match factor {
        "n" => "threads".to_owned(),
        "l" => "window (requests in flight)".to_owned(),
        "p" => "permits".to_owned(),
        "r" => "threads that only read".to_owned(),
        "h" => "hybrids (read and compute)".to_owned(),
        "c" => "threads that only compute".to_owned(),
        "w" => "files read ahead".to_owned(),
        "kib" => "size".to_owned(),
        "mib" | "size" => "file size".to_owned(),
        other => other.replace('_', " "),
    }
}

/// Maximum number of horizontal levels in a ladder; the bands of more levels would overlap.
const LEVELS_MAX: usize = 3;

/// Returns the chart that the study requests, or dots if the records are insufficient. If many arms
/// of a ladder lack its factor, the dots of all arms follow.
pub fn of_group(group: &Group<'_>) -> Vec<Figure> {
    if group.arms.iter().all(|a| a.estimate.is_none()) {
        return Vec::new();
    }
    let dots = || Figure::Dots(dot_rows(group));
    match group.experiment.chart {
        Chart::Ladder | Chart::Curve => match ladder(group) {
            Some(mut lines) if lines.levels.len() > LEVELS_MAX => {
                lines.levels.clear();
                vec![Figure::Lines(lines), dots()]
            }
            Some(lines) => vec![Figure::Lines(lines)],
            None => vec![dots()],
        },
        Chart::Heat => vec![roles_map(group).map_or_else(dots, Figure::Heat)],
        Chart::Dots => vec![dots()],
    }
}

fn description(group: &Group<'_>) -> String {
    let blocks = group.arms.iter().map(|a| a.runs.len());
    let ends = group.arms.iter().filter_map(|a| a.estimate.as_ref()?.ends);
    format!(
        "Median with {} of {} for {} arms on {}; {} runs in all.",
        ends_words(ends).replace('\u{A0}', " "),
        group.metric_name,
        group.arms.len(),
        group.place(),
        blocks.sum::<usize>()
    )
}

fn title(group: &Group<'_>) -> String {
    format!("{}: {}", group.experiment.name, group.place())
}

fn ladder(group: &Group<'_>) -> Option<lines::Lines> {
    let axis = group.experiment.axis.as_deref()?;
    let mut out: Vec<lines::Line> = Vec::new();
    let mut levels = Vec::new();
    for arm in group.arms.iter().filter(|a| !a.is_again()) {
        let Some(y) = arm.estimate.clone() else { continue };
        let Some(x) = arm.factors.get(axis) else {
            levels.push(lines::Level { name: arm.name.to_owned(), y });
            continue;
        };
        let point =
            lines::Point { x: *x * factor_unit(axis).0, y, thin: None, note: arm.plan.to_string() };
        match out.iter_mut().find(|l| l.name == arm.family) {
            Some(line) => line.points.push(point),
            None => out.push(lines::Line { name: arm.family.clone(), points: vec![point] }),
        }
    }
    if out.iter().all(|l| l.points.len() < 2) {
        return None;
    }
    Some(lines::Lines {
        title: title(group),
        description: description(group),
        x_title: factor_words(axis),
        x_unit: factor_unit(axis).1,
        y_title: group.metric_name.clone(),
        y_unit: group.unit(),
        lines: out,
        levels,
        plot_height: 280.0,
        misses: Vec::new(),
    })
}

/// Returns rows from best to worst, with the gain over the simplest arm.
pub fn dot_rows(group: &Group<'_>) -> dots::Dots {
    let mut arms: Vec<_> = group.arms.iter().filter(|a| a.estimate.is_some()).collect();
    let better = group.better();
    arms.sort_by(|a, b| {
        let m = |a: &ArmRuns<'_>| a.estimate.as_ref().map_or(f64::NAN, |e| e.median);
        let order = m(a).total_cmp(&m(b));
        if better == Better::Higher { order.reverse() } else { order }
    });
    let comparable = group.comparable();
    let simplest = comparable.first().copied();
    let best = group.best().map(|b| b.id.clone());
    let mut families: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for arm in arms {
        let style = families.iter().position(|f| *f == arm.family).unwrap_or_else(|| {
            families.push(&arm.family);
            families.len() - 1
        });
        let Some(value) = arm.estimate.clone() else { continue };
        let remark = match simplest {
            Some(s) if s.id == arm.id => "simplest".to_owned(),
            Some(s)
                if better != Better::Neither
                    && (arm.is_again() || comparable.iter().any(|c| c.id == arm.id)) =>
            {
                group.gain(arm, s).map_or(String::new(), |r| ratio_ends(r.value, r.ends))
            }
            _ => group.unit().format(value.median),
        };
        let mut words = tip(arm.name, group.unit(), &value);
        words.push('\n');
        words.push_str(&arm.plan.to_string());
        for doubt in &arm.doubts {
            words.push_str(&format!("\n◇ {doubt}"));
        }
        rows.push(dots::Row {
            name: arm.name.to_owned(),
            value,
            style,
            remark,
            best: best.as_deref() == Some(arm.id.as_str()),
            doubtful: !arm.doubts.is_empty(),
            words,
        });
    }
    dots::Dots {
        title: title(group),
        description: description(group),
        x_title: group.metric_name.clone(),
        unit: group.unit(),
        remark_title: simplest.map_or(String::new(), |s| {
            if better == Better::Neither { String::new() } else { format!("gain over {}", s.name) }
        }),
        reference: None,
        rows,
    }
}

fn roles_map(group: &Group<'_>) -> Option<heat::Heat> {
    let role = |a: &ArmRuns<'_>| match a.plan.files()?.schedule {
        Schedule::Roles { readers, hybrids, computers, .. } => Some((readers, hybrids, computers)),
        _ => None,
    };
    let mut rows: Vec<(u32, u32)> =
        group.arms.iter().filter_map(role).map(|r| (r.0, r.1)).collect();
    let mut columns: Vec<u32> = group.arms.iter().filter_map(role).map(|r| r.2).collect();
    rows.sort_unstable();
    rows.dedup();
    columns.sort_unstable();
    columns.dedup();
    if rows.len() < 2 && columns.len() < 2 {
        return None;
    }
    let mut cells = Vec::new();
    for arm in group.arms.iter().filter(|a| !a.is_again()) {
        let Some((readers, hybrids, computers)) = role(arm) else { continue };
        let at = (
            rows.iter().position(|r| *r == (readers, hybrids))?,
            columns.iter().position(|c| *c == computers)?,
        );
        let cell = match (&arm.estimate, arm.unusable.first()) {
            (Some(value), _) => {
                heat::Cell::Value { name: arm.name.to_owned(), value: value.clone() }
            }
            (None, Some((why, reason, _))) => {
                heat::Cell::Word { word: why.name(), reason: reason.clone() }
            }
            (None, None) => continue,
        };
        // If several arms share a cell (open limits, orders), the map shows the first; the table
        // below lists all of them.
        if !cells.iter().any(|(other, _)| *other == at) {
            cells.push((at, cell));
        }
    }
    let only_hybrids = rows.iter().all(|r| r.0 == 0);
    let only_readers = rows.iter().all(|r| r.1 == 0);
    let name = |(r, h): &(u32, u32)| match (only_hybrids, only_readers) {
        (true, _) => h.to_string(),
        (_, true) => r.to_string(),
        _ => match (r, h) {
            (r, 0) => format!("{r} R"),
            (0, h) => format!("{h} H"),
            (r, h) => format!("{r} R + {h} H"),
        },
    };
    Some(heat::Heat {
        title: title(group),
        description: description(group),
        x_title: "threads that only compute".to_owned(),
        y_title: match (only_hybrids, only_readers) {
            (true, _) => "hybrids ↓".to_owned(),
            (_, true) => "readers ↓".to_owned(),
            _ => "R, H ↓".to_owned(),
        },
        columns: columns.iter().map(u32::to_string).collect(),
        rows: rows.iter().map(name).collect(),
        cells,
        unit: group.unit(),
        better: group.better(),
        metric: group.metric_name.clone(),
    })
}

/// Returns the cost of each kind of call by mean file size, with one chart per arm family of a cost
/// experiment: p50 with its interval, p99 as a thin line.
pub fn call_costs(group: &Group<'_>, input: &Input) -> Vec<(String, Figure)> {
    if group.experiment.chart != Chart::Curve {
        return Vec::new();
    }
    let mut families: Vec<&str> = Vec::new();
    for arm in &group.arms {
        if !families.contains(&arm.family.as_str()) {
            families.push(&arm.family);
        }
    }
    let mut out = Vec::new();
    for family in families {
        let arms: Vec<_> =
            group.arms.iter().filter(|a| a.family == family && !a.is_again()).collect();
        let mut sizes: Vec<f64> =
            arms.iter().filter_map(|a| Some(a.runs.first()?.set.bytes_mean)).collect();
        let before = sizes.len();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        // If another factor varies within one file set, size cannot be the axis.
        if sizes.len() < 2 || sizes.len() < before {
            continue;
        }
        let lines: Vec<_> = CallKind::ALL
            .into_iter()
            .filter_map(|kind| cost_line(kind, &arms, input.seed))
            .filter(|l| l.points.len() >= 2)
            .collect();
        if lines.is_empty() {
            continue;
        }
        let figure = lines::Lines {
            title: format!("Cost of calls: {family}, {}", group.condition),
            description: "Median (thick, with its ends) and 99th percentile (thin) of the time \
                per call of each kind by mean file size."
                .to_owned(),
            x_title: "mean file size".to_owned(),
            x_unit: Unit::Bytes,
            y_title: "time per call: p50 thick, p99 thin".to_owned(),
            y_unit: Unit::Time,
            lines,
            levels: Vec::new(),
            plot_height: 240.0,
            misses: Vec::new(),
        };
        out.push((family.to_owned(), Figure::Lines(figure)));
    }
    out
}

fn cost_line(kind: CallKind, arms: &[&ArmRuns<'_>], seed: u64) -> Option<lines::Line> {
    let mut points = Vec::new();
    for arm in arms {
        let stats: Vec<_> = arm
            .measured()
            .filter_map(|m| m.calls.get(&kind))
            .filter(|s| s.count > 0 && s.p50_ns > 0)
            .collect();
        let of = |f: &dyn Fn(&ioloom_model::CallStats) -> u64| {
            Estimate::of(stats.iter().map(|s| f(s) as f64).collect(), seed)
        };
        let Some(y) = of(&|s| s.p50_ns) else { continue };
        let thin = of(&|s| s.p99_ns);
        let calls: u64 = stats.iter().map(|s| s.count).sum();
        let x = arm.runs.first()?.set.bytes_mean;
        let p99 = thin.as_ref().map_or(String::new(), |t| {
            let ends = t.ends.map_or(String::new(), |e| format!(" {}", Unit::Time.format_ends(e)));
            format!("p99 {}{ends}, ", Unit::Time.format(t.median))
        });
        let note = format!("{p99}{} calls in {} runs", format_count(calls), stats.len());
        points.push(lines::Point { x, y, thin, note });
    }
    (!points.is_empty()).then(|| lines::Line { name: kind.name().to_owned(), points })
}

/// Returns the time by role, in the order of the states, with the number of threads and whether
/// ready time was measured.
pub fn role_times<'m>(
    runs: impl Iterator<Item = &'m Measured>,
) -> BTreeMap<String, ([f64; 6], usize, bool)> {
    let mut out: BTreeMap<String, ([f64; 6], usize, bool)> = BTreeMap::new();
    for m in runs {
        for t in &m.threads {
            let entry = out.entry(t.role.clone()).or_insert(([0.0; 6], 0, true));
            let ready = t.ready_ns.unwrap_or(0);
            let known = t.on_cpu_ns + ready + t.io_ns + t.sync_ns + t.compute_blocked_ns;
            // The rest of the elapsed time is unknown, regardless of the recorded unknown time.
            let unknown = t.unknown_ns.max(t.elapsed_ns.saturating_sub(known));
            let parts = [t.on_cpu_ns, ready, t.io_ns, t.sync_ns, t.compute_blocked_ns, unknown];
            for (sum, part) in entry.0.iter_mut().zip(parts) {
                *sum += part as f64;
            }
            entry.1 += 1;
            entry.2 &= t.ready_ns.is_some();
        }
    }
    out
}

/// Returns the shares of time by role for the best arm of a comparison and for the simpler arms.
pub fn shares(headline: &Headline<'_, '_>) -> Option<Figure> {
    let group = headline.group;
    let mut arms = vec![headline.best];
    arms.extend(headline.gains.iter().map(|(_, other, _)| *other));
    let mut bars = Vec::new();
    for (i, arm) in arms.into_iter().enumerate() {
        let runs = arm.runs.len().max(1);
        let heading = if i == 0 { format!("{} (best)", arm.name) } else { arm.name.to_owned() };
        for (role, (times, threads, ready)) in role_times(arm.measured()) {
            let per_run = threads as f64 / runs as f64;
            let mut note = format!("all threads of this role in {runs} runs");
            if !ready {
                note.push_str("; ready was not measured and is part of the other states");
            }
            bars.push(stacks::Bar {
                name: format!("{} × {role}", plain(per_run)),
                heading: heading.clone(),
                times,
                note,
            });
        }
    }
    (!bars.is_empty()).then(|| {
        Figure::Stacks(stacks::Stacks {
            title: format!("Time of threads: {}", group.place()),
            description: "Share of each state in the total time of all threads of a role; each \
                bar adds up to 100 %."
                .to_owned(),
            bars,
        })
    })
}

/// Returns the shares of time of each thread of a typical run.
pub fn thread_shares(arm: &ArmRuns<'_>) -> Option<Figure> {
    let typical = arm.typical()?;
    if typical.threads.len() < 2 {
        return None;
    }
    let bars: Vec<_> = typical
        .threads
        .iter()
        .take(32)
        .map(|t| {
            let one = Measured { threads: vec![t.clone()], ..Measured::default() };
            let times = role_times(std::iter::once(&one)).into_values().next();
            stacks::Bar {
                name: t.name.clone(),
                heading: String::new(),
                times: times.map_or([0.0; 6], |t| t.0),
                note: format!(
                    "{} files; {}",
                    format_count(t.files),
                    Unit::Time.format(t.elapsed_ns as f64)
                ),
            }
        })
        .collect();
    Some(Figure::Stacks(stacks::Stacks {
        title: format!("Threads of the typical run of {}", arm.name),
        description: "The finished run with the elapsed time closest to the median.".to_owned(),
        bars,
    }))
}

/// Returns the reads in flight during the typical run of an arm.
pub fn in_flight(arm: &ArmRuns<'_>) -> Option<Figure> {
    let typical = arm.typical()?;
    if typical.in_flight.len() < 2 {
        return None;
    }
    Some(Figure::Spark(spark::Spark {
        title: format!("Reads in flight: {}", arm.name),
        description: format!(
            "Number of reads in flight during the run closest to the median; mean {}, maximum {}.",
            plain(typical.in_flight_mean),
            typical.in_flight_max
        ),
        steps: typical.in_flight.clone(),
        end_ns: typical.elapsed_ns,
        mean: typical.in_flight_mean,
        max: typical.in_flight_max,
    }))
}

/// Returns the chart for the answer: the gain of the best arm over each simpler arm.
pub fn overview(headlines: &[&Headline<'_, '_>]) -> Option<Figure> {
    let rows: Vec<_> = headlines
        .iter()
        .enumerate()
        .flat_map(|(style, h)| {
            h.gains.iter().filter_map(move |(_, other, r)| {
                let r = (*r)?;
                Some(dots::Row {
                    name: format!("{}: {} over {}", h.group.set, h.best.name, other.name),
                    words: format!(
                        "{} over {}: {}\npaired over {} blocks",
                        h.best.plan,
                        other.plan,
                        ratio_ends(r.value, r.ends),
                        r.n
                    ),
                    value: Estimate { values: Vec::new(), median: r.value, ends: Some(r.ends) },
                    style,
                    remark: ratio_ends(r.value, r.ends),
                    best: r.is_gain(),
                    doubtful: false,
                })
            })
        })
        .collect();
    let ends = ends_words(rows.iter().filter_map(|row| row.value.ends)).replace('\u{A0}', " ");
    (!rows.is_empty()).then(|| {
        Figure::Dots(dots::Dots {
            title: "Gain of the best plan over simpler ones".to_owned(),
            description: format!("Paired ratio of speeds over blocks; bars: {ends}."),
            x_title: "speedup".to_owned(),
            unit: Unit::Number,
            remark_title: String::new(),
            reference: Some(1.0),
            rows,
        })
    })
}

/// Returns the measured curves of a claim and its published numbers by unit, in separate charts
/// because the published numbers come from other machines.
pub fn claim(row: &crate::input::ClaimRow, input: &Input) -> Vec<Figure> {
    let mut out: Vec<Figure> =
        row.curves.iter().map(|curve| measured_curve(curve, input)).collect();
    if out.is_empty() {
        return out;
    }
    let mut units: Vec<&str> = row.published_values.iter().map(|p| p.2.as_str()).collect();
    units.sort_unstable();
    units.dedup();
    for unit in units {
        let of_unit = row.published_values.iter().filter(|p| p.2 == unit);
        let rows = of_unit.map(|(what, value, _)| dots::Row {
            name: what.clone(),
            value: Estimate { values: Vec::new(), median: *value, ends: None },
            style: 1,
            remark: format!("{} {unit}", plain(*value)),
            best: false,
            doubtful: false,
            words: format!("{what}\npublished: {} {unit}", plain(*value)),
        });
        out.push(Figure::Dots(dots::Dots {
            title: format!("Published for {}", row.id),
            description: "The published numbers.".to_owned(),
            x_title: format!("published, {unit}"),
            unit: Unit::Number,
            remark_title: String::new(),
            reference: None,
            rows: rows.collect(),
        }));
    }
    out
}

fn measured_curve(curve: &crate::input::ClaimCurve, input: &Input) -> Figure {
    let (one, x_unit) = factor_unit(&curve.axis);
    let point = |(x, y): &(f64, f64)| lines::Point {
        x: x * one,
        y: Estimate { values: Vec::new(), median: *y, ends: None },
        thin: None,
        note: String::new(),
    };
    Figure::Lines(lines::Lines {
        title: format!("Measured: {}", curve.place),
        description: "Medians over blocks, by level.".to_owned(),
        x_title: factor_words(&curve.axis),
        x_unit,
        y_title: format!(
            "measured, {}",
            crate::metric::metric_name(&curve.metric, &input.metric_names)
        ),
        y_unit: Unit::of(&curve.metric),
        lines: vec![lines::Line {
            name: "measured".to_owned(),
            points: curve.points.iter().map(point).collect(),
        }],
        levels: Vec::new(),
        plot_height: 160.0,
        misses: Vec::new(),
    })
}
