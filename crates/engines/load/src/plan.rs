//! The plan of a load: how requests are generated, how many, how fast, and of which types.
//!
//! Connections, rate and think time are three separate parameters. A closed loop has a fixed number
//! of clients that wait for each answer; an open loop has arrivals that do not wait; a partly open
//! loop has session arrivals, each of which is a small closed loop. The same server at the same
//! rate performs very differently under each of them (Schroeder, 2006), so a result states its
//! loop.

use crate::commands::Commands;
use crate::error::LoadError;
use ioloom_tls::Trust;
use serde::Serialize;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of connections in a run, regardless of the open file limit.
pub const CONNECTIONS_MAX: usize = 65_536;
/// Minimum duration of a run.
const DURATION_MIN: Duration = Duration::from_millis(1);
/// Maximum duration of a run.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// Protocol used by the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Lines; every answer is padded to 8192 bytes, as the original clients expect.
    Padded,
    /// Lines; answers are not padded.
    Line,
    /// `stock/2`: numbered lines.
    V2,
    /// RESP.
    Resp,
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "padded" => Self::Padded,
            "line" => Self::Line,
            "v2" => Self::V2,
            "resp" => Self::Resp,
            _ => return Err("must be padded, line, v2 or resp".to_owned()),
        })
    }
}

/// Think time of a client between an answer and its next request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Think {
    /// No think time.
    #[default]
    None,
    /// Constant.
    Constant(Duration),
    /// Exponentially distributed with this mean.
    Exponential(Duration),
}

/// Distribution of arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// Equal intervals.
    Constant,
    /// Poisson process.
    Poisson,
}

impl FromStr for Arrival {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => Err("must be constant or poisson".to_owned()),
        }
    }
}

/// How requests are generated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Each connection waits for its answer, thinks, and sends the next request.
    Closed {
        /// Think time.
        think: Think,
    },
    /// Requests arrive independently of earlier ones.
    Open {
        /// Arrivals per second over all connections.
        rate_per_s: f64,
        /// Distribution of arrivals.
        arrival: Arrival,
    },
    /// Sessions arrive. Each one connects, runs a closed loop for a number of requests, and
    /// disconnects.
    PartlyOpen {
        /// Session arrivals per second.
        sessions_per_s: f64,
        /// Distribution of arrivals.
        arrival: Arrival,
        /// Mean number of requests per session; geometrically distributed, at least 1.
        requests_mean: f64,
        /// Think time between requests in a session.
        think: Think,
    },
}

impl Pace {
    /// Returns the name of the loop.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Closed { .. } => "closed",
            Self::Open { .. } => "open",
            Self::PartlyOpen { .. } => "partly-open",
        }
    }

    /// Returns the requested arrivals per second and their distribution: of requests in an open
    /// loop, of sessions in a partly open one. Returns `None` for a closed loop.
    pub(crate) fn arrivals(&self) -> Option<(f64, Arrival)> {
        match *self {
            Self::Closed { .. } => None,
            Self::Open { rate_per_s, arrival } => Some((rate_per_s, arrival)),
            Self::PartlyOpen { sessions_per_s, arrival, .. } => Some((sessions_per_s, arrival)),
        }
    }
}

/// Fractions of the three commands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mix {
    /// Fraction of lists.
    pub show: f64,
    /// Fraction of purchases.
    pub buy: f64,
    /// Fraction of sales.
    pub sell: f64,
}

impl Default for Mix {
    /// One third each, like the original clients.
    fn default() -> Self {
        Self { show: 1.0, buy: 1.0, sell: 1.0 }
    }
}

impl FromStr for Mix {
    type Err = String;

    /// Parses `show=1,buy=4,sell=4`; omitted commands have a fraction of zero.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix = Self { show: 0.0, buy: 0.0, sell: 0.0 };
        let mut named = Vec::new();
        for part in text.split(',') {
            let (word, share) = part.split_once('=').unwrap_or((part, "1"));
            let share: f64 = share.parse().map_err(|_| format!("{share:?} is not a number"))?;
            if !share.is_finite() || share < 0.0 {
                return Err(format!("a share must not be negative or infinite: {share}"));
            }
            if named.contains(&word) {
                return Err(format!("{word} is listed twice"));
            }
            named.push(word);
            match word {
                "show" => mix.show = share,
                "buy" => mix.buy = share,
                "sell" => mix.sell = share,
                _ => return Err(format!("unknown command {word:?}; must be show, buy or sell")),
            }
        }
        let sum = mix.show + mix.buy + mix.sell;
        if !sum.is_finite() {
            return Err("the sum of the shares is too large".into());
        }
        if sum > 0.0 { Ok(mix) } else { Err("at least one share must be above 0".into()) }
    }
}

/// Distribution of orders over stocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Skew {
    /// Uniform.
    Uniform,
    /// The k-th stock with weight `1 / k^s`.
    Zipf(f64),
    /// One stock with this fraction, the others uniformly.
    Hot(f64),
}

impl FromStr for Skew {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |word: &str| text.strip_prefix(word)?.parse::<f64>().ok();
        if text == "uniform" {
            return Ok(Self::Uniform);
        }
        let zipf = number("zipf:").filter(|s| *s > 0.0 && s.is_finite()).map(Self::Zipf);
        let hot = || number("hot:").filter(|share| (0.0..=1.0).contains(share)).map(Self::Hot);
        zipf.or_else(hot).ok_or_else(|| {
            "must be uniform, zipf:S with S above 0, or hot:SHARE with SHARE from 0 to 1".into()
        })
    }
}

/// A complete load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPlan {
    /// Server address.
    pub target: SocketAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// How requests are generated.
    pub pace: Pace,
    /// Number of connections; with [`Pace::PartlyOpen`], the maximum.
    pub connections: usize,
    /// Number of threads.
    pub threads: usize,
    /// Maximum number of requests in flight per connection.
    pub pipeline: usize,
    /// Fractions of the commands.
    pub mix: Mix,
    /// Distribution over stocks.
    pub skew: Skew,
    /// Maximum number of shares per order; the minimum is 1.
    pub count_max: u32,
    /// How long to send requests.
    pub duration: Duration,
    /// Maximum number of requests.
    pub requests_max: u64,
    /// Time before which requests are not counted.
    pub warm_up: Duration,
    /// Time until all connections, or the full rate, are reached; at most the duration.
    pub ramp: Duration,
    /// Timeout for an answer; after a timeout the connection is closed.
    pub timeout: Duration,
    /// Seed of all random numbers.
    pub random: u64,
    /// Whether to record every request for a history check.
    pub keep_history: bool,
    /// Name of `v2` clients, to which their index is appended. Order numbers then start at the
    /// current time to ensure that another run under the same name does not repeat any.
    pub name: Option<String>,
    /// Token for the server, if any; requires `v2` or `resp`.
    pub token: Option<String>,
    /// Trust anchor, if the server uses TLS. Handshakes take place when connections are opened.
    pub tls: Option<Trust>,
    /// Processors to which the threads are pinned in rotation, without duplicates; empty for any.
    pub cpus: Vec<u32>,
    /// Whether the final stocks must match the initial stocks and the answers.
    pub conserve: bool,
    /// Commands to send instead of orders and lists, if any; requires `resp`.
    pub commands: Option<Arc<Commands>>,
}

impl LoadPlan {
    /// Creates a ten-second closed loop with ten connections.
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            protocol: Protocol::Padded,
            pace: Pace::Closed { think: Think::None },
            connections: 10,
            threads: 1,
            pipeline: 1,
            mix: Mix::default(),
            skew: Skew::Uniform,
            count_max: 10,
            duration: Duration::from_secs(10),
            requests_max: u64::MAX,
            warm_up: Duration::ZERO,
            ramp: Duration::ZERO,
            timeout: Duration::from_secs(10),
            random: 1,
            keep_history: false,
            name: None,
            token: None,
            tls: None,
            cpus: Vec::new(),
            conserve: true,
            commands: None,
        }
    }

    /// Rejects a commands file that does not fit the plan.
    fn check_commands(&self) -> Result<(), LoadError> {
        let Some(commands) = &self.commands else { return Ok(()) };
        if self.protocol != Protocol::Resp || self.keep_history || self.name.is_some() {
            return Err(LoadError::Plan(
                "a commands file requires the protocol resp, without a history or a name"
                    .to_owned(),
            ));
        }
        let Mix { show, buy, sell } = self.mix;
        commands.missing(show, buy, sell).map_or(Ok(()), |kind| {
            Err(LoadError::Plan(format!(
                "the commands file has no command for '{kind}'; add one, or exclude it with --mix"
            )))
        })
    }

    /// Rejects a plan that is too short or too long.
    fn check_times(&self) -> Result<(), LoadError> {
        let refuse = |why: &str| Err(LoadError::Plan(why.to_owned()));
        if !(DURATION_MIN..=DURATION_MAX).contains(&self.duration) {
            return refuse("the duration must be between 1 ms and 24 hours");
        }
        if self.requests_max == 0 {
            return refuse("the maximum number of requests must be at least 1");
        }
        if self.warm_up >= self.duration {
            return refuse("the warm-up must be shorter than the run");
        }
        if self.timeout.is_zero() || self.timeout > DURATION_MAX {
            return refuse("the timeout must be greater than 0 and at most 24 hours");
        }
        if self.ramp > self.duration {
            return refuse("the ramp must not be longer than the run");
        }
        Ok(())
    }

    /// Rejects a client name that the protocol does not support.
    fn check_name(&self) -> Result<(), LoadError> {
        let Some(name) = &self.name else { return Ok(()) };
        if self.protocol != Protocol::V2 {
            return Err(LoadError::Plan("client names require the protocol v2".to_owned()));
        }
        let longest = format!("{name}-{}", self.connections.saturating_sub(1));
        if name.is_empty() || !ioloom_exchange::is_client_name(longest.as_bytes()) {
            return Err(LoadError::Plan(
                "a client name must consist of letters, digits and -_.:@/, and have at most 64 \
                 characters with the connection number"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Rejects an invalid plan.
    ///
    /// # Errors
    /// Returns the value that is out of range, and the range.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |why: String| Err(LoadError::Plan(why));
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return refuse(format!(
                "the number of connections must be between 1 and {CONNECTIONS_MAX}"
            ));
        }
        if self.threads == 0 || self.threads > self.connections.min(256) {
            return refuse(format!(
                "cannot use {} threads for {} connections; use between 1 and the number of \
                 connections, at most 256",
                self.threads, self.connections
            ));
        }
        if !(1..=128).contains(&self.pipeline) {
            return refuse("the pipeline depth must be between 1 and 128 requests".to_owned());
        }
        if self.pipeline > 1 && matches!(self.pace, Pace::PartlyOpen { .. }) {
            return refuse(
                "session clients wait for each answer; use either a pipeline or sessions"
                    .to_owned(),
            );
        }
        self.check_times()?;
        self.check_name()?;
        if let Some(cpu) = first_duplicate(&self.cpus) {
            return refuse(format!(
                "processor {cpu} is listed twice; list each one once (threads use them in rotation)"
            ));
        }
        if self.token.is_some() && !matches!(self.protocol, Protocol::V2 | Protocol::Resp) {
            return refuse(
                "the original protocol does not support tokens; use v2 or resp".to_owned(),
            );
        }
        self.check_commands()?;
        let rate = match self.pace {
            Pace::Closed { .. } => 1.0,
            Pace::Open { rate_per_s, .. } => rate_per_s,
            Pace::PartlyOpen { sessions_per_s, requests_mean, .. } => {
                if !(1.0..=1e6).contains(&requests_mean) {
                    return refuse(
                        "the mean number of requests per session must be between 1 and 1000000"
                            .to_owned(),
                    );
                }
                sessions_per_s
            }
        };
        if !(1e-3..=1e7).contains(&rate) {
            return refuse("the rate must be between 0.001 and 10000000 per second".to_owned());
        }
        if self.count_max == 0 || self.count_max > ioloom_exchange::COUNT_MAX {
            return refuse(
                "the maximum count of an order must be between 1 and 2147483647".to_owned(),
            );
        }
        Ok(())
    }
}

/// Returns the first duplicate in a list.
fn first_duplicate(all: &[u32]) -> Option<u32> {
    all.iter().enumerate().find(|(at, one)| all[..*at].contains(one)).map(|(_, one)| *one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parsed_or_rejected() {
        assert_eq!("hot:0.5".parse(), Ok(Skew::Hot(0.5)));
        assert_eq!("zipf:1.2".parse(), Ok(Skew::Zipf(1.2)));
        assert_eq!("uniform".parse(), Ok(Skew::Uniform));
        for bad in ["hot", "hot:2", "zipf:0", "zipf:x", "cold"] {
            assert!(bad.parse::<Skew>().is_err(), "{bad}");
        }
        assert_eq!("buy=2,sell".parse(), Ok(Mix { show: 0.0, buy: 2.0, sell: 1.0 }));
        for bad in ["", "show=0", "buy=-1", "steal=1", "show=1e308,buy=1e308", "show=1,show=3"] {
            assert!(bad.parse::<Mix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn invalid_plans_are_rejected() {
        let plan = LoadPlan::new(([127, 0, 0, 1], 1).into());
        plan.check().unwrap();
        let name = Some("a".repeat(62));
        LoadPlan { protocol: Protocol::V2, name, ..plan.clone() }.check().unwrap();
        for change in [
            (|p: &mut LoadPlan| p.connections = 0) as fn(&mut LoadPlan),
            |p| p.threads = 11,
            |p| p.pipeline = 129,
            |p| p.duration = Duration::ZERO,
            |p| p.duration = Duration::from_nanos(1),
            |p| p.requests_max = 0,
            |p| p.name = Some("a".to_owned()),
            |p| (p.protocol, p.name) = (Protocol::V2, Some("f o".to_owned())),
            |p| (p.protocol, p.name) = (Protocol::V2, Some("a".repeat(63))),
            |p| (p.protocol, p.name) = (Protocol::V2, Some(String::new())),
            |p| p.warm_up = p.duration,
            |p| p.count_max = 0,
            |p| p.timeout = Duration::ZERO,
            |p| p.timeout = DURATION_MAX * 2,
            |p| p.ramp = p.duration * 2,
            |p| p.cpus = vec![0, 1, 0],
            |p| p.token = Some("correct-horse-battery".to_owned()),
            |p| p.pace = Pace::Open { rate_per_s: 0.0, arrival: Arrival::Poisson },
            |p| {
                p.pipeline = 2;
                p.pace = Pace::PartlyOpen {
                    sessions_per_s: 1.0,
                    arrival: Arrival::Poisson,
                    requests_mean: 2.0,
                    think: Think::None,
                };
            },
        ] {
            let mut bad = plan.clone();
            change(&mut bad);
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
