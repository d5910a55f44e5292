//! `ioloom load`: a load generator for servers of the stock exchange protocol.

mod args;
mod document;
mod text;

pub(crate) use args::LoadArgs;

use crate::exit::{Ended, Exit, Failure};
use crate::{atomic_file, out, stderr};
use document::{Checked, Document, Floors};
use ioloom_failure::quoted;
use ioloom_load::check::{self, Lists, STATES_MAX, Verdict};
use ioloom_load::ladder::{self, Scaling, Step};
use ioloom_load::{
    Commands, History, LoadError, LoadPlan, LoadProgress, Multiclient, NullServer, Pace, Run,
    Trust, UNANSWERED_MAX,
};
use ioloom_sys::signals::FirstSignal;
use ioloom_tls::TlsError;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt::Display;
use std::io::{BufRead, BufReader, IsTerminal};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of requests sent by the null client.
const NULL_REQUESTS: u64 = 200_000;

pub(crate) fn run(args: &LoadArgs) -> Ended {
    if let Some(path) = &args.check {
        return check(path, args.json);
    }
    if !args.remote && !is_local(args) {
        return Err(Failure::refused(format!(
            "{} is not on this machine; use --remote if it belongs to you",
            args.target
        )));
    }
    let (stop, first) = (Arc::new(AtomicBool::new(false)), FirstSignal::default());
    for signal in [SIGINT, SIGTERM] {
        first
            .end_when_repeated(signal, Exit::Interrupted as i32, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|e| Failure::failed(format!("cannot install signal handlers: {e}")))?;
    }
    if args.null_server {
        return null_server(args, &stop);
    }
    atomic_file::refuse_dash("--history", args.history.as_deref())?;
    // A file that cannot be written is an error before the first request.
    let recording = args.history.as_deref().map(atomic_file::begin).transpose()?;
    let mut document = Document::new(args);
    let ran = match args.multiclient {
        Some(clients) => multiclient(args, clients, &stop, &mut document).map(|()| None),
        None => runs(args, &stop, &mut document),
    };
    let (history, mut failed) = match ran {
        Ok(history) => (history, None),
        // The earlier runs are reported first.
        Err(failure) if !document.runs.is_empty() => (None, Some(failure)),
        Err(failure) => return Err(failure),
    };
    let recorded = match recording.zip(history) {
        Some((file, history)) => file.finish(|out| history.write(out)),
        None => Ok(()),
    };
    let is_whole = failed.is_none() && !is_lost(&document) && !stop.load(Ordering::Relaxed);
    if args.floors && is_whole {
        match floors(args, &stop) {
            Ok(floors) => document.floors = Some(floors),
            Err(failure) => failed = Some(failure),
        }
    }
    let printed = if args.json {
        out::print_json(&document)
    } else {
        out::print(&text::text(&document, args, out::columns()))
    };
    let ended = end(args, &document, stop.load(Ordering::Relaxed));
    // After the report, which must not be lost with the history.
    let mut failures = failed.into_iter().chain(recorded.err());
    let Some(first) = failures.next() else { return out::then(printed, ended) };
    failures.for_each(|failure| stderr::message(&failure.message));
    out::then(printed, Err(first))
}

/// Returns true if the target is on this machine. A null server at an unspecified address also
/// listens to other machines.
fn is_local(args: &LoadArgs) -> bool {
    let ip = args.target.ip().to_canonical();
    ip.is_loopback() || (ip.is_unspecified() && !args.null_server)
}

/// Checks a recorded history.
fn check(path: &std::path::Path, json: bool) -> Ended {
    let history = History::read(path).map_err(failure)?;
    let atomic = check::check(&history, Lists::Atomic, STATES_MAX);
    let per_stock = match atomic {
        Verdict::Violated { .. } => Some(check::check(&history, Lists::PerStock, STATES_MAX)),
        _ => None,
    };
    let checked = Checked::new(&history, &atomic, per_stock.as_ref());
    let printed = match json {
        true => out::print_json(&checked),
        false => out::print(&text::checked(&checked)),
    };
    let exit = match atomic {
        Verdict::Explained => Exit::Ok,
        Verdict::Violated { .. } => Exit::Failed,
        Verdict::Undecided { .. } => Exit::Refused,
    };
    out::then(printed, Ok(exit))
}

/// Chooses the exit code after the report.
fn end(args: &LoadArgs, document: &Document, interrupted: bool) -> Ended {
    let late = document.runs.iter().find_map(|run| run.generator.reason.as_ref());
    let late = late.filter(|_| !args.anyway);
    if interrupted {
        if let Some(reason) = late {
            reject(reason);
        }
        return Ok(Exit::Interrupted);
    }
    if let Some(lost) = document.runs.iter().find_map(|run| run.lost.as_ref()) {
        stderr::message(lost);
        return Ok(Exit::Failed);
    }
    if document.runs.iter().any(|run| !run.is_right() && !run.is_unmeasured()) {
        stderr::message(
            "the server gave no answers or wrong ones, or its final stocks do not match its answers",
        );
        return Ok(Exit::Failed);
    }
    if let Some(reason) = unmeasured(args, &document.runs) {
        stderr::message(&reason);
        return Ok(Exit::Refused);
    }
    if !document.multiclient.as_ref().is_none_or(ioloom_load::MultiRun::is_right) {
        stderr::message(
            "the server gave wrong answers or left orders unanswered, or its final stocks do not match its answers",
        );
        return Ok(Exit::Failed);
    }
    if let Some(share) = too_many_unanswered(document) {
        stderr::message(&format!(
            "{:.1} % of the requests were not answered; at most {:.0} % are permitted",
            share * 100.0,
            UNANSWERED_MAX * 100.0
        ));
        return Ok(Exit::Failed);
    }
    let ends = document.runs.iter().map(|run| &run.conservation);
    let ends = ends.chain(document.multiclient.iter().map(|multi| &multi.conservation));
    // The effect of other commands is unknown.
    let is_checked = !args.shared && args.commands.is_none();
    if let Some(unknown) = ends.filter(|_| is_checked).find(|end| !end.checked) {
        let reason = unknown.reason.as_deref().unwrap_or("unknown");
        stderr::message(&format!("cannot check for lost orders: final stocks: {reason}"));
        return Ok(Exit::Failed);
    }
    match late {
        Some(reason) => {
            reject(reason);
            Ok(Exit::Refused)
        }
        None => Ok(Exit::Ok),
    }
}

/// Prints why a report has no result.
fn reject(reason: &str) {
    stderr::message(&format!(
        "result rejected: the load generator was the bottleneck: {reason}; use --anyway to report it"
    ));
}

/// Returns why a run has no result although nothing was wrong.
fn unmeasured(args: &LoadArgs, runs: &[Run]) -> Option<String> {
    if runs.iter().any(Run::ended_in_warm_up) {
        return Some(
            "the run ended within its warm-up, so nothing was measured; use a shorter --warm-up or \
             more --requests"
                .to_owned(),
        );
    }
    let rate = match (args.sessions, args.ladder.is_empty()) {
        (Some(_), _) => "a higher rate of --sessions",
        (None, true) => "a higher --rate",
        (None, false) => "higher rates of --ladder",
    };
    let is_idle = runs.iter().any(Run::had_nothing_due);
    is_idle.then(|| format!("nothing was due; use a longer --duration or {rate}"))
}

/// Returns true if a run ended early because its server disappeared.
fn is_lost(document: &Document) -> bool {
    document.runs.iter().any(|run| run.lost.is_some())
}

/// Returns the share of requests without an answer if it is too large in a run. A ladder is expected to
/// reach rates at which it is: its steps count only if none was sustained.
fn too_many_unanswered(document: &Document) -> Option<f64> {
    let any_sustained = document.steps.iter().any(|step| step.carried);
    let is_beyond =
        |at: usize| any_sustained && document.steps.get(at).is_some_and(|step| !step.carried);
    let runs = document.runs.iter().enumerate().filter(|(at, _)| !is_beyond(*at));
    runs.map(|(_, run)| run).find_map(Run::too_many_unanswered)
}

fn plan(args: &LoadArgs, connections: usize) -> Result<LoadPlan, Failure> {
    let pace = match (args.rate, args.sessions) {
        (Some(rate_per_s), _) => Pace::Open { rate_per_s, arrival: args.arrival },
        (_, Some(sessions_per_s)) => Pace::PartlyOpen {
            sessions_per_s,
            arrival: args.arrival,
            requests_mean: args.session_requests,
            think: args.think,
        },
        _ => Pace::Closed { think: args.think },
    };
    let requests = args.requests.or(args.history.as_ref().map(|_| 100_000));
    let token = args.token_file.as_deref().map(crate::token_file::read_first).transpose()?;
    let commands = args.commands.as_deref().map(commands).transpose()?;
    Ok(LoadPlan {
        protocol: args.protocol,
        commands,
        pace,
        connections,
        threads: threads(args, connections),
        pipeline: args.pipeline,
        mix: args.mix,
        skew: args.skew,
        count_max: args.count,
        duration: args.duration,
        requests_max: requests.unwrap_or(u64::MAX),
        warm_up: args.warm_up,
        ramp: args.ramp,
        timeout: args.timeout,
        random: args.random,
        keep_history: args.history.is_some(),
        name: args.name.clone(),
        token,
        tls: trust(args)?,
        cpus: args.cpus.clone(),
        conserve: !args.shared,
        ..LoadPlan::new(args.target)
    })
}

/// Returns the number of threads: at most one per connection.
fn threads(args: &LoadArgs, connections: usize) -> usize {
    args.threads.min(connections.max(1))
}

/// Reads a commands file.
fn commands(path: &Path) -> Result<Arc<Commands>, Failure> {
    let message = |why: &dyn Display| format!("cannot read commands file {}: {why}", quoted(path));
    let bytes =
        std::fs::read(path).map_err(|e| Failure::failed(message(&ioloom_failure::reason(&e))))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        Failure::usage(message(&format!("line {line}: not valid UTF-8")))
    })?;
    Commands::parse(&text).map(Arc::new).map_err(|why| Failure::usage(message(&why)))
}

/// Returns the trusted certificates if TLS is enabled.
fn trust(args: &LoadArgs) -> Result<Option<Trust>, Failure> {
    let address = args.target.ip().to_string();
    let name = args.tls_name.as_deref().unwrap_or(&address);
    let trust = args.tls.then(|| Trust::new(args.tls_ca.as_deref(), name));
    trust.transpose().map_err(|error| match error {
        TlsError::NoAuthorities => Failure::refused(format!("{error} (--tls-ca)")),
        _ => Failure::tls(error),
    })
}

fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Plan(_) | LoadError::History { .. } => Failure::usage(error),
        LoadError::Refused(_) => Failure::refused(error),
        LoadError::Interrupted { .. } => Failure::new(Exit::Interrupted, error.to_string()),
        _ => Failure::failed(error),
    }
}

/// Runs one load and displays its progress.
fn one(plan: &LoadPlan, name: &str, stop: &AtomicBool) -> Result<(Run, Option<History>), Failure> {
    let live = std::io::stderr().is_terminal();
    let bar = live.then(|| {
        let target = crate::bar_target::stderr();
        indicatif::ProgressBar::with_draw_target(None, target)
            .with_style(indicatif::ProgressStyle::default_spinner())
    });
    let mut watch = |progress: LoadProgress| {
        if let Some(bar) = &bar {
            bar.set_message(format!(
                "{name}{:.0} of {:.0} s, {} answers, {:.0}/s",
                progress.elapsed.as_secs_f64(),
                plan.duration.as_secs_f64(),
                progress.answered,
                progress.answered_per_s
            ));
            bar.tick();
        }
    };
    let ran = ioloom_load::run(plan, stop, &mut watch);
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    ran.map_err(failure)
}

/// Runs the loads. Returns the history if one is recorded.
///
/// # Errors
/// A run failed. The document has the earlier ones.
fn runs(
    args: &LoadArgs,
    stop: &AtomicBool,
    document: &mut Document,
) -> Result<Option<History>, Failure> {
    let mut connections = args.connections.clone();
    connections.sort_unstable();
    let most = connections.last().copied().unwrap_or(1);
    let one_of = match (args.ladder.is_empty(), &args.history) {
        (false, _) => Some("a ladder of rates"),
        (_, Some(_)) => Some("a history"),
        _ => None,
    };
    if let Some(what) = one_of.filter(|_| connections.len() > 1) {
        return Err(Failure::usage(format!("{what} needs a single value of --connections")));
    }
    let steps = !args.ladder.is_empty() || connections.len() > 1;
    if steps && args.ramp > args.warm_up {
        return Err(Failure::usage(
            "the ramp of a ladder step must not be counted; use a --warm-up at least as long as --ramp",
        ));
    }
    if !args.ladder.is_empty() {
        let plan = plan(args, most)?;
        plan.check().map_err(failure)?;
        report_threads(args, most);
        let mut rates = args.ladder.clone();
        rates.sort_by(f64::total_cmp);
        let climbed = climb(args, &plan, &rates, stop, document);
        document.failed = climbed.is_err() || is_lost(document);
        document.knee_per_s = ladder::knee(&document.steps);
        let early = document.failed || document.runs.iter().any(|run| run.interrupted);
        document.knee_is_least = early || ladder::knee_is_least(&document.steps);
        return climbed.map(|()| None);
    }
    let base = plan(args, most)?;
    let with = |connections: usize| {
        let threads = threads(args, connections);
        LoadPlan { connections, threads, ..base.clone() }
    };
    // Before the first connection.
    connections.iter().try_for_each(|many| with(*many).check()).map_err(failure)?;
    let mut recorded = None;
    for connections in connections {
        report_threads(args, connections);
        let (run, history) = one(&with(connections), "", stop)?;
        document.runs.push(run);
        recorded = history;
        if stop.load(Ordering::Relaxed) || is_lost(document) {
            break;
        }
    }
    let closed = args.rate.is_none() && args.sessions.is_none();
    // The numbers ascend, so those that are repeated follow each other.
    let numbers = document.runs.chunk_by(|one, next| one.connections == next.connections).count();
    if closed && numbers >= 4 {
        match scaling(&document.runs, args.anyway) {
            Ok(scaling) => document.scaling = Some(scaling),
            Err(reason) => stderr::line(&format!("scalability law not fitted: {reason}")),
        }
    }
    Ok(recorded)
}

/// Runs the steps of a ladder of rates.
fn climb(
    args: &LoadArgs,
    plan: &LoadPlan,
    rates: &[f64],
    stop: &AtomicBool,
    document: &mut Document,
) -> Result<(), Failure> {
    for rate_per_s in rates.iter().copied() {
        let pace = Pace::Open { rate_per_s, arrival: args.arrival };
        let plan = LoadPlan { pace, ..plan.clone() };
        let (run, _) = one(&plan, &format!("{rate_per_s}/s: "), stop)?;
        document.steps.push(Step::new(&run, args.p99));
        document.runs.push(run);
        let early = stop.load(Ordering::Relaxed) || is_lost(document);
        if early || ladder::is_enough(&document.steps) {
            break;
        }
    }
    Ok(())
}

/// Reports that the number of threads was reduced to the number of connections.
fn report_threads(args: &LoadArgs, connections: usize) {
    if connections < args.threads {
        let asked = args.threads;
        stderr::line(&format!(
            "--connections {connections}: using {connections} threads instead of {asked}"
        ));
    }
}

/// Fits the scalability law to the rates of a closed loop.
///
/// # Errors
/// The load generator was the bottleneck at one of the rates, the run was interrupted, or answers were
/// wrong or missing.
fn scaling(runs: &[Run], anyway: bool) -> Result<Scaling, String> {
    if let Some(run) = runs.iter().find(|run| !run.generator.kept_up && !anyway) {
        let many = run.connections;
        return Err(format!(
            "the load generator was the bottleneck with --connections {many} (see --anyway)"
        ));
    }
    if runs.iter().any(|run| run.interrupted) {
        return Err("the run was interrupted".to_owned());
    }
    if runs.iter().any(|run| run.lost.is_some()) {
        return Err("the server was lost".to_owned());
    }
    if let Some(run) = runs.iter().find(|run| run.is_unmeasured()) {
        return Err(format!("nothing was measured with --connections {}", run.connections));
    }
    if let Some(run) =
        runs.iter().find(|run| !run.is_right() || run.too_many_unanswered().is_some())
    {
        let many = run.connections;
        return Err(format!("answers were wrong or missing with --connections {many}"));
    }
    let points: Vec<(usize, f64)> =
        runs.iter().map(|run| (run.connections, run.answered_per_s)).collect();
    ladder::scaling(&points)
}

fn multi_of(args: &LoadArgs, clients: usize) -> Multiclient {
    Multiclient { clients, orders: args.orders, sleep: args.sleep / args.divide, pool: args.pool }
}

fn multiclient(
    args: &LoadArgs,
    clients: usize,
    stop: &AtomicBool,
    document: &mut Document,
) -> Result<(), Failure> {
    let multi = multi_of(args, clients);
    let live = std::io::stderr().is_terminal();
    let all = clients as u64 * u64::from(args.orders);
    let mut watch = |answered: u64| {
        if live {
            stderr::line(&format!("{answered} of {all} orders"));
        }
    };
    let ran = ioloom_load::multiclient(&plan(args, 1)?, &multi, stop, &mut watch);
    document.multiclient = Some(ran.map_err(failure)?);
    Ok(())
}

fn null_server(args: &LoadArgs, stop: &AtomicBool) -> Ended {
    let server = NullServer::bind(args.target, args.protocol).map_err(failure)?;
    stderr::message(&format!("listening on {}", server.address().map_err(failure)?));
    server.run(stop).map_err(failure)?;
    Ok(Exit::Ok)
}

/// A null server in a child process, killed on drop.
struct Floor(Child);

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn floors(args: &LoadArgs, stop: &AtomicBool) -> Result<Floors, Failure> {
    let fail =
        |e: &dyn std::fmt::Display| Failure::failed(format!("cannot start the null server: {e}"));
    let program = std::env::current_exe().map_err(|e| fail(&e))?;
    let protocol = document::protocol_word(args.protocol);
    let mut child = Command::new(program)
        .args(["load", "127.0.0.1:0", "--null-server", "--protocol", &protocol])
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| fail(&e))?;
    let said = child.stderr.take();
    let _floor = Floor(child);
    let mut line = String::new();
    if let Some(said) = said {
        BufReader::new(said).read_line(&mut line).map_err(|e| fail(&e))?;
    }
    let address = line.trim().rsplit(' ').next().and_then(|word| word.parse().ok());
    let target: SocketAddr = address.ok_or_else(|| fail(&format!("unexpected output {line:?}")))?;
    let most = args.connections.iter().copied().max().unwrap_or(1);
    let rate_per_s = args.ladder.iter().copied().fold(0.0, f64::max);
    let base = plan(args, most)?;
    let pace =
        if rate_per_s > 0.0 { Pace::Open { rate_per_s, arrival: args.arrival } } else { base.pace };
    let plan = LoadPlan {
        target,
        pace,
        token: None,
        tls: None,
        conserve: false,
        keep_history: false,
        ..base
    };
    let null_client = ioloom_load::null_client(&plan, NULL_REQUESTS).map_err(failure)?;
    if let Some(clients) = args.multiclient {
        let multi = multi_of(args, clients);
        let ran = ioloom_load::multiclient(&plan, &multi, stop, &mut |_| {}).map_err(failure)?;
        return Ok(Floors { null_server: None, null_server_multiclient: Some(ran), null_client });
    }
    let (null_server, _) = one(&plan, "null server: ", stop)?;
    Ok(Floors { null_server: Some(null_server), null_server_multiclient: None, null_client })
}
