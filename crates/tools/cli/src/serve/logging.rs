//! The log of the server: one line per event on standard error, as text or JSON.
//!
//! The server reports with `tracing`; this is the receiver. Spans are not used, and events of other
//! libraries are dropped.

use crate::stderr;
use serde_json::{Map, Value};
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Target of the program's own messages.
pub(super) const TARGET: &str = "ioloom::serve";

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
        match self.form {
            LogForm::Text => text(*metadata.level(), &fields.message),
            LogForm::Json => stderr::line(&json(metadata, fields).to_string()),
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

fn text(level: Level, message: &str) {
    let mark = if level == Level::WARN { "warning: " } else { "" };
    stderr::message(&format!("{mark}{message}"));
}

fn json(metadata: &Metadata<'_>, fields: Fields) -> Value {
    let mut line = Map::new();
    line.insert("time".to_owned(), jiff::Timestamp::now().to_string().into());
    line.insert("level".to_owned(), metadata.level().as_str().to_ascii_lowercase().into());
    line.insert("target".to_owned(), metadata.target().into());
    let message = stderr::without_errno(&fields.message);
    line.insert("message".to_owned(), message.into());
    line.extend(fields.others);
    line.into()
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
