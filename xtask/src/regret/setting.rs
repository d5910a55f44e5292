//! The setting of a cell: its files on its medium, its limits, and its trap.
//!
//! Limits and traps need root. Mounts are private and end with the command.

use super::arms::Plan;
use super::cell::Cell;
use anyhow::{Context, ensure};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Pause of the neighbour between two reads, and its file.
const THINK: Duration = Duration::from_millis(30);
const NEIGHBOUR_BYTES: u64 = 256 << 20;
/// Size of an image.
const IMAGE_BYTES: u64 = 8 << 30;
/// Longest run, for `timeout`.
const DEADLINE: &str = "600s";
/// Factor by which a cap falls.
const FALL: u64 = 10;

/// A prepared cell.
pub(super) struct Setting<'a> {
    cell: &'a Cell,
    program: PathBuf,
    /// The directories of the files, the second one for `crosses`.
    dirs: Vec<PathBuf>,
    bytes: u64,
    /// Control groups of the run.
    groups: Vec<PathBuf>,
    device: Option<String>,
    neighbour_file: PathBuf,
    drop_caches: bool,
    mounts: Vec<PathBuf>,
    servers: Vec<Child>,
}

impl<'a> Setting<'a> {
    /// Creates the files, mounts and limits of a cell.
    pub(super) fn prepare(
        cell: &'a Cell,
        dir: &Path,
        program: &Path,
        drop_caches: bool,
    ) -> anyhow::Result<Self> {
        let mut setting = Self {
            cell,
            program: program.canonicalize().context("the program")?,
            dirs: Vec::new(),
            bytes: 0,
            groups: Vec::new(),
            device: None,
            neighbour_file: dir.join("neighbour"),
            drop_caches,
            mounts: Vec::new(),
            servers: Vec::new(),
        };
        fs::create_dir_all(dir).context("create the directory of the files")?;
        let place = setting.place(&cell.medium, dir)?;
        setting.dirs.push(place);
        if cell.trap.as_deref() == Some("crosses") {
            let second =
                setting.place("delay --files 3000 --size 4KiB --open 2ms --read 2ms", dir)?;
            setting.dirs.push(second);
        }
        setting.bytes =
            setting.dirs.iter().map(|dir| bytes_of(dir)).sum::<std::io::Result<u64>>()?;
        let device = fs::metadata(&setting.dirs[0])?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        setting.device = (major != 0).then(|| format!("{major}:{minor}"));
        setting.limits()?;
        if cell.trap.as_deref() == Some("neighbour-io") {
            make_neighbour(&setting.neighbour_file)?;
        }
        Ok(setting)
    }

    /// Returns the directory with the files on a medium.
    fn place(&mut self, medium: &str, dir: &Path) -> anyhow::Result<PathBuf> {
        if let Some(words) = medium.strip_prefix("delay ") {
            return self.delayed(words, dir);
        }
        let at = dir.join("mount");
        let root = match medium {
            "disk" => dir.join("sets"),
            "tmpfs" => {
                self.mount(&["-t", "tmpfs", "tmpfs"], &at)?;
                at
            }
            "overlay" => {
                let layers = dir.join("layers");
                for layer in ["lower", "upper", "work"] {
                    fs::create_dir_all(layers.join(layer)).context("create a layer")?;
                }
                let l = layers.display();
                let options = format!("lowerdir={l}/lower,upperdir={l}/upper,workdir={l}/work");
                self.mount(&["-t", "overlay", "-o", &options, "overlay"], &at)?;
                at
            }
            fs_name => {
                let image = dir.join(format!("{fs_name}.image"));
                if !image.exists() {
                    fs::File::create(&image)?.set_len(IMAGE_BYTES).context("size an image")?;
                    let force = if fs_name == "ext4" { "-F" } else { "-f" };
                    run(Command::new(format!("mkfs.{fs_name}")).args(["-q", force]).arg(&image))?;
                }
                let looped = run(Command::new("losetup")
                    .args(["--find", "--show", "--direct-io=on"])
                    .arg(&image))?;
                let device = String::from_utf8_lossy(&looped.stdout).trim().to_owned();
                let mounted = self.mount(&["-o", "noatime", &device], &at);
                // Detaches when it is unmounted.
                run(Command::new("losetup").args(["--detach", &device]))?;
                mounted?;
                at
            }
        };
        let set = root.join(self.cell.files.replace(['/', ',', '=', '('], "-").replace(')', ""));
        run(Command::new(&self.program).args(["fileset", "create", &self.cell.files]).arg(&set))?;
        run(&mut Command::new("sync"))?;
        Ok(set)
    }

    fn delayed(&mut self, words: &str, dir: &Path) -> anyhow::Result<PathBuf> {
        let at = dir.join("delayed");
        fs::create_dir_all(&at).context("create a mount point")?;
        let server = self.program.with_file_name("examples").join("delayfs");
        ensure!(
            server.is_file(),
            "{} is missing; run cargo build --release -p ioloom-delayfs --example delayfs",
            server.display()
        );
        let mut child = Command::new(server)
            .arg(&at)
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the delay file system")?;
        let mut ready = [0; 8];
        let mounted = child.stdout.as_mut().context("its output")?.read_exact(&mut ready);
        self.servers.push(child);
        mounted.context("the delay file system did not start")?;
        Ok(at)
    }

    fn mount(&mut self, words: &[&str], at: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(at).context("create a mount point")?;
        run(Command::new("mount").args(words).arg(at))?;
        self.mounts.push(at.to_owned());
        Ok(())
    }

    /// Creates the control groups of version 1 for the limits.
    fn limits(&mut self) -> anyhow::Result<()> {
        let cell = self.cell;
        let name = format!("ioloom-regret-{}", std::process::id());
        if cell.iops.is_some() || cell.bytes_per_s.is_some() {
            let group = Path::new("/sys/fs/cgroup/blkio").join(&name);
            fs::create_dir(&group).context("create a blkio group; needs root and version 1")?;
            self.groups.push(group);
            self.cap(1)?;
        }
        if let Some(cpus) = cell.cpus {
            let group = Path::new("/sys/fs/cgroup/cpu").join(&name);
            fs::create_dir(&group).context("create a cpu group; needs root and version 1")?;
            self.groups.push(group.clone());
            fs::write(group.join("cpu.cfs_quota_us"), ((cpus * 1e5) as u64).to_string())?;
        }
        Ok(())
    }

    /// Sets the caps, divided by `divisor`.
    fn cap(&self, divisor: u64) -> anyhow::Result<()> {
        let device = self.device.as_ref().context("the medium has no device to limit")?;
        for (file, limit) in [
            ("blkio.throttle.read_iops_device", self.cell.iops),
            ("blkio.throttle.read_bps_device", self.cell.bytes_per_s),
        ] {
            if let Some(limit) = limit {
                fs::write(self.groups[0].join(file), format!("{device} {}", limit / divisor))
                    .with_context(|| format!("write {file}"))?;
            }
        }
        Ok(())
    }

    pub(super) fn cores(&self) -> u32 {
        std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
    }

    pub(super) fn version(&self) -> anyhow::Result<String> {
        let output = run(Command::new(&self.program).arg("--version"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Establishes the condition, runs a plan and returns the record.
    pub(super) fn run(&mut self, plan: &Plan) -> anyhow::Result<Value> {
        self.condition()?;
        self.cap_if_any()?;
        let before = self.device_sectors();
        let (start, mut record) = (Instant::now(), json!({}));
        let commands = match self.cell.trap.as_deref() {
            Some("two") => 2,
            _ => 1,
        };
        let mut children = Vec::new();
        for _ in 0..commands {
            children.push(self.spawn(plan)?);
        }
        let outputs = self.attend(children, start, &mut record)?;
        record["wall_ns"] = (start.elapsed().as_nanos() as u64).into();
        let read = before.zip(self.device_sectors()).map(|(before, after)| (after - before) * 512);
        record["device_bytes"] = read.into();
        let mut failure = None;
        for output in &outputs {
            if !output.status.success() {
                failure = Some(String::from_utf8_lossy(&output.stderr).trim().to_owned());
                continue;
            }
            let text: Value = serde_json::from_slice(&output.stdout).context("the JSON of each")?;
            for field in ["elapsed_ns", "files", "bytes", "digest", "memory_peak_bytes"] {
                record[field] = text[field].clone();
            }
            record["tuned"] = json!({
                "decisions": text["tuned"]["decisions"],
                "points": text["tuned"]["points"],
                "probing_ns": text["tuned"]["probing_ns"],
                "choice_ns": text["tuned"]["choice_ns"],
            });
        }
        if record["tuned"]["decisions"].is_null() {
            record["tuned"] = Value::Null;
        }
        let cold = self.cell.condition == "cold" && self.device.is_some();
        if failure.is_none()
            && cold
            && read.is_some_and(|read| (read as f64) < 0.95 * self.bytes as f64)
        {
            failure = Some("not cold: the device read too little".to_owned());
        }
        record["failure"] = failure.map_or(Value::Null, Into::into);
        Ok(record)
    }

    fn cap_if_any(&self) -> anyhow::Result<()> {
        if self.cell.iops.is_some() || self.cell.bytes_per_s.is_some() {
            self.cap(1)
        } else {
            Ok(())
        }
    }

    /// Returns a command that runs in the control groups.
    fn grouped(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let mut script = String::new();
        for group in &self.groups {
            script += &format!("echo $$ > {}/cgroup.procs && ", group.display());
        }
        command.args(["-c", &(script + "exec \"$@\""), "sh"]).arg(program);
        command
    }

    fn spawn(&self, plan: &Plan) -> anyhow::Result<Child> {
        let mut command = self.grouped(Path::new("timeout"));
        command.arg(DEADLINE).arg(&self.program);
        command.args(["each", "--json", "--compute", &self.cell.compute]).args(plan.words());
        command.args(&self.dirs).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("start each")
    }

    /// Waits for the runs, and springs the trap when it is due.
    fn attend(
        &self,
        children: Vec<Child>,
        start: Instant,
        record: &mut Value,
    ) -> anyhow::Result<Vec<Output>> {
        let (send, ended) = channel();
        let count = children.len();
        let mut outputs = Vec::new();
        let mut neighbour = None;
        std::thread::scope(|scope| -> anyhow::Result<()> {
            for child in children {
                let send = send.clone();
                scope.spawn(move || send.send(child.wait_with_output()));
            }
            let due = Duration::from_secs_f64(self.cell.after_s);
            if self.cell.trap.is_some() {
                match ended.recv_timeout(due.saturating_sub(start.elapsed())) {
                    Ok(output) => outputs.push(output.context("wait for each")?),
                    Err(_) => neighbour = self.spring()?,
                }
            }
            while outputs.len() < count {
                let output = ended.recv().context("wait for each")?;
                outputs.push(output.context("wait for each")?);
            }
            Ok(())
        })?;
        if let Some(mut child) = neighbour {
            // It ends with its input.
            drop(child.stdin.take());
            if self.cell.trap.as_deref() == Some("neighbour-cpu") {
                child.kill().context("stop the neighbour")?;
            }
            let output = child.wait_with_output().context("wait for the neighbour")?;
            let seen: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
            record["neighbour"] = seen;
        }
        Ok(outputs)
    }

    /// Begins the trap. Returns the neighbour, if that is one.
    fn spring(&self) -> anyhow::Result<Option<Child>> {
        let mut command = match self.cell.trap.as_deref() {
            Some("cap-falls") => {
                self.cap(FALL)?;
                return Ok(None);
            }
            Some("neighbour-io") => {
                let mut command = self.grouped(&std::env::current_exe()?);
                command.args(["regret", "neighbour"]).arg(&self.neighbour_file);
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
                command
            }
            Some("neighbour-cpu") => {
                let mut command = Command::new("yes");
                command.stdin(Stdio::piped()).stdout(Stdio::null());
                command
            }
            _ => return Ok(None),
        };
        Ok(Some(command.spawn().context("start the neighbour")?))
    }

    /// Establishes the condition of the cell.
    fn condition(&self) -> anyhow::Result<()> {
        let cache = |what: &str, paths: &[PathBuf]| -> anyhow::Result<()> {
            for part in paths.chunks(2_000) {
                run(Command::new(&self.program).args(["cache", what, "--json"]).args(part))?;
            }
            Ok(())
        };
        if self.cell.condition == "warm" {
            return cache("warm", &self.dirs);
        }
        // Files of the delay file system are never cached.
        if self.device.is_some() {
            cache("drop", &self.dirs[..1])?;
        }
        if self.drop_caches {
            run(&mut Command::new("sync"))?;
            fs::write("/proc/sys/vm/drop_caches", "3").context("drop the caches; needs root")?;
        }
        let mut files = files_of(&self.dirs[0])?;
        files.sort();
        let count = files.len();
        let warm: Vec<PathBuf> = match self.cell.condition.as_str() {
            "half" => files.into_iter().step_by(2).collect(),
            "second-half-warm" => files.split_off(count / 2),
            "first-tenth-warm" => files.into_iter().take(count / 10).collect(),
            _ => Vec::new(),
        };
        cache("warm", &warm)
    }

    /// Returns the sectors that the device has read.
    fn device_sectors(&self) -> Option<u64> {
        let (major, minor) = self.device.as_ref()?.split_once(':')?;
        let text = fs::read_to_string("/proc/diskstats").ok()?;
        let line = text.lines().find(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(major) && words.next() == Some(minor)
        })?;
        line.split_whitespace().nth(5)?.parse().ok()
    }
}

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        if !self.servers.is_empty()
            && let Some(dir) = self.dirs.last()
        {
            let _ = Command::new("umount").arg("-l").arg(dir).output();
        }
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        for at in self.mounts.iter().rev() {
            let _ = Command::new("umount").arg(at).output();
        }
        for group in &self.groups {
            let _ = fs::remove_dir(group);
        }
    }
}

fn run(command: &mut Command) -> anyhow::Result<Output> {
    let shown = format!("{:?}", command.get_program());
    let output = command.output().with_context(|| format!("start {shown}"))?;
    ensure!(
        output.status.success(),
        "{shown} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output)
}

fn files_of(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

fn bytes_of(dir: &Path) -> std::io::Result<u64> {
    files_of(dir)?.iter().map(|file| Ok(fs::metadata(file)?.len())).sum()
}

fn make_neighbour(path: &Path) -> anyhow::Result<()> {
    if fs::metadata(path).is_ok_and(|file| file.len() == NEIGHBOUR_BYTES) {
        return Ok(());
    }
    let mut file = fs::File::create(path).context("create the file of the neighbour")?;
    for _ in 0..NEIGHBOUR_BYTES >> 20 {
        file.write_all(&[1; 1 << 20])?;
    }
    file.sync_all()?;
    Ok(())
}

/// Memory aligned for direct reads.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Reads 4 KiB at random places past the page cache, with pauses, until the input ends, and prints
/// the latencies.
pub(super) fn neighbour(path: &Path) -> anyhow::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).context("open for direct reads")?;
    let file = fs::File::from(file);
    let (send, input) = channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(send);
    });
    let (mut page, mut state, mut latencies) = (Box::new(Page([0; 4096])), 1u64, Vec::new());
    while input.recv_timeout(THINK) == Err(RecvTimeoutError::Timeout) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) % (NEIGHBOUR_BYTES / 4096) * 4096;
        let start = Instant::now();
        file.read_exact_at(&mut page.0, at).context("read")?;
        latencies.push(start.elapsed().as_nanos() as u64);
    }
    latencies.sort_unstable();
    let at = |share: f64| {
        latencies
            .get(((latencies.len() as f64 * share) as usize).min(latencies.len().saturating_sub(1)))
    };
    println!(
        "{}",
        json!({"reads": latencies.len(), "p50_ns": at(0.5), "p90_ns": at(0.9), "max_ns": latencies.last()})
    );
    Ok(())
}
