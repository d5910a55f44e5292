//! Reads a range of an object, with verification and retries.

use crate::cloud::Cloud;
use crate::error::{Action, Kind, ObjectError};
use crate::gate::Gate;
use crate::hand_over::{Bytes, Item};
use crate::listing::describe;
use crate::pace::{Pace, SILENCE};
use crate::reason::Reason;
use crate::retries::Retries;
use crate::store::Store;
use crate::wire::{Seen, watched};
use futures_util::StreamExt;
use ioloom_control::Started;
use object_store::{GetOptions, GetRange};
use std::ops::Range;
use std::sync::Arc;

/// How often an object that was replaced between its listing and its first byte is begun again.
const REPLACED_MAX: u32 = 3;

/// The MD5 of an empty object.
const MD5_OF_NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";

/// What reads objects.
#[derive(Debug, Clone)]
pub(crate) struct Fetch {
    pub(crate) store: Store,
    pub(crate) gate: Arc<Gate>,
    pub(crate) retries: Arc<Retries>,
}

/// What is known of the contents that are read.
#[derive(Debug, Clone)]
struct Version {
    size: u64,
    e_tag: Option<String>,
    /// The MD5, if a description has it.
    md5: Option<String>,
}

/// The outcome of a request for a whole object or a range.
pub(crate) enum Fetched {
    /// The bytes; `true` if they are the whole object, which may have another size than listed.
    Bytes(Bytes, bool),
    Failed(ObjectError),
    /// The run was stopped.
    Stopped,
}

impl Version {
    /// Makes the bytes those of an empty object. The MD5 is known if the server gives it, as the `ETag` or apart.
    fn show_empty(&self, bytes: &mut Bytes) {
        bytes.data.clear();
        let e_tag = self.e_tag.as_deref().map(|text| text.trim_matches('"'));
        let mut sums = e_tag.into_iter().chain(self.md5.as_deref());
        bytes.md5 = sums.find(|text| *text == MD5_OF_NOTHING).map(str::to_owned);
    }
}

/// What became of an object that was listed as empty.
enum Empty {
    Ended(Fetched),
    /// It has contents now. Memory for them was reserved.
    Grown(Version, Bytes, Started),
}

impl Fetch {
    /// Returns the same with connections of its own.
    pub(crate) fn with_own_connections(&self) -> Result<Self, ObjectError> {
        let store = self.store.with_own_connections()?;
        Ok(Self { store, ..self.clone() })
    }

    /// Reads a range of an object into memory that was reserved.
    pub(crate) async fn range(
        &self,
        item: &Item,
        range: Range<u64>,
        mut bytes: Bytes,
        mut started: Started,
    ) -> Fetched {
        let whole = range == (0..item.size);
        let mut version = Version { size: item.size, e_tag: item.e_tag.clone(), md5: None };
        let mut wanted = range;
        if item.size == 0 {
            match self.empty(item, bytes, started).await {
                Empty::Ended(fetched) => return fetched,
                Empty::Grown(new, present, again) => {
                    (bytes, version, started) = (present, new, again);
                    wanted = 0..version.size;
                }
            }
        }
        let (mut attempts, mut replaced) = (0, 0);
        loop {
            let began_ns = self.gate.now_ns();
            let mut reason = match self.attempt(item, wanted.clone(), &version, &mut bytes).await {
                Ok(()) => {
                    let latency_ns = self.gate.now_ns() - began_ns;
                    self.gate.answered(latency_ns, bytes.data.len() as u64);
                    self.retries.earn();
                    return Fetched::Bytes(bytes, whole);
                }
                Err(reason) => reason,
            };
            attempts += 1;
            if reason.kind == Kind::Changed && whole && replaced < REPLACED_MAX {
                // Nothing of it was handed over, so its new contents are as good.
                match self.gate.again().await {
                    Some(again) => started = again,
                    None => return Fetched::Stopped,
                }
                match self.renewed(item, &version, &mut bytes).await {
                    Ok(Some(new)) if new.size == 0 => {
                        new.show_empty(&mut bytes);
                        return Fetched::Bytes(bytes, true);
                    }
                    Ok(Some(new)) => {
                        replaced += 1;
                        wanted = 0..new.size;
                        version = new;
                        match self.gate.again().await {
                            Some(again) => started = again,
                            None => return Fetched::Stopped,
                        }
                        continue;
                    }
                    Ok(None) => {}
                    Err(why) => reason = why,
                }
            }
            match again(&self.gate, &self.retries, &reason, attempts, started).await {
                Some(Some(again)) => started = again,
                Some(None) => return Fetched::Stopped,
                None => return Fetched::Failed(failure(item, reason, attempts)),
            }
        }
    }

    /// Verifies that an object listed as empty is one.
    async fn empty(&self, item: &Item, mut bytes: Bytes, mut started: Started) -> Empty {
        let mut attempts = 0;
        loop {
            let began_ns = self.gate.now_ns();
            let reason = match self.present(item).await {
                Ok(found) => {
                    self.gate.answered(self.gate.now_ns() - began_ns, 0);
                    self.retries.earn();
                    if found.size == 0 {
                        found.show_empty(&mut bytes);
                        return Empty::Ended(Fetched::Bytes(bytes, true));
                    }
                    match bytes.grow(found.size) {
                        Err(reason) => reason,
                        Ok(()) => {
                            return match self.gate.again().await {
                                Some(started) => Empty::Grown(found, bytes, started),
                                None => Empty::Ended(Fetched::Stopped),
                            };
                        }
                    }
                }
                Err(reason) => reason,
            };
            attempts += 1;
            match again(&self.gate, &self.retries, &reason, attempts, started).await {
                Some(Some(again)) => started = again,
                Some(None) => return Empty::Ended(Fetched::Stopped),
                None => return Empty::Ended(Fetched::Failed(failure(item, reason, attempts))),
            }
        }
    }

    /// Requests what is known of the present contents.
    async fn present(&self, item: &Item) -> Result<Version, Reason> {
        let (described, seen) = watched(describe(&*self.store.reading, &item.key)).await;
        let meta = described.map_err(|error| Reason::of(&error, &seen))?;
        Ok(Version { size: meta.size, e_tag: meta.e_tag, md5: seen.md5 })
    }

    /// Returns the MD5 of the whole object that a response names: apart, or at S3 as the `ETag`.
    fn sum_of(&self, e_tag: Option<&str>, seen: &Seen) -> Option<String> {
        let location = &self.store.location;
        if location.cloud != Cloud::S3 {
            return seen.md5.clone();
        }
        let digits = e_tag.map(|text| text.trim_matches('"')).unwrap_or_default();
        let is_md5 = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let offered = is_md5 && !seen.no_md5 && !location.is_directory_bucket();
        offered.then(|| digits.to_ascii_lowercase())
    }

    /// Returns the present version of an object if it differs from `old`, with memory for it.
    async fn renewed(
        &self,
        item: &Item,
        old: &Version,
        bytes: &mut Bytes,
    ) -> Result<Option<Version>, Reason> {
        let new = self.present(item).await?;
        if new.e_tag == old.e_tag {
            return Ok(None);
        }
        match new.size.saturating_sub(old.size) {
            0 => {}
            more => bytes.grow(more)?,
        }
        Ok(Some(new))
    }

    /// Sends one request and reads its response.
    async fn attempt(
        &self,
        item: &Item,
        range: Range<u64>,
        version: &Version,
        bytes: &mut Bytes,
    ) -> Result<(), Reason> {
        let into = &mut bytes.data;
        into.clear();
        let expected = (range.end - range.start) as usize;
        into.reserve_exact(expected);
        let options = GetOptions {
            if_match: version.e_tag.clone(),
            range: (expected as u64 != version.size).then(|| GetRange::Bounded(range.clone())),
            ..GetOptions::default()
        };
        let response = async {
            let mut result = self.store.reading.get_opts(&item.key, options).await?;
            let (size, e_tag) = (result.meta.size, result.meta.e_tag.take());
            Ok((size, e_tag, result.range.clone(), result.into_stream()))
        };
        let (response, seen) = watched(response).await;
        let (size, present, found, mut body) =
            response.map_err(|error| Reason::of(&error, &seen))?;
        let e_tag = match &version.e_tag {
            Some(_) => &version.e_tag,
            None => item.first_e_tag.get_or_init(|| present.clone()),
        };
        bytes.md5 = self.sum_of(e_tag.as_deref(), &seen);
        if present.is_none() && e_tag.is_some() {
            return Err(Reason::new(Kind::Response, "the server sent no version (ETag)"));
        }
        if present != *e_tag {
            return Err(Reason::new(Kind::Changed, "it was replaced while it was read"));
        }
        if size != version.size || found != range {
            let text = format!(
                "the server sent {} bytes of {}, {expected} of {} were expected",
                found.end.saturating_sub(found.start),
                size,
                version.size
            );
            return Err(Reason::new(Kind::Response, text));
        }
        let mut pace = Pace::new();
        loop {
            let next = tokio::time::timeout(SILENCE, body.next()).await;
            match next {
                Err(_) => {
                    let text = format!("the response stalled for {} s", SILENCE.as_secs());
                    return Err(Reason::new(Kind::Interrupted, text));
                }
                Ok(None) => break,
                Ok(Some(Err(error))) => return Err(Reason::of(&error, &seen)),
                Ok(Some(Ok(part))) if into.len() + part.len() > expected => {
                    let text =
                        format!("the server sent more than the {expected} bytes of the range");
                    return Err(Reason::new(Kind::Response, text));
                }
                Ok(Some(Ok(part))) => {
                    into.extend_from_slice(&part);
                    if into.len() < expected && pace.is_lost(into.len()) {
                        return Err(Reason::new(Kind::Interrupted, pace.lost()));
                    }
                }
            }
        }
        if into.len() != expected {
            let text = format!("the response ended after {} of {expected} bytes", into.len());
            return Err(Reason::new(Kind::Interrupted, text));
        }
        Ok(())
    }
}

/// Waits before a request is repeated. Returns `None` if it is not, and `Some(None)` if the run was
/// stopped.
pub(crate) async fn again(
    gate: &Gate,
    retries: &Retries,
    reason: &Reason,
    attempts: u32,
    started: Started,
) -> Option<Option<Started>> {
    match reason.kind {
        Kind::Busy => gate.refused(started),
        _ => gate.failed(),
    }
    if gate.has_given_up() {
        return None;
    }
    let pause = reason.is_transient().then(|| retries.take(attempts)).flatten()?;
    tokio::time::sleep(pause).await;
    match gate.again().await {
        None if gate.has_given_up() => None,
        again => Some(again),
    }
}

fn failure(item: &Item, reason: Reason, attempts: u32) -> ObjectError {
    let Reason { kind, text } = reason;
    ObjectError { attempts, ..ObjectError::new(Action::Read, item.url.clone(), kind, text) }
}
