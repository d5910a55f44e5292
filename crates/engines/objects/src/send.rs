//! Sends one file, whole or in parts, and verifies what arrived.

use crate::error::{Action, Kind, ObjectError};
use crate::listing::describe;
use crate::reason::Reason;
use crate::record::{Record, digits};
use crate::store::Store;
use crate::wire::{Seen, watched};
use futures_util::{StreamExt, TryStreamExt, stream};
use ioloom_failure::{Operation, PathError};
use ioloom_sys::fault::call;
use md5::{Digest, Md5};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Key;
use object_store::{GetOptions, ObjectStore, PutOptions, PutPayload};
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Size of a part, and the largest file that is sent whole.
const PART: u64 = 8 << 20;
/// Most parts of an upload.
const PARTS_MAX: u64 = 10_000;
/// Parts of a file in flight.
const IN_FLIGHT: usize = 4;
/// Unit of the memory budget.
const UNIT: u64 = 1 << 10;

/// How a file was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Verified,
    LengthOnly,
    Stopped,
}

/// What all files of a run share.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) store: Store,
    pub(crate) records: PathBuf,
    pub(crate) memory: Semaphore,
    pub(crate) memory_max: u64,
    pub(crate) stop: Arc<AtomicBool>,
}

/// A file that is being sent.
struct Source {
    file: Arc<File>,
    path: PathBuf,
    key: Key,
    before: Metadata,
}

impl Sender {
    /// Returns the permits of a number of bytes.
    pub(crate) fn permits(bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX >> 4).min(u32::MAX >> 4)
    }

    /// Waits for memory. A part larger than the budget waits for all of it.
    async fn reserve(&self, bytes: u64) -> Result<SemaphorePermit<'_>, String> {
        let permits = Self::permits(bytes.clamp(1, self.memory_max));
        self.memory.acquire_many(permits).await.map_err(|error| error.to_string())
    }

    /// Sends a file. Returns its size, and how it was sent.
    pub(crate) async fn file(&self, path: &Path, key: Key) -> (u64, Result<Sent, String>) {
        let opened = call("open", || File::open(path))
            .and_then(|file| call("stat", || file.metadata()).map(|found| (file, found)));
        let (file, before) = match opened.map_err(PathError::on(Operation::Open, path)) {
            Ok(opened) => opened,
            Err(error) => return (0, Err(error.to_string())),
        };
        let size = before.len();
        let source = Source { file: Arc::new(file), path: path.to_owned(), key, before };
        let sent = match size {
            0..=PART => self.whole(&source).await,
            _ => self.in_parts(&source).await,
        };
        (size, sent)
    }

    fn failed(&self, source: &Source, error: &object_store::Error, seen: &Seen) -> String {
        unwritten(&self.store, &source.key, Reason::of(error, seen))
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    async fn whole(&self, source: &Source) -> Result<Sent, String> {
        let size = source.before.len();
        let _memory = self.reserve(size).await?;
        if self.stops() {
            return Ok(Sent::Stopped);
        }
        let bytes = source.read(0, size).await?;
        source.check_unchanged()?;
        let sum = digits(&Md5::digest(&bytes));
        let payload = PutPayload::from(bytes);
        let put = self.store.patient.put_opts(&source.key, payload, PutOptions::default());
        let (put, seen) = watched(put).await;
        let put = put.map_err(|error| self.failed(source, &error, &seen))?;
        self.verify(source, put.e_tag.as_deref(), &sum, &sum).await
    }

    async fn in_parts(&self, source: &Source) -> Result<Sent, String> {
        if self.stops() {
            return Ok(Sent::Stopped);
        }
        let (begun, seen) = watched(self.store.patient.create_multipart(&source.key)).await;
        let id = begun.map_err(|error| self.failed(source, &error, &seen))?;
        let url = self.store.location.url_of(source.key.as_ref());
        let record = match Record::create(&self.records, (&self.store.endpoint, &url, &id)) {
            Ok(record) => record,
            Err(error) => {
                let _ = self.store.patient.abort_multipart(&source.key, &id).await;
                return Err(error.to_string());
            }
        };
        let sent = self.parts(source, &id).await;
        if matches!(sent, Ok(Sent::Verified | Sent::LengthOnly))
            || self.store.patient.abort_multipart(&source.key, &id).await.is_ok()
        {
            record.remove();
        }
        sent
    }

    #[allow(clippy::ptr_arg, reason = "the type of MultipartStore")]
    async fn parts(&self, source: &Source, id: &String) -> Result<Sent, String> {
        let size = source.before.len();
        let part = PART.max(size.div_ceil(PARTS_MAX));
        let sent = stream::iter(0..size.div_ceil(part))
            .map(|number| self.part(source, id, (number, part)))
            .buffered(IN_FLIGHT)
            .try_collect::<Vec<_>>()
            .await?;
        let Some(sent) = sent.into_iter().collect::<Option<Vec<_>>>() else {
            return Ok(Sent::Stopped);
        };
        source.check_unchanged()?;
        let (parts, sums): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
        let all: Vec<u8> = sums.concat();
        let expected = format!("{}-{}", digits(&Md5::digest(&all)), sums.len());
        let complete = self.store.patient.complete_multipart(&source.key, id, parts);
        let (completed, seen) = watched(complete).await;
        let e_tag = match completed {
            Ok(put) => put.e_tag,
            Err(error) => {
                // The answer to an attempt that was repeated may be lost: the object shows it.
                let found = describe(&self.store, &source.key).await.0.ok();
                let same = |text: &str| text.trim_matches('"') == expected;
                let ours = found.filter(|meta| meta.e_tag.as_deref().is_some_and(same));
                ours.ok_or_else(|| self.failed(source, &error, &seen))?.e_tag
            }
        };
        self.verify(source, e_tag.as_deref(), &expected, "").await
    }

    /// Sends one part. Returns its ID and MD5, or `None` if the run was stopped.
    #[allow(clippy::ptr_arg, reason = "the type of MultipartStore")]
    async fn part(
        &self,
        source: &Source,
        id: &String,
        (number, part): (u64, u64),
    ) -> Result<Option<(PartId, Vec<u8>)>, String> {
        let offset = number * part;
        let len = part.min(source.before.len() - offset);
        let _memory = self.reserve(len).await?;
        if self.stops() {
            return Ok(None);
        }
        let bytes = source.read(offset, len).await?;
        let sum = Md5::digest(&bytes).to_vec();
        let put =
            self.store.patient.put_part(&source.key, id, number as usize, PutPayload::from(bytes));
        let (put, seen) = watched(put).await;
        let put = put.map_err(|error| self.failed(source, &error, &seen))?;
        Ok(Some((put, sum)))
    }

    /// Compares the object with what was sent: its `ETag` with the `expected` one, and its length.
    /// An `ETag` that looks like an MD5 and differs from `sum` does not prove damage, so the contents
    /// are read back.
    async fn verify(
        &self,
        source: &Source,
        e_tag: Option<&str>,
        expected: &str,
        sum: &str,
    ) -> Result<Sent, String> {
        let found = e_tag.map(|text| text.trim_matches('"').to_ascii_lowercase());
        if found.as_deref() == Some(expected) {
            return Ok(Sent::Verified);
        }
        let url = self.store.location.url_of(source.key.as_ref());
        let shown = ioloom_failure::quoted(Path::new(&url)).to_string();
        let looks_like_md5 = found.is_some_and(|text| text.len() == 32 && !sum.is_empty());
        if looks_like_md5 {
            let read = async {
                let options =
                    GetOptions { if_match: e_tag.map(str::to_owned), ..GetOptions::default() };
                self.store.patient.get_opts(&source.key, options).await?.bytes().await
            };
            let (read, seen) = watched(read).await;
            let bytes = read.map_err(|error| self.failed(source, &error, &seen))?;
            if digits(&Md5::digest(&bytes)) == sum {
                return Ok(Sent::Verified);
            }
            return Err(format!("cannot verify {shown}: the object differs from the file"));
        }
        let (meta, seen) = describe(&self.store, &source.key).await;
        let meta = meta.map_err(|error| self.failed(source, &error, &seen))?;
        if meta.size != source.before.len() {
            let (found, size) = (meta.size, source.before.len());
            return Err(format!(
                "cannot verify {shown}: the object has {found} bytes, the file has {size}"
            ));
        }
        Ok(Sent::LengthOnly)
    }
}

impl Source {
    async fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, String> {
        let file = self.file.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; len as usize];
            call("read", || file.read_exact_at(&mut bytes, offset)).map(|()| bytes)
        });
        let read = read.await.map_err(|error| error.to_string())?;
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.changed(),
            _ => PathError::on(Operation::Read, &self.path)(error).to_string(),
        })
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

/// Returns the error of an object that was not written.
fn unwritten(store: &Store, key: &Key, reason: Reason) -> String {
    let url = store.location.url_of(key.as_ref());
    let text = match reason.kind {
        Kind::Missing => "the upload does not exist any more".to_owned(),
        _ => reason.text,
    };
    ObjectError::new(Action::Write, url, reason.kind, text).to_string()
}
