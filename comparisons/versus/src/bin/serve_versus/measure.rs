//! Runs the blocks: each arm once per block, in an order drawn before the first run.

use crate::arms::{self, Arm, Part, Server};
use crate::record::{Run, SCHEMA, Setup};
use crate::server::Running;
use crate::{Cli, client};
use anyhow::{Context, Result, bail, ensure};
use ioloom_sys::affinity::{self, PinnedThread};
use ioloom_sys::clock::unix_ms;
use ioloom_sys::proc;
use ioloom_versus::facts::{self, Facts};
use ioloom_versus::kept::{self, Raw, say};
use ioloom_versus::{child, order};
use serde_json::Value;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Fraction of a model's throughput at which its tail latencies are measured.
const TAIL_SHARE: f64 = 0.7;
/// Number of syncs to take the median of.
const SYNCS: usize = 41;
/// Requests per connection in the first run, which determines the number of requests.
const REHEARSAL: u64 = 32;
/// Descriptors needed in addition to idle connections.
const DESCRIPTORS_OTHER: u64 = 128;

/// Parameters of a run in addition to its arm.
struct Lab<'a> {
    cli: &'a Cli,
    /// Created before each run and removed after it.
    dir: PathBuf,
    cores: (u32, u32),
}

/// Measures according to the command line. Writes README.md and the raw data to the result
/// directory.
pub(crate) fn measure(cli: &Cli, out: &Path) -> Result<()> {
    let mut arms = arms::all(cli)?;
    let scratch = cli.scratch.as_ref().context("give --scratch")?;
    ensure!(scratch.is_dir(), "{} is not a directory", scratch.display());
    let versions = versions(cli, &arms)?;
    room_for(arms.iter().map(|arm| arm.idle).max().unwrap_or(0))?;
    kept::claim(out)?;
    let allowed = affinity::allowed()?;
    let cores = (allowed[0], allowed[1 % allowed.len()]);
    let lab = Lab { cli, dir: scratch.join("serve-versus"), cores };
    say(&format!("server on processor {}, client on processor {}", cores.0, cores.1));
    let facts = Facts::of(scratch);
    let sync_ns = sync_ns(scratch)?;
    for arm in &mut arms {
        lab.calibrate(arm).with_context(|| format!("rehearsal of {}", arm.title()))?;
        say(&format!("rehearsal: {}: {} requests", arm.title(), arm.requests));
    }
    let setup = Setup {
        schema: SCHEMA.to_owned(),
        commit: cli.commit.clone().unwrap_or_else(facts::commit),
        facts,
        blocks: cli.blocks,
        seed: cli.seed,
        seconds: cli.seconds,
        cores,
        versions,
        sync_ns,
        arms,
    };
    let mut raw = Raw::create(out, &readme(&setup)?, &setup)?;
    for (block, order) in (0..).zip(order::blocks(setup.seed, setup.blocks, setup.arms.len())) {
        for index in order {
            let arm = &setup.arms[index];
            let started_unix_ms = unix_ms();
            let run = lab.run(arm, arm.requests).unwrap_or_else(|error| Run {
                failure: Some(format!("{error:#}")),
                ..Run::default()
            });
            let run = Run { block, arm: index, started_unix_ms, ..run };
            let trouble = run.failure.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            say(&format!("block {block} {}: {:.0}/s{trouble}", arm.title(), run.rate_per_s));
            raw.add(&run)?;
        }
    }
    Ok(())
}

/// Returns the program versions; an error names the package of a missing program.
fn versions(cli: &Cli, arms: &[Arm]) -> Result<Vec<String>> {
    let mut programs: Vec<(&str, Option<&str>)> = Vec::new();
    for arm in arms {
        let (program, package) = match &arm.server {
            Server::Ours(words) => (words[0].as_str(), None),
            _ => (cli.redis_server.as_str(), Some("redis-server")),
        };
        if !programs.iter().any(|(known, _)| *known == program) {
            programs.push((program, package));
        }
    }
    if arms.iter().any(|arm| arm.part != Part::Tail) {
        programs.push((&cli.redis_benchmark, Some("redis-tools")));
    }
    programs.into_iter().map(|(program, package)| version(program, package)).collect()
}

fn version(program: &str, package: Option<&str>) -> Result<String> {
    let line = facts::version(program).with_context(|| match package {
        Some(package) => format!(
            "cannot start {program}: install Debian's package {package}, or name the program with \
             --redis-server or --redis-benchmark"
        ),
        None => format!("cannot start {program}"),
    })?;
    Ok(format!("{program}: {line}"))
}

/// Rejects more idle connections than this process may open.
fn room_for(idle: u32) -> Result<()> {
    let limit = proc::raise_open_files_limit().unwrap_or_else(|_| proc::open_files_limit());
    let needed = u64::from(idle) + DESCRIPTORS_OTHER;
    if let Some(limit) = limit.filter(|limit| *limit < needed) {
        bail!(
            "{idle} silent connections need {needed} open files of one process, and the limit is \
             {limit} (RLIMIT_NOFILE, the hard one, to which this program raises its own); raise it \
             (ulimit -Hn), or use --idle {}",
            limit.saturating_sub(DESCRIPTORS_OTHER)
        );
    }
    Ok(())
}

/// Returns the median time in ns to append 4 KiB to a file and sync its data.
fn sync_ns(dir: &Path) -> Result<u64> {
    let path = dir.join("serve-versus-sync");
    let mut file = File::create(&path).context("cannot create a file in the scratch directory")?;
    let mut times = Vec::new();
    for _ in 0..SYNCS {
        let start = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok(times[SYNCS / 2])
}

impl Lab<'_> {
    /// Determines the number of requests from two short runs.
    fn calibrate(&self, arm: &mut Arm) -> Result<()> {
        if arm.part == Part::Tail {
            return self.run(arm, 0).map(drop);
        }
        let at_once = u64::from(arm.connections * arm.pipeline);
        let mut requests = at_once * REHEARSAL;
        for seconds in [self.cli.seconds / 5.0, self.cli.seconds] {
            // The client counts milliseconds, so a short run may report zero.
            let rate = self.run(arm, requests)?.rate_per_s.min(requests as f64 * 1e3);
            // Use a multiple of the requests in flight to give every client the same number.
            requests = ((rate * seconds / at_once as f64).ceil() as u64).max(4) * at_once;
        }
        arm.requests = requests;
        Ok(())
    }

    /// Runs an arm once, with a new server.
    fn run(&self, arm: &Arm, requests: u64) -> Result<Run> {
        if self.dir.exists() {
            std::fs::remove_dir_all(&self.dir).context("cannot empty the scratch directory")?;
        }
        std::fs::create_dir(&self.dir).context("cannot create the scratch directory")?;
        let mut server = Running::start(arm, &self.dir, self.cores.0, &self.cli.redis_server)?;
        let mut run = Run::default();
        let mut guests = Vec::new();
        if arm.part == Part::Idle {
            run.pss_before_bytes = Some(server.pss_bytes()?);
            guests = client::guests(server.address, arm.idle)?;
            run.pss_bytes = Some(server.pss_bytes()?);
        }
        if let (Part::Tail, Server::Ours(words)) = (arm.part, &arm.server) {
            self.tail(&server, &words[0], arm, &mut run)?;
        } else {
            self.crowd(&mut server, arm, requests, &mut run)?;
        }
        drop(guests);
        server.stop()?;
        std::fs::remove_dir_all(&self.dir).context("cannot empty the scratch directory")?;
        Ok(run)
    }

    /// Runs a client pinned to its CPU.
    fn client(&self, words: &[String]) -> Result<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let pinned = PinnedThread::pin(self.cores.1)?;
        let finished = child::run(&words, None, Duration::from_secs(self.cli.deadline_s));
        drop(pinned);
        let finished = finished?;
        match finished.failure {
            Some(failure) => bail!("the client failed: {failure}"),
            None => Ok(String::from_utf8_lossy(&finished.stdout).into_owned()),
        }
    }

    /// Loads a server with redis-benchmark and verifies the number of executed requests.
    fn crowd(&self, server: &mut Running, arm: &Arm, requests: u64, run: &mut Run) -> Result<()> {
        let mut words = vec![self.cli.redis_benchmark.clone()];
        let port = server.address.port();
        let flags = [
            ("-h", "127.0.0.1".to_owned()),
            ("-p", port.to_string()),
            ("-c", arm.connections.to_string()),
            ("-P", arm.pipeline.to_string()),
            ("-n", requests.to_string()),
        ];
        words.extend(flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        words.push("--csv".to_owned());
        words.extend(server.request.iter().cloned());
        let (left, cpu_ns) = (server.left()?, server.cpu_ns()?);
        let text = self.client(&words)?;
        run.server_cpu_ns = server.cpu_ns()?.saturating_sub(cpu_ns);
        run.requests = requests;
        (run.rate_per_s, run.p50_ms, run.p99_ms) = read_csv(&text)?;
        let taken = left - server.left()?;
        ensure!(
            u64::try_from(taken) == Ok(requests),
            "{requests} requests were sent and {taken} units are gone"
        );
        Ok(())
    }

    /// Measures a model's closed-loop throughput, and its tail latencies at a fraction of that
    /// rate.
    fn tail(&self, server: &Running, program: &str, arm: &Arm, run: &mut Run) -> Result<()> {
        let cpu_ns = server.cpu_ns()?;
        let seconds = self.cli.seconds;
        let closed = self.load(server, program, arm, seconds, None)?;
        run.server_cpu_ns = server.cpu_ns()?.saturating_sub(cpu_ns);
        run.requests = number(&closed, "/runs/0/outcomes/sent")? as u64;
        run.rate_per_s = number(&closed, "/runs/0/answered_per_s")?;
        run.p50_ms = number(&closed, "/runs/0/latency/raw/p50_ns")? / 1e6;
        run.p99_ms = number(&closed, "/runs/0/latency/raw/p99_ns")? / 1e6;
        let offered = (run.rate_per_s * TAIL_SHARE).round();
        let open = self.load(server, program, arm, seconds * 2.0, Some(offered))?;
        run.offered_per_s = Some(offered);
        run.p999_ms = Some(number(&open, "/runs/0/latency/corrected/p999_ns")? / 1e6);
        let late = open.pointer("/runs/0/generator/reason").and_then(Value::as_str);
        run.load_was_late = late.map(str::to_owned);
        Ok(())
    }

    fn load(
        &self,
        server: &Running,
        program: &str,
        arm: &Arm,
        seconds: f64,
        rate: Option<f64>,
    ) -> Result<Value> {
        let mut words = [program, "load", "--protocol", "resp", "--mix", "buy=1,sell=1", "--json"]
            .map(str::to_owned)
            .to_vec();
        words.push("--anyway".to_owned());
        words.push(server.address.to_string());
        for (flag, value) in [
            ("--connections", arm.connections.to_string()),
            ("--duration", format!("{}ms", (seconds * 1e3).round())),
            ("--cpus", self.cores.1.to_string()),
        ] {
            words.extend([flag.to_owned(), value]);
        }
        if let Some(rate) = rate {
            words.extend(["--rate".to_owned(), rate.to_string()]);
        }
        serde_json::from_str(&self.client(&words)?).context("the document of the load generator")
    }
}

fn number(document: &Value, at: &str) -> Result<f64> {
    let value = document.pointer(at).and_then(Value::as_f64);
    value.with_context(|| format!("the document of the load generator has no number {at}"))
}

/// Reads the rate, the median and the 99th percentile (ms) from the output of redis-benchmark.
fn read_csv(text: &str) -> Result<(f64, f64, f64)> {
    let fields = |line: &str| -> Vec<String> {
        line.trim().trim_matches('"').split("\",\"").map(str::to_owned).collect()
    };
    let mut lines = text.lines().filter(|line| line.starts_with('"'));
    let (Some(head), Some(row)) = (lines.next(), lines.next()) else {
        bail!("redis-benchmark printed no table: {}", text.trim());
    };
    let (head, row) = (fields(head), fields(row));
    let of = |name: &str| -> Result<f64> {
        let at = head.iter().position(|field| field == name);
        let word = at.and_then(|at| row.get(at)).with_context(|| format!("no column {name}"))?;
        word.parse().with_context(|| format!("{name} is '{word}'"))
    };
    Ok((of("rps")?, of("p50_latency_ms")?, of("p99_latency_ms")?))
}

/// Returns the README of the raw data: the command, the machine, the programs.
fn readme(setup: &Setup) -> Result<String> {
    let mut text = format!(
        "# The exchange and redis\n\nCommand:\n\n```sh\n{}\n```\n\n- commit: {}\n{}\
         - server held to processor {}, client to processor {}, over loopback\n\
         - scratch directory: {}\n- sync of 4 KiB before the start: {:.3} ms\n\
         - blocks: {}, seed {}, about {} s for each run\n",
        kept::command(),
        setup.commit,
        setup.facts.lines(),
        setup.cores.0,
        setup.cores.1,
        setup.facts.medium.words(),
        setup.sync_ns as f64 / 1e6,
        setup.blocks,
        setup.seed,
        setup.seconds,
    );
    for version in &setup.versions {
        writeln!(text, "- {version}")?;
    }
    text.push_str(
        "\n`raw.jsonl` holds the setup and one line per run, in the order in which they ran; \
         `summary.md` is made from it alone by `serve_versus --from .`. What is fair here and what \
         is not is explained in `comparisons/README.md`.\n\n## Arms\n\n\
         | part | name | level | connections | pipeline | idle | requests | started by |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for arm in &setup.arms {
        let by = match &arm.server {
            Server::Ours(words) => shlex::try_join(words.iter().map(String::as_str))?,
            _ => {
                let (append, sync) = arm.level.of_redis();
                format!("redis-server --appendonly {append} --appendfsync {sync}")
            }
        };
        writeln!(
            text,
            "| {:?} | {} | {} | {} | {} | {} | {} | `{by}` |",
            arm.part,
            arm.name,
            arm.level.word(),
            arm.connections,
            arm.pipeline,
            arm.idle,
            arm.requests
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_client_is_read_by_its_names() {
        let text = "WARNING: x\n\"test\",\"rps\",\"avg_latency_ms\",\"p50_latency_ms\",\
                    \"p99_latency_ms\"\n\"BUY 1 1\",\"320000.00\",\"0.1\",\"0.055\",\"3.983\"\n";
        assert_eq!(read_csv(text).unwrap(), (320_000.0, 0.055, 3.983));
        assert!(read_csv("\"test\",\"rps\"\n").is_err());
        assert!(read_csv("\"test\",\"rps\"\n\"a\",\"b\"\n").is_err());
    }

    #[test]
    fn a_missing_peer_is_told_with_its_package() {
        let error = version("/nonexistent/redis-server", Some("redis-server")).unwrap_err();
        assert!(format!("{error:#}").contains("package redis-server"), "{error:#}");
    }
}
