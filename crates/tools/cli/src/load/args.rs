//! Flags of `load`.

use clap::Args;
use ioloom_load::{Arrival, Mix, Protocol, Skew, Think};
use ioloom_model::units::parse_duration_ns;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Load a stock exchange and verify its answers
///
/// Sends orders and lists to a server of the exchange's protocol, ours or any other, and reports
/// throughput and latency. Requests arise in one of four ways:
///
/// By default the loop is closed: each connection waits for its answer, thinks, and sends again. With
/// --rate it is open: requests are due at a fixed rate whatever becomes of earlier ones, and latency
/// counts from when they were due. With --sessions it is partly open: sessions arrive, each a small
/// closed loop. --multiclient runs the original client: N clients send ten orders each and sleep a
/// second after each, next to the time that the law of this loop predicts.
///
/// Every answer is verified, and the final stocks must be the initial ones plus all answers. A run in
/// which the load generator itself was the bottleneck is refused with exit code 3; --anyway reports
/// it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom load                                    ten connections, ten seconds
  ioloom load --rate 20k --connections 64 --protocol resp
  ioloom load --ladder 1k,2k,5k,10k,20k --p99 5ms      find the knee
  ioloom load --connections 1,2,4,8,16,32        fit the law of scalability
  ioloom load --multiclient 100 --divide 10 --pool 10
  ioloom load 127.0.0.1:5000 --multiclient 10    any server of the protocol")]
pub(crate) struct LoadArgs {
    /// Server to load
    ///
    /// It must be on this machine unless --remote is given.
    #[arg(value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7004")]
    pub(super) target: SocketAddr,

    /// Protocol
    ///
    /// padded is the original with 8192-byte answers, line the original with line ends, v2 the
    /// numbered protocol stock/2, resp that of redis clients.
    #[arg(long, value_name = "WHICH", default_value = "padded")]
    pub(super) protocol: Protocol,

    /// Open connections
    ///
    /// Several numbers are run one after another, and from four on the law of scalability is fitted.
    #[arg(
        long,
        short,
        value_name = "N,…",
        default_value = "10",
        value_delimiter = ',',
        conflicts_with = "multiclient"
    )]
    pub(super) connections: Vec<usize>,

    /// Open loop: requests per second
    ///
    /// The total of all connections, such as 500 or 20k. Latency counts from when a request was due.
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with_all = ["sessions", "multiclient", "ladder"])]
    pub(super) rate: Option<f64>,

    /// Partly open loop: sessions per second
    ///
    /// Each session uses a connection for --session-requests requests.
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with_all = ["multiclient", "ladder"])]
    pub(super) sessions: Option<f64>,

    /// Mean requests per session
    ///
    /// The number is geometrically distributed.
    #[arg(long, value_name = "N", default_value = "10", requires = "sessions")]
    pub(super) session_requests: f64,

    /// Open loop at these rates
    ///
    /// Runs the rates in ascending order and stops two steps after the first that the server does not
    /// sustain. Reports the knee.
    #[arg(long, value_name = "R,…", value_parser = rate, value_delimiter = ',', conflicts_with = "multiclient")]
    pub(super) ladder: Vec<f64>,

    /// Latency limit of --ladder
    ///
    /// A rate counts as sustained if its 99th percentile stays within this limit.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10ms", requires = "ladder", conflicts_with_all = ["rate", "sessions", "multiclient"])]
    pub(super) p99: Duration,

    /// Arrival process
    ///
    /// poisson or constant. Poisson arrivals are independent, as those of many users are; constant ones
    /// are evenly spaced.
    #[arg(long, value_name = "HOW", default_value = "poisson")]
    pub(super) arrival: Arrival,

    /// Think time of a closed loop
    ///
    /// Time between an answer and the next request. exp:TIME: exponentially distributed.
    #[arg(long, value_name = "TIME", value_parser = think, default_value = "0s", conflicts_with_all = ["rate", "ladder", "multiclient"])]
    pub(super) think: Think,

    /// Requests in flight per connection
    ///
    /// More than one needs a server that pipelines.
    #[arg(long, value_name = "N", default_value = "1", conflicts_with_all = ["sessions", "multiclient"])]
    pub(super) pipeline: usize,

    /// Mix of commands
    ///
    /// Relative weights, such as show=1,buy=2,sell=2.
    #[arg(long, value_name = "SHARES", default_value = "show=1,buy=1,sell=1")]
    pub(super) mix: Mix,

    /// Distribution of stocks
    ///
    /// uniform, zipf:S with exponent S, or hot:SHARE, where one stock gets this share of all orders.
    #[arg(long, value_name = "HOW", default_value = "uniform")]
    pub(super) skew: Skew,

    /// Largest order
    ///
    /// Order sizes are uniform from 1 to N.
    #[arg(long, value_name = "N", default_value = "10")]
    pub(super) count: u32,

    /// Duration of a run
    ///
    /// Each step of a ladder lasts this long.
    #[arg(long, short, value_name = "TIME", value_parser = time, default_value = "10s", conflicts_with = "multiclient")]
    pub(super) duration: Duration,

    /// Limit on requests
    ///
    /// The run ends at this number or at the end of --duration.
    #[arg(long, value_name = "N", conflicts_with = "multiclient")]
    pub(super) requests: Option<u64>,

    /// Exclude the first TIME
    ///
    /// Requests that begin within this time are sent but not counted.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s", conflicts_with = "multiclient")]
    pub(super) warm_up: Duration,

    /// Ramp up over TIME
    ///
    /// The number of connections or the rate grows linearly. Steps of a ladder need a --warm-up of at
    /// least this length.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s", conflicts_with = "multiclient")]
    pub(super) ramp: Duration,

    /// Time out an answer after TIME
    ///
    /// A timed-out connection is closed and counted.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    pub(super) timeout: Duration,

    /// Threads of the load generator
    ///
    /// At most one per connection. Use more if the load generator is the bottleneck.
    #[arg(long, short, value_name = "N", default_value = "1", conflicts_with = "multiclient")]
    pub(super) threads: usize,

    /// Pin threads to these processors
    ///
    /// Assigned round-robin. A thread that has a processor to itself busy-waits for requests that are
    /// due soon.
    #[arg(long, value_name = "CPU,…", value_delimiter = ',', conflicts_with = "multiclient")]
    pub(super) cpus: Vec<u32>,

    /// Random seed
    ///
    /// The same seed gives the same requests.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) random: u64,

    /// Client name prefix of v2
    ///
    /// Followed by the number of the connection.
    #[arg(long, value_name = "NAME", conflicts_with = "multiclient")]
    pub(super) name: Option<String>,

    /// Send the token in this file
    ///
    /// For servers with --token-file; with the protocols v2 and resp.
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,

    /// Connect with TLS
    ///
    /// The certificate is checked against the authorities of this system, or those of --tls-ca.
    #[arg(long)]
    pub(super) tls: bool,

    /// Trusted certificates (PEM)
    ///
    /// They replace the authorities of this system.
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(super) tls_ca: Option<PathBuf>,

    /// Expected name in the certificate
    ///
    /// Default: the address of the server.
    #[arg(long, value_name = "NAME", requires = "tls")]
    pub(super) tls_name: Option<String>,

    /// Run N original clients
    ///
    /// Each sends --orders orders and sleeps --sleep after each.
    #[arg(long, value_name = "N")]
    pub(super) multiclient: Option<usize>,

    /// Orders per original client
    ///
    /// Only with --multiclient.
    #[arg(long, value_name = "N", default_value = "10", requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    pub(super) orders: u32,

    /// Sleep after each order
    ///
    /// Only with --multiclient.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s", requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    pub(super) sleep: Duration,

    /// Divide the sleep by N
    ///
    /// 1 to 1000000. Shortens the run without changing what is compared.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000), requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    pub(super) divide: u32,

    /// Server threads, for the law
    ///
    /// For servers whose threads each serve one client until it ends, such as the model pool.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "multiclient", conflicts_with_all = ["rate", "sessions", "ladder"])]
    pub(super) pool: Option<u32>,

    /// Record a history
    ///
    /// Every request and answer is written to FILE for --check. Limited to 100000 requests unless
    /// --requests is given.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ladder", "multiclient"])]
    pub(super) history: Option<PathBuf>,

    /// Check a recorded history
    ///
    /// Searches a sequential order of all requests that explains every answer (linearizability). Exit
    /// code 1 if there is none, 3 if the search hit its bound.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["history", "multiclient", "null_server"])]
    pub(super) check: Option<PathBuf>,

    /// Also measure baselines
    ///
    /// Runs the same load against a null server, and without any server. It shows what the load
    /// generator costs.
    #[arg(long)]
    pub(super) floors: bool,

    /// Run as the null server
    ///
    /// Answers every request at ADDRESS:PORT without doing anything, until interrupted.
    #[arg(long)]
    pub(super) null_server: bool,

    /// Do not compare final stocks
    ///
    /// For servers that other clients use at the same time.
    #[arg(long)]
    pub(super) shared: bool,

    /// Report results despite a bottleneck
    ///
    /// A result in which the load generator was the bottleneck is a lower bound for the server.
    #[arg(long)]
    pub(super) anyway: bool,

    /// Permit a server on another machine
    ///
    /// Load only servers that are yours.
    #[arg(long)]
    pub(super) remote: bool,

    /// Print one JSON document
    ///
    /// As described in docs/json.md.
    #[arg(long)]
    pub(super) json: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => text.strip_suffix('M').map_or((text, 1.0), |digits| (digits, 1e6)),
    };
    let rate = digits.parse::<f64>().map_err(|_| "must be a rate such as 500 or 20k")? * factor;
    if (1e-3..=1e7).contains(&rate) { Ok(rate) } else { Err("must be 0.001 to 10M".to_owned()) }
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
