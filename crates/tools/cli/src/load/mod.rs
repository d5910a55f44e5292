//! `ioloom load`: load for a server of the stock exchange, ours or any other of its protocol.

mod document;
mod told;

use crate::exit::{Ended, Exit, Failure};
use crate::{out, tell, tell_plain};
use clap::Args;
use document::{Checked, Document, Floors};
use ioloom_load::check::{self, Lists, STATES_MAX, Verdict};
use ioloom_load::ladder::{self, Scaling, Step};
use ioloom_load::{
    Arrival, History, LoadError, LoadPlan, LoadProgress, Mix, Multiclient, NullServer, Pace,
    Protocol, Run, Skew, Think, Trust,
};
use ioloom_model::units::parse_duration_ns;
use ioloom_tls::TlsError;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{BufRead, BufReader, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Requests of the null client.
const NULL_REQUESTS: u64 = 200_000;

/// Loads a server of the stock exchange, verifies it, and says when the load was the bottleneck
#[derive(Debug, Args)]
#[command(after_help = "\
How requests arise:
  (nothing)             closed: each connection waits for its answer, thinks, asks
  --rate R              open: requests are due at R per second, whatever becomes of
                        them; latencies count from when they were due
  --sessions R          partly open: sessions arrive, each a small closed loop
  --multiclient N       the original client: N clients, each ten times asks and
                        sleeps a second; the law of that is told beside it

Every answer is judged, and the stocks at the end must be those of the beginning
and the answers between. A run in which the load itself was the bottleneck is
refused (exit code 3); with --anyway it is told as what it is.

Examples:
  ioloom load                                    ten connections, ten seconds
  ioloom load --rate 20k --connections 64 --protocol resp
  ioloom load --ladder 1k,2k,5k,10k,20k,50k --p99 5ms   up to the knee
  ioloom load --connections 1,2,4,8,16,32        the law of scalability through them
  ioloom load --multiclient 100 --divide 10 --pool 10
  ioloom load 127.0.0.1:5000 --multiclient 10    any other server of the protocol")]
pub(crate) struct LoadArgs {
    /// The server
    #[arg(value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7004")]
    target: SocketAddr,

    /// padded (the original), line, v2, resp
    #[arg(long, value_name = "WHICH", default_value = "padded")]
    protocol: Protocol,

    /// Connections; several numbers make a ladder
    #[arg(
        long,
        short,
        value_name = "N,…",
        default_value = "10",
        value_delimiter = ',',
        conflicts_with = "multiclient"
    )]
    connections: Vec<usize>,

    /// Open loop: requests per second of all connections together
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with_all = ["sessions", "multiclient", "ladder"])]
    rate: Option<f64>,

    /// Partly open loop: sessions per second
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with_all = ["multiclient", "ladder"])]
    sessions: Option<f64>,

    /// Mean number of requests of a session
    #[arg(long, value_name = "N", default_value = "10", requires = "sessions")]
    session_requests: f64,

    /// Open loop at several rates, up to the knee and two steps beyond it
    #[arg(long, value_name = "R,…", value_parser = rate, value_delimiter = ',', conflicts_with = "multiclient")]
    ladder: Vec<f64>,

    /// A rate counts as carried if 99 of a hundred answers take at most this
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10ms", requires = "ladder", conflicts_with_all = ["rate", "sessions", "multiclient"])]
    p99: Duration,

    /// How arrivals follow each other: poisson or constant
    #[arg(long, value_name = "HOW", default_value = "poisson")]
    arrival: Arrival,

    /// Think time between an answer and the next request; exp:TIME draws it without memory
    #[arg(long, value_name = "TIME", value_parser = think, default_value = "0s", conflicts_with_all = ["rate", "ladder", "multiclient"])]
    think: Think,

    /// Requests that a connection may have on their way
    #[arg(long, value_name = "N", default_value = "1", conflicts_with_all = ["sessions", "multiclient"])]
    pipeline: usize,

    /// Shares of the commands
    #[arg(long, value_name = "SHARES", default_value = "show=1,buy=1,sell=1")]
    mix: Mix,

    /// Which stocks: uniform, zipf:S, hot:SHARE (one stock has this share)
    #[arg(long, value_name = "HOW", default_value = "uniform")]
    skew: Skew,

    /// Counts of orders are from 1 to this
    #[arg(long, value_name = "N", default_value = "10")]
    count: u32,

    /// How long requests are sent
    #[arg(long, short, value_name = "TIME", value_parser = time, default_value = "10s", conflicts_with = "multiclient")]
    duration: Duration,

    /// Requests at most
    #[arg(long, value_name = "N", conflicts_with = "multiclient")]
    requests: Option<u64>,

    /// What begins earlier is not counted
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s", conflicts_with = "multiclient")]
    warm_up: Duration,

    /// Time until all connections, or the whole rate, are there
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s", conflicts_with = "multiclient")]
    ramp: Duration,

    /// An answer that takes longer is given up
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    timeout: Duration,

    /// Threads of the load
    #[arg(long, short, value_name = "N", default_value = "1", conflicts_with = "multiclient")]
    threads: usize,

    /// Processors that they are held to, in turn
    #[arg(long, value_name = "CPU,…", value_delimiter = ',', conflicts_with = "multiclient")]
    cpus: Vec<u32>,

    /// Where all random numbers come from
    #[arg(long, value_name = "N", default_value = "1")]
    random: u64,

    /// Name that clients of v2 give themselves, followed by their number
    #[arg(long, value_name = "NAME", conflicts_with = "multiclient")]
    name: Option<String>,

    /// Show the server the word in this file; with v2 and resp
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Speak TLS; the server proves who it is to the authorities of this system, or to --tls-ca
    #[arg(long)]
    tls: bool,

    /// Certificates (PEM) that decide whether the server is who it should be
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_ca: Option<PathBuf>,

    /// Name that its certificate must have [default: the address]
    #[arg(long, value_name = "NAME", requires = "tls")]
    tls_name: Option<String>,

    /// The original client, so many times
    #[arg(long, value_name = "N")]
    multiclient: Option<usize>,

    /// Orders of each original client
    #[arg(long, value_name = "N", default_value = "10", requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    orders: u32,

    /// Its sleep after each order
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s", requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    sleep: Duration,

    /// Divide that sleep
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000), requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    divide: u32,

    /// The server has so many threads that each serve one client until it ends: for the law
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    pool: Option<u32>,

    /// Keep every request for a check of the history; at most 100 000 requests unless --requests says
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ladder", "multiclient"])]
    history: Option<PathBuf>,

    /// Check a kept history instead: can one order after the other explain every answer?
    #[arg(long, value_name = "FILE", conflicts_with_all = ["history", "multiclient", "null_server"])]
    check: Option<PathBuf>,

    /// The same load against a server that only answers, and without any server
    #[arg(long)]
    floors: bool,

    /// Be that server, at ADDRESS:PORT, until interrupted
    #[arg(long)]
    null_server: bool,

    /// Others order at the same time: do not compare the stocks at the end
    #[arg(long)]
    shared: bool,

    /// Tell a result in which the load was the bottleneck, as what it is
    #[arg(long)]
    anyway: bool,

    /// The server may be on another machine
    #[arg(long)]
    remote: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => text.strip_suffix('M').map_or((text, 1.0), |digits| (digits, 1e6)),
    };
    let rate = digits.parse::<f64>().map_err(|_| "write a rate such as 500 or 20k")? * factor;
    if (1e-3..=1e7).contains(&rate) { Ok(rate) } else { Err("from 0.001 to 10M".to_owned()) }
}

fn time(text: &str) -> Result<Duration, String> {
    parse_duration_ns(text).map(Duration::from_nanos).map_err(|error| error.to_string())
}

fn think(text: &str) -> Result<Think, String> {
    match text.strip_prefix("exp:") {
        Some(mean) => time(mean).map(Think::Exponential),
        None => time(text).map(|t| if t.is_zero() { Think::None } else { Think::Constant(t) }),
    }
}

pub(crate) fn run(args: &LoadArgs) -> Ended {
    if let Some(path) = &args.check {
        return check(path, args.json);
    }
    if !args.remote && !args.target.ip().is_loopback() {
        return Err(Failure::refused(format!(
            "{} is not on this machine; with --remote it is loaded all the same, if it is yours",
            args.target
        )));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            Exit::Interrupted as i32,
            Arc::clone(&stop),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
        .map_err(|e| Failure::failed(format!("cannot take over interrupts: {e}")))?;
    }
    if args.null_server {
        return null_server(args, &stop);
    }
    let mut document = Document::new(args);
    if let Some(clients) = args.multiclient {
        multiclient(args, clients, &stop, &mut document)?;
    } else {
        runs(args, &stop, &mut document)?;
    }
    if args.floors && !stop.load(Ordering::Relaxed) {
        document.floors = Some(floors(args, &stop)?);
    }
    if args.json {
        out::print_json(&document)?;
    } else {
        out::print(&told::text(&document, args))?;
    }
    end(args, &document, stop.load(Ordering::Relaxed))
}

/// Checks a kept history.
fn check(path: &std::path::Path, json: bool) -> Ended {
    let history = History::read(path).map_err(failure)?;
    let atomic = check::check(&history, Lists::Atomic, STATES_MAX);
    let per_stock = match atomic {
        Verdict::Violated { .. } => Some(check::check(&history, Lists::PerStock, STATES_MAX)),
        _ => None,
    };
    let checked = Checked::new(&history, &atomic, per_stock.as_ref());
    if json {
        out::print_json(&checked)?;
    } else {
        out::print(&told::checked(&checked))?;
    }
    Ok(match atomic {
        Verdict::Explained => Exit::Ok,
        Verdict::Violated { .. } => Exit::Failed,
        Verdict::Undecided { .. } => Exit::Refused,
    })
}

/// How the program ends after what was told.
fn end(args: &LoadArgs, document: &Document, interrupted: bool) -> Ended {
    let right = document.runs.iter().all(Run::is_right)
        && document.multiclient.as_ref().is_none_or(ioloom_load::MultiRun::is_right);
    if interrupted {
        return Ok(Exit::Interrupted);
    }
    if !right {
        tell(
            "the server gave wrong answers, lost some, or its stocks are not what its answers say",
        );
        return Ok(Exit::Failed);
    }
    let ends = document.runs.iter().map(|run| &run.conservation);
    let ends = ends.chain(document.multiclient.iter().map(|multi| &multi.conservation));
    if let Some(unknown) = ends.filter(|_| !args.shared).find(|end| !end.checked) {
        let reason = unknown.reason.as_deref().unwrap_or("unknown");
        tell(&format!("nobody knows whether orders were lost: the stocks at the end: {reason}"));
        return Ok(Exit::Failed);
    }
    let late = document.runs.iter().find_map(|run| run.generator.reason.as_ref());
    match late {
        Some(reason) if !args.anyway => {
            tell(&format!("refused: the load was the bottleneck: {reason}, or say --anyway"));
            Ok(Exit::Refused)
        }
        _ => Ok(Exit::Ok),
    }
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
    let token = args.token_file.as_deref().map(crate::serve::token).transpose()?;
    Ok(LoadPlan {
        protocol: args.protocol,
        pace,
        connections,
        threads: args.threads.min(connections.max(1)),
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
        token: token.map(|(_, text)| text),
        tls: trust(args)?,
        cpus: args.cpus.clone(),
        conserve: !args.shared,
        ..LoadPlan::new(args.target)
    })
}

/// Whom it is left to that the server is who it should be, where TLS is spoken.
fn trust(args: &LoadArgs) -> Result<Option<Trust>, Failure> {
    let address = args.target.ip().to_string();
    let name = args.tls_name.as_deref().unwrap_or(&address);
    let trust = args.tls.then(|| Trust::new(args.tls_ca.as_deref(), name));
    trust.transpose().map_err(|error| match error {
        TlsError::NoAuthorities => Failure::refused(format!("{error} (--tls-ca)")),
        _ => Failure::refused(error),
    })
}

fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Plan(_) => Failure::usage(error),
        LoadError::Refused(_) => Failure::refused(error),
        _ => Failure::failed(error),
    }
}

/// One load with what it is called, told while it runs.
fn one(plan: &LoadPlan, name: &str, stop: &AtomicBool) -> Result<(Run, Option<History>), Failure> {
    let live = std::io::stderr().is_terminal();
    let bar = live.then(indicatif::ProgressBar::new_spinner);
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

fn runs(args: &LoadArgs, stop: &AtomicBool, document: &mut Document) -> Result<(), Failure> {
    let mut connections = args.connections.clone();
    connections.sort_unstable();
    connections.dedup();
    let most = connections.last().copied().unwrap_or(1);
    let one_of = match (args.ladder.is_empty(), &args.history) {
        (false, _) => Some("a ladder of rates"),
        (_, Some(_)) => Some("a history"),
        _ => None,
    };
    if let Some(what) = one_of.filter(|_| connections.len() > 1) {
        return Err(Failure::usage(format!(
            "{what} has one number of connections; name one with --connections"
        )));
    }
    let steps = !args.ladder.is_empty() || connections.len() > 1;
    if steps && args.ramp > args.warm_up {
        return Err(Failure::usage(
            "the steps of a ladder are whole rates or numbers of connections, and a ramp is less; name \
             a --warm-up that is as long as the --ramp",
        ));
    }
    if !args.ladder.is_empty() {
        tell_threads(args, most);
        let mut rates = args.ladder.clone();
        rates.sort_by(f64::total_cmp);
        for rate_per_s in rates {
            let pace = Pace::Open { rate_per_s, arrival: args.arrival };
            let plan = LoadPlan { pace, ..plan(args, most)? };
            let (run, _) = one(&plan, &format!("{rate_per_s}/s: "), stop)?;
            document.steps.push(Step::new(&run, args.p99));
            document.runs.push(run);
            if ladder::is_enough(&document.steps) || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        document.knee_per_s = ladder::knee(&document.steps);
        let early = document.runs.iter().any(|run| run.interrupted);
        document.knee_is_least = early || ladder::knee_is_least(&document.steps);
        return Ok(());
    }
    for connections in connections {
        tell_threads(args, connections);
        let (run, history) = one(&plan(args, connections)?, "", stop)?;
        document.runs.push(run);
        if let (Some(history), Some(path)) = (history, &args.history) {
            history.write(path).map_err(failure)?;
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let closed = args.rate.is_none() && args.sessions.is_none();
    if closed && document.runs.len() >= 4 {
        match scaling(&document.runs, args.anyway) {
            Ok(scaling) => document.scaling = Some(scaling),
            Err(reason) => tell_plain(&format!("no law of scalability: {reason}")),
        }
    }
    Ok(())
}

/// Says so where there are fewer connections than threads that were asked for.
fn tell_threads(args: &LoadArgs, connections: usize) {
    if connections < args.threads {
        let asked = args.threads;
        tell_plain(&format!("--connections {connections}: as many threads, not {asked}"));
    }
}

/// The law through the rates of a closed loop; none where a rate is not one of the server.
fn scaling(runs: &[Run], anyway: bool) -> Result<Scaling, String> {
    if let Some(run) = runs.iter().find(|run| !run.generator.kept_up && !anyway) {
        let many = run.connections;
        return Err(format!("with --connections {many} the load was the bottleneck (--anyway)"));
    }
    if runs.iter().any(|run| run.interrupted) {
        return Err("it was ended early".to_owned());
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
            tell_plain(&format!("{answered} of {all} orders"));
        }
    };
    let ran = ioloom_load::multiclient(&plan(args, 1)?, &multi, stop, &mut watch);
    document.multiclient = Some(ran.map_err(failure)?);
    Ok(())
}

fn null_server(args: &LoadArgs, stop: &AtomicBool) -> Ended {
    let server = NullServer::bind(args.target, args.protocol).map_err(failure)?;
    tell(&format!("listening on {}", server.address().map_err(failure)?));
    server.run(stop).map_err(failure)?;
    Ok(Exit::Ok)
}

/// A null server in a process of its own, ended when this is dropped.
struct Floor(Child);

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn floors(args: &LoadArgs, stop: &AtomicBool) -> Result<Floors, Failure> {
    let fail = |e: &dyn std::fmt::Display| Failure::failed(format!("start the null server: {e}"));
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
    let target: SocketAddr = address.ok_or_else(|| fail(&format!("it said {line:?}")))?;
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
