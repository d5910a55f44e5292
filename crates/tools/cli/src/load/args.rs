//! Flags of `load`.

use crate::values;
use clap::Args;
use ioloom_load::{Arrival, Mix, Protocol, Skew, Think};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Flags and operands that have no effect with `--check`, which loads no server.
const LOADING: [&str; 39] = [
    "target",
    "commands",
    "protocol",
    "connections",
    "rate",
    "sessions",
    "session_requests",
    "ladder",
    "p99",
    "arrival",
    "think",
    "pipeline",
    "mix",
    "skew",
    "count",
    "duration",
    "requests",
    "warm_up",
    "ramp",
    "timeout",
    "threads",
    "cpus",
    "random",
    "name",
    "token_file",
    "tls",
    "tls_ca",
    "tls_name",
    "multiclient",
    "orders",
    "sleep",
    "divide",
    "pool",
    "history",
    "floors",
    "null_server",
    "shared",
    "anyway",
    "remote",
];

/// Flags that have no effect with `--multiclient`. The flags that need it conflict with them, too: clap does
/// not require a flag that conflicts with another one.
const NOT_MULTICLIENT: [&str; 18] = [
    "commands",
    "connections",
    "rate",
    "sessions",
    "session_requests",
    "ladder",
    "p99",
    "think",
    "pipeline",
    "duration",
    "requests",
    "warm_up",
    "ramp",
    "threads",
    "cpus",
    "name",
    "history",
    "null_server",
];

/// Flags that have no effect with `--ladder`, apart from those of `--multiclient`.
const NOT_LADDER: [&str; 6] =
    ["rate", "sessions", "session_requests", "think", "history", "null_server"];

/// Flags that have no effect with `--sessions`, apart from those of `--multiclient` and `--ladder`.
const NOT_SESSIONS: [&str; 2] = ["rate", "pipeline"];

/// Load a stock exchange and verify its answers
///
/// Sends orders and list requests to `ioloom serve` or any other server of the exchange protocol and
/// reports throughput and latency. There are four ways to generate requests:
///
/// By default, in a closed loop: each connection waits for an answer, thinks, and sends the next
/// request. With --rate, in an open loop: requests are due at a fixed average rate, even if earlier
/// ones are unanswered, and latency is measured from the due time. With --sessions, in a partly open
/// loop: sessions arrive at a rate, and each is a short closed loop. With --multiclient, like the
/// original client: N clients send ten orders each and sleep one second after every order; the report
/// compares the elapsed time with the prediction.
///
/// Every answer is verified, and the final stocks must match the initial stocks and all answers. The
/// exit code is 1 if they do not, if an answer is wrong, or if more than 1 % of the requests are not
/// answered (with --multiclient, any). If the load generator itself was the bottleneck, the result is rejected with exit code 3 unless
/// --anyway is given.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom load                                    ten connections for ten seconds
  ioloom load --rate 20k --connections 64 --protocol resp
  ioloom load --ladder 1k,2k,5k,10k,20k --p99 5ms      find the knee
  ioloom load --connections 1,2,4,8,16,32        fit the scalability law
  ioloom load --multiclient 100 --divide 10 --pool 10
  ioloom load 127.0.0.1:5000 --multiclient 10    load any compatible server")]
pub(crate) struct LoadArgs {
    /// Server to load
    ///
    /// Must be on this machine unless --remote is given.
    #[arg(value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7004")]
    pub(super) target: SocketAddr,

    /// Send other commands
    ///
    /// Needs --protocol resp. Sends the commands in FILE instead of orders and lists, to compare other servers, such as
    /// Redis, under the same load. Lines: show COMMAND, buy COMMAND, sell COMMAND; stocks N (default
    /// 10); prepare COMMAND, sent once per stock before the load; script NAME TEXT, loaded with SCRIPT
    /// LOAD. {stock} and {count} in commands are replaced by numbers, and {NAME} by the digest of a
    /// script. Errors count as wrong answers; other answers are not verified.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["history", "floors"])]
    pub(super) commands: Option<PathBuf>,

    /// Protocol
    ///
    /// padded is the original protocol with 8192-byte answers, line the original with newlines, v2 the
    /// numbered protocol stock/2, and resp that of Redis clients.
    #[arg(long, value_name = "WHICH", default_value = "padded", hide_possible_values = true,
          value_parser = values::choice([
              ("padded", Protocol::Padded),
              ("line", Protocol::Line),
              ("v2", Protocol::V2),
              ("resp", Protocol::Resp),
          ]))]
    pub(super) protocol: Protocol,

    /// Number of connections
    ///
    /// A list runs one load per number, even if a number is repeated. With four or more different numbers
    /// the universal scalability law is fitted to the results.
    #[arg(long, short, value_name = "N,…", default_value = "10", value_delimiter = ',')]
    pub(super) connections: Vec<usize>,

    /// Open loop: requests per second
    ///
    /// The total for all connections, such as 500 or 20k. Latency is measured from the due time of each
    /// request.
    #[arg(long, value_name = "R", value_parser = rate)]
    pub(super) rate: Option<f64>,

    /// Partly open loop: sessions per second
    ///
    /// Each session sends --session-requests requests on one connection.
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with_all = NOT_SESSIONS)]
    pub(super) sessions: Option<f64>,

    /// Mean requests per session
    ///
    /// The number of requests is geometrically distributed.
    #[arg(long, value_name = "N", default_value = "10", requires = "sessions", conflicts_with_all = NOT_SESSIONS)]
    pub(super) session_requests: f64,

    /// Open loop at several rates
    ///
    /// Runs the rates in ascending order, stops after two unsustained rates in a row, and reports the
    /// knee: the highest sustained rate.
    #[arg(long, value_name = "R,…", value_parser = rate, value_delimiter = ',', conflicts_with_all = NOT_LADDER)]
    pub(super) ladder: Vec<f64>,

    /// Latency limit of --ladder
    ///
    /// A rate counts as sustained only if the 99th percentile of its latency is within this limit.
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "10ms", requires = "ladder", conflicts_with_all = NOT_LADDER)]
    pub(super) p99: Duration,

    /// Arrival process
    ///
    /// poisson arrivals are independent of each other, like those of many users; constant arrivals are
    /// evenly spaced.
    #[arg(long, value_name = "HOW", default_value = "poisson", hide_possible_values = true,
          value_parser = values::choice([
              ("poisson", Arrival::Poisson),
              ("constant", Arrival::Constant),
          ]))]
    pub(super) arrival: Arrival,

    /// Think time of a closed loop
    ///
    /// Time between an answer and the next request. exp:TIME: exponentially distributed.
    #[arg(long, value_name = "TIME", value_parser = think, default_value = "0s", conflicts_with = "rate")]
    pub(super) think: Think,

    /// Requests in flight per connection
    ///
    /// Values above 1 need a server that supports pipelining.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) pipeline: usize,

    /// Command mix
    ///
    /// Relative weights, such as show=1,buy=2,sell=2.
    #[arg(long, value_name = "SHARES", default_value = "show=1,buy=1,sell=1")]
    pub(super) mix: Mix,

    /// Distribution of stocks
    ///
    /// uniform, zipf:S with exponent S, or hot:SHARE: a single stock gets this share of all orders.
    #[arg(long, value_name = "HOW", default_value = "uniform", hide_possible_values = true,
          value_parser = values::grammar(&["uniform", "zipf:", "hot:"], str::parse::<Skew>))]
    pub(super) skew: Skew,

    /// Maximum order size
    ///
    /// Order sizes are uniformly distributed from 1 to N.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=2_147_483_647))]
    pub(super) count: u32,

    /// Duration of each run
    ///
    /// Also the duration of each ladder step.
    #[arg(long, short, value_name = "TIME", value_parser = values::time, default_value = "10s")]
    pub(super) duration: Duration,

    /// Maximum number of requests
    ///
    /// The run stops after this many requests or after --duration, whichever comes first.
    #[arg(long, value_name = "N")]
    pub(super) requests: Option<u64>,

    /// Exclude the first TIME
    ///
    /// Requests that start within this time are sent but not counted.
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "0s")]
    pub(super) warm_up: Duration,

    /// Ramp up over TIME
    ///
    /// Increases the number of connections or the rate linearly. In a ladder, --warm-up must be at least
    /// as long.
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "0s")]
    pub(super) ramp: Duration,

    /// Time out an answer after TIME
    ///
    /// The connection is then closed and counted as timed out.
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "10s")]
    pub(super) timeout: Duration,

    /// Number of load generator threads
    ///
    /// At most one per connection. Increase it if the load generator is the bottleneck.
    #[arg(long, short, value_name = "N", default_value = "1")]
    pub(super) threads: usize,

    /// Pin threads to these processors
    ///
    /// Processors are assigned round-robin. A thread with a processor to itself busy-waits for requests
    /// due soon, which reduces timing errors.
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    pub(super) cpus: Vec<u32>,

    /// Random seed
    ///
    /// The same seed generates the same requests.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) random: u64,

    /// Client name prefix for v2
    ///
    /// Needs --protocol v2. The connection number is appended.
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,

    /// Send the token in this file
    ///
    /// The file can be that of the server: the first token is sent. Only the owner of the file may have
    /// access to it. Needs --protocol v2 or resp.
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,

    /// Connect with TLS
    ///
    /// The server certificate is verified with the system's trusted authorities or with --tls-ca.
    #[arg(long)]
    pub(super) tls: bool,

    /// Trusted certificates (PEM)
    ///
    /// Used instead of SSL_CERT_FILE and the system's trusted authorities.
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(super) tls_ca: Option<PathBuf>,

    /// Expected name in the certificate
    ///
    /// Default: the server address.
    #[arg(long, value_name = "NAME", requires = "tls")]
    pub(super) tls_name: Option<String>,

    /// Run N original clients
    ///
    /// Each sends --orders orders and sleeps for --sleep after every order.
    #[arg(long, value_name = "N", conflicts_with_all = NOT_MULTICLIENT)]
    pub(super) multiclient: Option<usize>,

    /// Orders per original client
    ///
    /// Only with --multiclient.
    #[arg(long, value_name = "N", default_value = "10", requires = "multiclient", conflicts_with_all = NOT_MULTICLIENT)]
    pub(super) orders: u32,

    /// Sleep after each order
    ///
    /// Only with --multiclient.
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "1s", requires = "multiclient", conflicts_with_all = NOT_MULTICLIENT)]
    pub(super) sleep: Duration,

    /// Divide the sleep by N
    ///
    /// From 1 to 1000000. Shortens the run; the predicted time is scaled as well.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000_000), requires = "multiclient", conflicts_with_all = NOT_MULTICLIENT)]
    pub(super) divide: u32,

    /// Server threads, for the prediction
    ///
    /// For servers in which each thread serves one client until it disconnects, such as the model pool.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "multiclient", conflicts_with_all = NOT_MULTICLIENT)]
    pub(super) pool: Option<u32>,

    /// Record a history
    ///
    /// Writes every request and answer to FILE for --check, after the run. Limited to 100000 requests
    /// unless --requests is given.
    #[arg(long, value_name = "FILE")]
    pub(super) history: Option<PathBuf>,

    /// Check a recorded history
    ///
    /// Checks linearizability: searches for a sequential order of all requests that explains every
    /// answer. The exit code is 1 if none exists and 3 if the search reached its limit.
    #[arg(long, value_name = "FILE", conflicts_with_all = LOADING)]
    pub(super) check: Option<PathBuf>,

    /// Also measure baselines
    ///
    /// Also runs the same load against a null server and without a server, to show the cost of the load
    /// generator.
    #[arg(long)]
    pub(super) floors: bool,

    /// Run as the null server
    ///
    /// Answers every request at ADDRESS:PORT without executing it, until SIGINT or SIGTERM, and
    /// then exits with 0.
    #[arg(long, conflicts_with_all = ["history", "commands", "floors", "json"])]
    pub(super) null_server: bool,

    /// Do not compare final stocks
    ///
    /// For servers used by other clients at the same time.
    #[arg(long)]
    pub(super) shared: bool,

    /// Report results despite a bottleneck
    ///
    /// Results limited by the load generator are lower bounds for the server.
    #[arg(long)]
    pub(super) anyway: bool,

    /// Permit a server on another machine
    ///
    /// Load only servers that belong to you.
    #[arg(long)]
    pub(super) remote: bool,

    /// Print one JSON document
    ///
    /// The format is described in docs/reference/json.md.
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

fn think(text: &str) -> Result<Think, String> {
    match text.strip_prefix("exp:") {
        Some(mean) => values::time(mean).map(Think::Exponential),
        None => {
            values::time(text).map(|t| if t.is_zero() { Think::None } else { Think::Constant(t) })
        }
    }
}
