//! Lanes for a terminal: one letter per column and thread, and the shares in numbers.

use super::{ROLES, letter, share_text, tenths, words};
use ioloom_model::State;
use ioloom_model::units::{format_counted, format_ns, readable};
use ioloom_trace::shares::{self, Lane, Shares, threads_by_role};
use ioloom_trace::{Thread, Trace};

/// Maximum width of the name column.
const NAMES: usize = 18;
/// Maximum number of threads per role that get a line each; the rest are summed up.
const THREADS: usize = 32;

/// Returns the trace as plain text of `width` columns (at least 40). Each column of a lane shows
/// the letter of the state with the largest share; the shares below are exact.
pub fn timeline_text(trace: &Trace, width: usize) -> String {
    let width = width.max(40);
    let mut out = String::new();
    push_folded(&mut out, &trace.title, width);
    push_folded(&mut out, &format!("{}.", words::evidence_line(trace)), width);
    if let Some(loss) = words::loss_line(trace) {
        push_folded(&mut out, &format!("EVENTS WERE LOST: {loss}"), width);
    }
    for f in ioloom_trace::findings::findings(trace) {
        push_folded(&mut out, &format!("* {}: {} Try: {}", f.title, f.sentence, f.try_this), width);
    }
    let names = trace.threads.iter().map(|t| readable(&t.name).chars().count()).max().unwrap_or(0);
    let names = names.clamp(6, NAMES).min(width / 3);
    let columns = width - names - 1;
    out.push('\n');
    out.push_str(&axis(trace, names, columns));
    let roles = threads_by_role(&trace.threads);
    for (role, threads) in roles.iter().take(ROLES) {
        out.push_str(&format!("{} ({})\n", readable(role), threads.len()));
        push_lanes(&mut out, trace, threads, names, columns);
        if threads.len() > THREADS {
            let rest = (threads.len() - THREADS) as u64;
            let more = format_counted(rest, "more thread", "more threads");
            push_folded(&mut out, &format!("and {more}, summed up below"), width);
        }
        out.push_str(&shares_line(trace, threads, width));
    }
    if let Some(more) = words::more_roles(roles.iter().skip(ROLES).map(|(_, of)| of.len())) {
        push_folded(&mut out, &more, width);
    }
    out.push('\n');
    for line in not_measured(trace) {
        push_folded(&mut out, &line, width);
    }
    let legend: Vec<_> =
        State::ALL.iter().map(|s| format!("{} {}", letter(*s), s.name())).collect();
    push_folded(
        &mut out,
        &format!("{}. A column shows the state with the largest share.", legend.join(", ")),
        width,
    );
    out
}

/// Writes one lane per thread, up to the limit.
fn push_lanes(out: &mut String, trace: &Trace, threads: &[&Thread], names: usize, columns: usize) {
    for thread in threads.iter().take(THREADS) {
        let name: String = readable(&thread.name).chars().take(names).collect();
        let lane = Lane::new(thread).columns(0, trace.elapsed_ns, columns);
        let line: String = lane.iter().map(mostly).collect();
        out.push_str(format!("{name:<names$} {line}").trim_end());
        out.push('\n');
    }
}

/// Returns the letter of the state with the largest share of a column, or a space if the thread did
/// not exist.
fn mostly(column: &Shares) -> char {
    let most = State::ALL.into_iter().rev().max_by_key(|s| column.of(*s));
    most.filter(|s| column.of(*s) > 0).map_or(' ', letter)
}

fn axis(trace: &Trace, names: usize, columns: usize) -> String {
    let end = format_ns(trace.elapsed_ns as f64);
    let gap = columns.saturating_sub(1 + end.chars().count());
    format!("{:names$} 0{:gap$}{end}\n", "", "")
}

/// Writes the exact shares of a role over the whole run.
fn shares_line(trace: &Trace, threads: &[&Thread], width: usize) -> String {
    let mut sum = Shares::default();
    for thread in threads {
        sum.add(&Lane::new(thread).within(0, trace.elapsed_ns.max(thread.end_ns)));
    }
    let tenths = tenths(&sum.ns);
    let parts: Vec<_> = State::ALL
        .iter()
        .zip(&tenths)
        .filter(|(_, t)| **t > 0)
        .map(|(s, t)| format!("{} {}", s.name(), share_text(*t)))
        .collect();
    let mut out = String::new();
    push_folded(&mut out, &format!("  {}", parts.join(", ")), width);
    out
}

/// Writes each state without a number once, with the reason.
fn not_measured(trace: &Trace) -> Vec<String> {
    let table = shares::all(trace);
    let not = |s: &State| table.get(s).is_none_or(|t| t.ns.is_none());
    State::ALL
        .into_iter()
        .filter(not)
        .map(|s| format!("{}: {}", s.name(), words::share_of(&table, s, 1)))
        .collect()
}

/// Writes a paragraph in lines of at most `width` columns without breaking words.
fn push_folded(out: &mut String, text: &str, width: usize) {
    let indent = if text.starts_with("  ") { "  " } else { "" };
    let mut line = String::from(indent);
    for word in text.split_whitespace().map(readable) {
        if line.len() > indent.len() && line.chars().count() + 1 + word.chars().count() > width {
            out.push_str(&line);
            out.push('\n');
            line = String::from(indent);
        }
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    out.push_str(&line);
    out.push('\n');
}
