//! The log of the server: one line per event on standard error, as text or JSON.
//!
//! The server reports with `tracing`; this is the receiver. Spans are not used, and events of other
//! libraries are dropped. Lines are written by a thread (`log_queue`): a server must neither stop
//! serving nor become unstoppable because the reader of its log has stalled.

use super::log_queue::LogQueue;
use crate::exit::Failure;
use crate::{interrupt, stderr};
use ioloom_model::units::format_counted;
use serde_json::{Map, Value};
use std::fmt::{Debug, Write};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Target of the program's own messages.
pub(super) const TARGET: &str = "ioloom::serve";

/// Time that the reader of the log has at the end to take the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);
/// Time without progress after which a full standard error counts as stalled.
const STALLED: Duration = Duration::from_millis(200);

/// The queue, from the first line on; `None` if its thread could not be started.
static QUEUE: OnceLock<Option<LogQueue>> = OnceLock::new();

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogForm {
    Text,
    Json,
}

/// Least severe level to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

struct Log {
    form: LogForm,
    level: LevelFilter,
}

/// Prints all events from now on.
pub(super) fn start(form: LogForm, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    // Fails only if the process has a log already.
    let _ = tracing::subscriber::set_global_default(Log { form, level });
}

/// Waits until all lines are written, but not long for a stalled reader.
pub(super) fn flush() {
    let Some(queue) = QUEUE.get().and_then(Option::as_ref) else { return };
    flush_unless(queue, LAST_LINES, || !stderr::has_room());
}

/// Waits until all lines are written. Returns false after `limit`, or if nothing was written for a
/// while and `is_full` returns true.
fn flush_unless(queue: &LogQueue, limit: Duration, is_full: impl Fn() -> bool) -> bool {
    let since = Instant::now();
    loop {
        let written = queue.written();
        if queue.flush(STALLED.min(limit.saturating_sub(since.elapsed()))) {
            return true;
        }
        if since.elapsed() >= limit || (queue.written() == written && is_full()) {
            return false;
        }
    }
}

/// Writes the last lines. From now on a stalled reader has as little time as after an interrupt, so
/// that the program can end.
pub(super) fn finish() {
    if let Some(queue) = QUEUE.get().and_then(Option::as_ref) {
        queue.flush(LAST_LINES);
    }
    interrupt::raise();
}

/// Logs a failure that ends the server, and returns it without its message.
pub(super) fn report(failure: Failure) -> Failure {
    let Failure { exit, message } = failure;
    if !message.is_empty() {
        tracing::error!(target: TARGET, "{message}");
    }
    Failure::new(exit, "")
}

fn queue(form: LogForm, least: LevelFilter) -> Option<&'static LogQueue> {
    let start = || LogQueue::start(stderr::line, move |count| dropped(form, least, count)).ok();
    QUEUE.get_or_init(start).as_ref()
}

/// Words the line about dropped lines. If only errors are logged, it is one.
fn dropped(form: LogForm, least: LevelFilter, count: u64) -> String {
    let level = if least < LevelFilter::WARN { Level::ERROR } else { Level::WARN };
    let lines = format_counted(count, "log line", "log lines");
    let message = format!("dropped {lines}, because standard error was not read");
    match form {
        LogForm::Text => text(level, &message),
        LogForm::Json => json(level, TARGET, Fields { message, ..Fields::default() }),
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().starts_with("ioloom")
            && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = match self.form {
            LogForm::Text => text(*metadata.level(), &fields.message),
            LogForm::Json => json(*metadata.level(), metadata.target(), fields),
        };
        match queue(self.form, self.level) {
            Some(queue) => queue.push(line),
            None => stderr::line(&line),
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn text(level: Level, message: &str) -> String {
    let mark = if level == Level::WARN { "warning: " } else { "" };
    stderr::prefixed(&format!("{mark}{message}"))
}

fn json(level: Level, target: &str, fields: Fields) -> String {
    let mut line = Map::new();
    line.insert("time".to_owned(), jiff::Timestamp::now().to_string().into());
    line.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
    line.insert("target".to_owned(), target.into());
    let message = stderr::without_errno(&fields.message);
    line.insert("message".to_owned(), message.into());
    line.extend(fields.others);
    Value::Object(line).to_string()
}

/// The message and the other fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.others.insert(field.name().to_owned(), format!("{value:?}").into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.others.insert(field.name().to_owned(), value.into());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.insert(field.name().to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn dropped_lines_have_a_level_that_is_logged() {
        let text = |least| dropped(LogForm::Text, least, 2);
        assert!(text(LevelFilter::INFO).contains("warning: dropped 2 log lines"));
        assert!(text(LevelFilter::ERROR).contains("ioloom: dropped 2 log lines"));
    }

    #[test]
    fn only_a_stalled_reader_is_left_early() {
        let (go_on, may_write) = channel::<()>();
        let write = move |_: &str| {
            let _ = may_write.recv();
        };
        let queue = LogQueue::start(write, |count| count.to_string()).unwrap();
        queue.push("line".to_owned());
        let since = Instant::now();
        assert!(!flush_unless(&queue, Duration::from_secs(600), || true));
        assert!(since.elapsed() < Duration::from_secs(300));
        // The thread that writes has not had its turn yet.
        let is_full = || {
            go_on.send(()).unwrap();
            false
        };
        assert!(flush_unless(&queue, Duration::from_secs(600), is_full));
    }
}
