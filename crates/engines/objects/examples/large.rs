//! Measures the memory of runs over large objects.
//!
//! `cargo run --release -p ioloom-objects --features s3 --example large -- COUNT MIB` starts a server in
//! a process of its own whose objects are computed when they are sent, reads COUNT objects of MIB MiB,
//! compares every byte, and prints one JSON object with the peak resident memory of this process.
//! With `up` after the numbers it sends as many links of a sparse file instead.

#![allow(clippy::print_stdout, reason = "the purpose of this program")]

mod remote;

use ioloom_bucket::{Contents, Law, Server, pattern};
use ioloom_objects::{ObjectError, Options, Piece, Work, WorkError, run, upload};
use ioloom_sys::proc::{UsageOf, usage};
use remote::Remote;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse::<u64>().expect("a number");
    match args.as_slice() {
        [mode, count, mib] if mode == "server" => serve(number(count), number(mib)),
        [count, mib, rest @ ..] => measure(number(count), number(mib), !rest.is_empty()),
        _ => println!("usage: large COUNT MIB [up]"),
    }
}

fn serve(count: u64, mib: u64) {
    let server = Server::start(Law { forgets: true, ..Law::default() });
    for number in 0..count {
        server.put(&format!("o/{number}"), Contents::pattern(mib << 20));
    }
    println!("{}", server.endpoint());
    for _ in std::io::stdin().lines() {
        println!("{}", server.counts().served);
    }
}

/// Compares objects with the pattern.
struct Compare;

impl Work for Compare {
    type State = Vec<u8>;
    type Local = (u64, Vec<String>);

    fn local(&self) -> Self::Local {
        Self::Local::default()
    }

    fn begin(&self, _: usize, _: &str) -> Vec<u8> {
        vec![0; 64 << 10]
    }

    fn piece(&self, buffer: &mut Vec<u8>, piece: Piece<'_>) -> Result<(), WorkError> {
        let mut offset = piece.offset;
        for bytes in piece.bytes.chunks(buffer.len()) {
            let expected = &mut buffer[..bytes.len()];
            pattern(offset, expected);
            if bytes != expected {
                return Err("wrong bytes".into());
            }
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    fn finish(
        &self,
        local: &mut Self::Local,
        _: Vec<u8>,
        _: usize,
        _: &str,
    ) -> Result<(), WorkError> {
        local.0 += 1;
        Ok(())
    }

    fn function_failed(&self, local: &mut Self::Local, _: usize, url: &str, error: WorkError) {
        local.1.push(format!("{url}: {error}"));
    }

    fn failed(&self, local: &mut Self::Local, _: Option<usize>, error: &ObjectError) {
        local.1.push(error.to_string());
    }
}

fn measure(count: u64, mib: u64, up: bool) {
    let (mut remote, store) = Remote::start(&[count.to_string(), mib.to_string()]);
    let options = Options::default();
    let start = usage(UsageOf::Process).expect("usage").peak_rss_bytes;
    let (done, errors, seconds, in_flight) = if up {
        let dir = tempfile::tempdir().expect("a directory");
        let from = dir.path().join("from");
        std::fs::create_dir(&from).expect("a directory");
        let first = std::fs::File::create(from.join("0")).expect("a file");
        first.set_len(mib << 20).expect("a size");
        for number in 1..count {
            std::fs::hard_link(from.join("0"), from.join(number.to_string())).expect("a link");
        }
        let sent = upload(&store, &from, &dir.path().join("records"), &options).expect("a client");
        (sent.verified, sent.errors, sent.elapsed.as_secs_f64(), None)
    } else {
        let run = run(&store, &options, &Compare).expect("a client");
        let done = run.locals.iter().map(|local| local.0).sum();
        let errors = run.locals.into_iter().flat_map(|local| local.1).collect();
        let measured = run.measured;
        (done, errors, measured.elapsed_ns as f64 / 1e9, Some(measured.budget_peak_bytes >> 20))
    };
    let peak = usage(UsageOf::Process).expect("usage").peak_rss_bytes;
    let requests = remote.ask();
    drop(remote);
    println!(
        "{{\"objects\":{done},\"mib_each\":{mib},\"up\":{up},\"errors\":{},\"seconds\":{seconds:.1},\"requests\":{requests},\
         \"budget_mib\":{},\"budget_peak_mib\":{},\"peak_rss_mib\":{},\"peak_rss_at_start_mib\":{}}}",
        errors.len(),
        options.memory >> 20,
        in_flight.map_or("null".to_owned(), |peak| peak.to_string()),
        peak >> 20,
        start >> 20,
    );
    errors.iter().take(5).for_each(|error| println!("{error}"));
}
