//! The files, mounts, limits and commands of the cells. Needs root: for the limit, the delayed file
//! system, and to drop names and attributes before a cold walk.

use super::list::Cell as Listed;
use crate::regret::command::remove_old_groups;
use crate::regret::proof;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::cell::Cell;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Calibrations: the disk with evicted and with cached copies, and the two other directories.
pub(super) const CALIBRATIONS: [&str; 4] = ["cold", "warm", "capped", "fuse"];
/// The sets, as the list describes them.
const SETS: [(&str, &str); 6] = [
    ("small", "count=20k,size=4KiB,seed=1"),
    ("medium", "count=5k,size=64KiB,seed=1"),
    ("large", "count=400,size=1MiB,seed=1"),
    ("huge", "count=2,size=256MiB,seed=1"),
    ("tree", "count=500k,size=4KiB,seed=1"),
    ("capped", "count=3k,size=4KiB,seed=1"),
];
/// The delayed file system. Names are looked up with a delay too, as the list says for its walks.
const DELAYED: [&str; 10] =
    ["--files", "3000", "--size", "4KiB", "--open", "2ms", "--read", "2ms", "--lookup", "2ms"];
/// Requests per second of the capped directory.
const CAP: u64 = 600;
const BLKIO: &str = "/sys/fs/cgroup/blkio";
/// Longest command, for `timeout`.
const DEADLINE: &str = "300s";
/// Shares of the data that the device must or may read.
const COLD_MIN: f64 = 0.95;
const WARM_MAX: f64 = 0.05;
/// Bytes of the largest set that is copied.
const COPIED_MAX: usize = 512 << 20;
/// Duration of a closed loop in seconds.
const LOAD_S: u32 = 2;
/// Seconds to establish the condition of a run, and to start and stop what it needs; for an estimate.
const SETUP_S: f64 = 1.5;
/// Names of the limited groups. One that a killed command left is removed.
const GROUP: &str = "ioloom-cells-";

/// What the cells run on.
pub(super) struct Place {
    dir: PathBuf,
    program: PathBuf,
    /// Groups without and with the limit. Each counts the bytes that its processes read.
    groups: [PathBuf; 2],
    device: String,
    server: Child,
    /// Copies so far.
    copies: Cell<u32>,
}

impl Place {
    pub(super) fn prepare(
        dir: &Path,
        program: &Path,
        delayfs: &Path,
        cells: &[&Listed],
    ) -> anyhow::Result<Self> {
        ensure!(rustix::process::getuid().is_root(), "the cells need root");
        for file in [program, delayfs] {
            ensure!(
                file.is_file(),
                "{} is missing; run cargo build --release, and cargo build --release -p \
                 ioloom-delayfs --example delayfs",
                file.display()
            );
        }
        fs::create_dir_all(dir).context("create the directory of the files")?;
        let (dir, program) = (dir.canonicalize()?, program.canonicalize()?);
        let used = |name: &str| {
            let words = |cell: &&Listed| {
                cell.run.split_whitespace().any(|word| word.strip_prefix("DIR/") == Some(name))
            };
            cells.iter().any(words)
        };
        for (name, set) in SETS.into_iter().filter(|(name, _)| used(name)) {
            println!("files {name}");
            run(Command::new(&program).args(["fileset", "create", set]).arg(dir.join(name)))?;
        }
        run(&mut Command::new("sync"))?;
        let device = fs::metadata(&dir)?.dev();
        let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        remove_old_groups(Path::new(BLKIO), GROUP);
        let group = |name| Path::new(BLKIO).join(format!("{GROUP}{}-{name}", std::process::id()));
        let groups = [group("free"), group("capped")];
        for group in &groups {
            fs::create_dir(group).context("create a blkio group; needs version 1")?;
        }
        let limit = groups[1].join("blkio.throttle.read_iops_device");
        if let Err(error) = fs::write(limit, format!("{device} {CAP}")) {
            for group in &groups {
                let _ = fs::remove_dir(group);
            }
            return Err(error).context("limit the device");
        }
        let at = dir.join("fuse");
        fs::create_dir_all(&at)?;
        // A command that is killed takes the file system with it.
        let server = Command::new("setpriv")
            .args(["--pdeathsig", "TERM"])
            .arg(delayfs)
            .arg(&at)
            .args(DELAYED)
            .stdout(Stdio::piped())
            .spawn()
            .context("start the delayed file system")?;
        let mut place = Self { dir, program, groups, device, server, copies: Cell::new(0) };
        let mut ready = [0; 8];
        let output = place.server.stdout.as_mut().context("its output")?;
        output.read_exact(&mut ready).context("the delayed file system did not start")?;
        Ok(place)
    }

    pub(super) fn version(&self) -> anyhow::Result<String> {
        let output = run(Command::new(&self.program).arg("--version"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn store(&self, calibration: &str) -> PathBuf {
        self.dir.join("stores").join(calibration)
    }

    /// Returns a command that runs in one of the groups.
    fn grouped(&self, capped: bool) -> Command {
        let mut command = Command::new("sh");
        let group = self.groups[usize::from(capped)].display();
        let script = format!("echo $$ > {group}/cgroup.procs && exec \"$@\"");
        command.args(["-c", &script, "sh", "timeout", DEADLINE]).arg(&self.program);
        command
    }

    /// Calibrates, and returns the calibration.
    pub(super) fn calibrate(&self, name: &str) -> anyhow::Result<Value> {
        forget()?;
        let mut command = self.grouped(name == "capped");
        command.args(["predict", "--calibrate", "--json", "--store"]).arg(self.store(name));
        match name {
            "cold" => command.args(["--drop-caches", "--exchange", "--dir"]).arg(&self.dir),
            "warm" => command.args(["--copy-cached", "--dir"]).arg(&self.dir),
            "capped" => command.arg("--dir").arg(self.dir.join("capped-probes")),
            _ => command.args(["--drop-caches", "--existing", "--dir"]).arg(self.dir.join("fuse")),
        };
        if name == "capped" {
            fs::create_dir_all(self.dir.join("capped-probes"))?;
        }
        parsed(&run(&mut command)?)
    }

    /// Predicts a cell with its calibration.
    pub(super) fn predict(&self, cell: &Listed) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.program);
        command.args(cell.predict.split_whitespace());
        if let Some(name) = cell.calibration() {
            command.arg("--store").arg(self.store(name));
        }
        if cell.probed_server() {
            command.arg("--measured");
        }
        let answer = parsed(&run(&mut command)?)?;
        let points = answer["points"].as_array().context("a prediction without points")?;
        let last = points.last().context("a prediction without points")?;
        let sleeps = cell.predicts("--pool").is_some();
        let seconds = if cell.subject == "exchange" && !sleeps {
            1.0 / last["rate_per_s"].as_f64().context("a rate")?
        } else {
            last["elapsed_s"].as_f64().context("a time")?
        };
        Ok(json!({"elapsed_s": seconds, "point": last, "words": cell.predict}))
    }

    /// Returns about how long a run takes that is predicted to take `predicted_s`.
    pub(super) fn cost_s(&self, cell: &Listed, predicted_s: f64) -> f64 {
        let closed = cell.subject == "exchange" && cell.predicts("--pool").is_none();
        // A cached walk is preceded by one that loads the names.
        let times = if cell.subject == "walk" && cell.condition == "warm" { 2.0 } else { 1.0 };
        SETUP_S + if closed { f64::from(LOAD_S) } else { times * predicted_s }
    }

    /// Establishes the condition, runs a cell once and returns the record.
    pub(super) fn run(&self, cell: &Listed) -> anyhow::Result<Value> {
        let run = match cell.subject.as_str() {
            "exchange" => self.serve(cell),
            _ => self.files(cell),
        };
        // A cell that cannot run is a record with the reason.
        Ok(run.unwrap_or_else(|error| json!({"seconds": null, "failure": format!("{error:#}")})))
    }

    fn files(&self, cell: &Listed) -> anyhow::Result<Value> {
        let dir = self.dir.display().to_string();
        // Copies are kept until the end; see `forget`.
        let number = self.copies.get();
        self.copies.set(number + 1);
        let target = format!("targets/{number}");
        fs::create_dir_all(self.dir.join("targets")).context("create the directory of copies")?;
        let place = |word: &str| word.replace("DIR/target", &format!("DIR/{target}"));
        let words: Vec<String> =
            cell.run.split_whitespace().map(|word| place(word).replace("DIR", &dir)).collect();
        let source = words.iter().find(|word| word.starts_with(&dir)).context("a directory")?;
        run(&mut Command::new("sync"))?;
        let fuse = source.ends_with("/fuse");
        let cold = cell.condition == "cold";
        match (cell.subject.as_str(), cold) {
            ("walk", true) => fs::write("/proc/sys/vm/drop_caches", "3").context("drop caches")?,
            ("walk", false) => drop(self.measured(false, &words)?),
            _ if fuse => {}
            (_, true) => self.cache("drop", source)?,
            (_, false) => self.cache("warm", source)?,
        }
        if cell.subject == "copy" {
            // The first use of memory that a hypervisor has taken back takes longer than a copy. What was
            // freed last is used first.
            drop(std::hint::black_box(vec![1_u8; COPIED_MAX]));
        }
        let capped = source.ends_with("/capped");
        let before = self.read_bytes(capped);
        let output = self.measured(capped, &words)?;
        let device = self.read_bytes(capped).zip(before).map(|(after, before)| after - before);
        if cell.subject == "copy" {
            // The next copy then uses the same memory.
            run(&mut Command::new("sync"))?;
            self.cache("drop", &self.dir.join(&target).display().to_string())?;
        }
        let document = parsed(&output)?;
        let ns = document["elapsed_ns"].as_f64().context("the elapsed time")?;
        let bytes = document["bytes"].as_f64().or(document["total"]["apparent_bytes"].as_f64());
        let share = device.zip(bytes).map(|(device, bytes)| device as f64 / bytes.max(1.0));
        let failure = match (cell.subject.as_str(), share) {
            (_, _) if fuse => None,
            ("walk", _) if cold && device == Some(0) => Some("not cold: the device read nothing"),
            ("walk", _) => None,
            (_, Some(share)) if cold && share < COLD_MIN => {
                Some("not cold: the device read too little")
            }
            (_, Some(share)) if !cold && share > WARM_MAX => Some("not warm: the device was read"),
            _ => None,
        };
        Ok(json!({"seconds": ns / 1e9, "device_bytes": device, "bytes": bytes, "failure": failure}))
    }

    fn measured(&self, capped: bool, words: &[String]) -> anyhow::Result<Output> {
        let mut command = self.grouped(capped);
        run(command.args(words))
    }

    fn cache(&self, what: &str, source: &str) -> anyhow::Result<()> {
        proof::cache(&self.program, what, &[PathBuf::from(source)])?;
        Ok(())
    }

    /// Runs a server on one processor and a load on another.
    fn serve(&self, cell: &Listed) -> anyhow::Result<Value> {
        let (server, load) = cell.run.split_once(" ; ").context("a server and a load")?;
        let dir = self.dir.join("server");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let stocks: String = (1..=10).map(|stock| format!("{stock} 1000000000 10\n")).collect();
        fs::write(dir.join("stock.txt"), stocks)?;
        let mut child = Command::new("taskset")
            .args(["-c", "0"])
            .arg(&self.program)
            .args(server.split_whitespace())
            .args(["--listen", "127.0.0.1:0"])
            .current_dir(&dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start the server")?;
        let measured = loaded(&self.program, &mut child, load);
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        );
        child.wait().context("wait for the server")?;
        measured
    }

    /// Returns the bytes that the processes of a group have read from the device. Those of the whole
    /// device would include what other programs read.
    fn read_bytes(&self, capped: bool) -> Option<u64> {
        let group = &self.groups[usize::from(capped)];
        let text = fs::read_to_string(group.join("blkio.throttle.io_service_bytes")).ok()?;
        read_of(&text, &self.device)
    }
}

/// Returns the bytes read from a device by a file such as `254:0 Read 4096`.
fn read_of(text: &str, device: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(" Read "));
    // A device that was not used yet has no line.
    line.map_or(Some(0), |bytes| bytes.trim().parse().ok())
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.join("fuse")).output();
        let _ = self.server.kill();
        let _ = self.server.wait();
        for group in &self.groups {
            let _ = fs::remove_dir(group);
        }
        for name in ["targets", "server"] {
            let _ = fs::remove_dir_all(self.dir.join(name));
        }
    }
}

/// Writes everything, and drops the blocks that the kernel keeps of the device. In these, ext4 without a
/// journal finds the inodes that were deleted within the last minute and uses none of them again; a search
/// that passes thousands took ten times as long as the copy. But the next copy then reads its maps of free
/// blocks from the device, so this is for calibrations, and copies are removed at the end.
fn forget() -> anyhow::Result<()> {
    run(&mut Command::new("sync"))?;
    fs::write("/proc/sys/vm/drop_caches", "1").context("drop the page cache")
}

/// Waits for the address of a server, and loads it.
fn loaded(program: &Path, server: &mut Child, load: &str) -> anyhow::Result<Value> {
    let mut line = String::new();
    let output = server.stderr.take().context("the server's messages")?;
    let mut reader = BufReader::new(output);
    let address = loop {
        line.clear();
        ensure!(reader.read_line(&mut line)? > 0, "the server ended before it listened");
        if let Some((_, address)) = line.trim().rsplit_once("listening on ") {
            break address.to_owned();
        }
    };
    // Otherwise a full pipe would stop the server.
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let mut command = Command::new("taskset");
    command.args(["-c", "1", "timeout", DEADLINE]).arg(program).args(load.split_whitespace());
    let sleeps = load.contains("--multiclient");
    if !sleeps {
        command.args(["--anyway", "--duration", &format!("{LOAD_S}s")]);
    }
    let document = parsed(&run(command.arg(&address))?)?;
    if sleeps {
        let ns = document["multiclient"]["elapsed_ns"].as_f64().context("the elapsed time")?;
        return Ok(json!({"seconds": ns / 1e9, "failure": null}));
    }
    let run = &document["runs"][0];
    let rate = run["answered_per_s"].as_f64().context("a rate")?;
    let generator = run["generator"]["reason"].clone();
    Ok(json!({"seconds": 1.0 / rate, "generator": generator, "failure": null}))
}

fn parsed(output: &Output) -> anyhow::Result<Value> {
    serde_json::from_slice(&output.stdout).context("the JSON of the command")
}

fn run(command: &mut Command) -> anyhow::Result<Output> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {shown}"))?;
    ensure!(
        output.status.success(),
        "{shown} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::read_of;

    #[test]
    fn the_bytes_of_one_device_are_found() {
        let text = "254:0 Read 8192\n254:0 Write 1\n254:0 Total 8193\n25:4 Read 3\nTotal 8196\n";
        assert_eq!(read_of(text, "254:0"), Some(8192));
        assert_eq!(read_of(text, "25:4"), Some(3));
        assert_eq!(read_of("Total 0\n", "254:0"), Some(0));
        assert_eq!(read_of("254:0 Read x\n", "254:0"), None);
    }
}
