//! The arms: which server runs at which level under which load.

use crate::Cli;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Default models of the part `tail`: all except `iterative`, which serves one connection after
/// another and has no meaningful throughput with several clients.
pub(crate) const MODELS: &str = "thread,pool,request-pool,select,poll,epoll,epoll-et,reuseport,\
     io-threads,uring,uring-multishot,uring-per-core,tokio";
/// Number of connections in parts with a fixed number of clients.
const CROWD: u32 = 64;
/// Number of active connections in addition to idle ones.
const BESIDE_IDLE: u32 = 16;

/// The parts to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// Compare the exchange with redis.
    Redis,
    /// Compare the exchange's levels with each other and with the group commit law.
    Levels,
    /// Compare the exchange with and without idle connections.
    Idle,
    /// Measure the tail latencies of each model at 70 % of its throughput.
    Tail,
}

/// The point at which an order counts as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Level {
    /// Memory only.
    None,
    /// When it has been passed to the kernel.
    Os,
    /// When it is on disk, synced together with other orders.
    Group,
    /// When it is on disk, synced individually.
    Each,
}

impl Level {
    /// Returns the value of our `--durability`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Os => "os",
            Self::Group => "group",
            Self::Each => "each",
        }
    }

    /// Returns `appendonly` and `appendfsync` of redis. `always` syncs once for all commands of an
    /// event loop iteration before answering them, like our `group`.
    pub(crate) fn of_redis(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("no", "no"),
            Self::Os => ("yes", "no"),
            Self::Group | Self::Each => ("yes", "always"),
        }
    }
}

/// A server and its request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Server {
    /// The exchange, started with these arguments and the arguments for the level.
    Ours(Vec<String>),
    /// redis with DECRBY.
    Decrby,
    /// redis with a script that checks the stock first.
    Evalsha,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arm {
    pub(crate) part: Part,
    pub(crate) name: String,
    pub(crate) server: Server,
    pub(crate) level: Level,
    pub(crate) connections: u32,
    pub(crate) pipeline: u32,
    /// Idle connections.
    pub(crate) idle: u32,
    /// Number of requests per run; 0 if a run has a duration instead.
    pub(crate) requests: u64,
}

impl Arm {
    /// Returns whether it is in the same cell as another arm: same level and load.
    pub(crate) fn shares_cell_with(&self, other: &Self) -> bool {
        (self.part, self.level, self.connections, self.pipeline)
            == (other.part, other.level, other.connections, other.pipeline)
    }

    /// Returns the display name.
    pub(crate) fn title(&self) -> String {
        let idle = if self.idle > 0 { format!(" idle {}", self.idle) } else { String::new() };
        let Self { name, connections, pipeline, .. } = self;
        format!("{name} {} c{connections} P{pipeline}{idle}", self.level.word())
    }
}

/// One of our commands with its name.
fn ours_of(template: &str) -> Result<(String, Vec<String>)> {
    let (name, command) =
        template.split_once('=').with_context(|| format!("'{template}' is not NAME=COMMAND"))?;
    let words = shlex::split(command).with_context(|| format!("cannot split '{command}'"))?;
    ensure!(words.len() >= 2, "'{template}' should be NAME=PROGRAM serve, with flags if any");
    Ok((name.to_owned(), words))
}

/// Returns all arms, and the reasons why some are missing.
pub(crate) fn all(cli: &Cli) -> Result<Vec<Arm>> {
    let ours = cli.ours.iter().map(|text| ours_of(text)).collect::<Result<Vec<_>>>()?;
    let first = ours.first().context("give --ours")?;
    ensure!(cli.blocks > 0 && cli.seconds > 0.0, "blocks and seconds must be above 0");
    let mut arms = Vec::new();
    for part in &cli.parts {
        match part {
            Part::Redis => redis_cells(cli, &ours, &mut arms)?,
            Part::Levels => levels(first, &mut arms),
            Part::Idle => ours.iter().for_each(|of| idle(of, cli.idle, &mut arms)),
            Part::Tail => tail(first, &cli.models, &mut arms)?,
        }
    }
    Ok(arms)
}

fn arm(part: Part, (name, words): &(String, Vec<String>), level: Level, connections: u32) -> Arm {
    Arm {
        part,
        name: name.clone(),
        server: Server::Ours(words.clone()),
        level,
        connections,
        pipeline: 1,
        idle: 0,
        requests: 0,
    }
}

fn redis_cells(cli: &Cli, ours: &[(String, Vec<String>)], arms: &mut Vec<Arm>) -> Result<()> {
    for level in &cli.levels {
        if *level == Level::Each {
            bail!(
                "redis has no level each: with appendfsync always a turn has one sync; use group"
            );
        }
        for connections in &cli.connections {
            for pipeline in &cli.pipeline {
                ensure!(
                    *connections > 0 && *pipeline > 0,
                    "connections and pipeline must be above 0"
                );
                let cell = |of: &(String, Vec<String>)| Arm {
                    pipeline: *pipeline,
                    ..arm(Part::Redis, of, *level, *connections)
                };
                arms.extend(ours.iter().map(cell));
                let peer = |name: &str, server| Arm {
                    name: name.to_owned(),
                    server,
                    ..cell(&(String::new(), Vec::new()))
                };
                arms.push(peer("redis DECRBY", Server::Decrby));
                arms.push(peer("redis EVALSHA", Server::Evalsha));
            }
        }
    }
    Ok(())
}

fn levels(ours: &(String, Vec<String>), arms: &mut Vec<Arm>) {
    for level in [Level::None, Level::Os, Level::Group, Level::Each] {
        arms.push(arm(Part::Levels, ours, level, CROWD));
    }
    for connections in [1, 16] {
        arms.push(arm(Part::Levels, ours, Level::Group, connections));
    }
}

fn idle(ours: &(String, Vec<String>), idle: u32, arms: &mut Vec<Arm>) {
    for idle in [0, idle] {
        arms.push(Arm { idle, ..arm(Part::Idle, ours, Level::None, BESIDE_IDLE) });
    }
}

fn tail(ours: &(String, Vec<String>), models: &[String], arms: &mut Vec<Arm>) -> Result<()> {
    for model in models {
        if model == "iterative" {
            bail!("the iterative server serves one connection after the other; leave it out");
        }
        let mut words = ours.1.clone();
        words.extend(["--model".to_owned(), model.clone()]);
        if model == "pool" {
            // A connection occupies its thread until it closes, and a few carry other requests.
            words.extend(["--threads".to_owned(), (CROWD + 4).to_string()]);
        }
        arms.push(arm(Part::Tail, &(model.clone(), words), Level::None, CROWD));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn cli(more: &[&str]) -> Cli {
        let words = ["serve_versus", "--out", "o", "--scratch", "s", "--ours", "a=x serve"];
        Cli::parse_from(words.iter().chain(more))
    }

    #[test]
    fn each_cell_has_both_servers() {
        let arms = all(&cli(&["--parts", "redis", "--ours", "b=x serve --model uring"])).unwrap();
        assert_eq!(arms.len(), 3 * 3 * 2 * 4);
        for arm in &arms {
            let same: Vec<_> = arms.iter().filter(|other| arm.shares_cell_with(other)).collect();
            assert_eq!(same.len(), 4, "{}", arm.title());
            assert_eq!(same.iter().filter(|b| matches!(b.server, Server::Ours(_))).count(), 2);
        }
        let uring = arms.iter().find(|arm| arm.name == "b").unwrap();
        let words = ["x", "serve", "--model", "uring"].map(str::to_owned).to_vec();
        assert_eq!(uring.server, Server::Ours(words));
    }

    #[test]
    fn what_has_no_counterpart_is_refused() {
        assert!(all(&cli(&["--levels", "each"])).unwrap_err().to_string().contains("level each"));
        assert!(all(&cli(&["--models", "iterative"])).is_err());
        assert!(all(&cli(&["--ours", "nothing"])).is_err());
        let arms = all(&cli(&["--parts", "idle,tail", "--models", "pool", "--idle", "7"])).unwrap();
        assert_eq!(arms.iter().map(|arm| arm.idle).collect::<Vec<_>>(), [0, 7, 0]);
    }
}
