//! Requests of uploads: each waits for a place in flight, the pace and memory, and is repeated.

use crate::error::{Action, Kind, ObjectError};
use crate::fetch::again;
use crate::gate::Gate;
use crate::reason::Reason;
use crate::retries::Retries;
use crate::store::Store;
use crate::wire::{Seen, watched};
use ioloom_control::Started;
use object_store::path::Path as Key;
use std::sync::Arc;
use std::time::Duration;

/// Attempts of a request that may end after a long silence of the server.
const SILENCES_MAX: u32 = 2;

/// A silence that is long. Those of clients with shorter limits, and connections that are not established in
/// time, are repeated like other failures: all attempts together take less than three minutes.
pub(crate) const LONG_SILENCE: Duration = Duration::from_secs(60);

/// What sends requests.
#[derive(Debug, Clone)]
pub(crate) struct Paced {
    pub(crate) store: Store,
    pub(crate) gate: Arc<Gate>,
    pub(crate) retries: Arc<Retries>,
    /// [`LONG_SILENCE`], except in tests.
    pub(crate) long_silence: Duration,
}

/// A place in flight and memory for one request.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Arc<Gate>,
    bytes: u64,
    started: Started,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.leave();
        self.gate.release(self.bytes);
    }
}

/// How a request ended without a result.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The run was stopped.
    Stopped,
    Failed {
        reason: Reason,
        attempts: u32,
        /// Whether the server may have carried out one of the attempts.
        perhaps_done: bool,
    },
}

/// Why a file did not become an object.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) text: String,
    kind: Option<Kind>,
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self { text, kind: None }
    }
}

impl Problem {
    pub(crate) fn new(error: ObjectError) -> Self {
        Self { text: error.to_string(), kind: Some(error.kind) }
    }

    /// Returns whether the credentials have no permission for it.
    pub(crate) fn is_refused(&self) -> bool {
        self.kind == Some(Kind::Denied)
    }

    /// Returns whether it is probably one of all files.
    pub(crate) fn is_of_the_store(&self) -> bool {
        matches!(
            self.kind,
            Some(
                Kind::NoStore
                    | Kind::NoBucket
                    | Kind::Credentials
                    | Kind::Renewal
                    | Kind::Clock
                    | Kind::Unreachable
                    | Kind::Region
                    | Kind::Configuration
            )
        )
    }
}

impl Unsent {
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Failed { reason, .. } if reason.kind == Kind::Missing)
    }

    /// Returns whether the server may have done what was requested.
    pub(crate) fn perhaps_done(&self) -> bool {
        matches!(self, Self::Failed { perhaps_done: true, .. })
    }
}

impl Paced {
    /// Waits until a request with `bytes` in memory may start. Returns `None` if the run was stopped.
    pub(crate) async fn enter(&self, bytes: u64) -> Option<Place> {
        let started = self.gate.enter(bytes).await?;
        Some(Place { gate: self.gate.clone(), bytes, started })
    }

    /// Sends a request until it succeeds, fails for good or the run is stopped.
    pub(crate) async fn send<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        place: &mut Place,
        mut request: impl FnMut() -> F,
    ) -> Result<(T, Seen), Unsent> {
        let (mut attempts, mut silences, mut perhaps_done) = (0, 0, false);
        loop {
            let began_ns = self.gate.now_ns();
            let answer = tokio::select! {
                answer = watched(request()) => answer,
                () = self.gate.until_stopped() => return Err(Unsent::Stopped),
            };
            let reason = match answer {
                (Ok(value), seen) => {
                    self.gate.answered(self.gate.now_ns() - began_ns, place.bytes);
                    self.retries.earn();
                    return Ok((value, seen));
                }
                (Err(error), seen) => {
                    let took = Duration::from_nanos(self.gate.now_ns() - began_ns);
                    silences += u32::from(seen.is_silence() && took >= self.long_silence);
                    Reason::of(&error, &seen)
                }
            };
            attempts += 1;
            perhaps_done |= matches!(
                reason.kind,
                Kind::Server
                    | Kind::Interrupted
                    | Kind::Response
                    | Kind::Configuration
                    | Kind::Unsupported
            );
            if silences >= SILENCES_MAX {
                return Err(Unsent::Failed { reason, attempts, perhaps_done });
            }
            match again(&self.gate, &self.retries, &reason, attempts, place.started).await {
                Some(Some(started)) => place.started = started,
                Some(None) => return Err(Unsent::Stopped),
                None => return Err(Unsent::Failed { reason, attempts, perhaps_done }),
            }
        }
    }

    /// Waits for a place and sends a request that needs no memory.
    pub(crate) async fn small<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        request: impl FnMut() -> F,
    ) -> Result<(T, Seen), Unsent> {
        let mut place = self.enter(0).await.ok_or(Unsent::Stopped)?;
        self.send(&mut place, request).await
    }

    /// Returns the URL of a key.
    pub(crate) fn url(&self, key: &Key) -> String {
        self.store.location.url_of(key.as_ref())
    }

    /// Returns the problem of an object that was not written.
    pub(crate) fn failure(&self, action: Action, key: &Key, unsent: Unsent) -> Problem {
        let Unsent::Failed { reason, attempts, .. } = unsent else {
            return "the run was stopped".to_owned().into();
        };
        let text = match reason.kind {
            Kind::Missing if action == Action::Write => {
                "the upload does not exist any more".to_owned()
            }
            _ => reason.text,
        };
        let error = ObjectError::new(action, self.url(key), reason.kind, text);
        let text = ObjectError { attempts, ..error }.to_string();
        Problem { text, kind: Some(reason.kind) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;
    use crate::wire::note;
    use object_store::client::HttpErrorKind;

    #[test]
    fn only_long_silences_end_a_request_early() {
        let location = Location::parse("s3://b/k").unwrap();
        let store = Store::with_variables(location, [("AWS_SKIP_SIGNATURE", "true")]).unwrap();
        let retries = Arc::new(Retries::with_pause(Duration::from_millis(1)));
        let gate = Arc::new(Gate::new(1 << 20, 4));
        let mut paced = Paced { store, gate, retries, long_silence: LONG_SILENCE };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (kind, long_silence, expected) in [
            (HttpErrorKind::Timeout, LONG_SILENCE, 8),
            (HttpErrorKind::Timeout, Duration::ZERO, 2),
            (HttpErrorKind::Interrupted, Duration::ZERO, 8),
        ] {
            paced.long_silence = long_silence;
            let failing = || async {
                note(Seen { transport: Some((kind, "as wanted".to_owned())), ..Seen::default() });
                Err::<(), _>(object_store::Error::NotImplemented {
                    operation: String::new(),
                    implementer: String::new(),
                })
            };
            let ended = runtime.block_on(paced.small(failing)).unwrap_err();
            assert!(ended.perhaps_done());
            let Unsent::Failed { attempts, .. } = ended else { panic!("stopped") };
            assert_eq!(attempts, expected, "{kind:?}");
        }
    }
}
