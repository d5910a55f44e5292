//! How long operations are repeated while the server does not answer.

use crate::error::QueueError;
use crate::link::Link;
use crate::pause::pause;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long an operation is repeated while the server does not answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long an operation goes on after the flag was raised.
const GRACE: Duration = Duration::from_secs(1);
/// Time between two looks at the flag that stops a wait.
const LOOK: Duration = Duration::from_millis(20);

/// Waits for a server that may answer again, until the flag is raised.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    stop: &'a AtomicBool,
    since: Option<Instant>,
    attempts: u32,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(stop: &'a AtomicBool) -> Self {
        Self { stop, since: None, attempts: 0 }
    }

    /// The server has answered.
    pub(crate) fn renew(&mut self) {
        self.since = None;
        self.attempts = 0;
    }

    /// Waits before the next attempt. Returns the error if there were errors for too long, if no attempt can
    /// succeed, or if the flag is raised.
    pub(crate) async fn bear(&mut self, error: QueueError) -> Result<(), QueueError> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let lasting = !matches!(error, QueueError::Server { .. });
        if lasting || since.elapsed() > PATIENCE || self.stop.load(Ordering::Relaxed) {
            return Err(error);
        }
        self.attempts = self.attempts.saturating_add(1);
        tokio::select! {
            () = raised(self.stop) => Err(error),
            () = tokio::time::sleep(pause(self.attempts)) => Ok(()),
        }
    }

    /// Repeats an operation while the server does not answer, as [`patiently`] does.
    pub(crate) async fn repeat<T, F>(
        &mut self,
        link: &Link,
        mut operation: impl FnMut() -> F,
    ) -> Result<T, QueueError>
    where
        F: Future<Output = Result<T, QueueError>>,
    {
        loop {
            match hurried(link, self.stop, operation()).await {
                Ok(done) => return Ok(done),
                Err(error) => self.bear(error).await?,
            }
        }
    }
}

/// Ends an operation a second after the flag was raised.
pub(crate) async fn hurried<T>(
    link: &Link,
    stop: &AtomicBool,
    operation: impl Future<Output = Result<T, QueueError>>,
) -> Result<T, QueueError> {
    tokio::select! {
        biased;
        done = operation => done,
        () = async { raised(stop).await; tokio::time::sleep(GRACE).await } => {
            Err(link.failed("reach", "no answer within a second"))
        }
    }
}

/// Repeats an operation while the server does not answer. It can be done more than once: the answer to an
/// earlier attempt can be lost.
pub(crate) async fn patiently<T, F>(
    link: &Link,
    stop: &AtomicBool,
    operation: impl FnMut() -> F,
) -> Result<T, QueueError>
where
    F: Future<Output = Result<T, QueueError>>,
{
    Patience::new(stop).repeat(link, operation).await
}

/// Waits until a flag is raised.
async fn raised(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
    }
}
