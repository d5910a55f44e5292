//! The static drawing of a trace as SVG: lanes for the whole run or a part of it.
//!
//! The arithmetic is the same as for zoomable lanes: each pixel column is a stack with the exact
//! mix of states in its interval. Equal adjacent columns are merged, and all rectangles of a state
//! in a lane form one path. A lane of a thousand columns takes a few KiB regardless of trace
//! length.

use super::{ROLES, letter, share_text, tenths, words};
use crate::markup::{Markup, coordinate};
use crate::quantity::Unit;
use crate::svg::scale::Scale;
use crate::svg::{Pattern, fitted, label, line, palette_css, text_width, unseen};
use ioloom_model::State;
use ioloom_model::units::format_counted;
use ioloom_trace::shares::{self, Lane, Shares, is_program_thread};
use ioloom_trace::{Device, Thread, Trace};
use std::cmp::Reverse;
use std::fmt::Write as _;

const CSS: &str = include_str!("../../assets/timeline.css");
const STYLE: &str = ".tls{font-family:system-ui,-apple-system,Segoe UI,Roboto,DejaVu Sans,Arial,sans-serif;font-size:12px}\
.tls text{fill:var(--ink)}.tls .q{fill:var(--soft);font-size:11px}.tls .qm{fill:var(--soft);font-size:11px;text-anchor:middle}.tls .qe{fill:var(--soft);font-size:11px;text-anchor:end}.tls .b{font-weight:600}.tls .head{font-size:15px;font-weight:600}\
.tls .paper{fill:var(--paper)}.tls .band{fill:var(--panel)}.tls .grid{stroke:var(--grid)}.tls .base{stroke:var(--rule)}.tls .mark{stroke:var(--soft);stroke-dasharray:3 3}.tls .lt{font-size:10px;font-weight:600;text-anchor:middle;fill:#fff!important;stroke:#0008;stroke-width:2.2px;paint-order:stroke}\
.tls .hatch{stroke:var(--paper);stroke-width:1.1;fill:none;opacity:.5}.tls .read{fill:var(--tl-read)}.tls .write{fill:var(--tl-write)}.tls .thick{stroke-width:2.4;opacity:.7}\
.tf-on-cpu{fill:var(--tl-on-cpu)}.tf-ready{fill:var(--tl-ready)}.tf-preempted{fill:var(--tl-preempted)}.tf-io{fill:var(--tl-io)}.tf-async-io{fill:var(--tl-async-io)}.tf-paging{fill:var(--tl-paging)}.tf-sync{fill:var(--tl-sync)}.tf-lock{fill:var(--tl-lock)}.tf-event{fill:var(--tl-event)}.tf-sleep{fill:var(--tl-sleep)}.tf-unknown{fill:var(--tl-unknown)}";

const GUTTER: f64 = 150.0;
const LANE: f64 = 20.0;
const LEGEND_COLUMN: f64 = 168.0;
/// Maximum number of devices to draw; the rest are only counted.
const DEVICES: usize = 16;

/// Colours of a standalone file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// Light or dark, following the system setting.
    #[default]
    Auto,
    /// Light, with literal colours instead of CSS variables, for print and rasterizers.
    Light,
    /// Dark, with literal colours.
    Dark,
}

/// Options for a static drawing.
#[derive(Debug, Clone, PartialEq)]
pub struct SvgOptions {
    /// Width in pixels, at least 320.
    pub width: f64,
    /// The part to draw in nanoseconds; `None` draws the whole run.
    pub range_ns: Option<(u64, u64)>,
    /// Maximum number of threads to draw; the rest are only counted.
    pub threads: usize,
    /// Colours.
    pub theme: Theme,
}

impl Default for SvgOptions {
    fn default() -> Self {
        Self { width: 1100.0, range_ns: None, threads: 24, theme: Theme::Auto }
    }
}

/// Returns the static drawing as a standalone SVG file.
pub fn timeline_svg(trace: &Trace, options: &SvgOptions) -> String {
    drawing(trace, options).standalone(options.theme)
}

/// A finished drawing.
pub(super) struct Drawing {
    width: f64,
    height: f64,
    title: String,
    body: Markup,
}

impl Drawing {
    /// Writes it as an element of a page that includes the timeline style sheet and
    /// [`write_patterns`].
    pub(super) fn embedded(&self) -> Markup {
        let mut m = Markup::new();
        self.element(&mut m, None, |m| {
            m.tag("style").body(|m| {
                m.asset(STYLE);
            });
        });
        m
    }

    fn standalone(&self, theme: Theme) -> String {
        let mut m = Markup::new();
        self.element(&mut m, Some("http://www.w3.org/2000/svg"), |m| {
            m.tag("style").body(|m| match theme {
                Theme::Auto => {
                    m.asset(palette_css()).asset(variables()).asset(STYLE);
                }
                plain => {
                    m.text(&resolved(plain == Theme::Dark));
                }
            });
            m.tag("defs").body(patterns);
            m.tag("rect")
                .a("class", "paper")
                .a("x", -16.0)
                .a("y", -12.0)
                .a("width", self.width + 32.0)
                .a("height", self.height + 24.0)
                .void();
        });
        m.text("\n");
        m.into_string()
    }

    fn element(&self, m: &mut Markup, ns: Option<&'static str>, head: impl FnOnce(&mut Markup)) {
        let (w, h) = (self.width + 32.0, self.height + 24.0);
        let view = [-16.0, -12.0, w, h].map(coordinate).join(" ");
        m.tag("svg")
            .maybe("xmlns", ns)
            .a("class", "tls")
            .a("viewBox", view)
            .a("width", w)
            .a("height", h)
            .a("role", "img")
            .a("aria-label", &self.title)
            .body(|m| {
                m.tag("title").text(&self.title);
                head(m);
                m.append(&self.body);
            });
    }
}

/// Returns the part of the style sheet that sets colours.
fn variables() -> &'static str {
    CSS.split_once("\n.tl-live[").map_or(CSS, |(before, _)| before)
}

/// Returns the style with literal colours instead of variables.
fn resolved(dark: bool) -> String {
    let start = if dark { ":root[data-theme=dark]{" } else { ":root{" };
    let block = |css: &'static str| {
        let rest = css.split_once(start).map_or("", |(_, rest)| rest);
        rest.split_once('}').map_or("", |(vars, _)| vars)
    };
    let both = [block(palette_css()), block(variables())];
    let pairs = both.iter().flat_map(|b| b.split(';')).filter_map(|v| v.trim().split_once(':'));
    pairs.fold(STYLE.to_owned(), |style, (name, value)| {
        style.replace(&format!("var({name})"), value.trim())
    })
}

/// Returns the class that fills an area with the colour of a state.
const fn fill(state: State) -> &'static str {
    match state {
        State::OnCpu => "tf-on-cpu",
        State::Ready => "tf-ready",
        State::Preempted => "tf-preempted",
        State::Io => "tf-io",
        State::AsyncIo => "tf-async-io",
        State::Paging => "tf-paging",
        State::Sync => "tf-sync",
        State::Lock => "tf-lock",
        State::Event => "tf-event",
        State::Sleep => "tf-sleep",
        State::Unknown => "tf-unknown",
    }
}

/// Returns the pattern that identifies a state without colour, on an 8-pixel tile.
const fn hatch(state: State) -> Option<(&'static str, &'static str)> {
    Some(match state {
        State::OnCpu => return None,
        State::Ready => ("tlp-ready", "M-1,1 l2,-2 M0,8 l8,-8 M7,9 l2,-2"),
        State::Preempted => ("tlp-preempted", "M-1,7 l2,2 M0,4 l4,4 M0,0 l8,8 M4,0 l4,4"),
        State::Io => ("tlp-io", "M2,2 h1.2 M6,6 h1.2"),
        State::AsyncIo => ("tlp-async-io", "M4,4 h1.2"),
        State::Paging => ("tlp-paging", "M0,2 h8 M0,6 h8"),
        State::Sync => ("tlp-sync", "M0,0 l8,8 M8,0 l-8,8"),
        State::Lock => ("tlp-lock", "M0,2 h8 M2,0 v8 M6,0 v8"),
        State::Event => ("tlp-event", "M2,0 v8 M6,0 v8"),
        State::Sleep => ("tlp-sleep", "M0,2 h3 M4,6 h3"),
        State::Unknown => ("tlp-unknown", "M0,2 h2 M4,2 h2 M2,6 h2 M6,6 h2"),
    })
}

/// Writes the patterns, once per page.
pub(crate) fn write_patterns(m: &mut Markup) {
    unseen(m, patterns);
}

fn patterns(m: &mut Markup) {
    for (id, path) in State::ALL.into_iter().filter_map(hatch) {
        Pattern { id, side: 8.0, ground: None, lines: "hatch", path }.define(m);
    }
    // Its lines are between those of the states.
    let path = "M-2,14 l16,-16 M10,18 l8,-8";
    Pattern { id: SUMMED, side: 16.0, ground: None, lines: "hatch thick", path }.define(m);
}

/// Pattern over columns with states that are known only as a total.
const SUMMED: &str = "tlp-summed";

/// Draws the trace.
pub(super) fn drawing(trace: &Trace, options: &SvgOptions) -> Drawing {
    let width = options.width.max(320.0);
    let (from, to) = options.range_ns.unwrap_or((0, trace.elapsed_ns));
    let mut plot = Plot {
        m: Markup::new(),
        y: 0.0,
        left: GUTTER.min(width * 0.3),
        width,
        from,
        to: to.max(from + 1),
    };
    label(&mut plot.m, "head", 0.0, 14.0, &fitted(&trace.title, 15.0, width));
    label(&mut plot.m, "q", 0.0, 31.0, &fitted(&words::evidence_line(trace), 11.0, width));
    plot.y = 44.0;
    if let Some(loss) = words::loss_line(trace) {
        let text = format!("Events were lost: {loss}");
        label(&mut plot.m, "b", 0.0, 47.0, &fitted(&text, 12.0, width));
        plot.y = 58.0;
    }
    plot.axis();
    let top = plot.y;
    plot.devices(&trace.devices);
    plot.threads(trace, options.threads.max(1));
    plot.marks(trace, top);
    plot.legend(trace);
    Drawing { width, height: plot.y, title: trace.title.clone(), body: plot.m }
}

/// A drawing that grows downwards.
struct Plot {
    m: Markup,
    y: f64,
    left: f64,
    width: f64,
    from: u64,
    to: u64,
}

impl Plot {
    fn columns(&self) -> usize {
        (self.width - self.left).floor() as usize
    }

    fn x(&self, at_ns: u64) -> f64 {
        let part = (at_ns as f64 - self.from as f64) / (self.to - self.from) as f64;
        self.left + part * (self.width - self.left)
    }

    fn axis(&mut self) {
        let scale = Scale::linear(self.from as f64, self.to as f64, self.left, self.width);
        let (_, unit) = Unit::Time.tick_unit(self.to as f64);
        self.y += 14.0;
        label(&mut self.m, "q", 0.0, self.y, &format!("time, {unit}"));
        for tick in scale.ticks(Unit::Time, 10) {
            let x = scale.at(tick.value);
            let class = if x > self.width - 20.0 { "qe" } else { "qm" };
            label(&mut self.m, class, x, self.y, &tick.text);
        }
        self.y += 6.0;
    }

    fn base(&mut self) {
        let (left, width, y) = (self.left, self.width, self.y);
        line(&mut self.m, "base", (left, y), (width, y));
    }

    fn heading(&mut self, text: &str) {
        self.y += 6.0;
        self.m
            .tag("rect")
            .a("class", "band")
            .a("x", 0.0)
            .a("y", self.y)
            .a("width", self.width)
            .a("height", 18.0)
            .void();
        label(&mut self.m, "b", 4.0, self.y + 13.0, text);
        self.y += 22.0;
    }

    fn name(&mut self, name: &str, dy: f64) {
        let text = fitted(name, 12.0, self.left - 10.0);
        label(&mut self.m, "n", 4.0, self.y + dy, &text);
    }

    /// Draws the busiest devices, in their order.
    fn devices(&mut self, devices: &[Device]) {
        let mut busiest: Vec<(usize, u64)> = devices.iter().map(in_flight_ns).enumerate().collect();
        busiest.sort_by_key(|(_, ns)| Reverse(*ns));
        busiest.truncate(DEVICES);
        busiest.sort_unstable();
        for (i, _) in busiest {
            self.device(&devices[i]);
        }
        let rest = devices.len().saturating_sub(DEVICES) as u64;
        if rest > 0 {
            self.not_drawn(&format!("and {}", format_counted(rest, "more device", "more devices")));
        }
    }

    /// Draws reads and writes in flight as areas, using the mean of each column.
    fn device(&mut self, device: &Device) {
        for write in [false, true] {
            if !device.requests.iter().any(|r| r.write == write) {
                continue;
            }
            let (depth, most) = depths(device, write, self.from, self.to, self.columns());
            let kind = if write { "write" } else { "read" };
            let text = format!("{} {kind}, up to {most:.1}", device.name);
            self.y += 4.0;
            self.name(&text, 16.0);
            let bottom = self.y + 24.0;
            let mut path = String::new();
            for (x, value) in depth.iter().enumerate().filter(|(_, v)| **v > 0.0) {
                let high = (value / most * 22.0).max(0.6);
                rect(&mut path, self.left + x as f64, bottom - high, 1.0, high);
            }
            self.m.tag("path").a("class", kind).a("d", path).void();
            self.y = bottom;
            self.base();
        }
    }

    /// Draws up to `most` threads by role. Roles without room for a lane are counted in one line.
    fn threads(&mut self, trace: &Trace, most: usize) {
        let mut drawn = 0;
        let mut roles = shares::threads_by_role(&trace.threads).into_iter().peekable();
        for _ in 0..ROLES {
            let Some((role, mine)) = roles.next_if(|_| drawn < most) else { break };
            self.heading(&format!("{role} ({})", mine.len()));
            let shown = mine.len().min(most - drawn);
            for thread in &mine[..shown] {
                self.thread(thread);
            }
            drawn += shown;
            if shown < mine.len() {
                let rest = (mine.len() - shown) as u64;
                self.not_drawn(&format!(
                    "and {}",
                    format_counted(rest, "more thread", "more threads")
                ));
            }
        }
        if let Some(more) = words::more_roles(roles.map(|(_, mine)| mine.len())) {
            self.not_drawn(&more);
        }
    }

    fn not_drawn(&mut self, what: &str) {
        let text = fitted(&format!("{what}, not drawn"), 11.0, self.width);
        label(&mut self.m, "q", 4.0, self.y + 12.0, &text);
        self.y += 18.0;
    }

    /// Draws one lane: a path per state, overlaid with its pattern, and columns with unknown positions
    /// overlaid with theirs.
    fn thread(&mut self, thread: &Thread) {
        self.y += 2.0;
        self.name(&thread.name, 14.0);
        let bottom = self.y + LANE;
        let columns = self.columns();
        let parts = Lane::new(thread).columns(self.from, self.to, columns);
        let length = (self.to - self.from) as f64 / columns as f64;
        let paths = stacks(&parts, length, self.left, bottom, LANE - 2.0);
        for (state, path) in State::ALL.into_iter().zip(paths) {
            if path.is_empty() {
                continue;
            }
            self.m.tag("path").a("class", fill(state)).a("d", &path).void();
            if let Some((id, _)) = hatch(state) {
                self.overlay(id, &path);
            }
        }
        let sums = unplaced(thread, &parts, self.from, self.to);
        let paths = stacks(&sums, length, self.left, bottom, LANE - 2.0);
        if let Some(path) = paths.first().filter(|path| !path.is_empty()) {
            self.overlay(SUMMED, path);
        }
        self.y = bottom + 2.0;
        self.base();
    }

    fn overlay(&mut self, pattern: &str, path: &str) {
        self.m.tag("path").a("fill", format!("url(#{pattern})")).a("d", path).void();
    }

    fn marks(&mut self, trace: &Trace, top: f64) {
        let (mut free, mut drawn) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        self.y += 16.0;
        for mark in trace.marks.iter().filter(|m| m.at_ns >= self.from && m.at_ns <= self.to) {
            let x = self.x(mark.at_ns);
            // At most one line per pixel.
            if x - drawn >= 1.0 {
                line(&mut self.m, "mark", (x, top), (x, self.y - 10.0));
                drawn = x;
            }
            let name = fitted(&mark.name, 11.0, self.width - self.left);
            let wide = text_width(&name, 11.0);
            let left = (x - wide / 2.0).min(self.width - wide).max(self.left);
            if left >= free {
                label(&mut self.m, "q", left, self.y, &name);
                free = left + wide + 10.0;
            }
        }
        self.y += 12.0;
    }

    /// Draws the legend: each state's colour, pattern, letter, name and share of the drawn part.
    fn legend(&mut self, trace: &Trace) {
        let lanes = shares::Lanes::new(trace);
        let sum = lanes.all(self.from, self.to);
        let parts = tenths(&sum.ns);
        let table = shares::all(trace);
        let per_row = ((self.width / LEGEND_COLUMN).floor() as usize).max(1);
        let own = trace.threads.iter().filter(|t| is_program_thread(t)).count();
        let text = format!("Shares of the time of {own} threads in the drawn part");
        label(&mut self.m, "q", 0.0, self.y + 6.0, &text);
        self.y += 14.0;
        let mut notes = Vec::new();
        for (i, (state, tenths)) in State::ALL.into_iter().zip(parts).enumerate() {
            let x = (i % per_row) as f64 * LEGEND_COLUMN;
            let y = self.y + (i / per_row) as f64 * 21.0;
            let none = table.get(&state).is_none_or(|t| t.ns.is_none()) && tenths == 0;
            let value = if none { "not measured".to_owned() } else { share_text(tenths) };
            if none {
                notes.push(format!("{}: {}", state.name(), words::share_of(&table, state, 1)));
            }
            self.swatch(state, x, y);
            label(&mut self.m, "n", x + 32.0, y + 11.5, &format!("{} {value}", state.name()));
        }
        self.y += State::ALL.len().div_ceil(per_row) as f64 * 21.0;
        for note in notes {
            self.y += 14.0;
            label(&mut self.m, "q", 0.0, self.y, &fitted(&note, 11.0, self.width));
        }
        self.y += 4.0;
    }

    fn swatch(&mut self, state: State, x: f64, y: f64) {
        for (class, over) in [(Some(fill(state)), None), (None, hatch(state))] {
            if class.is_none() && over.is_none() {
                continue;
            }
            self.m
                .tag("rect")
                .maybe("class", class)
                .maybe("fill", over.map(|(id, _)| format!("url(#{id})")))
                .a("x", x)
                .a("y", y)
                .a("width", 26.0)
                .a("height", 15.0)
                .a("rx", 2.0)
                .void();
        }
        label(&mut self.m, "lt", x + 13.0, y + 11.0, &letter(state).to_string());
    }
}

/// Returns a rectangle as path data.
fn rect(path: &mut String, x: f64, y: f64, width: f64, height: f64) {
    let [x, y, width, height] = [x, y, width, height].map(coordinate);
    let _ = write!(path, "M{x},{y}h{width}v{height}h-{width}z");
}

/// Returns one path per state from the column mixes; equal adjacent columns become one rectangle.
fn stacks(parts: &[Shares], length: f64, left: f64, bottom: f64, height: f64) -> Vec<String> {
    let mut paths = vec![String::new(); State::ALL.len()];
    // The open rectangle of each state: first column, lower edge, upper edge.
    let mut open: Vec<Option<(usize, f64, f64)>> = vec![None; State::ALL.len()];
    for x in 0..=parts.len() {
        let mut sum = 0.0;
        for (s, path) in paths.iter_mut().enumerate() {
            let ns = parts.get(x).map_or(0.0, |p| p.ns[s] as f64);
            // Rounding to a quarter of a pixel is invisible and merges almost equal values.
            let edge = |sum: f64| (sum / length * height * 4.0).round() / 4.0;
            let (low, high) = (edge(sum), edge(sum + ns).min(height));
            sum += ns;
            let now = (high > low).then_some((low, high));
            if let Some((first, a, b)) = open[s]
                && now != Some((a, b))
            {
                rect(path, left + first as f64, bottom - b, (x - first) as f64, b - a);
                open[s] = None;
            }
            if let (Some((a, b)), None) = (now, open[s]) {
                open[s] = Some((x, a, b));
            }
        }
    }
    paths
}

/// Returns the columns that contain time whose position is unknown, with their total as the first
/// state; other columns are empty.
fn unplaced(thread: &Thread, parts: &[Shares], from: u64, to: u64) -> Vec<Shares> {
    let mut sums = vec![Shares::default(); parts.len()];
    let length = u128::from(to - from);
    let place = |at_ns: u64| u128::from(at_ns.clamp(from, to) - from) * parts.len() as u128;
    let ends = thread.segments.iter().skip(1).map(|s| s.start_ns).chain([thread.end_ns]);
    for (segment, end_ns) in thread.segments.iter().zip(ends).filter(|(s, _)| !s.placed) {
        let first = (place(segment.start_ns) / length) as usize;
        let last = place(end_ns).div_ceil(length) as usize;
        if let (Some(sums), Some(parts)) = (sums.get_mut(first..last), parts.get(first..last)) {
            for (sum, part) in sums.iter_mut().zip(parts) {
                sum.ns[0] = part.total();
            }
        }
    }
    sums
}

/// Returns the sum of the times of all requests.
fn in_flight_ns(device: &Device) -> u64 {
    let ended =
        device.requests.iter().filter_map(|r| Some(r.complete_ns?.saturating_sub(r.issue_ns)));
    ended.fold(0, u64::saturating_add)
}

/// Returns the mean number of requests in flight per column, and the largest mean.
fn depths(device: &Device, write: bool, from: u64, to: u64, n: usize) -> (Vec<f64>, f64) {
    let length = (to - from) as f64 / n as f64;
    let mut out = vec![0.0; n];
    for r in device.requests.iter().filter(|r| r.write == write) {
        let Some(end) = r.complete_ns else { continue };
        let (start, end) = (r.issue_ns.max(from), end.min(to));
        if end <= start {
            continue;
        }
        let place = |t: u64| (t - from) as f64 / length;
        let (a, b) = (place(start), place(end));
        let last = (b.ceil() as usize).min(n);
        for (x, sum) in out.iter_mut().enumerate().take(last).skip(a.floor() as usize) {
            *sum += (b.min(x as f64 + 1.0) - a.max(x as f64)).max(0.0);
        }
    }
    let most = out.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    (out, most)
}
