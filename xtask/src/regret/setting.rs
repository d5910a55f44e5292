//! The setting of a cell: its files on its medium, its limits, and its trap.
//!
//! Limits and traps need root. Mounts are private and end with the command.

use super::arms::Plan;
use super::cell::Cell;
use super::command::{grouped, remove_old_groups, run};
use super::neighbour::{Neighbour, make_file};
use super::proof::{bytes_read, cache, cold_failure, device_of, resident_failure};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Size of an image.
const IMAGE_BYTES: u64 = 8 << 30;
/// Limits the length of a run. In the foreground, an interrupt reaches the run too.
const TIMEOUT: [&str; 4] = ["timeout", "--foreground", "--kill-after=10s", "600s"];
/// Factor by which a cap falls.
const FALL: u64 = 10;
/// Control groups of version 1, and the names of those for limits.
const GROUPS: &str = "/sys/fs/cgroup";
const GROUP: &str = "ioloom-regret-";

/// A prepared cell.
pub(super) struct Setting<'a> {
    cell: &'a Cell,
    program: PathBuf,
    /// The directories of the files, the second one for `crosses`.
    dirs: Vec<PathBuf>,
    /// The files of the first one, in the order of their paths, and their bytes.
    files: Vec<PathBuf>,
    bytes: u64,
    /// A list of the files that all plans get instead of the directories, if the condition depends on
    /// the order in which files are read.
    list: Option<PathBuf>,
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
            files: Vec::new(),
            bytes: 0,
            list: None,
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
        setting.files = files_of(&setting.dirs[0])?;
        setting.files.sort();
        for file in &setting.files {
            setting.bytes += fs::metadata(file)?.len();
        }
        if matches!(cell.condition.as_str(), "second-half-warm" | "first-tenth-warm") {
            let list = dir.join("list");
            write_list(&list, &setting.files)?;
            setting.list = Some(list);
        }
        setting.device = device_of(&setting.dirs[0]);
        setting.limits()?;
        if cell.trap.as_deref() == Some("neighbour-io") {
            make_file(&setting.neighbour_file)?;
        }
        Ok(setting)
    }

    /// Returns true if the medium never caches files.
    fn is_uncached(&self) -> bool {
        self.cell.medium.starts_with("delay ")
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
                    make_image(fs_name, &image)?;
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
        // A command that is killed takes the file system with it.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM"])
            .arg(server)
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
        let name = format!("{GROUP}{}", std::process::id());
        for kind in ["blkio", "cpu"] {
            remove_old_groups(&Path::new(GROUPS).join(kind), GROUP);
        }
        if cell.iops.is_some() || cell.bytes_per_s.is_some() {
            let group = Path::new(GROUPS).join("blkio").join(&name);
            fs::create_dir(&group).context("create a blkio group; needs root and version 1")?;
            self.groups.push(group);
            self.cap(1)?;
        }
        if let Some(cpus) = cell.cpus {
            let group = Path::new(GROUPS).join("cpu").join(&name);
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
        if let Some(failure) = self.condition()? {
            return Ok(json!({"failure": failure}));
        }
        self.cap_if_any()?;
        let before = self.device_bytes();
        let start = Instant::now();
        let mut children = vec![self.spawn(plan)?];
        if self.cell.trap.as_deref() == Some("two") {
            children.push(self.spawn(plan)?);
        }
        let ended = self.attend(children, start)?;
        let read = before.zip(self.device_bytes()).map(|(before, after)| after - before);
        let mut record = json!({
            "wall_ns": ended.wall.as_nanos() as u64,
            "device_bytes": read,
            "neighbour": ended.neighbour,
        });
        let mut failure = ended.failure;
        let mut instances = Vec::new();
        for output in &ended.outputs {
            if output.status.success() {
                instances.push(seen(&output.stdout)?);
            } else {
                failure = Some(reason(output));
            }
        }
        if let Some(Value::Object(last)) = instances.last() {
            for (field, value) in last {
                record[field.as_str()] = value.clone();
            }
        }
        let differ = |field: &str| instances.iter().any(|one| one[field] != instances[0][field]);
        if failure.is_none() && (differ("files") || differ("bytes")) {
            failure = Some("the instances read different files".to_owned());
        }
        if failure.is_none() && self.cell.condition == "cold" && !self.is_uncached() {
            failure = cold_failure(read, self.bytes);
        }
        if instances.len() > 1 {
            record["instances"] = instances.into();
        }
        record["failure"] = failure.into();
        Ok(record)
    }

    fn cap_if_any(&self) -> anyhow::Result<()> {
        if self.cell.iops.is_some() || self.cell.bytes_per_s.is_some() {
            self.cap(1)
        } else {
            Ok(())
        }
    }

    fn spawn(&self, plan: &Plan) -> anyhow::Result<Child> {
        let mut command = grouped(&self.groups, "TERM", &TIMEOUT);
        command.arg(&self.program);
        command.args(["each", "--json", "--compute", &self.cell.compute]).args(plan.words());
        match &self.list {
            Some(list) => {
                let list = fs::File::open(list).context("open the list of the files")?;
                command.arg("-").stdin(list);
            }
            None => {
                command.args(&self.dirs).stdin(Stdio::null());
            }
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("start each")
    }

    /// Waits for the runs, and springs the trap when it is due.
    fn attend(&self, children: Vec<Child>, start: Instant) -> anyhow::Result<Ended> {
        let (send, done) = channel();
        let count = children.len();
        let mut outputs = Vec::new();
        let (mut neighbour, mut failure) = (None, None);
        std::thread::scope(|scope| -> anyhow::Result<()> {
            for child in children {
                let send = send.clone();
                scope.spawn(move || send.send(child.wait_with_output()));
            }
            let due = Duration::from_secs_f64(self.cell.after_s);
            if self.cell.trap.is_some() {
                match done.recv_timeout(due.saturating_sub(start.elapsed())) {
                    Ok(output) => {
                        outputs.push(output.context("wait for each")?);
                        if self.cell.after_s > 0.0 {
                            failure = Some("the trap did not begin".to_owned());
                        }
                    }
                    Err(_) => neighbour = self.spring()?,
                }
            }
            while outputs.len() < count {
                let output = done.recv().context("wait for each")?;
                outputs.push(output.context("wait for each")?);
            }
            Ok(())
        })?;
        let wall = start.elapsed();
        let mut seen = Value::Null;
        if let Some(running) = neighbour {
            (seen, failure) = Neighbour::end(running)?;
        }
        Ok(Ended { outputs, wall, neighbour: seen, failure })
    }

    /// Begins the trap. Returns the neighbour, if that is one.
    fn spring(&self) -> anyhow::Result<Option<Neighbour>> {
        match self.cell.trap.as_deref() {
            Some("cap-falls") => self.cap(FALL).map(|()| None),
            Some("neighbour-io") => {
                Neighbour::reading(&self.groups, &self.neighbour_file).map(Some)
            }
            Some("neighbour-cpu") => Neighbour::computing().map(Some),
            _ => Ok(None),
        }
    }

    /// Establishes the condition of the cell, and returns the reason if it is not proved.
    fn condition(&self) -> anyhow::Result<Option<String>> {
        let cache = |what: &str, paths: &[PathBuf]| cache(&self.program, what, paths);
        if self.cell.condition == "warm" {
            cache("warm", &self.dirs)?;
            if self.is_uncached() {
                return Ok(None);
            }
            return Ok(resident_failure(1.0, cache("status", &self.dirs)?.share()));
        }
        let dropped = if self.is_uncached() { None } else { Some(cache("drop", &self.dirs[..1])?) };
        if self.drop_caches {
            run(&mut Command::new("sync"))?;
            fs::write("/proc/sys/vm/drop_caches", "3").context("drop the caches; needs root")?;
        }
        self.load_others()?;
        let Some(mut pages) = dropped else { return Ok(None) };
        let warm = warm_part(&self.cell.condition, &self.files);
        let mut wanted = 0.0;
        if !warm.is_empty() {
            cache("warm", &warm)?;
            // Querying the other files would load their attributes. They were queried when dropped.
            let loaded = cache("status", &warm)?;
            wanted = loaded.all as f64 / pages.all.max(1) as f64;
            pages.resident += loaded.resident;
            pages.unknown += loaded.unknown;
        }
        Ok(resident_failure(wanted, pages.share()))
    }

    /// Loads what is not measured: the list, and programs that were dropped with all caches. Under a
    /// cap, a neighbour that is not loaded would wait behind the reads of the run, and might never begin.
    fn load_others(&self) -> anyhow::Result<()> {
        if let Some(list) = &self.list {
            drop(fs::read(list).context("read the list of the files")?);
        }
        drop(fs::read(&self.program).context("read the program")?);
        run(grouped(&[], "TERM", &TIMEOUT).arg("true"))?;
        if self.cell.trap.as_deref() == Some("neighbour-io") {
            let own = std::env::current_exe().context("find this program")?;
            drop(fs::read(own).context("read this program")?);
            let mut file = fs::File::open(&self.neighbour_file).context("the neighbour's file")?;
            file.read_exact(&mut [0]).context("read the neighbour's file")?;
        }
        Ok(())
    }

    /// Returns the bytes that the device has read.
    fn device_bytes(&self) -> Option<u64> {
        bytes_read(self.device.as_ref()?)
    }
}

/// Runs that ended.
struct Ended {
    outputs: Vec<Output>,
    /// From the start of the first to the end of the last one.
    wall: Duration,
    neighbour: Value,
    /// Why the trap did not work.
    failure: Option<String>,
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

/// Returns what is recorded of the JSON of `each`.
fn seen(json: &[u8]) -> anyhow::Result<Value> {
    let text: Value = serde_json::from_slice(json).context("the JSON of each")?;
    let mut seen = json!({"tuned": null});
    for field in ["elapsed_ns", "files", "bytes", "digest", "memory_peak_bytes"] {
        seen[field] = text[field].clone();
    }
    let tuned = &text["tuned"];
    if !tuned["decisions"].is_null() {
        for field in ["decisions", "points", "probing_ns", "choice_ns"] {
            seen["tuned"][field] = tuned[field].clone();
        }
    }
    Ok(seen)
}

/// Returns why a run failed.
fn reason(output: &Output) -> String {
    let message = String::from_utf8_lossy(&output.stderr);
    match message.trim() {
        "" => output.status.to_string(),
        message => message.to_owned(),
    }
}

/// Returns the files that a condition loads, of all in the order of their paths.
fn warm_part(condition: &str, files: &[PathBuf]) -> Vec<PathBuf> {
    match condition {
        "half" => files.iter().step_by(2).cloned().collect(),
        "second-half-warm" => files[files.len() / 2..].to_vec(),
        "first-tenth-warm" => files[..files.len() / 10].to_vec(),
        _ => Vec::new(),
    }
}

/// Writes a list of files for `each -`.
fn write_list(list: &Path, files: &[PathBuf]) -> anyhow::Result<()> {
    let mut text = Vec::new();
    for file in files {
        text.extend_from_slice(file.as_os_str().as_bytes());
        text.push(b'\n');
    }
    fs::write(list, text).context("write the list of the files")
}

/// Makes an image with a file system. It has its name only when it is complete.
fn make_image(fs_name: &str, image: &Path) -> anyhow::Result<()> {
    let new = image.with_extension("image.new");
    fs::File::create(&new)?.set_len(IMAGE_BYTES).context("size an image")?;
    let force = if fs_name == "ext4" { "-F" } else { "-f" };
    run(Command::new(format!("mkfs.{fs_name}")).args(["-q", force]).arg(&new))?;
    fs::rename(&new, image).context("name an image")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_are_read_last_or_first_are_warm() {
        let files: Vec<PathBuf> = (10..30).map(|n| PathBuf::from(n.to_string())).collect();
        assert_eq!(warm_part("second-half-warm", &files), files[10..]);
        assert_eq!(warm_part("first-tenth-warm", &files), files[..2]);
        assert_eq!(warm_part("half", &files).len(), 10);
        assert!(warm_part("cold", &files).is_empty());
    }

    #[test]
    fn tuning_is_recorded_only_if_there_was_any() {
        let run = seen(br#"{"elapsed_ns": 7, "files": 1, "bytes": 2}"#).unwrap();
        assert_eq!((&run["elapsed_ns"], &run["tuned"]), (&json!(7), &Value::Null));
        let run = seen(br#"{"tuned": {"decisions": 3, "points": [], "other": 1}}"#).unwrap();
        let tuned = json!({"decisions": 3, "points": [], "probing_ns": null, "choice_ns": null});
        assert_eq!(run["tuned"], tuned);
    }
}
