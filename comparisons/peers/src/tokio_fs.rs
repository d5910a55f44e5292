//! tokio: `tokio::fs::read` on the multi-threaded runtime with default settings, N files at a time,
//! in the two common forms.
//!
//! - tasks: a semaphore of N permits and one spawned task per file, which spreads hashing over the
//!   workers;
//! - stream: `buffer_unordered(N)` in one task, which does all the hashing.

use crate::{FileList, PeerError, Totals};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// The form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// A semaphore and one task per file.
    Tasks,
    /// `buffer_unordered` in one task.
    Stream,
}

/// Creates the runtime before the clock starts.
///
/// # Errors
/// A thread cannot be started.
pub fn runtime() -> Result<tokio::runtime::Runtime, PeerError> {
    tokio::runtime::Builder::new_multi_thread()
        .build()
        .map_err(|e| PeerError::Start { what: "the tokio runtime", reason: e.to_string() })
}

/// Reads and hashes all files, at most `concurrency` at a time.
///
/// # Errors
/// A file that cannot be read.
pub fn run(
    list: &Arc<FileList>,
    runtime: &tokio::runtime::Runtime,
    concurrency: u32,
    form: Form,
) -> Result<Totals, PeerError> {
    match form {
        Form::Tasks => runtime.block_on(tasks(list, concurrency)),
        Form::Stream => runtime.block_on(stream(list, concurrency as usize)),
    }
}

async fn read_one(list: &FileList, path: PathBuf) -> Result<Totals, PeerError> {
    let bytes = tokio::fs::read(&path).await.map_err(PeerError::file("read", &path))?;
    let mut one = Totals::default();
    one.add_file(list.relative(&path), &bytes);
    Ok(one)
}

async fn tasks(list: &Arc<FileList>, concurrency: u32) -> Result<Totals, PeerError> {
    let permits = Arc::new(Semaphore::new(concurrency as usize));
    let sum = Arc::new(Mutex::new(Ok(Totals::default())));
    for path in list.paths() {
        let permit = acquire(&permits, 1).await;
        let (list, sum, path) = (Arc::clone(list), Arc::clone(&sum), path.clone());
        tokio::spawn(async move {
            let one = read_one(&list, path).await;
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            match (sum.as_mut(), one) {
                (Ok(totals), Ok(one)) => *totals += one,
                (Ok(_), Err(e)) => *sum = Err(e),
                (Err(_), _) => {}
            }
            drop(sum);
            drop(permit);
        });
    }
    // All permits have been returned, so every task has added its file.
    drop(acquire(&permits, concurrency).await);
    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *sum, Ok(Totals::default()))
}

async fn acquire(permits: &Arc<Semaphore>, count: u32) -> tokio::sync::OwnedSemaphorePermit {
    Arc::clone(permits).acquire_many_owned(count).await.expect("the semaphore is never closed")
}

async fn stream(list: &Arc<FileList>, concurrency: usize) -> Result<Totals, PeerError> {
    stream::iter(list.paths())
        .map(|path| read_one(list, path.clone()))
        .buffer_unordered(concurrency)
        .try_fold(Totals::default(), |sum, one| async move { Ok(sum.merged(one)) })
        .await
}
