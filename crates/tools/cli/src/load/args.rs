//! Flags of `load`.

use clap::Args;
use ioloom_load::{Arrival, Mix, Protocol, Skew, Think};
use ioloom_model::units::parse_duration_ns;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

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
    pub(super) target: SocketAddr,

    /// padded (the original), line, v2, resp
    #[arg(long, value_name = "WHICH", default_value = "padded")]
    pub(super) protocol: Protocol,

    /// Connections; several numbers make a ladder
    #[arg(
        long,
        short,
        value_name = "N,…",
        default_value = "10",
        value_delimiter = ',',
        conflicts_with = "multiclient"
    )]
    pub(super) connections: Vec<usize>,

    /// Open loop: requests per second of all connections together
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with_all = ["sessions", "multiclient", "ladder"])]
    pub(super) rate: Option<f64>,

    /// Partly open loop: sessions per second
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with_all = ["multiclient", "ladder"])]
    pub(super) sessions: Option<f64>,

    /// Mean number of requests of a session
    #[arg(long, value_name = "N", default_value = "10", requires = "sessions")]
    pub(super) session_requests: f64,

    /// Open loop at several rates, up to the knee and two steps beyond it
    #[arg(long, value_name = "R,…", value_parser = rate, value_delimiter = ',', conflicts_with = "multiclient")]
    pub(super) ladder: Vec<f64>,

    /// A rate counts as carried if 99 of a hundred answers take at most this
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10ms", requires = "ladder", conflicts_with_all = ["rate", "sessions", "multiclient"])]
    pub(super) p99: Duration,

    /// How arrivals follow each other: poisson or constant
    #[arg(long, value_name = "HOW", default_value = "poisson")]
    pub(super) arrival: Arrival,

    /// Think time between an answer and the next request; exp:TIME draws it without memory
    #[arg(long, value_name = "TIME", value_parser = think, default_value = "0s", conflicts_with_all = ["rate", "ladder", "multiclient"])]
    pub(super) think: Think,

    /// Requests that a connection may have on their way
    #[arg(long, value_name = "N", default_value = "1", conflicts_with_all = ["sessions", "multiclient"])]
    pub(super) pipeline: usize,

    /// Shares of the commands
    #[arg(long, value_name = "SHARES", default_value = "show=1,buy=1,sell=1")]
    pub(super) mix: Mix,

    /// Which stocks: uniform, zipf:S, hot:SHARE (one stock has this share)
    #[arg(long, value_name = "HOW", default_value = "uniform")]
    pub(super) skew: Skew,

    /// Counts of orders are from 1 to this
    #[arg(long, value_name = "N", default_value = "10")]
    pub(super) count: u32,

    /// How long requests are sent
    #[arg(long, short, value_name = "TIME", value_parser = time, default_value = "10s", conflicts_with = "multiclient")]
    pub(super) duration: Duration,

    /// Requests at most
    #[arg(long, value_name = "N", conflicts_with = "multiclient")]
    pub(super) requests: Option<u64>,

    /// What begins earlier is not counted
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s", conflicts_with = "multiclient")]
    pub(super) warm_up: Duration,

    /// Time until all connections, or the whole rate, are there
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s", conflicts_with = "multiclient")]
    pub(super) ramp: Duration,

    /// An answer that takes longer is given up
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    pub(super) timeout: Duration,

    /// Threads of the load
    #[arg(long, short, value_name = "N", default_value = "1", conflicts_with = "multiclient")]
    pub(super) threads: usize,

    /// Processors that they are held to, in turn
    #[arg(long, value_name = "CPU,…", value_delimiter = ',', conflicts_with = "multiclient")]
    pub(super) cpus: Vec<u32>,

    /// Where all random numbers come from
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) random: u64,

    /// Name that clients of v2 give themselves, followed by their number
    #[arg(long, value_name = "NAME", conflicts_with = "multiclient")]
    pub(super) name: Option<String>,

    /// Show the server the word in this file; with v2 and resp
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,

    /// Speak TLS; the server proves who it is to the authorities of this system, or to --tls-ca
    #[arg(long)]
    pub(super) tls: bool,

    /// Certificates (PEM) that decide whether the server is who it should be
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(super) tls_ca: Option<PathBuf>,

    /// Name that its certificate must have [default: the address]
    #[arg(long, value_name = "NAME", requires = "tls")]
    pub(super) tls_name: Option<String>,

    /// The original client, so many times
    #[arg(long, value_name = "N")]
    pub(super) multiclient: Option<usize>,

    /// Orders of each original client
    #[arg(long, value_name = "N", default_value = "10", requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    pub(super) orders: u32,

    /// Its sleep after each order
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s", requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    pub(super) sleep: Duration,

    /// Divide that sleep
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000), requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    pub(super) divide: u32,

    /// The server has so many threads that each serve one client until it ends: for the law
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    pub(super) pool: Option<u32>,

    /// Keep every request for a check of the history; at most 100 000 requests unless --requests says
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ladder", "multiclient"])]
    pub(super) history: Option<PathBuf>,

    /// Check a kept history instead: can one order after the other explain every answer?
    #[arg(long, value_name = "FILE", conflicts_with_all = ["history", "multiclient", "null_server"])]
    pub(super) check: Option<PathBuf>,

    /// The same load against a server that only answers, and without any server
    #[arg(long)]
    pub(super) floors: bool,

    /// Be that server, at ADDRESS:PORT, until interrupted
    #[arg(long)]
    pub(super) null_server: bool,

    /// Others order at the same time: do not compare the stocks at the end
    #[arg(long)]
    pub(super) shared: bool,

    /// Tell a result in which the load was the bottleneck, as what it is
    #[arg(long)]
    pub(super) anyway: bool,

    /// The server may be on another machine
    #[arg(long)]
    pub(super) remote: bool,

    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
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
