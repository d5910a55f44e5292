//! Plants one limit at a time, runs the library, and prints what [`ioloom::Run::why`] is based on.
//!
//! `cargo run --release --example why -- --runs 10 --dir DIR > runs.jsonl` prints one JSON line per
//! run: the planted limit, the limit that was found, its sentence, and the measurements.
//! `--plant NAME` runs one plant. Two plants need a slow file system: `--delayfs PROGRAM`, which is
//! the example of the crate `delayfs`. The plant of a processor quota needs root, because it creates a
//! control group. The neighbours of a run are child processes of this program.

use ioloom::{File, OnError, Plan, Run};
use ioloom_model::Measured;
use ioloom_observe::limit::Facts;
use ioloom_sys::clock::thread_cpu_ns;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// What is left of a run.
struct Ended {
    measured: Measured,
    why: String,
    /// Usable processors.
    cores: u32,
}

type Planted = Result<Ended, String>;

/// A plant: its name, the limit that it plants, and the run.
type Plant = (&'static str, &'static str, fn(&Sets) -> Planted);

const PLANTS: [Plant; 19] = [
    ("slow producer", "input list", slow_producer),
    ("processor hogs", "other programs", processor_hogs),
    ("a processor quota", "processor quota", processor_quota),
    ("neighbour on the device", "other programs", device_neighbour),
    ("children that compute", "child processes", children_compute),
    ("children that sleep", "child processes", children_sleep),
    ("a function that sleeps", "function waits", function_sleeps),
    ("a function with a lock", "function waits", function_locks),
    ("a slow caller", "output", slow_caller),
    ("a budget held by the caller", "memory", memory_held),
    ("functions that reserve memory", "memory", functions_reserve),
    ("a function that computes", "compute", function_computes),
    ("one thread that computes", "compute", one_thread_computes),
    ("many small warm files", "metadata", small_warm),
    ("cold files", "device", cold),
    ("a slow file system", "device", slow_reads),
    ("one file at a time in the queue", "hand-over", narrow_queue),
    ("twenty files", "unknown", twenty_files),
    ("a function that always fails", "unknown", always_fails),
];

/// The files of all plants.
struct Sets {
    /// 20,000 files of 100 bytes.
    tiny: Vec<PathBuf>,
    /// 96 files of 2 MiB.
    large: Vec<PathBuf>,
    /// A file of 512 MiB for the neighbour.
    neighbour: PathBuf,
    /// A directory to mount on, and the program that mounts a slow file system.
    mount_point: PathBuf,
    delayfs: Option<PathBuf>,
}

/// A mounted file system in which each read takes 20 ms.
struct Slow {
    root: PathBuf,
    _server: Neighbour,
}

impl Slow {
    fn paths(&self) -> Vec<PathBuf> {
        let dirs = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
        let files = dirs.flat_map(|dir| std::fs::read_dir(dir.path()).into_iter().flatten());
        let mut paths: Vec<_> = files.flatten().map(|file| file.path()).collect();
        paths.sort();
        paths
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let after = |name: &str| {
        args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)).map(String::as_str)
    };
    match args.first().map(String::as_str) {
        Some("hog") => loop {
            std::hint::spin_loop();
        },
        Some("read") => read_for_ever(Path::new(&args[1]))?,
        _ => {}
    }
    let runs: u32 = after("--runs").unwrap_or("10").parse()?;
    let mut sets = Sets::make(Path::new(after("--dir").unwrap_or("target/why")))?;
    sets.delayfs = after("--delayfs").map(PathBuf::from);
    for run in 0..runs {
        for (name, planted, plant) in PLANTS {
            if after("--plant").is_some_and(|wanted| wanted != name) {
                continue;
            }
            let run_of = plant(&sets);
            let line = match run_of {
                Err(error) => serde_json::json!({
                    "plant": name, "planted": planted, "run": run, "error": error,
                }),
                Ok(done) => judged(name, planted, run, &done),
            };
            writeln!(std::io::stdout(), "{line}")?;
        }
    }
    Ok(())
}

/// Returns the line of a run.
fn judged(plant: &str, planted: &str, run: u32, done: &Ended) -> serde_json::Value {
    let (m, cores) = (&done.measured, done.cores);
    let limit = m.bottleneck.as_ref();
    serde_json::json!({
        "plant": plant,
        "planted": planted,
        "run": run,
        "found": limit.map(|b| &b.word),
        "close": limit.map(|b| &b.close),
        "shares": limit.map(|b| &b.shares),
        "why": done.why,
        "others_cpu": m.others_cpu,
        "others_device": m.others_device,
        "facts": Facts::of(m, cores, cores),
    })
}

impl Sets {
    /// Makes the files that are missing.
    fn make(dir: &Path) -> std::io::Result<Self> {
        let make = |name: &str, count: usize, bytes: usize| -> std::io::Result<Vec<PathBuf>> {
            let dir = dir.join(name);
            std::fs::create_dir_all(&dir)?;
            let paths: Vec<PathBuf> = (0..count).map(|i| dir.join(format!("{i:05}"))).collect();
            for (i, path) in paths.iter().enumerate().filter(|(_, path)| !path.exists()) {
                let data: Vec<u8> = (0..bytes).map(|at| (at * 31 + i * 7) as u8).collect();
                std::fs::write(path, data)?;
            }
            Ok(paths)
        };
        let tiny = make("tiny", 20_000, 100)?;
        let large = make("large", 96, 2 << 20)?;
        let neighbour = make("neighbour", 1, 512 << 20)?.remove(0);
        for path in large.iter().chain([&neighbour]) {
            std::fs::File::open(path)?.sync_all()?;
        }
        let mount_point = dir.join("mnt");
        std::fs::create_dir_all(&mount_point)?;
        Ok(Self { tiny, large, neighbour, mount_point, delayfs: None })
    }

    /// Mounts the slow file system.
    fn slow(&self) -> Result<Slow, String> {
        let program = self.delayfs.as_ref().ok_or("needs --delayfs PROGRAM")?;
        let root = self.mount_point.clone();
        let mut command = Command::new(program);
        command.arg(&root).args(["--files", "96", "--size", "400KiB", "--read", "20ms"]);
        let server = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let slow = Slow { root, _server: Neighbour(server.map_err(|e| e.to_string())?) };
        for _ in 0..500 {
            if slow.paths().len() == 96 {
                return Ok(slow);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the slow file system was not mounted".to_owned())
    }

    fn few(&self, count: usize) -> Vec<PathBuf> {
        self.tiny.iter().take(count).cloned().collect()
    }
}

/// A process that is terminated when it is dropped.
struct Neighbour(Child);

const SIGTERM: i32 = 15;

impl Neighbour {
    fn start(args: &[&str]) -> std::io::Result<Self> {
        let program = std::env::current_exe()?;
        Ok(Self(Command::new(program).args(args).stdout(Stdio::null()).spawn()?))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = ioloom_sys::proc::signal_child(&self.0, SIGTERM);
        let _ = self.0.wait();
    }
}

/// A control group with a tenth of a processor, in which this process is until it is dropped.
struct Throttled {
    group: PathBuf,
    before: PathBuf,
}

impl Throttled {
    fn join() -> std::io::Result<Self> {
        let groups = ioloom_sys::cgroup::own_groups();
        let controls = |line: &&str| {
            let names = line.split(':').nth(1).unwrap_or("");
            names.split(',').any(|name| name == "cpu")
        };
        // Version 1, or else version 2.
        let (root, quota, text, line) = match groups.lines().find(controls) {
            Some(line) => ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "10000", line),
            None => {
                let line = groups.lines().find(|line| line.starts_with("0::")).unwrap_or("0::/");
                ("/sys/fs/cgroup", "cpu.max", "10000 100000", line)
            }
        };
        let path = line.splitn(3, ':').nth(2).unwrap_or("/");
        let before = Path::new(root).join(path.trim_start_matches('/'));
        let group = Path::new(root).join("ioloom-why");
        std::fs::create_dir_all(&group)?;
        let throttled = Self { group, before };
        std::fs::write(throttled.group.join(quota), text)?;
        enter(&throttled.group)?;
        Ok(throttled)
    }
}

impl Drop for Throttled {
    fn drop(&mut self) {
        let _ = enter(&self.before);
        let _ = std::fs::remove_dir(&self.group);
    }
}

/// Moves this process to a control group.
fn enter(group: &Path) -> std::io::Result<()> {
    std::fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// Reads a file from the device again and again, on four threads.
fn read_for_ever(path: &Path) -> std::io::Result<()> {
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || -> std::io::Result<()> {
                let mut file = std::fs::File::open(path)?;
                let mut piece = vec![0; 1 << 20];
                loop {
                    ioloom_sys::cache::evict_file(&file)?;
                    file.seek(SeekFrom::Start(part * (128 << 20)))?;
                    for _ in 0..128 {
                        file.read_exact(&mut piece)?;
                    }
                }
            });
        }
    });
    Ok(())
}

fn spin(ns: u64) -> u64 {
    let until = thread_cpu_ns() + ns;
    let mut rounds = 0;
    while thread_cpu_ns() < until {
        // The clock is a system call; most of the time is spent here.
        rounds =
            (0..20_000).fold(rounds, |sum: u64, i| std::hint::black_box(sum ^ i).rotate_left(5));
    }
    rounds % 2
}

fn evict(paths: &[PathBuf]) {
    for path in paths {
        let file = std::fs::File::open(path).expect("the files of the plants exist");
        ioloom_sys::cache::evict_file(file).expect("files can be evicted");
    }
}

fn plan(text: &str) -> Plan {
    text.parse().expect("the plans here are valid")
}

fn ended<T, E: std::fmt::Display>(run: Result<Run<T, E>, ioloom::Error<E>>) -> Planted {
    let run = run.map_err(|error| error.to_string())?;
    Ok(Ended { why: run.why(), measured: run.measured, cores: ioloom::usable_cores() })
}

fn length(f: &File<'_>) -> u64 {
    f.len()
}

fn computes(_: &File<'_>) -> u64 {
    spin(2_000_000)
}

fn slow_producer(sets: &Sets) -> Planted {
    let paths = sets.few(60).into_iter().inspect(|_| {
        std::thread::sleep(Duration::from_millis(5));
    });
    ended(ioloom::files(paths).map(length).run())
}

fn processor_hogs(sets: &Sets) -> Planted {
    let hogs = 2 * ioloom::usable_cores();
    let _hogs: Vec<_> = (0..hogs).filter_map(|_| Neighbour::start(&["hog"]).ok()).collect();
    std::thread::sleep(Duration::from_millis(100));
    ended(ioloom::files(sets.few(200)).map(computes).run())
}

fn processor_quota(sets: &Sets) -> Planted {
    // The number of usable processors is remembered for a second.
    let remembered = Duration::from_millis(1100);
    let group = Throttled::join().map_err(|e| format!("needs a control group: {e}"))?;
    std::thread::sleep(remembered);
    let run = ended(ioloom::files(sets.few(100)).map(computes).run());
    drop(group);
    std::thread::sleep(remembered);
    run
}

fn device_neighbour(sets: &Sets) -> Planted {
    let path = sets.neighbour.to_string_lossy();
    let _reader = Neighbour::start(&["read", &path]);
    std::thread::sleep(Duration::from_millis(100));
    cold(sets)
}

fn children(sets: &Sets, files: usize, script: &'static str) -> Planted {
    let child = move |_: &File<'_>| -> bool {
        let status = Command::new("sh").args(["-c", script]).status();
        status.is_ok_and(|status| status.success())
    };
    ended(ioloom::files(sets.few(files)).map(child).run())
}

fn children_compute(sets: &Sets) -> Planted {
    children(sets, 20, "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done")
}

fn children_sleep(sets: &Sets) -> Planted {
    children(sets, 20, "sleep 0.05")
}

fn function_sleeps(sets: &Sets) -> Planted {
    let sleeps = |_: &File<'_>| std::thread::sleep(Duration::from_millis(5));
    ended(ioloom::files(sets.few(100)).map(sleeps).run())
}

fn function_locks(sets: &Sets) -> Planted {
    let lock = Mutex::new(());
    let locked = |_: &File<'_>| {
        let _held = lock.lock();
        std::thread::sleep(Duration::from_millis(3));
    };
    ended(ioloom::files(sets.few(100)).map(locked).run())
}

fn slow_caller(sets: &Sets) -> Planted {
    let job = ioloom::list(sets.few(600)).map(length);
    ended(
        job.scope(|results| {
            results.inspect(|_| std::thread::sleep(Duration::from_millis(2))).count()
        }),
    )
}

/// The caller holds half of the budget, and each read takes long: with the other half, only four of
/// sixteen readers have memory.
fn memory_held(sets: &Sets) -> Planted {
    let mount = sets.slow()?;
    let held = Mutex::new(Vec::new());
    let keeps = |f: &File<'_>| {
        if f.index() < 4
            && let Ok(mut held) = held.lock()
        {
            held.push(f.keep());
        }
    };
    let files = ioloom::files(mount.paths()).pin(plan("read/window:l=16,p=2"));
    ended(files.memory(4 << 20).map(keeps).run())
}

/// Eight functions reserve the whole budget each, so seven wait.
fn functions_reserve(sets: &Sets) -> Planted {
    let reserves = |f: &File<'_>| {
        let _reserved = f.reserve(8 << 20);
        std::thread::sleep(Duration::from_millis(5));
    };
    let files = ioloom::files(sets.few(100)).threads(8).memory(8 << 20);
    ended(files.map(reserves).run())
}

fn slow_reads(sets: &Sets) -> Planted {
    let mount = sets.slow()?;
    let files = ioloom::files(mount.paths()).pin(plan("read/window:l=8,p=2"));
    ended(files.map(length).run())
}

fn function_computes(sets: &Sets) -> Planted {
    ended(ioloom::files(sets.few(300)).map(computes).run())
}

fn one_thread_computes(sets: &Sets) -> Planted {
    let plan = plan("read/threads:n=1");
    ended(ioloom::files(sets.few(200)).pin(plan).map(computes).run())
}

fn small_warm(sets: &Sets) -> Planted {
    ended(ioloom::files(sets.tiny.clone()).map(length).run())
}

fn cold(sets: &Sets) -> Planted {
    evict(&sets.large);
    ended(ioloom::files(sets.large.clone()).map(length).run())
}

fn narrow_queue(sets: &Sets) -> Planted {
    let plan = plan("read/roles:r=1,h=0,c=1,w=1");
    // About as long as opening and reading a file.
    let work = |f: &File<'_>| (0..1200).fold(f.len(), |sum, i| std::hint::black_box(sum ^ i));
    ended(ioloom::files(sets.few(4000)).pin(plan).map(work).run())
}

fn twenty_files(sets: &Sets) -> Planted {
    ended(ioloom::files(sets.few(20)).map(length).run())
}

fn always_fails(sets: &Sets) -> Planted {
    let fails = |_: &File<'_>| -> Result<(), &str> {
        spin(200_000);
        Err("no such command")
    };
    ended(ioloom::files(sets.few(400)).on_error(OnError::Collect).try_map(fails).run())
}
