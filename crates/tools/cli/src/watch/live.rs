//! Displays counters in the last rows of the terminal while a command runs.
//!
//! The scroll region excludes these rows, so the command's output continues above and is not
//! overwritten. Full-screen programs need `--no-live`. While the terminal has stopped the program (Ctrl-Z), or it
//! runs in the background, the shell has the whole screen.

use super::foreground::may_use_rows;
use crate::out::{self, fitted};
use crate::{interrupt, stderr};
use ioloom_model::units::{format_count, format_ns, format_size};
use ioloom_observe::counters::{DeviceRates, Field, Sample, Sampler, devices, paging};
use ioloom_sys::proc::stop_as_the_terminal_does;
use signal_hook::consts::SIGTSTP;
use signal_hook::iterator::Signals;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Height of the display in rows.
const ROWS: u16 = 5;
/// Minimum terminal height in rows.
const ROWS_MIN: u16 = 16;
/// Refresh interval.
const EVERY: Duration = Duration::from_millis(500);
/// Averaging period for rates.
const SPAN: Duration = Duration::from_secs(1);
/// Time that a stop waits for the display, which a terminal without room can hold up.
const STOP_WAIT: Duration = Duration::from_millis(100);
/// Interval for checking whether the display is free.
const STOP_POLL: Duration = Duration::from_millis(5);

/// Runs `work` and displays samples if standard error is a terminal. Also returns the text that restores the
/// terminal if that is stopped (Ctrl-S): it must not hold up the end of the observation.
pub(super) fn with_status<T>(sampler: Option<&Sampler>, work: impl FnOnce() -> T) -> (T, String) {
    let looks = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    let Some(sampler) = sampler.filter(|_| looks && !out::is_dumb()) else {
        return (work(), String::new());
    };
    let screen = Arc::new(Mutex::new(Screen { size: None }));
    clear_when_stopped(&screen);
    std::thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        let drawing = std::thread::Builder::new().name("watch-live".to_owned());
        // Without the thread there is no display, but the command continues.
        let drawn = drawing.spawn_scoped(scope, move || {
            let (started, names) = (Instant::now(), sampler.devices());
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                // Read before the lock, which a stop waits for.
                if may_use_rows()
                    && stderr::has_room()
                    && let Some((a, b)) = sampler.recent(SPAN)
                {
                    let mut screen = locked(&screen);
                    // The wait for the screen can include a stop, after which the shell has the terminal.
                    if may_use_rows() {
                        screen.draw(&|width| lines(&a, &b, &names, started.elapsed(), width));
                    }
                }
            }
            // A stop in between must not come before the text is written.
            let mut screen = locked(&screen);
            let text = screen.clear();
            if !stderr::has_room() {
                return text;
            }
            write(&text);
            String::new()
        });
        let done = work();
        drop(end);
        let rest = drawn.ok().and_then(|thread| thread.join().ok());
        (done, rest.unwrap_or_default())
    })
}

/// Clears the screen whenever the terminal stops this process. The first display after that splits it again.
fn clear_when_stopped(screen: &Arc<Mutex<Screen>>) {
    let signals = (!interrupt::ignores(SIGTSTP)).then(|| Signals::new([SIGTSTP]));
    let Some(Ok(mut signals)) = signals else { return };
    let screen = Arc::clone(screen);
    let stop = move || {
        for _ in signals.forever() {
            // Nothing is drawn until this process goes on.
            let mut screen = locked_soon(&screen);
            // A terminal without room (Ctrl-S) must not hold up the stop.
            if let Some(screen) = &mut screen
                && stderr::has_room()
            {
                write(&screen.clear());
            }
            stop_as_the_terminal_does();
        }
    };
    // Without the thread, Ctrl-Z stops only the command. It runs until the process ends, because the default
    // action of the signal does not come back.
    let _ = std::thread::Builder::new().name("watch-stop".to_owned()).spawn(stop);
}

fn locked(screen: &Mutex<Screen>) -> MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Like [`locked`], but gives up if another thread keeps the screen.
fn locked_soon(screen: &Mutex<Screen>) -> Option<MutexGuard<'_, Screen>> {
    let begun = Instant::now();
    loop {
        match screen.try_lock() {
            Ok(screen) => return Some(screen),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= STOP_WAIT => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(STOP_POLL),
        }
    }
}

/// The bottom rows of the terminal on standard error.
struct Screen {
    /// Terminal size in rows and columns when the screen was split.
    size: Option<(u16, u16)>,
}

impl Screen {
    fn draw(&mut self, lines: &dyn Fn(usize) -> Vec<String>) {
        let Some((rows, columns)) = console::Term::stderr().size_checked() else { return };
        if rows < ROWS_MIN {
            return write(&self.clear());
        }
        let mut text = String::new();
        if self.size != Some((rows, columns)) {
            // Makes space below the current output, then splits the screen, which moves the cursor.
            text.push_str(&"\n".repeat(usize::from(ROWS)));
            text.push_str(&format!("\x1b[{ROWS}A\x1b7\x1b[1;{}r\x1b8", rows - ROWS));
            self.size = Some((rows, columns));
        }
        text.push_str("\x1b7");
        let lines = lines(usize::from(columns));
        for (i, line) in lines.iter().take(usize::from(ROWS)).enumerate() {
            text.push_str(&format!("\x1b[{};1H\x1b[2K{line}", usize::from(rows - ROWS) + 1 + i));
        }
        text.push_str("\x1b8");
        write(&text);
    }

    /// Returns the text that restores the full scroll region.
    fn clear(&mut self) -> String {
        let Some((rows, _)) = self.size.take() else { return String::new() };
        let mut text = "\x1b7\x1b[r".to_owned();
        for row in rows - ROWS + 1..=rows {
            text.push_str(&format!("\x1b[{row};1H\x1b[2K"));
        }
        text.push_str("\x1b8");
        text
    }
}

fn write(text: &str) {
    let mut terminal = std::io::stderr().lock();
    // If the terminal is gone, the error cannot be reported.
    let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
}

fn size(bytes_per_s: f64) -> String {
    format!("{}/s", format_size(bytes_per_s.max(0.0) as u64))
}

/// Formats a rule and four lines, shortened to the terminal width.
fn lines(a: &Sample, b: &Sample, names: &[String], elapsed: Duration, width: usize) -> Vec<String> {
    let seconds = b.at_ns.saturating_sub(a.at_ns).max(1) as f64 / 1e9;
    let rate = |field: Field| {
        let grown = b.get(field)?.saturating_sub(a.get(field)?);
        Some(grown as f64 / seconds)
    };
    let shown = |value: Option<f64>, how: &dyn Fn(f64) -> String| {
        value.map_or_else(|| "unknown".to_owned(), how)
    };
    let page = ioloom_sys::proc::page_bytes();
    let pages = |field: Field| {
        let bytes = b.get(field).map(|pages| pages.saturating_mul(page));
        bytes.map_or_else(|| "unknown".to_owned(), format_size)
    };
    let part = |field: Field| shown(rate(field), &|us| format!("{:.0} %", (us / 1e4).min(100.0)));
    let paged = paging(a, b);
    let kib = |kib: f64| size(kib * 1024.0);
    let rule = format!("── ioloom watch, {} ", format_ns(elapsed.as_secs_f64() * 1e9));
    let rest = width.saturating_sub(rule.chars().count());
    let all = [
        format!("{rule}{}", "─".repeat(rest)),
        format!(
            "page-in {}  page-out {}  faults {}/s  freed {}",
            shown(paged.map(|p| p.pgpgin_kib_per_s), &kib),
            shown(paged.and_then(|p| p.pgpgout_kib_per_s), &kib),
            shown(paged.and_then(|p| p.fault_per_s), &|n| format_count(n as u64)),
            shown(paged.and_then(|p| p.pgfree_per_s), &|n| size(n * page as f64)),
        ),
        format!(
            "dirty {} of {}  writing {}  cache {}  free {}",
            pages(Field::Dirty),
            pages(Field::DirtyLimit),
            pages(Field::Writeback),
            pages(Field::FilePages),
            pages(Field::Free),
        ),
        format!(
            "waiting io {} memory {} cpu {}  command read {} wrote {}",
            part(Field::IoSome),
            part(Field::MemorySome),
            part(Field::CpuSome),
            shown(rate(Field::TaskRead), &size),
            shown(rate(Field::TaskWritten), &size),
        ),
        busiest(a, b, names),
    ];
    all.iter().map(|line| fitted(line, width)).collect()
}

/// Formats the busiest device.
fn busiest(a: &Sample, b: &Sample, names: &[String]) -> String {
    let rates = names.iter().enumerate().filter_map(|(i, name)| Some((name, devices(a, b, i)?)));
    let load = |r: &DeviceRates| r.aqu_sz + r.tps;
    let Some((name, r)) = rates.max_by(|x, y| load(&x.1).total_cmp(&load(&y.1))) else {
        return "no device".to_owned();
    };
    format!(
        "{name} {:.0}/s  read {}  write {}  queue {:.1}  wait {:.1} ms  busy {:.0} %",
        r.tps,
        size(r.rkb_per_s * 1024.0),
        size(r.wkb_per_s * 1024.0),
        r.aqu_sz,
        r.await_ms,
        r.util_percent,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_observe::counters::SamplerOptions;

    #[test]
    fn a_display_that_is_held_up_does_not_hold_up_a_stop() {
        let screen = Mutex::new(Screen { size: None });
        let held = locked(&screen);
        assert!(locked_soon(&screen).is_none());
        drop(held);
        assert!(locked_soon(&screen).is_some());
    }

    #[test]
    fn the_rows_fit_every_terminal() {
        let sampler = Sampler::start(&SamplerOptions::default()).unwrap();
        sampler.mark("a second sample");
        let names = sampler.devices();
        let (a, b) = sampler.recent(SPAN).expect("two samples");
        for width in [20, 40, 80, 200] {
            let shown = lines(&a, &b, &names, Duration::from_secs(3), width);
            assert_eq!(shown.len(), usize::from(ROWS));
            assert!(shown.iter().all(|line| crate::out::columns_of(line) <= width), "{shown:?}");
        }
        let shown = lines(&a, &b, &names, Duration::from_secs(3), 200).join("\n");
        assert!(shown.contains("dirty ") && shown.contains("page-in "), "{shown}");
        sampler.stop();
    }
}
