//! The thread that samples the counters.

use super::read::{Reader, Sample, Scope};
use super::record::Record;
use super::schedule::Schedule;
use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of samples stored: 6 MiB. Beyond that every second one is dropped and the period
/// doubles.
const SAMPLES_MAX: usize = 8192;
/// Maximum number of marks stored.
const MARKS_MAX: usize = 1024;
/// Sampler options.
#[derive(Debug, Clone)]
pub struct SamplerOptions {
    /// Time between two samples.
    pub period: Duration,
    /// Process whose I/O is sampled, including all its descendants.
    pub process: Option<u32>,
    /// Device that is always sampled, however little it transferred, such as `vda`.
    pub device: Option<String>,
    /// Directory that contains /proc and /sys: `/` except in tests.
    pub root: PathBuf,
}

impl Default for SamplerOptions {
    /// A hundred samples per second, no process.
    fn default() -> Self {
        Self {
            period: Duration::from_millis(10),
            process: None,
            device: None,
            root: PathBuf::from("/"),
        }
    }
}

struct Inner {
    reader: Reader,
    samples: Vec<Sample>,
    marks: Vec<String>,
    period_ns: u64,
    late: u64,
    thinned: u64,
}

/// A running sampler.
pub struct Sampler {
    inner: Arc<Mutex<Inner>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, u64)>,
    period_ns: u64,
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sampler {
    /// Starts sampling; takes the first sample before returning.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start(options: &SamplerOptions) -> io::Result<Self> {
        let period_ns = (options.period.as_nanos() as u64).max(100_000);
        let mut reader = Reader::open(&options.root);
        if let Some(device) = &options.device {
            reader.watch_device(device);
        }
        let process = options.process;
        if let Some(pid) = process {
            reader.follow(&[pid]);
        }
        let mut inner = Inner {
            reader,
            samples: Vec::with_capacity(SAMPLES_MAX + MARKS_MAX),
            marks: Vec::new(),
            period_ns,
            late: 0,
            thinned: 0,
        };
        inner.sample(Scope::All, None);
        let inner = Arc::new(Mutex::new(inner));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (inner.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("ioloom-counters".to_owned())
            .spawn(move || run(&shared, &stopped, process))?;
        Ok(Self { inner, stop, thread, period_ns })
    }

    /// Takes a sample on the calling thread and marks it as the start of a phase.
    pub fn mark(&self, name: &str) {
        let mut inner = lock(&self.inner);
        if inner.marks.len() < MARKS_MAX {
            inner.marks.push(name.to_owned());
            let mark = (inner.marks.len() - 1) as u16;
            inner.sample(Scope::All, Some(mark));
        }
    }

    /// Takes a complete sample on the calling thread, for example before a process exits.
    pub fn sample(&self) {
        lock(&self.inner).sample(Scope::All, None);
    }

    /// Returns the newest complete sample and the oldest complete one at most `span` older. Until
    /// there are two complete samples, considers all samples.
    pub fn recent(&self, span: Duration) -> Option<(Sample, Sample)> {
        let inner = lock(&self.inner);
        let samples = &inner.samples[..];
        let whole = |sample: &&Sample| sample.scope == Scope::All;
        let ends = |last: &Sample| {
            let from_ns = last.at_ns.saturating_sub(span.as_nanos() as u64);
            let within = &samples[samples.partition_point(|sample| sample.at_ns < from_ns)..];
            let first = within.iter().find(whole).or(within.first())?;
            (first.at_ns < last.at_ns).then_some((*first, *last))
        };
        let last_whole = samples.iter().rev().find(whole);
        last_whole.and_then(ends).or_else(|| ends(samples.last()?))
    }

    /// Returns the device names, indexed as in [`Sample::disk`].
    pub fn devices(&self) -> Vec<String> {
        lock(&self.inner).reader.devices()
    }

    /// Takes a last sample and stops the thread.
    pub fn stop(self) -> Record {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let (cpu_ns, elapsed_ns) = self.thread.join().unwrap_or_default();
        let mut inner = lock(&self.inner);
        inner.sample(Scope::All, None);
        Record {
            samples: std::mem::take(&mut inner.samples),
            marks: std::mem::take(&mut inner.marks),
            devices: inner.reader.devices(),
            period_ns: self.period_ns,
            late: inner.late,
            thinned: inner.thinned,
            cpu_ns,
            elapsed_ns,
            missing: inner.reader.missing().to_vec(),
        }
    }
}

impl Inner {
    fn sample(&mut self, scope: Scope, mark: Option<u16>) {
        if self.samples.len() - self.marks.len().min(self.samples.len()) >= SAMPLES_MAX {
            self.thin();
        }
        let mut sample = self.reader.read(scope);
        sample.mark = mark;
        debug_assert!(
            self.samples.last().is_none_or(|last| last.at_ns <= sample.at_ns),
            "samples must be in time order: they are taken with the lock held"
        );
        self.samples.push(sample);
    }

    /// Drops every second sample of each scope except those of marks.
    fn thin(&mut self) {
        let before = self.samples.len();
        let mut odd = [false; 2];
        self.samples.retain(|sample| {
            let odd = &mut odd[sample.scope as usize];
            *odd = !*odd;
            *odd || sample.mark.is_some()
        });
        self.thinned += (before - self.samples.len()) as u64;
        self.period_ns *= 2;
    }
}

/// Samples until stopped; returns the processor time and lifetime of the thread.
fn run(inner: &Mutex<Inner>, stop: &AtomicBool, process: Option<u32>) -> (u64, u64) {
    let (cpu, start) = (thread_cpu_ns(), monotonic_ns());
    let used_ns = || thread_cpu_ns() - cpu;
    let mut schedule = Schedule::default();
    let mut next = start;
    assert!(
        lock(inner).period_ns > 0,
        "the period must not be zero: missed periods are divided by it"
    );
    while !stop.load(Ordering::Relaxed) {
        let now = monotonic_ns();
        if now < next {
            // A spurious wake-up only starts another iteration.
            std::thread::park_timeout(Duration::from_nanos(next - now));
            continue;
        }
        let mut inner = lock(inner);
        let period = inner.period_ns;
        let missed = (now - next) / period;
        inner.late += missed;
        let due = schedule.next(next + missed * period - start, period, used_ns);
        next += (missed + 1) * period;
        if due.scope == Scope::Paging {
            inner.sample(Scope::Paging, None);
            continue;
        }
        let before_ns = used_ns();
        if let Some(pid) = process.filter(|_| due.lists) {
            inner.reader.follow(&crate::collect::tree(pid));
        }
        inner.sample(Scope::All, None);
        schedule.cost(used_ns() - before_ns);
    }
    (used_ns(), monotonic_ns() - start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Field;

    fn inner() -> Inner {
        Inner {
            reader: Reader::open(std::path::Path::new("/no/such/root")),
            samples: Vec::new(),
            marks: Vec::new(),
            period_ns: 10_000_000,
            late: 0,
            thinned: 0,
        }
    }

    #[test]
    fn memory_is_bounded_and_marks_stay() {
        let mut inner = inner();
        for i in 0..3 * SAMPLES_MAX {
            let mark = i.is_multiple_of(1000).then(|| {
                inner.marks.push(String::new());
                (inner.marks.len() - 1) as u16
            });
            let scope = if i.is_multiple_of(10) { Scope::All } else { Scope::Paging };
            inner.sample(scope, mark);
        }
        assert!(inner.samples.len() <= SAMPLES_MAX + MARKS_MAX);
        let marked = inner.samples.iter().filter(|sample| sample.mark.is_some()).count();
        assert_eq!(marked, inner.marks.len());
        assert!(inner.period_ns >= 20_000_000 && inner.thinned > 0);
        assert!(inner.samples.windows(2).all(|w| w[0].at_ns <= w[1].at_ns));
        // Some complete samples must remain.
        for part in inner.samples.chunks_exact(100) {
            assert!(part.iter().any(|sample| sample.scope == Scope::All));
        }
    }

    #[test]
    fn the_io_of_a_program_is_between_its_marks() {
        let process = Some(std::process::id());
        let sampler =
            Sampler::start(&SamplerOptions { process, ..SamplerOptions::default() }).unwrap();
        sampler.mark("before");
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::write(dir.path().join("f"), vec![1; 4 << 20]).unwrap();
        sampler.mark("after");
        let record = sampler.stop();
        let (a, b) = (record.at_mark("before").unwrap(), record.at_mark("after").unwrap());
        let (Some(a_dirtied), Some(b_dirtied)) = (a.get(Field::Dirtied), b.get(Field::Dirtied))
        else {
            panic!("no /proc/vmstat: {:?}", record.missing);
        };
        let memory = ioloom_sys::cache::is_memory_backed(dir.path()).unwrap();
        let wrote = b.get(Field::TaskWritten).unwrap() - a.get(Field::TaskWritten).unwrap();
        assert!(memory || wrote >= 4 << 20, "{wrote}");
        // The kernel's sum is collected per processor and can lag slightly.
        assert!(memory || (b_dirtied - a_dirtied) * 4096 >= 3 << 20);
        assert!(b.get(Field::MemTotal).is_some(), "marks must contain all counters");
        assert_eq!(record.marks(0).len(), 2);
    }
}
