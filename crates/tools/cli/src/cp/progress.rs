//! Copy progress: on a terminal, a bar with bytes, entries and remaining time, drawn by a background
//! thread. A separate walk counts the total; it starts only if the bar is shown.

use super::CpArgs;
use crate::bar_target;
use crate::exit::Failure;
use crate::{out, standard_input};
use indicatif::{ProgressBar, ProgressStyle};
use ioloom_copy::{
    CopyCounters, CopyError, CopyOptions, Mode, Target, Verify, Watcher, When, bytes_to_copy,
};
use ioloom_failure::{quoted, reason};
use ioloom_model::units::{format_count, format_size};
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::dir::Kind;
use ioloom_sys::stream::{self, Ready};
use std::collections::VecDeque;
use std::io::{IsTerminal, Stdin};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Time between two updates.
const EVERY: Duration = Duration::from_millis(100);
/// Updates before the bar appears and counting starts. Short copies show no bar.
const UPDATES_BEFORE: u32 = 4;

/// Time for a signal that ends the input, as that of a closed terminal does, to be handled by another thread.
const SIGNAL_WAIT: Duration = EVERY;
/// Time between two looks for such a signal.
const SIGNAL_LOOK: Duration = Duration::from_millis(5);

const KNOWN: &str = "{bar:20} {msg}  {eta} left";
const UNKNOWN: &str = "{spinner} {msg}";

/// Prints progress and questions on standard error and, with -v, names on standard output.
pub(super) struct CopyProgress {
    verbose: bool,
    debug: Option<DebugLine>,
    bar: Option<ProgressBar>,
    thread: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
    /// Serializes questions.
    asking: Mutex<Answers>,
    /// Whether the copy was interrupted.
    cancel: Arc<AtomicBool>,
    /// Whether a file that cannot be written is removed.
    removes: bool,
    /// Why a line could not be written to standard output, other than that its reader has closed it, or why an
    /// answer could not be read.
    stream_failure: Mutex<Option<Failure>>,
}

impl CopyProgress {
    /// `copied` are the sources and the target, if their total is to be counted.
    pub(super) fn start(
        args: &CpArgs,
        copied: Option<(&[PathBuf], &Target)>,
        options: &CopyOptions,
        progress: Arc<CopyCounters>,
    ) -> Self {
        let bar = (std::io::stderr().is_terminal() && !args.flags.interactive).then(|| {
            let bar = ProgressBar::with_draw_target(None, bar_target::stderr());
            bar.with_style(style(UNKNOWN))
        });
        let thread = bar.clone().and_then(|bar| {
            let count = copied.map(|(sources, target)| Count::new(sources, target, options));
            let (end, ended) = mpsc::channel();
            let draw = move || {
                let mut updates = 0;
                while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                    updates += 1;
                    if updates == UPDATES_BEFORE {
                        count.iter().for_each(Count::begin);
                    }
                    if updates >= UPDATES_BEFORE {
                        draw_once(&bar, &progress, count.as_ref());
                    }
                }
                count.iter().for_each(|count| count.stop.store(true, Ordering::Relaxed));
            };
            let thread = std::thread::Builder::new().name("cp-progress".to_owned()).spawn(draw);
            thread.ok().map(|thread| (end, thread))
        });
        let thread = Mutex::new(thread);
        Self {
            verbose: args.is_verbose(),
            debug: args.flags.debug.then_some(DebugLine { options: options.clone() }),
            bar,
            thread,
            asking: Mutex::default(),
            cancel: options.cancel.clone(),
            removes: options.force || options.remove_destination,
            stream_failure: Mutex::default(),
        }
    }

    /// Prints a line on standard output.
    fn print(&self, line: &str) {
        let printed = match &self.bar {
            Some(bar) => bar.suspend(|| out::print_to_slow_reader(line)),
            None => out::print_to_slow_reader(line),
        };
        // Continue copying.
        if let Err(failure) = printed
            && !failure.message.is_empty()
        {
            self.keep(out::in_gnu_words(failure));
        }
    }

    /// Keeps the first failure of a standard stream.
    fn keep(&self, failure: Failure) {
        if let Ok(mut kept) = self.stream_failure.lock() {
            kept.get_or_insert(failure);
        }
    }

    /// Returns why not all lines are on standard output, or why an answer could not be read.
    pub(super) fn stream_failure(&self) -> Option<Failure> {
        self.stream_failure.lock().ok()?.take()
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some((end, thread)) = thread {
            let _ = end.send(());
            let _ = thread.join();
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The line of --debug, in the words of GNU cp 9.
struct DebugLine {
    options: CopyOptions,
}

impl DebugLine {
    fn of(&self, mode: Mode, finds_holes: bool) -> String {
        let options = &self.options;
        let shares = options.verify == Verify::None && options.sparse != When::Always;
        let reflink = match mode {
            Mode::Reflink => "yes",
            _ if options.reflink == When::Never => "no",
            _ if options.mode.is_some() || !shares => "avoided",
            _ => "unsupported",
        };
        let (offload, sparse) = match (mode, options.sparse, finds_holes) {
            // The kernel does not report how it shares blocks.
            (Mode::Reflink, ..) => ("unknown", "unknown"),
            (_, When::Always, true) => ("avoided", "SEEK_HOLE + zeros"),
            (_, When::Always, false) => ("avoided", "zeros"),
            (Mode::Range, _, true) => ("yes", "SEEK_HOLE"),
            (Mode::Range, _, false) => ("yes", "no"),
            (_, _, true) => ("avoided", "SEEK_HOLE"),
            (_, _, false) => ("avoided", "no"),
        };
        format!("copy offload: {offload}, reflink: {reflink}, sparse detection: {sparse}\n")
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; an invalid one falls back to the default bar.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━━╌")
}

fn draw_once(bar: &ProgressBar, progress: &CopyCounters, count: Option<&Arc<Count>>) {
    let bytes = progress.bytes.load(Ordering::Relaxed);
    let entries = progress.entries.load(Ordering::Relaxed);
    let all = count.and_then(|count| count.bytes.get());
    if let Some(all) = all
        && bar.length().is_none()
    {
        bar.set_length((*all).max(1));
        bar.set_style(style(KNOWN));
        bar.reset_eta();
    }
    let of = all.map_or_else(String::new, |all| format!(" of {}", format_size(*all)));
    bar.set_message(format!("{}{of}, {} entries", format_size(bytes), format_count(entries)));
    bar.set_position(bytes);
    bar.tick();
}

/// The total to copy, counted in the background.
struct Count {
    sources: Vec<PathBuf>,
    target: Target,
    options: CopyOptions,
    /// When the copy started.
    since: SystemTime,
    bytes: OnceLock<u64>,
    stop: Arc<AtomicBool>,
}

impl Count {
    fn new(sources: &[PathBuf], target: &Target, options: &CopyOptions) -> Arc<Self> {
        Arc::new(Self {
            sources: sources.to_owned(),
            target: target.clone(),
            options: options.clone(),
            since: SystemTime::now(),
            bytes: OnceLock::new(),
            stop: Arc::default(),
        })
    }

    fn begin(self: &Arc<Self>) {
        let count = self.clone();
        let walk = move || {
            let Self { sources, target, options, since, stop, .. } = &*count;
            if let Some(bytes) = bytes_to_copy(sources, target, options, *since, stop) {
                // Set only by this thread.
                let _ = count.bytes.set(bytes);
            }
        };
        // Without the total the bar shows no remaining time.
        let _ = std::thread::Builder::new().name("cp-count".to_owned()).spawn(walk);
    }
}

impl Watcher for CopyProgress {
    fn wants_names(&self) -> bool {
        self.verbose
    }

    fn copied(&self, from: &Path, to: &Path, backup: Option<&Path>) {
        let backup = backup.map(|backup| format!(" (backup: {})", quoted(backup)));
        let backup = backup.unwrap_or_default();
        self.print(&format!("{} -> {}{backup}\n", quoted(from), quoted(to)));
    }

    fn copied_by(&self, mode: Mode, finds_holes: bool) {
        if let Some(debug) = &self.debug {
            self.print(&debug.of(mode, finds_holes));
        }
    }

    fn made_parent(&self, from: &Path, to: &Path) {
        self.print(&format!("{} -> {}\n", from.display(), to.display()));
    }

    fn removed(&self, to: &Path) {
        self.print(&format!("removed {}\n", quoted(to)));
    }

    fn failed(&self, error: &CopyError) {
        self.note(&error.to_string());
    }

    fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| crate::stderr::message(text)),
            None => crate::stderr::message(text),
        }
    }

    fn may_replace(&self, to: &Path, there: &Attr) -> bool {
        let mut answers = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cancel.load(Ordering::Relaxed) {
            return false;
        }
        let question = question(to, there, self.removes);
        crate::stderr::bytes(format!("ioloom: {question}? ").as_bytes());
        match answers.next(&self.cancel) {
            Ok(Some(answer)) => return matches!(answer.first(), Some(b'y' | b'Y')),
            Ok(None) => {}
            Err(failure) => self.keep(failure),
        }
        crate::stderr::line("");
        false
    }
}

/// The lines of standard input.
#[derive(Default)]
struct Answers {
    /// What was read after the last answer.
    unread: VecDeque<u8>,
    /// Whether the input has ended, and no signal was the reason.
    ended: bool,
}

impl Answers {
    /// Reads a line, which need not be text; `None` if the copy is interrupted.
    fn next(&mut self, cancel: &AtomicBool) -> Result<Option<Vec<u8>>, Failure> {
        let input = standard_input::required()?;
        let mut block = [0; 4096];
        // Input that ended earlier is waited for once, not at every question.
        let ended = self.ended && stream::wait(&input, Ready::Read, Duration::ZERO).unwrap_or(true);
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.unread.drain(..=end).collect()));
            }
            // A read would go on after a signal.
            let is_ready = stream::wait(&input, Ready::Read, EVERY);
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let got = match is_ready {
                Ok(false) => continue,
                Ok(true) => stream::read(&input, &mut block),
                Err(e) => Err(e),
            };
            match &got {
                Err(e) if stream::would_block(e) => continue,
                Ok(got) if *got > 0 => {
                    self.ended = false;
                    self.unread.extend(&block[..*got]);
                    continue;
                }
                _ => {}
            }
            if !ended && !ends_by_itself(&input) && is_raised_soon(cancel) {
                return Ok(None);
            }
            self.ended = true;
            return match got {
                Err(e) => {
                    let why = reason(&e);
                    Err(Failure::failed(format!("cannot read standard input: {why}")))
                }
                Ok(_) => Ok(Some(self.unread.drain(..).collect())),
            };
        }
    }
}

/// Returns true for a regular file and `/dev/null`, which end without a signal. A closed terminal is not recognised by
/// `isatty`, so the kinds of input that end by themselves are listed instead.
fn ends_by_itself(input: &Stdin) -> bool {
    /// The device number of `/dev/null`.
    const NULL: (u32, u32) = (1, 3);
    attr::of_file(input).is_ok_and(|input| input.kind == Kind::Regular || input.rdev == NULL)
}

/// Returns true as soon as the flag is raised, and false if it is not within [`SIGNAL_WAIT`].
fn is_raised_soon(flag: &AtomicBool) -> bool {
    let begun = Instant::now();
    while !flag.load(Ordering::Relaxed) {
        if begun.elapsed() >= SIGNAL_WAIT {
            return false;
        }
        std::thread::sleep(SIGNAL_LOOK);
    }
    true
}

/// Returns the question about an existing file, which shows the permissions of one that this user
/// may not write.
fn question(to: &Path, there: &Attr, removes: bool) -> String {
    let to_quoted = quoted(to);
    // A symbolic link has no permissions.
    if there.kind == Kind::Symlink || attr::may_write(to) {
        return format!("overwrite {to_quoted}");
    }
    let (mode, letters) = (there.mode, permissions(there.mode));
    if removes {
        format!("replace {to_quoted}, overriding mode {mode:04o} ({letters})")
    } else {
        format!("unwritable {to_quoted} (mode {mode:04o}, {letters}); try anyway")
    }
}

/// Returns permissions as `ls -l` shows them.
fn permissions(mode: u32) -> String {
    let mut text: Vec<char> = (0..9)
        .map(|at| if mode & (0o400 >> at) == 0 { '-' } else { ['r', 'w', 'x'][at % 3] })
        .collect();
    for (at, bit, marks) in
        [(2, 0o4000, ['s', 'S']), (5, 0o2000, ['s', 'S']), (8, 0o1000, ['t', 'T'])]
    {
        if mode & bit != 0 {
            text[at] = marks[usize::from(text[at] == '-')];
        }
    }
    text.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_shown_as_by_ls() {
        for (mode, letters) in [
            (0o444, "r--r--r--"),
            (0o000, "---------"),
            (0o4755, "rwsr-xr-x"),
            (0o6640, "rwSr-S---"),
            (0o1777, "rwxrwxrwt"),
            (0o1700, "rwx-----T"),
        ] {
            assert_eq!(permissions(mode), letters, "{mode:o}");
        }
    }
}
