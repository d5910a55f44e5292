//! Reports about rejected and closed connections, as rate-limited summaries.
//!
//! A thousand hostile connections must neither fill the log nor pass unnoticed. The first event is
//! reported immediately; what happens during the following interval is counted by reason and
//! reported in one line per kind. A thread of its own waits for events, so a server without any does
//! not wake up for this.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Minimum time between two summaries.
const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of reasons in a summary; others are counted together.
const REASONS_MAX: usize = 8;
/// Target of the log events.
pub(crate) const TARGET: &str = "ioloom::connections";

/// What happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// It was not accepted.
    Rejected,
    /// It was closed by a timeout.
    Cut,
    /// It did not use TLS, its handshake failed, or its bytes could not be decrypted.
    TlsFailed,
    /// It did not present a valid token.
    Unauthorized,
}

impl Kind {
    /// Returns the beginning of a summary about one or several connections.
    fn phrase(self, count: u64) -> String {
        let connections = match count {
            1 => "a connection".to_owned(),
            _ => format!("{count} connections"),
        };
        match self {
            Self::Rejected => format!("rejected {connections}"),
            Self::Cut => format!("closed {connections} after a timeout"),
            Self::TlsFailed if count == 1 => format!("closed {connections} after a TLS error"),
            Self::TlsFailed => format!("closed {connections} after TLS errors"),
            Self::Unauthorized => format!("rejected requests of {connections} without a token"),
        }
    }
}

#[derive(Default)]
struct Pending {
    counts: BTreeMap<Kind, BTreeMap<String, u64>>,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("the lock must not be poisoned")
    }
}

/// Collects events and reports them.
#[derive(Default)]
pub(crate) struct Reports {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reports {
    /// Records an event, and starts the reporting thread with the first one.
    pub(crate) fn note(&self, kind: Kind, reason: &str) {
        let mut pending = self.shared.lock();
        let reasons = pending.counts.entry(kind).or_default();
        let is_new = !reasons.contains_key(reason) && reasons.len() >= REASONS_MAX;
        let reason = if is_new { "other reasons" } else { reason };
        *reasons.entry(reason.to_owned()).or_default() += 1;
        drop(pending);
        self.shared.changed.notify_one();
        let mut thread = self.thread.lock().expect("the lock must not be poisoned");
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("reports".to_owned());
            // Without a thread, the counters in the metrics must do.
            *thread = builder.spawn(move || report(&shared)).ok();
        }
    }

    /// Reports what is pending, and ends the thread.
    pub(crate) fn finish(&self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
        let thread = self.thread.lock().expect("the lock must not be poisoned").take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        self.finish();
    }
}

fn report(shared: &Shared) {
    let mut since = Instant::now();
    loop {
        let pending = shared.lock();
        let is_idle = |pending: &mut Pending| pending.counts.is_empty() && !pending.is_over;
        let waited = shared.changed.wait_while(pending, is_idle);
        let mut pending = waited.expect("the lock must not be poisoned");
        let (counts, is_over) = (std::mem::take(&mut pending.counts), pending.is_over);
        drop(pending);
        for (kind, reasons) in &counts {
            let count = reasons.values().sum::<u64>();
            let text = summary(*kind, reasons, since.elapsed());
            tracing::warn!(target: TARGET, count, "{text}");
        }
        if is_over {
            return;
        }
        since = Instant::now();
        let is_on = |pending: &mut Pending| !pending.is_over;
        let waited = shared.changed.wait_timeout_while(shared.lock(), INTERVAL, is_on);
        drop(waited.expect("the lock must not be poisoned"));
    }
}

fn summary(kind: Kind, reasons: &BTreeMap<String, u64>, elapsed: Duration) -> String {
    let count = reasons.values().sum::<u64>();
    let mut text = kind.phrase(count);
    if count > 1 {
        let _ = write!(text, " in {:.0} s", elapsed.as_secs_f64().max(1.0));
    }
    text.push_str(": ");
    for (at, (reason, of_reason)) in reasons.iter().enumerate() {
        text.push_str(if at > 0 { ", " } else { "" });
        text.push_str(reason);
        if count > 1 {
            let _ = write!(text, " ({of_reason})");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_name_each_reason_with_its_count() {
        let one = BTreeMap::from([("idle".to_owned(), 1)]);
        let ten = Duration::from_secs(10);
        assert_eq!(summary(Kind::Cut, &one, ten), "closed a connection after a timeout: idle");
        let text = summary(Kind::TlsFailed, &BTreeMap::from([("alert".to_owned(), 6)]), ten);
        assert_eq!(text, "closed 6 connections after TLS errors in 10 s: alert (6)");
        let many = BTreeMap::from([("limit".to_owned(), 4000), ("queue".to_owned(), 2)]);
        let text = summary(Kind::Rejected, &many, ten);
        assert_eq!(text, "rejected 4002 connections in 10 s: limit (4000), queue (2)");
    }

    #[test]
    fn different_reasons_are_bounded() {
        let reports = Reports::default();
        for reason in 0..1000 {
            reports.note(Kind::TlsFailed, &reason.to_string());
        }
        assert!(
            reports.shared.lock().counts.values().all(|reasons| reasons.len() <= REASONS_MAX + 1)
        );
        reports.finish();
        assert!(reports.shared.lock().counts.is_empty());
    }
}
