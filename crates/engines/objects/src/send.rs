//! Sends one file, whole or in parts, and verifies what arrived.

use crate::error::Action;
use crate::paced::{Paced, Problem, Unsent};
use crate::record::Record;
use crate::verify::{Contents, Sent};
use crate::wire::watched;
use futures_util::{StreamExt, TryStreamExt, stream};
use ioloom_failure::{Operation, PathError};
use ioloom_sys::fault::{call, retry_on_interrupt};
use md5::{Digest, Md5};
use object_store::multipart::PartId;
use object_store::path::Path as Key;
use object_store::{PutOptions, PutPayload};
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Size of a part, and the largest file that is sent whole.
pub(crate) const PART: u64 = 8 << 20;
/// Most parts of an upload.
const PARTS_MAX: u64 = 10_000;
/// Parts of a file in flight.
const IN_FLIGHT: usize = 16;

/// Pause before the second abort of an upload.
const ABORT_AGAIN: Duration = Duration::from_millis(200);
/// Longest time of an abort after the run was stopped. The record remains for the next run.
const ABORT_AFTER_STOP: Duration = Duration::from_secs(5);

/// What all files of a run share.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) paced: Paced,
    pub(crate) records: PathBuf,
}

/// A file that is being sent.
struct Source {
    file: Arc<File>,
    path: PathBuf,
    key: Key,
    before: Metadata,
}

/// A part that arrived: its ID and its MD5.
type Part = (PartId, Vec<u8>);

impl Sender {
    /// Sends a file. Returns its size, and how it was sent.
    pub(crate) async fn file(&self, path: &Path, key: Key) -> (u64, Result<Sent, Problem>) {
        let size = match call("stat", || std::fs::metadata(path)) {
            Ok(found) => found.len(),
            Err(error) => {
                let text = PathError::on(Operation::Stat, path)(error).to_string();
                return (0, Err(text.into()));
            }
        };
        let sent = match size {
            0..=PART => self.whole(path, key, size).await,
            _ => self.in_parts(path, key, size).await,
        };
        (size, sent)
    }

    async fn whole(&self, path: &Path, key: Key, size: u64) -> Result<Sent, Problem> {
        let Some(mut place) = self.paced.enter(size).await else { return Ok(Sent::Stopped) };
        let source = Source::open(path, key, size)?;
        let (bytes, sum) = source.read(0, size).await?;
        source.check_unchanged()?;
        let sums = [sum];
        let payload = PutPayload::from(bytes);
        let client = &self.paced.store.writing;
        let put = || client.put_opts(&source.key, payload.clone(), PutOptions::default());
        let put = self.paced.send(&mut place, put).await;
        drop((place, payload));
        let key = &source.key;
        let sent = Contents { key, size, part: size, sums: &sums, in_parts: false };
        match put {
            Ok((put, seen)) => self.paced.verify(&sent, put.e_tag.as_deref(), &seen).await,
            Err(Unsent::Stopped) => Ok(Sent::Stopped),
            Err(unsent) if unsent.perhaps_done() && self.paced.is_there(&sent).await => {
                Ok(Sent::Verified)
            }
            Err(unsent) => Err(self.paced.failure(Action::Write, key, unsent)),
        }
    }

    async fn in_parts(&self, path: &Path, key: Key, size: u64) -> Result<Sent, Problem> {
        let source = Source::open(path, key, size)?;
        let store = &self.paced.store;
        // It has no body, so the shorter limit on silence applies.
        let id = match self.paced.small(|| store.reading.create_multipart(&source.key)).await {
            Ok((id, _)) => id,
            Err(Unsent::Stopped) => return Ok(Sent::Stopped),
            Err(unsent) => return Err(self.paced.failure(Action::Write, &source.key, unsent)),
        };
        let url = self.paced.url(&source.key);
        // Azure has no uploads that could be aborted: parts without an object expire.
        if id.is_empty() {
            return self.parts(&source, &id).await.map(|(sent, _)| sent);
        }
        let record = match Record::create(&self.records, (&store.endpoint, &url, &id)) {
            Ok(record) => record,
            Err(error) => {
                self.abort(&source, &id).await;
                return Err(error.into());
            }
        };
        let (sent, ended) = match self.parts(&source, &id).await {
            Ok((sent, ended)) => (Ok(sent), ended),
            Err(problem) => (Err(problem), false),
        };
        if ended || self.abort(&source, &id).await {
            record.remove();
        }
        sent
    }

    /// Aborts an upload. Returns whether it and its parts are known to be gone. After a stop of the
    /// run, a server that is silent is not waited for.
    #[allow(clippy::ptr_arg, reason = "the type of MultipartStore")]
    async fn abort(&self, source: &Source, id: &String) -> bool {
        if id.is_empty() {
            return true;
        }
        let limit = async {
            self.paced.gate.until_stopped().await;
            tokio::time::sleep(ABORT_AFTER_STOP).await;
        };
        tokio::select! {
            gone = self.abort_twice(source, id) => gone,
            () = limit => false,
        }
    }

    /// A part that arrives during an abort can stay, so only an upload that does not exist any more, or
    /// a second abort after a pause, proves that no part is left.
    #[allow(clippy::ptr_arg, reason = "the type of MultipartStore")]
    async fn abort_twice(&self, source: &Source, id: &String) -> bool {
        for pause in [Duration::ZERO, ABORT_AGAIN] {
            tokio::time::sleep(pause).await;
            let abort = self.paced.store.patient.abort_multipart(&source.key, id);
            let (aborted, seen) = watched(abort).await;
            match aborted {
                Ok(()) => {}
                Err(_) => return seen.is_no_upload(),
            }
        }
        true
    }

    /// Sends and completes an upload. Returns also whether the upload is known to exist no more.
    #[allow(clippy::ptr_arg, reason = "the type of MultipartStore")]
    async fn parts(&self, source: &Source, id: &String) -> Result<(Sent, bool), Problem> {
        let size = source.before.len();
        let part = PART.max(size.div_ceil(PARTS_MAX));
        let sent = stream::iter(0..size.div_ceil(part))
            .map(|number| self.part(source, id, (number, part)))
            .buffered(IN_FLIGHT)
            .try_collect::<Vec<_>>()
            .await?;
        let Some(sent) = sent.into_iter().collect::<Option<Vec<_>>>() else {
            return Ok((Sent::Stopped, false));
        };
        source.check_unchanged()?;
        let (parts, sums): (Vec<PartId>, Vec<_>) = sent.into_iter().unzip();
        let client = &self.paced.store.writing;
        let complete = || client.complete_multipart(&source.key, id, parts.clone());
        let completed = self.paced.small(complete).await;
        let sent = Contents { key: &source.key, size, part, sums: &sums, in_parts: true };
        match completed {
            Ok((put, seen)) => {
                let verified = self.paced.verify(&sent, put.e_tag.as_deref(), &seen).await?;
                Ok((verified, verified != Sent::Stopped))
            }
            Err(Unsent::Stopped) => Ok((Sent::Stopped, false)),
            Err(unsent) => {
                // The upload is gone, or the answer was: the object shows whether it is complete. An
                // object with the same contents can be older than the upload, whose parts would stay.
                let gone = self.abort(source, id).await;
                let perhaps = unsent.is_missing() || unsent.perhaps_done();
                if perhaps && self.paced.is_there(&sent).await {
                    return Ok((Sent::Verified, gone));
                }
                Err(self.paced.failure(Action::Write, &source.key, unsent))
            }
        }
    }

    /// Sends one part, or returns `None` if the run was stopped.
    #[allow(clippy::ptr_arg, reason = "the type of MultipartStore")]
    async fn part(
        &self,
        source: &Source,
        id: &String,
        (number, part): (u64, u64),
    ) -> Result<Option<Part>, Problem> {
        let offset = number * part;
        let len = part.min(source.before.len() - offset);
        let Some(mut place) = self.paced.enter(len).await else { return Ok(None) };
        let (bytes, sum) = source.read(offset, len).await?;
        let payload = PutPayload::from(bytes);
        let client = &self.paced.store.writing;
        let put = || client.put_part(&source.key, id, number as usize, payload.clone());
        match self.paced.send(&mut place, put).await {
            Ok((id, _)) => Ok(Some((id, sum))),
            Err(Unsent::Stopped) => Ok(None),
            Err(unsent) => Err(self.paced.failure(Action::Write, &source.key, unsent)),
        }
    }
}

impl Source {
    /// Opens a file that had `size` bytes.
    fn open(path: &Path, key: Key, size: u64) -> Result<Self, String> {
        let opened = call("open", || File::open(path))
            .and_then(|file| call("stat", || file.metadata()).map(|found| (file, found)));
        let (file, before) = opened
            .map_err(PathError::on(Operation::Open, path))
            .map_err(|error| error.to_string())?;
        let source = Self { file: Arc::new(file), path: path.to_owned(), key, before };
        if source.before.len() == size { Ok(source) } else { Err(source.changed()) }
    }

    /// Reads a part. Returns it and its MD5. The file must end where its size says after the last part.
    async fn read(&self, offset: u64, len: u64) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (file, size) = (self.file.clone(), self.before.len());
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; len as usize];
            call("read", || file.read_exact_at(&mut bytes, offset))?;
            let sum = Md5::digest(&bytes).to_vec();
            let after = || retry_on_interrupt(|| file.read_at(&mut [0], size));
            let is_longer = offset + len == size && call("read", after)? > 0;
            Ok((bytes, sum, is_longer))
        });
        let read = read.await.map_err(|error| error.to_string())?;
        let (bytes, sum, is_longer) = read.map_err(|error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.changed(),
            _ => PathError::on(Operation::Read, &self.path)(error).to_string(),
        })?;
        if is_longer { Err(self.longer()) } else { Ok((bytes, sum)) }
    }

    /// Returns the error of a file that has more than its size, as those of `/proc` and some of FUSE.
    fn longer(&self) -> String {
        let (shown, size) = (ioloom_failure::quoted(&self.path), self.before.len());
        format!(
            "cannot copy {shown}: it is longer than its size of {size} bytes; if it does not grow, copy it to a \
             file in another file system first"
        )
    }

    fn changed(&self) -> String {
        let shown = ioloom_failure::quoted(&self.path);
        format!("cannot copy {shown}: it changed while it was read")
    }

    fn check_unchanged(&self) -> Result<(), String> {
        let times = |meta: &Metadata| (meta.len(), meta.mtime(), meta.mtime_nsec());
        let after = call("stat", || self.file.metadata())
            .map_err(PathError::on(Operation::Stat, &self.path))
            .map_err(|error| error.to_string())?;
        if times(&after) == times(&self.before) { Ok(()) } else { Err(self.changed()) }
    }
}
