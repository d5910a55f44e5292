//! The report of a load as text and tables.

use super::args::LoadArgs;
use super::document::{Checked, Document, Floors};
use crate::out::{columns_of, table, table_text, wrap};
use ioloom_load::ladder::Step;
use ioloom_load::{Conservation, Generator, Latency, MultiRun, Outcomes, Run, Stall};
use ioloom_model::units::{format_count, format_counted, format_ns, format_size};
use std::fmt::Write;

/// Formats the report in `width` columns.
pub(super) fn text(document: &Document, args: &LoadArgs, width: usize) -> String {
    let mut out = String::new();
    match document.runs.as_slice() {
        [] => {}
        // A ladder has a knee even if it ended early.
        [run] if args.ladder.len() < 2 => out.push_str(&one(run, args, width)),
        runs => out.push_str(&several(runs, document, args, width)),
    }
    if let Some(multi) = &document.multiclient {
        out.push_str(&multiclient(multi));
    }
    if let Some(floors) = &document.floors {
        out.push_str(&floor(floors, document, args));
    }
    wrapped(&out, width)
}

/// Breaks the lines that are longer than `width` columns.
fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if columns_of(line) > width {
            out.push_str(&wrap(line, width, 2));
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Formats the result of a check.
pub(super) fn checked(checked: &Checked) -> String {
    let many = "requests are explained by a sequential order";
    let mut out = match (checked.verdict, &checked.reason) {
        ("violated", Some(request)) => {
            format!("VIOLATED: no sequential order explains the answer to {request}\n")
        }
        ("undecided", Some(reason)) => format!("undecided: {reason}\n"),
        _ => format_counted(checked.requests as u64, "request is explained", many) + "\n",
    };
    match checked.lists_per_stock {
        Some("explained") => {
            out.push_str("if lists need not be atomic, every answer is explained\n")
        }
        Some("violated") => out.push_str("unexplained even if lists need not be atomic\n"),
        _ => {}
    }
    out
}

fn rate(per_s: f64) -> String {
    if per_s < 100.0 {
        format!("{per_s:.2}/s")
    } else {
        format!("{}/s", format_count(per_s.round() as u64))
    }
}

fn connections(count: usize) -> String {
    format_counted(count as u64, "connection", "connections")
}

/// Returns whether a run is reported as a result of the server.
fn is_shown(run: &Run, args: &LoadArgs) -> bool {
    run.generator.kept_up || args.anyway
}

fn one(run: &Run, args: &LoadArgs, width: usize) -> String {
    let mut out = String::new();
    let elapsed = format_ns(run.elapsed_ns as f64);
    if is_shown(run, args) {
        let bound = if run.generator.kept_up {
            ""
        } else {
            " or more (the load generator was the bottleneck)"
        };
        let _ = writeln!(
            out,
            "{}: {}{bound}{}, {}, {elapsed}{}",
            run.pace,
            rate(run.answered_per_s),
            offered(run),
            connections(run.connections),
            ended(run, args)
        );
        out.push_str(&latencies(run, width));
        if let Some(stall) = &run.stall {
            out.push_str(&stalled(stall));
        }
    } else {
        let connections = connections(run.connections);
        let _ = writeln!(out, "{}: {connections}, {elapsed}: no result", run.pace);
    }
    out.push_str(&outcomes(&run.outcomes));
    out.push_str(&conserved(&run.conservation));
    for sample in &run.wrong_samples {
        let _ = writeln!(out, "  wrong: {sample}");
    }
    out.push_str(&own(&run.generator));
    out
}

/// Returns the average offered rate, and the requested one if it differs.
fn offered(run: &Run) -> String {
    let Some(offered) = run.offered_per_s.map(rate) else { return String::new() };
    let sessions = if run.pace == "partly-open" { " sessions" } else { "" };
    let asked = run.asked_per_s.map(rate).filter(|asked| *asked != offered);
    let asked = asked.map_or_else(String::new, |asked| format!(" ({asked} requested)"));
    format!(" of {offered}{sessions} offered{asked}")
}

/// Returns notes on the measured time.
fn ended(run: &Run, args: &LoadArgs) -> String {
    let mut out = String::new();
    let ramp = args.ramp.saturating_sub(args.warm_up);
    if !ramp.is_zero() {
        let _ = write!(out, ", including a ramp of {}", format_ns(ramp.as_nanos() as f64));
    }
    if run.interrupted {
        out.push_str(", interrupted");
    }
    if run.lost.is_some() {
        out.push_str(", until the server was lost");
    }
    out
}

/// Formats the utilisation and timing errors of the load generator.
fn own(own: &Generator) -> String {
    let busy = own.cpu_share.zip(own.busy_share).map_or_else(
        || "utilisation unknown".to_owned(),
        |(cpu, busy)| {
            let (cpu, busy) = (cpu * 100.0, busy * 100.0);
            format!("{cpu:.0} % of a processor, {busy:.0} % busy or ready")
        },
    );
    let mut out = format!(
        "load generator: {busy}; p99 send lateness {}, p99 answer pickup {}\n",
        format_ns(own.late.p99_ns as f64),
        format_ns(own.pickup.p99_ns as f64)
    );
    if let Some(unknown) = &own.unknown {
        let _ = writeln!(out, "  {unknown}");
    }
    out
}

fn row(name: String, latency: &Latency) -> Vec<String> {
    let time = |ns: u64| format_ns(ns as f64);
    vec![
        name,
        format_count(latency.count),
        time(latency.p50_ns),
        time(latency.p90_ns),
        time(latency.p99_ns),
        time(latency.p999_ns),
        time(latency.p9999_ns),
        time(latency.max_ns),
    ]
}

fn latencies(run: &Run, width: usize) -> String {
    let mut table = table(width);
    table.set_header(["latency", "count", "p50", "p90", "p99", "p99.9", "p99.99", "max"]);
    table.add_row(row("from due".to_owned(), &run.latency.corrected));
    table.add_row(row("from sent".to_owned(), &run.latency.raw));
    for (name, latency) in &run.commands {
        if latency.corrected.count > 0 {
            table.add_row(row(format!("  {name}"), &latency.corrected));
        }
    }
    table_text(&table)
}

/// Formats a stall that the latencies of a closed loop hide.
fn stalled(stall: &Stall) -> String {
    let time = |ns: u64| format_ns(ns as f64);
    format!(
        "  STALL: a request waited {}, {} times the usual interval. A closed loop sends nothing \
         while it waits, so these latencies hide waiting time. Had each connection kept its interval \
         of {}: p99 {}, p99.9 {}. Measure it with --rate.\n",
        time(stall.max_ns),
        format_count(stall.max_ns / stall.interval_ns.max(1)),
        time(stall.interval_ns),
        time(stall.corrected.p99_ns),
        time(stall.corrected.p999_ns)
    )
}

fn outcomes(outcomes: &Outcomes) -> String {
    let mut parts = Vec::new();
    let mut part = |count: u64, one: &str, many: &str| {
        if count > 0 {
            parts.push(format_counted(count, one, many));
        }
    };
    part(outcomes.traded, "order executed", "orders executed");
    part(outcomes.refused, "correctly refused", "correctly refused");
    part(outcomes.listed, "list", "lists");
    part(outcomes.turned_away, "rejected (BUSY)", "rejected (BUSY)");
    part(outcomes.sessions, "session", "sessions");
    part(outcomes.unsent, "due but not sent", "due but not sent");
    part(outcomes.wrong, "WRONG", "WRONG");
    part(outcomes.lost, "connection lost", "connections lost");
    let in_handshake = "in the TLS handshake";
    part(outcomes.lost_in_handshake, in_handshake, in_handshake);
    part(outcomes.timed_out, "timed out", "timed out");
    part(outcomes.unanswered, "unanswered", "unanswered");
    let bytes = format!(
        "{} sent, {} received",
        format_size(outcomes.sent_bytes),
        format_size(outcomes.received_bytes)
    );
    parts.push(bytes);
    parts.join(", ") + "\n"
}

fn conserved(conservation: &Conservation) -> String {
    if let Some(reason) = &conservation.reason {
        return format!("stocks were not compared: {reason}\n");
    }
    if conservation.differences.is_empty() {
        let many = "stocks match the answers\n";
        return format_counted(conservation.stocks as u64, "stock matches the answers\n", many);
    }
    let mut out = String::from("stocks that do NOT match the answers:\n");
    for difference in &conservation.differences {
        let _ = writeln!(out, "  {difference}");
    }
    out
}

/// Returns what limits the result of a run, or the step of a ladder.
fn notes_on(run: &Run, step: Option<&Step>) -> Vec<&'static str> {
    let is_unmeasured = run.is_unmeasured();
    [
        (is_unmeasured, "no result"),
        (!is_unmeasured && step.is_some_and(|step| !step.carried), "not sustained"),
        (!run.generator.kept_up, "the load generator was the bottleneck"),
        (run.generator.unknown.is_some(), "load generator utilisation partly unknown"),
        (run.interrupted, "interrupted"),
        (run.lost.is_some(), "the server was lost"),
        // Without an answer before an interrupt, nothing is known to be wrong.
        (run.is_wrong() || !(is_unmeasured || run.interrupted || run.is_right()), "WRONG"),
        (run.too_many_unanswered().is_some(), "too many unanswered"),
    ]
    .into_iter()
    .filter_map(|(applies, note)| applies.then_some(note))
    .collect()
}

fn several(runs: &[Run], document: &Document, args: &LoadArgs, width: usize) -> String {
    let mut table = table(width);
    let mut notes = String::new();
    let rates = !document.steps.is_empty();
    let (head, reference) = match (rates, args.rate.or(args.sessions)) {
        (true, _) => ("requested", "offered"),
        (false, Some(_)) => ("connections", "offered"),
        (false, None) => ("connections", "law"),
    };
    table.set_header([head, "answered", "p50", "p99", "p99.9", "max", reference]);
    for (at, run) in runs.iter().enumerate() {
        let latency = &run.latency.corrected;
        let time = |ns: u64| format_ns(ns as f64);
        let law = document.scaling.as_ref().and_then(|scaling| scaling.errors.get(at));
        let note = notes_on(run, document.steps.get(at));
        let asked = run.asked_per_s.filter(|_| rates);
        let name = asked.map_or_else(|| run.connections.to_string(), rate);
        if !note.is_empty() {
            let name = asked.map_or_else(|| connections(run.connections), rate);
            let _ = writeln!(notes, "{name}: {}", note.join(", "));
        }
        table.add_row([
            name,
            rate(run.answered_per_s),
            time(latency.p50_ns),
            time(latency.p99_ns),
            time(latency.p999_ns),
            time(latency.max_ns),
            law.map(|error| format!("{:+.1} %", error * 100.0))
                .or_else(|| run.offered_per_s.map(rate))
                .unwrap_or_default(),
        ]);
    }
    let mut out = table_text(&table) + &notes;
    if rates {
        let _ = writeln!(out, "{}", knee(document));
    }
    out.push_str(&law(document));
    for run in runs.iter().filter(|run| !run.is_right()) {
        out.push_str(&outcomes(&run.outcomes));
        out.push_str(&conserved(&run.conservation));
    }
    out
}

/// Formats the knee of a ladder and whether it may be higher.
fn knee(document: &Document) -> String {
    let all = document.steps.iter().all(|step| step.carried);
    let knee = document.knee_per_s.map(rate);
    let interrupted = document.runs.iter().any(|run| run.interrupted);
    if interrupted || document.failed {
        let knee = knee.map_or_else(|| "unknown".to_owned(), |knee| format!("{knee} or more"));
        let why = if interrupted { "was interrupted" } else { "failed" };
        return format!("knee: {knee} (the ladder {why})");
    }
    let first = document.steps.iter().find(|step| !step.carried);
    if first.is_some_and(|step| !step.measured) {
        return knee.map_or_else(
            || "knee: unknown: nothing was measured at the lowest rate".to_owned(),
            |knee| format!("knee: {knee} or more: nothing was measured at the next rate"),
        );
    }
    match (knee, document.knee_is_least) {
        (Some(knee), false) => format!("knee: {knee} is the highest sustained rate"),
        (Some(knee), true) if all => {
            format!("knee: {knee} or more: every requested rate was sustained")
        }
        (Some(knee), true) => {
            format!("knee: {knee} or more: beyond it the load generator was the bottleneck")
        }
        (None, false) => "knee: not even the lowest rate was sustained".to_owned(),
        (None, true) => {
            "knee: unknown: the load generator was the bottleneck at the lowest rate".to_owned()
        }
    }
}

fn law(document: &Document) -> String {
    let Some(scaling) = &document.scaling else { return String::new() };
    let best = scaling.connections_best.map_or_else(
        || "no decline up to twice the maximum number of connections".to_owned(),
        |best| format!("throughput falls beyond {}", connections(best.round() as usize)),
    );
    let of_the_load = document.runs.iter().any(|run| !run.generator.kept_up);
    let whose = if of_the_load { " (the load generator was the bottleneck)" } else { "" };
    format!(
        "scalability law{whose}: {} with one connection, contention {:.3}, coherency {:.5};\n  \
         {best}; error {:.1} % (root mean square), {:.1} % maximum\n",
        rate(scaling.lambda_per_s),
        scaling.sigma,
        scaling.kappa,
        scaling.error_rms * 100.0,
        scaling.error_worst * 100.0
    )
}

fn multiclient(run: &MultiRun) -> String {
    let mut out = String::new();
    let error = match run.law_error {
        Some(error) => format!(" ({:+.2} %)", error * 100.0),
        None if run.law_ns == 0 => " because the clients do not sleep".to_owned(),
        None if run.interrupted => ", but the run was interrupted".to_owned(),
        None => ", but not every order was answered".to_owned(),
    };
    let _ = writeln!(
        out,
        "multiclient: {} with {} each, sleeping {}: {:.3} s; predicted {:.3} s{error}",
        format_counted(run.clients as u64, "client", "clients"),
        format_counted(run.orders.into(), "order", "orders"),
        format_ns(run.sleep_ns as f64),
        run.elapsed_ns as f64 / 1e9,
        run.law_ns as f64 / 1e9
    );
    let _ = writeln!(
        out,
        "{}; request latency {} (p50), {} (p99); sleep overrun {} (p99)",
        rate(run.orders_per_s),
        format_ns(run.latency.p50_ns as f64),
        format_ns(run.latency.p99_ns as f64),
        format_ns(run.overslept.p99_ns as f64)
    );
    out.push_str(&outcomes(&run.outcomes));
    out.push_str(&conserved(&run.conservation));
    for sample in &run.wrong_samples {
        let _ = writeln!(out, "  wrong: {sample}");
    }
    out
}

fn floor(floors: &Floors, document: &Document, args: &LoadArgs) -> String {
    let mut out = String::new();
    if args.tls {
        out.push_str("the run above uses TLS, the baselines do not\n");
    }
    if let Some(null) = &floors.null_server {
        let bound = if null.generator.kept_up { "" } else { " (the limit of the load generator)" };
        let _ = write!(
            out,
            "baseline, null server: {}{bound}{}",
            rate(null.answered_per_s),
            offered(null)
        );
        let best = document.runs.iter().map(|run| run.answered_per_s).fold(0.0, f64::max);
        if null.offered_per_s.is_some() {
            // At a fixed rate the null server shows latency, not maximum throughput.
            let (p50, p99) = (null.latency.corrected.p50_ns, null.latency.corrected.p99_ns);
            let (p50, p99) = (format_ns(p50 as f64), format_ns(p99 as f64));
            let _ = write!(out, ", {p50} (p50) and {p99} (p99) from due");
        } else if best > 0.0 {
            let _ = write!(out, ", {:.2} times the rate above", null.answered_per_s / best);
        }
        out.push('\n');
    }
    if let Some(null) = &floors.null_server_multiclient {
        let _ = writeln!(out, "baseline, null server: {:.3} s", null.elapsed_ns as f64 / 1e9);
    }
    let client = &floors.null_client;
    let _ = writeln!(out, "baseline, no server: {} on one thread", rate(client.requests_per_s));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(count: u64) -> String {
        let outcomes = Outcomes {
            traded: count,
            listed: count,
            sessions: count,
            lost: count,
            timed_out: count,
            ..Outcomes::default()
        };
        let stocks = count as usize;
        let differences = Vec::new();
        let conserved_are = Conservation { checked: true, reason: None, stocks, differences };
        let run = MultiRun {
            clients: stocks,
            orders: count as u32,
            sleep_ns: 1_000_000_000,
            elapsed_ns: 10_000_000_000,
            law_ns: 10_000_000_000,
            law_error: Some(0.0),
            orders_per_s: 1.0,
            latency: Latency::default(),
            overslept: Latency::default(),
            outcomes,
            wrong_samples: Vec::new(),
            conservation: conserved_are,
            interrupted: false,
        };
        multiclient(&run) + &connections(stocks)
    }

    #[test]
    fn unknown_utilisation_is_reported_without_a_number() {
        let busy = "its thread utilisation is unknown".to_owned();
        let unknown = Generator {
            threads: 1,
            late: Latency::default(),
            pickup: Latency::default(),
            cpu_share: None,
            busy_share: None,
            kept_up: true,
            reason: None,
            unknown: Some(busy),
        };
        assert_eq!(
            own(&unknown),
            "load generator: utilisation unknown; p99 send lateness 0 ns, p99 answer pickup 0 ns\n  \
             its thread utilisation is unknown\n"
        );
        let known =
            Generator { cpu_share: Some(0.25), busy_share: Some(0.5), unknown: None, ..unknown };
        assert!(
            own(&known).starts_with("load generator: 25 % of a processor, 50 % busy or ready; ")
        );
    }

    #[test]
    fn lines_are_broken_at_the_width() {
        for width in [40, 80] {
            let text = wrapped(&shown(2), width);
            assert!(text.lines().all(|line| line.len() <= width), "{text}");
        }
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(
            shown(1),
            "multiclient: 1 client with 1 order each, sleeping 1.00 s: 10.000 s; predicted 10.000 s (+0.00 %)\n\
             1.00/s; request latency 0 ns (p50), 0 ns (p99); sleep overrun 0 ns (p99)\n\
             1 order executed, 1 list, 1 session, 1 connection lost, 1 timed out, 0 B sent, 0 B \
             received\n1 stock matches the answers\n1 connection"
        );
    }

    #[test]
    fn many_are_plural() {
        assert_eq!(
            shown(2),
            "multiclient: 2 clients with 2 orders each, sleeping 1.00 s: 10.000 s; predicted 10.000 s (+0.00 %)\n\
             1.00/s; request latency 0 ns (p50), 0 ns (p99); sleep overrun 0 ns (p99)\n\
             2 orders executed, 2 lists, 2 sessions, 2 connections lost, 2 timed out, 0 B sent, \
             0 B received\n2 stocks match the answers\n2 connections"
        );
    }
}
