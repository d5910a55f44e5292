//! The thread that samples the counters.

use super::read::{Reader, Sample, Scope};
use super::record::Record;
use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Samples that are kept at most: 6 MiB. Beyond them every second one goes and the period doubles.
const SAMPLES_MAX: usize = 8192;
/// Marks that are kept at most.
const MARKS_MAX: usize = 1024;
/// Time after which everything is read again.
const ALL_NS: u64 = 100_000_000;
/// Time after which new processes are looked for. What a process did whose parent waited for it is in
/// the parent's sums, so little is missed.
const LIST_NS: u64 = 500_000_000;
/// First samples with everything at each of which new processes are looked for: a program may start
/// others.
const LIST_FIRST: u64 = 5;

/// How to sample.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time between two samples.
    pub period: Duration,
    /// A process whose own input and output is sampled, with all that it starts.
    pub process: Option<u32>,
    /// A device that is sampled whatever others moved, such as `vda`.
    pub device: Option<String>,
    /// Where /proc and /sys are: `/` but for tests.
    pub root: PathBuf,
}

impl Default for Options {
    /// A hundred times a second, no process.
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
    taken: u64,
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
    /// Starts to sample; the first sample is taken before this returns.
    ///
    /// # Errors
    /// What starting a thread reports.
    pub fn start(options: &Options) -> io::Result<Self> {
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
            taken: 0,
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

    /// Takes a sample now, on the calling thread, under the name of the phase that begins here.
    pub fn mark(&self, name: &str) {
        let mut inner = lock(&self.inner);
        if inner.marks.len() < MARKS_MAX {
            inner.marks.push(name.to_owned());
            let mark = (inner.marks.len() - 1) as u16;
            inner.sample(Scope::All, Some(mark));
        }
    }

    /// Takes a sample of everything now, on the calling thread: before a process goes away, say.
    pub fn sample(&self) {
        lock(&self.inner).sample(Scope::All, None);
    }

    /// The newest sample that has everything and the oldest such one not older than `span` before it;
    /// while there are no two, the newest of all and the oldest not older than that.
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

    /// Names of the devices, indexed as in [`Sample::disk`].
    pub fn devices(&self) -> Vec<String> {
        lock(&self.inner).reader.devices()
    }

    /// Takes a last sample and ends.
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
    /// Samples in this time, at least one.
    fn samples_in(&self, ns: u64) -> u64 {
        (ns / self.period_ns).max(1)
    }

    /// How much the next sample in turn reads.
    fn scope(&self) -> Scope {
        if self.taken.is_multiple_of(self.samples_in(ALL_NS)) { Scope::All } else { Scope::Paging }
    }

    /// Whether new processes are looked for before the next sample, which reads `scope`.
    fn lists(&self, scope: Scope) -> bool {
        let all = self.samples_in(ALL_NS);
        let (number, every) = (self.taken / all, self.samples_in(LIST_NS) / all);
        scope == Scope::All && (number < LIST_FIRST || number.is_multiple_of(every.max(1)))
    }

    fn sample(&mut self, scope: Scope, mark: Option<u16>) {
        self.taken += 1;
        if self.samples.len() - self.marks.len().min(self.samples.len()) >= SAMPLES_MAX {
            self.thin();
        }
        let mut sample = self.reader.read(scope);
        sample.mark = mark;
        self.samples.push(sample);
    }

    /// Every second sample of each scope goes, but for those of marks.
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

/// Samples until it is told to stop; returns the thread's processor time and how long it ran.
fn run(inner: &Mutex<Inner>, stop: &AtomicBool, process: Option<u32>) -> (u64, u64) {
    let (cpu, start) = (thread_cpu_ns(), monotonic_ns());
    let mut next = start;
    while !stop.load(Ordering::Relaxed) {
        let now = monotonic_ns();
        if now < next {
            // A spurious wake-up only leads back here.
            std::thread::park_timeout(Duration::from_nanos(next - now));
            continue;
        }
        let mut inner = lock(inner);
        let period = inner.period_ns;
        let missed = (now - next) / period;
        inner.late += missed;
        next += (missed + 1) * period;
        let scope = inner.scope();
        if let Some(pid) = process.filter(|_| inner.lists(scope)) {
            inner.reader.follow(&crate::collect::tree(pid));
        }
        inner.sample(scope, None);
    }
    (thread_cpu_ns() - cpu, monotonic_ns() - start)
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
            taken: 0,
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
            let scope = inner.scope();
            inner.sample(scope, mark);
        }
        assert!(inner.samples.len() <= SAMPLES_MAX + MARKS_MAX);
        let marked = inner.samples.iter().filter(|sample| sample.mark.is_some()).count();
        assert_eq!(marked, inner.marks.len());
        assert!(inner.period_ns >= 20_000_000 && inner.thinned > 0);
        assert!(inner.samples.windows(2).all(|w| w[0].at_ns <= w[1].at_ns));
        // Whatever goes, those with everything do not go altogether.
        for part in inner.samples.chunks_exact(100) {
            assert!(part.iter().any(|sample| sample.scope == Scope::All));
        }
    }

    #[test]
    fn everything_is_read_each_time_where_samples_are_rare() {
        let scopes = |period_ns| {
            let mut inner = Inner { period_ns, ..inner() };
            let mut next = || {
                let scope = inner.scope();
                let lists = inner.lists(scope);
                inner.sample(scope, None);
                (scope, lists)
            };
            (0..600).map(|_| next()).collect::<Vec<_>>()
        };
        let first = |period_ns| scopes(period_ns)[..6].iter().map(|(s, _)| *s).collect::<Vec<_>>();
        let lists = |period_ns| scopes(period_ns).iter().filter(|(_, lists)| *lists).count();
        use Scope::{All, Paging};
        assert_eq!(first(10_000_000), [All, Paging, Paging, Paging, Paging, Paging]);
        assert_eq!(first(30_000_000), [All, Paging, Paging, All, Paging, Paging]);
        assert_eq!(first(1_000_000_000), [All; 6]);
        // In 6 seconds twice a second, and four times more at the beginning; with rare ones each time.
        assert_eq!((lists(10_000_000), lists(1_000_000_000)), (16, 600));
    }

    #[test]
    fn what_a_program_reads_is_between_its_marks() {
        let process = Some(std::process::id());
        let sampler = Sampler::start(&Options { process, ..Options::default() }).unwrap();
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
        let memory = ioloom_sys::cache::lives_in_memory(dir.path()).unwrap();
        let wrote = b.get(Field::TaskWritten).unwrap() - a.get(Field::TaskWritten).unwrap();
        assert!(memory || wrote >= 4 << 20, "{wrote}");
        // The kernel's own sum is gathered per processor and may lag a little.
        assert!(memory || (b_dirtied - a_dirtied) * 4096 >= 3 << 20);
        assert!(b.get(Field::MemTotal).is_some(), "marks have everything");
        assert_eq!(record.marks(0).len(), 2);
    }
}
