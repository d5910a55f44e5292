//! The probes of `--calibrate --exchange`: this program as a stock server, and as its load.
//!
//! The server runs one event loop on the first usable processor, the load one thread on the second. Both
//! are processes of their own: within one process they would share its memory map and its limits. Each
//! probe runs for one of [`LOAD`], and each durability has a server with an empty store.

use super::scratch::{Scratch, proceed};
use crate::exit::Failure;
use crate::interrupt::StopSignals;
use ioloom_failure::{Operation, PathError, reason};
use ioloom_predict::answer::profile::MeasuredExchange;
use ioloom_sys::affinity::{self, PinnedThread};
use ioloom_sys::proc::ending_with_parent;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Durabilities, and the numbers of clients that load each. Syncs of single orders queue from the second
/// client on.
const PROBES: [(&str, &[u32]); 3] =
    [("none", &[1, 4, 16, 64, 256]), ("group", &[1, 4, 16, 64, 256]), ("each", &[1, 2, 8])];
/// Milliseconds of a probe, and of a brief one; the longest, for disks whose syncs take as long.
const LOAD: [u32; 2] = [1_000, 100];
const LOAD_MAX: u32 = 8_000;
/// Time limit for the start of a server, and the interval between looks at the signals until then.
const START_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// Stocks that no load can exhaust.
const STOCKS: u32 = 10;
const STOCK: u64 = 1_000_000_000;

/// A server that is killed on drop. Its orders are not needed.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs all probes in a directory below `dir` and returns the medians of `rounds`.
pub(super) fn measure(
    dir: &Path,
    rounds: usize,
    brief: bool,
    signals: &StopSignals,
) -> Result<MeasuredExchange, Failure> {
    let program = std::env::current_exe()
        .map_err(|e| Failure::failed(format!("cannot find the program file: {}", reason(&e))))?;
    let cpus = affinity::allowed()
        .map_err(|e| Failure::failed(format!("cannot query the processors: {}", reason(&e))))?;
    let mut times: BTreeMap<(&str, u32), Vec<f64>> = BTreeMap::new();
    for _ in 0..rounds {
        for (durability, clients) in PROBES {
            let scratch = scratch(dir)?;
            let (_server, address) =
                pinned(&cpus, 0, || serve(&program, scratch.path(), durability, signals))??;
            for n in clients {
                proceed(signals)?;
                let rate =
                    pinned(&cpus, 1, || load(&program, &address, *n, LOAD[usize::from(brief)]))?;
                // A signal from the terminal ends the load as well.
                proceed(signals)?;
                let rate = rate?;
                times.entry((durability, *n)).or_default().push(1.0 / rate);
            }
        }
    }
    let mut of = |durability: &str| {
        let found = times.iter_mut().filter(|((name, _), _)| *name == durability);
        found
            .map(|((_, n), all)| {
                all.sort_by(f64::total_cmp);
                (*n, all[all.len() / 2])
            })
            .collect()
    };
    Ok(MeasuredExchange { none_s: of("none"), group_s: of("group"), each_s: of("each") })
}

fn scratch(dir: &Path) -> Result<Scratch, Failure> {
    let scratch = Scratch::create(dir, "server")?;
    let stocks: String = (1..=STOCKS).map(|stock| format!("{stock} {STOCK} 10\n")).collect();
    let file = scratch.path().join("stock.txt");
    std::fs::write(&file, stocks)
        .map_err(|e| Failure::failed(PathError::new(Operation::Write, &file, e)))?;
    Ok(scratch)
}

/// Starts a process on one of the processors, if there are several. A child inherits the mask of the
/// thread that starts it.
fn pinned<T>(cpus: &[u32], which: usize, start: impl FnOnce() -> T) -> Result<T, Failure> {
    let pin = |cpu: &u32| PinnedThread::pin(*cpu);
    let several = cpus.get(which).filter(|_| cpus.len() > 1);
    let _pinned = several
        .map(pin)
        .transpose()
        .map_err(|e| Failure::failed(format!("cannot choose a processor: {}", reason(&e))))?;
    Ok(start())
}

/// Starts a server and returns its address.
fn serve(
    program: &Path,
    dir: &Path,
    durability: &str,
    signals: &StopSignals,
) -> Result<(Server, String), Failure> {
    let mut command = Command::new(program);
    command
        .args(["serve", "--model", "select", "--listen", "127.0.0.1:0", "--durability", durability])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // This thread waits for all probes of the server.
    let mut child = ending_with_parent(&mut command)
        .spawn()
        .map_err(|e| Failure::failed(format!("cannot start a server: {}", reason(&e))))?;
    let messages = child.stderr.take();
    let server = Server(child);
    let messages = messages.ok_or_else(|| Failure::failed("no messages"))?;
    let (sender, found) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(messages);
        let _ = sender.send(address(&mut lines));
        // Otherwise a full pipe would stop the server.
        std::io::copy(&mut lines, &mut std::io::sink())
    });
    let since = Instant::now();
    loop {
        proceed(signals)?;
        match found.recv_timeout(LOOK) {
            Ok(address) => {
                return address.map(|address| (server, address)).map_err(Failure::failed);
            }
            Err(_) if since.elapsed() < START_MAX => {}
            Err(_) => {
                let seconds = START_MAX.as_secs();
                let late = format!("the server did not start within {seconds} s");
                return Err(Failure::failed(late));
            }
        }
    }
}

/// Reads the messages of a server up to its address, or returns why it has none.
fn address(lines: &mut impl BufRead) -> Result<String, String> {
    let mut last = String::new();
    loop {
        let mut line = String::new();
        let bytes = lines
            .read_line(&mut line)
            .map_err(|e| format!("cannot read from the server: {}", reason(&e)))?;
        if bytes == 0 {
            return Err(format!("the server ended: {}", last.trim()));
        }
        if let Some((_, address)) = line.trim().rsplit_once("listening on ") {
            return Ok(address.to_owned());
        }
        last = line;
    }
}

/// Loads a server and returns its responses per second. A probe without a response is repeated with four
/// times its duration.
fn load(program: &Path, address: &str, clients: u32, mut ms: u32) -> Result<f64, Failure> {
    let failed =
        |why: &str| Failure::failed(format!("the load of {clients} clients failed: {why}"));
    while ms <= LOAD_MAX {
        let output = Command::new(program)
            .args(["load", "--json", "--anyway", "--duration", &format!("{ms}ms")])
            .args(["--connections", &clients.to_string(), address])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| Failure::failed(format!("cannot start the load: {}", reason(&e))))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim()));
        }
        let document: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|e| failed(&e.to_string()))?;
        let rate = document["runs"][0]["answered_per_s"].as_f64();
        if let Some(rate) = rate.filter(|rate| *rate > 0.0) {
            return Ok(rate);
        }
        ms *= 4;
    }
    Err(failed("no request was answered"))
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn the_address_of_a_server_is_in_its_messages() {
        let mut said = &b"INFO first\nINFO listening on 127.0.0.1:7\nmore\n"[..];
        assert_eq!(address(&mut said), Ok("127.0.0.1:7".to_owned()));
        assert_eq!(said, b"more\n");
        let mut said = &b"INFO first\nno port\n"[..];
        assert_eq!(address(&mut said), Err("the server ended: no port".to_owned()));
    }
}
