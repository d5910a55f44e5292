//! Measures how much of a request limit that it does not know a run uses, and how many requests it has
//! refused.
//!
//! `cargo run --release -p ioloom-objects --features s3 --example cap -- SECONDS SEED...` starts a
//! server in a process of its own for each seed: objects of 4 KiB, latency lognormal with a median of
//! 20 ms, a limit of 500 to 8,000 requests per second and an allowance for bursts of 0.1 to 1 s of
//! it, both from the seed. `SEED` may be `none` for a server without a limit. Prints one JSON object
//! for each.

#![allow(clippy::print_stdout, reason = "the purpose of this program")]

mod remote;

use ioloom_bucket::{Contents, Law, Server};
use ioloom_objects::{Options, Progress, objects};
use ioloom_sys::proc::{UsageOf, usage};
use remote::Remote;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time in which the limit may still be unknown.
const EARLY: Duration = Duration::from_secs(2);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [mode, seed, seconds] if mode == "server" => serve(seed, number(seconds)),
        [seconds, seeds @ ..] if !seeds.is_empty() => {
            for seed in seeds {
                measure(seed, number(seconds));
            }
        }
        _ => println!("usage: cap SECONDS SEED..."),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// Returns the limit and the burst of a seed.
fn limit(seed: &str) -> (f64, f64) {
    if seed == "none" {
        return (f64::INFINITY, f64::INFINITY);
    }
    let mut x = number(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let y = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (y >> 11) as f64 / (1u64 << 53) as f64
    };
    let cap = (500.0 * 16f64.powf(next())).round();
    (cap, (cap * (0.1 + 0.9 * next())).round())
}

/// Serves, and answers each line on standard input with what was counted.
fn serve(seed: &str, seconds: u64) {
    let (cap_per_s, burst) = limit(seed);
    let server = Server::start(Law {
        seed: seed.parse().unwrap_or(0),
        latency: (Duration::from_millis(20), 0.5),
        refusal: Duration::from_millis(5),
        cap_per_s,
        burst,
        ..Law::default()
    });
    let contents = Contents::from(vec![7; 4096]);
    let count = (cap_per_s.min(20_000.0) * (seconds + 2) as f64 + burst.min(1e5)) as u64;
    for number in 0..count {
        server.put(&format!("o/{number:08}"), contents.clone());
    }
    println!("{}", server.endpoint());
    for _ in std::io::stdin().lines() {
        let counts = server.counts();
        println!("{} {} {}", counts.served, counts.refused, counts.in_flight_max);
    }
}

/// Returns requests served and refused, and the most at a time.
fn counts(remote: &mut Remote) -> [u64; 3] {
    let line = remote.ask();
    let mut numbers = line.split(' ').map(number);
    std::array::from_fn(|_| numbers.next().expect("three numbers"))
}

fn measure(seed: &str, seconds: u64) {
    let (mut remote, store) = Remote::start(&[seed.to_owned(), seconds.to_string()]);
    let start = Instant::now();
    let asked = Mutex::new((&mut remote, None));
    let options = Options::default();
    let stop = options.stop.clone();
    let progress = |_: &Progress| {
        let mut asked = asked.lock().expect("no panic");
        if start.elapsed() >= EARLY && asked.1.is_none() {
            asked.1 = Some((counts(asked.0), start.elapsed()));
        }
        stop.store(start.elapsed() >= Duration::from_secs(seconds), Ordering::Relaxed);
    };
    let options = Options { progress: &progress, ..options };
    let before = usage(UsageOf::Process).expect("usage");
    let mapped = objects(&store, &options, |object| object.bytes().len()).expect("a client");
    let after = usage(UsageOf::Process).expect("usage");
    let elapsed = start.elapsed();
    let early = asked.into_inner().expect("no panic").1;
    let all = counts(&mut remote);
    drop(remote);
    let ([served, refused, _], at) = early.unwrap_or((all, elapsed));
    let rest = (elapsed - at).as_secs_f64().max(1e-9);
    let share = |refused: u64, served: u64| refused as f64 / (refused + served).max(1) as f64;
    let (cap, burst) = limit(seed);
    let cpu_ns = (after.user_ns + after.system_ns) - (before.user_ns + before.system_ns);
    let late = all[0] - served;
    let why = mapped.run.measured.bottleneck.map(|why| why.sentence).unwrap_or_default();
    println!(
        "{{\"seed\":\"{seed}\",\"seconds\":{:.2},\"cap_per_s\":{},\"burst\":{},\"objects\":{},\"errors\":{},\
         \"served_per_s\":{:.0},\"share_of_cap\":{:.4},\"share_of_cap_after_2_s\":{:.4},\
         \"refused_first_2_s\":{:.5},\"refused_after\":{:.5},\"in_flight_max\":{},\
         \"cpu_us_per_request\":{:.1},\"why\":\"{why}\"}}",
        elapsed.as_secs_f64(),
        if cap.is_finite() { cap.to_string() } else { "null".to_owned() },
        if burst.is_finite() { burst.to_string() } else { "null".to_owned() },
        mapped.values.len(),
        mapped.errors.len(),
        all[0] as f64 / elapsed.as_secs_f64(),
        all[0] as f64 / elapsed.as_secs_f64() / cap,
        late as f64 / rest / cap,
        share(refused, served),
        share(all[1] - refused, late),
        all[2],
        cpu_ns as f64 / 1e3 / (all[0] + all[1]).max(1) as f64,
    );
}
