//! Inside tokio: a run is blocking work, its results become messages, and dropping the receiver or a
//! timeout ends it. Files that fail are messages, too, and the task returns how the run ended.

use ioloom::{Error, FileError};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

type Size = Result<u64, FileError>;

/// Sizes of files below `root`, as they become ready.
fn sizes(
    root: PathBuf,
    cancel: ioloom::Cancel,
) -> (mpsc::Receiver<Size>, JoinHandle<Result<(), Error>>) {
    let (send, receive) = mpsc::channel(64);
    let task = tokio::task::spawn_blocking(move || {
        let job = ioloom::tree(root).cancel(&cancel).map(|file| file.len());
        let run = job.scope(|results| {
            for result in results {
                // The receiver is gone: returning ends the run.
                if send.blocking_send(result).is_err() {
                    return;
                }
            }
        });
        run.map(drop)
    });
    (receive, task)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let root = args.next().unwrap_or_else(|| ".".into());
    let seconds: u64 = args.next().map_or(Ok(60), |n| n.to_string_lossy().parse())?;
    let cancel = ioloom::Cancel::new();
    let (mut sizes, task) = sizes(root.into(), cancel.clone());
    // The sum owns the receiver, so a timeout drops it, and no send waits for room.
    let sum = async move {
        let (mut files, mut failed, mut bytes) = (0, 0, 0);
        while let Some(size) = sizes.recv().await {
            match size {
                Ok(size) => (files, bytes) = (files + 1, bytes + size),
                Err(_) => failed += 1,
            }
        }
        (files, failed, bytes)
    };
    let summed = tokio::time::timeout(Duration::from_secs(seconds), sum).await;
    if summed.is_err() {
        cancel.cancel();
    }
    // A sum of part of the files is not the answer.
    task.await??;
    let (files, failed, bytes) = summed?;
    writeln!(std::io::stdout(), "{bytes} bytes in {files} files; {failed} failed")?;
    if failed > 0 {
        return Err(format!("failures: {failed}").into());
    }
    Ok(())
}
