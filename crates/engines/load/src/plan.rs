//! What a load is: how requests arise, how many, how fast, and of what.
//!
//! Connections, rate and think time are three numbers. A closed loop has a fixed crowd that waits for
//! each answer; an open one has arrivals that wait for nobody; a partly open one has arrivals of
//! sessions, each a small closed loop. The same server under the same rate answers them very
//! differently (Schroeder, 2006), so a result names its loop.

use crate::error::LoadError;
use ioloom_tls::Trust;
use serde::Serialize;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// Connections that one run may have, whatever open files allow.
pub const CONNECTIONS_MAX: usize = 65_536;
/// Longest run.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// How the server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Lines; every answer is 8192 bytes, as the original clients read them.
    Padded,
    /// Lines; every answer is its lines.
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
            _ => return Err("choose one of padded, line, v2, resp".to_owned()),
        })
    }
}

/// How long a client thinks between an answer and its next request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Think {
    /// Not at all.
    #[default]
    None,
    /// Always as long.
    Constant(Duration),
    /// Without memory, with this mean.
    Exponential(Duration),
}

/// How arrivals follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// At equal distances.
    Constant,
    /// Without memory.
    Poisson,
}

impl FromStr for Arrival {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => Err("choose constant or poisson".to_owned()),
        }
    }
}

/// How requests arise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Each connection waits for its answer, thinks, and asks again.
    Closed {
        /// How long it thinks.
        think: Think,
    },
    /// Requests arrive, whatever became of those before.
    Open {
        /// Arrivals per second of all connections together.
        rate_per_s: f64,
        /// How they follow each other.
        arrival: Arrival,
    },
    /// Sessions arrive; each connects, is a closed loop for some requests, and leaves.
    PartlyOpen {
        /// Arrivals of sessions per second.
        sessions_per_s: f64,
        /// How they follow each other.
        arrival: Arrival,
        /// Mean number of requests of a session; the number is geometric, at least 1.
        requests_mean: f64,
        /// How long a client thinks between its requests.
        think: Think,
    },
}

impl Pace {
    /// The word for the loop.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Closed { .. } => "closed",
            Self::Open { .. } => "open",
            Self::PartlyOpen { .. } => "partly-open",
        }
    }

    /// Arrivals per second that are asked for, and how they follow each other; of sessions in a partly
    /// open loop, and none in a closed one.
    pub(crate) fn arrivals(&self) -> Option<(f64, Arrival)> {
        match *self {
            Self::Closed { .. } => None,
            Self::Open { rate_per_s, arrival } => Some((rate_per_s, arrival)),
            Self::PartlyOpen { sessions_per_s, arrival, .. } => Some((sessions_per_s, arrival)),
        }
    }
}

/// Shares of the three commands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mix {
    /// Share of lists.
    pub show: f64,
    /// Share of purchases.
    pub buy: f64,
    /// Share of sales.
    pub sell: f64,
}

impl Default for Mix {
    /// A third each, as the original clients.
    fn default() -> Self {
        Self { show: 1.0, buy: 1.0, sell: 1.0 }
    }
}

impl FromStr for Mix {
    type Err = String;

    /// `show=1,buy=4,sell=4`; what is not named is zero.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix = Self { show: 0.0, buy: 0.0, sell: 0.0 };
        for part in text.split(',') {
            let (word, share) = part.split_once('=').unwrap_or((part, "1"));
            let share: f64 = share.parse().map_err(|_| format!("{share:?} is no number"))?;
            if !share.is_finite() || share < 0.0 {
                return Err(format!("a share is zero or more, not {share}"));
            }
            match word {
                "show" => mix.show = share,
                "buy" => mix.buy = share,
                "sell" => mix.sell = share,
                _ => return Err(format!("{word:?} is none of show, buy, sell")),
            }
        }
        if mix.show + mix.buy + mix.sell > 0.0 { Ok(mix) } else { Err("all shares are 0".into()) }
    }
}

/// Which stocks are asked for how often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Skew {
    /// All alike.
    Uniform,
    /// The k-th as `1 / k^s`.
    Zipf(f64),
    /// One stock with this share, the others alike.
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
        zipf.or_else(hot)
            .ok_or_else(|| "write uniform, zipf:S with S above 0, or hot:SHARE from 0 to 1".into())
    }
}

/// A complete load.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPlan {
    /// The server.
    pub target: SocketAddr,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// How requests arise.
    pub pace: Pace,
    /// Connections; with [`Pace::PartlyOpen`] the most at once.
    pub connections: usize,
    /// Threads that drive them.
    pub threads: usize,
    /// Requests that a connection may have on their way.
    pub pipeline: usize,
    /// Shares of the commands.
    pub mix: Mix,
    /// Shares of the stocks.
    pub skew: Skew,
    /// Counts of orders are from 1 to this.
    pub count_max: u32,
    /// How long requests are sent.
    pub duration: Duration,
    /// Requests at most.
    pub requests_max: u64,
    /// What begins earlier is not counted.
    pub warm_up: Duration,
    /// Time until all connections, or the whole rate, are there; at most the duration.
    pub ramp: Duration,
    /// An answer that takes longer is given up, with its connection.
    pub timeout: Duration,
    /// Where all random numbers come from.
    pub random: u64,
    /// Whether every request is kept for a check of the history.
    pub keep_history: bool,
    /// Name that clients of `v2` give themselves, followed by their number. Then the numbers of their
    /// orders begin at the time, so that another run under the same name repeats none.
    pub name: Option<String>,
    /// What the server wants to be shown, if anything; with `v2` and `resp`.
    pub token: Option<String>,
    /// Who is trusted to be the server, where it speaks TLS. Handshakes come before the run wherever
    /// connecting does.
    pub tls: Option<Trust>,
    /// Processors that the threads are held to, in turn, each named once; empty for any.
    pub cpus: Vec<u32>,
    /// Whether the stocks at the end must be those of the beginning and the answers between.
    pub conserve: bool,
}

impl LoadPlan {
    /// A closed loop of ten connections for ten seconds.
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
        }
    }

    /// Refuses what cannot be.
    ///
    /// # Errors
    /// The number that is out of range, and the range.
    pub fn check(&self) -> Result<(), LoadError> {
        let refuse = |why: String| Err(LoadError::Plan(why));
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return refuse(format!("connections are from 1 to {CONNECTIONS_MAX}"));
        }
        if self.threads == 0 || self.threads > self.connections.min(256) {
            return refuse(format!(
                "{} threads for {} connections: from 1 to as many as connections, at most 256",
                self.threads, self.connections
            ));
        }
        if !(1..=128).contains(&self.pipeline) {
            return refuse("requests on their way are from 1 to 128 for a connection".to_owned());
        }
        if self.pipeline > 1 && matches!(self.pace, Pace::PartlyOpen { .. }) {
            return refuse(
                "a client of a session waits for each answer; leave the pipeline out, or the sessions"
                    .to_owned(),
            );
        }
        if self.duration.is_zero() || self.duration > DURATION_MAX {
            return refuse("a run lasts longer than nothing and at most 24 hours".to_owned());
        }
        if self.warm_up >= self.duration {
            return refuse("the time that is not counted must be shorter than the run".to_owned());
        }
        if self.timeout.is_zero() || self.timeout > DURATION_MAX {
            return refuse("an answer has more time than none, and at most 24 hours".to_owned());
        }
        if self.ramp > self.duration {
            return refuse(
                "a ramp ends within the run, or its end would never be there".to_owned(),
            );
        }
        if let Some(cpu) = twice(&self.cpus) {
            return refuse(format!(
                "processor {cpu} is named twice: name each once, they are taken in turn"
            ));
        }
        if self.token.is_some() && !matches!(self.protocol, Protocol::V2 | Protocol::Resp) {
            return refuse(
                "the original protocol has no place for a token; use v2 or resp".to_owned(),
            );
        }
        let rate = match self.pace {
            Pace::Closed { .. } => 1.0,
            Pace::Open { rate_per_s, .. } => rate_per_s,
            Pace::PartlyOpen { sessions_per_s, requests_mean, .. } => {
                if !(1.0..=1e6).contains(&requests_mean) {
                    return refuse("a session has from 1 to a million requests".to_owned());
                }
                sessions_per_s
            }
        };
        if !(1e-3..=1e7).contains(&rate) {
            return refuse("a rate is from 0.001 to 10 million per second".to_owned());
        }
        if self.count_max == 0 || self.count_max > ioloom_exchange::COUNT_MAX {
            return refuse("counts of orders are from 1 to 2147483647".to_owned());
        }
        Ok(())
    }
}

/// The first number that stands in a list again.
fn twice(all: &[u32]) -> Option<u32> {
    all.iter().enumerate().find(|(at, one)| all[..*at].contains(one)).map(|(_, one)| *one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_or_refused() {
        assert_eq!("hot:0.5".parse(), Ok(Skew::Hot(0.5)));
        assert_eq!("zipf:1.2".parse(), Ok(Skew::Zipf(1.2)));
        assert_eq!("uniform".parse(), Ok(Skew::Uniform));
        for bad in ["hot", "hot:2", "zipf:0", "zipf:x", "cold"] {
            assert!(bad.parse::<Skew>().is_err(), "{bad}");
        }
        assert_eq!("buy=2,sell".parse(), Ok(Mix { show: 0.0, buy: 2.0, sell: 1.0 }));
        for bad in ["", "show=0", "buy=-1", "steal=1"] {
            assert!(bad.parse::<Mix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn plans_that_cannot_be_are_refused() {
        let plan = LoadPlan::new(([127, 0, 0, 1], 1).into());
        plan.check().unwrap();
        for change in [
            (|p: &mut LoadPlan| p.connections = 0) as fn(&mut LoadPlan),
            |p| p.threads = 11,
            |p| p.pipeline = 129,
            |p| p.duration = Duration::ZERO,
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
