//! Shares of thread time: one bar per row, six states that add up to 100 %.
//!
//! Each state has a colour and a pattern. The share is written inside if it fits, and always in the
//! tooltip. Shares are rounded by largest remainder, so the displayed shares also add up.

use super::{Svg, fitted, label, text_width};
use crate::markup::Markup;

/// The states in bar order: name, colour class, pattern.
pub const STATES: [(&str, &str, Option<&str>); 6] = [
    ("on-cpu", "st-on-cpu", None),
    ("ready", "st-ready", Some("url(#pt-ready)")),
    ("io", "st-io", Some("url(#pt-io)")),
    ("sync", "st-sync", Some("url(#pt-sync)")),
    ("compute-blocked", "st-blocked", Some("url(#pt-blocked)")),
    ("unknown", "st-unknown", Some("url(#pt-unknown)")),
];

/// A bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Heading above it; bars with the same heading are grouped.
    pub heading: String,
    /// Time in each state in any unit, in the order of [`STATES`].
    pub times: [f64; 6],
    /// Additional tooltip text.
    pub note: String,
}

/// The content of the chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Stacks {
    /// Title for screen readers.
    pub title: String,
    /// Description for screen readers.
    pub description: String,
    /// Bars from top to bottom.
    pub bars: Vec<Bar>,
}

/// Returns the parts in tenths of a percent, adding up to 1000, or all zeros if the total is zero.
pub fn tenths(times: &[f64; 6]) -> [u32; 6] {
    let total: f64 = times.iter().sum();
    if total <= 0.0 {
        return [0; 6];
    }
    let exact: Vec<f64> = times.iter().map(|t| t / total * 1000.0).collect();
    let mut out = [0u32; 6];
    for (o, e) in out.iter_mut().zip(&exact) {
        *o = e.floor() as u32;
    }
    let mut order: Vec<usize> = (0..6).collect();
    order.sort_by(|a, b| {
        let rest = |i: usize| exact[i] - exact[i].floor();
        rest(*b).total_cmp(&rest(*a)).then(a.cmp(b))
    });
    let missing = 1000u32.saturating_sub(out.iter().sum());
    for i in order.into_iter().cycle().take(missing as usize) {
        out[i] += 1;
    }
    out
}

/// Formats a share given in tenths of a percent.
pub fn share_text(tenths: u32) -> String {
    format!("{}.{} %", tenths / 10, tenths % 10)
}

const BAR: f64 = 18.0;
const STEP: f64 = 26.0;

/// Draws the bars for a column of `width` pixels.
pub fn draw(chart: &Stacks, width: f64) -> Svg {
    let wide_page = width >= 600.0;
    let names = chart.bars.iter().map(|b| text_width(&b.name, 12.0)).fold(0.0, f64::max);
    let left = if wide_page { (names + 14.0).clamp(90.0, width * 0.3) } else { 0.0 };
    let mut m = Markup::new();
    let mut y = legend(&mut m, width);
    let mut heading = "";
    for bar in &chart.bars {
        if bar.heading != heading {
            heading = &bar.heading;
            y += 8.0;
            label(&mut m, "b", 0.0, y + 12.0, &fitted(heading, 12.0, width));
            y += 21.0;
        }
        if !wide_page {
            label(&mut m, "t", 0.0, y + 11.0, &fitted(&bar.name, 11.5, width));
            y += 17.0;
        }
        draw_bar(&mut m, bar, left, y, width);
        y += STEP;
    }
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let x = left + (width - left) * part;
        let class = match part {
            0.0 => "t",
            1.0 => "te",
            _ => "tm",
        };
        label(&mut m, class, x, y + 10.0, &format!("{:.0} %", part * 100.0));
    }
    Svg {
        width,
        height: y + 18.0,
        title: chart.title.clone(),
        description: chart.description.clone(),
        body: m,
    }
}

fn legend(m: &mut Markup, width: f64) -> f64 {
    let (mut x, mut y) = (0.0, 2.0);
    for (word, class, pattern) in STATES {
        let wide = text_width(word, 12.0) + 40.0;
        if x > 0.0 && x + wide > width + 10.0 {
            x = 0.0;
            y += 20.0;
        }
        m.tag("rect")
            .a("class", if pattern.is_some() { "seg" } else { class })
            .maybe("fill", pattern)
            .a("x", x)
            .a("y", y)
            .a("width", 20.0)
            .a("height", 12.0)
            .a("rx", 2.0)
            .void();
        label(m, "n", x + 26.0, y + 10.5, word);
        x += wide;
    }
    y + 22.0
}

fn draw_bar(m: &mut Markup, bar: &Bar, left: f64, y: f64, width: f64) {
    let shares = tenths(&bar.times);
    if left > 0.0 {
        label(m, "e", left - 10.0, y + BAR / 2.0 + 4.0, &fitted(&bar.name, 12.0, left - 10.0));
    }
    let full = width - left;
    let mut x = left;
    m.tag("g").a("class", "pt").body(|m| {
        let mut words = format!("{}: {}", bar.heading, bar.name);
        for ((word, _, _), share) in STATES.iter().zip(shares) {
            words.push_str(&format!("\n{word} {}", share_text(share)));
        }
        if !bar.note.is_empty() {
            words.push('\n');
            words.push_str(&bar.note);
        }
        m.tag("title").text(&words);
        for ((_, class, pattern), share) in STATES.iter().zip(shares) {
            if share == 0 {
                continue;
            }
            let wide = full * f64::from(share) / 1000.0;
            m.tag("rect")
                .a("class", if pattern.is_some() { "seg" } else { class })
                .maybe("fill", *pattern)
                .a("x", x)
                .a("y", y)
                .a("width", wide)
                .a("height", BAR)
                .void();
            let text = format!("{}", (share + 5) / 10);
            let text_wide = text_width(&text, 11.0) + 8.0;
            if wide > text_wide + 8.0 {
                let middle = x + wide / 2.0;
                m.tag("rect")
                    .a("class", "chip")
                    .a("x", middle - text_wide / 2.0)
                    .a("y", y + 2.5)
                    .a("width", text_wide)
                    .a("height", BAR - 5.0)
                    .a("rx", 3.0)
                    .void();
                label(m, "segt", middle, y + BAR / 2.0 + 4.0, &text);
            }
            x += wide;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_shares_add_up() {
        for times in [
            [1.0, 1.0, 1.0, 0.0, 0.0, 0.0],
            [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            [997.0, 0.3, 0.3, 0.3, 0.3, 1.0],
            [5.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            [1e12, 3.0, 2e11, 7.0, 1e3, 4.4e10],
        ] {
            assert_eq!(tenths(&times).iter().sum::<u32>(), 1000, "{times:?}");
        }
        assert_eq!(tenths(&[0.0; 6]), [0; 6]);
        assert_eq!(share_text(1000), "100.0 %");
        assert_eq!(share_text(37), "3.7 %");
    }
}
