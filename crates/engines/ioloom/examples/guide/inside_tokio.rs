//! Inside tokio: a run is blocking work, its results become messages, and dropping the receiver or a
//! timeout ends it.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;

/// Sizes of files below `root`, as they become ready.
fn sizes(root: PathBuf, cancel: ioloom::Cancel) -> mpsc::Receiver<(PathBuf, u64)> {
    let (send, receive) = mpsc::channel(64);
    tokio::task::spawn_blocking(move || {
        let job =
            ioloom::tree(root).cancel(&cancel).map(|file| (file.path().to_owned(), file.len()));
        job.scope(|results| {
            for value in results.flatten() {
                // The receiver is gone: returning ends the run.
                if send.blocking_send(value).is_err() {
                    return;
                }
            }
        })
        .map(drop)
    });
    receive
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let cancel = ioloom::Cancel::new();
    let mut sizes = sizes(root.into(), cancel.clone());
    let sum = async {
        let (mut files, mut bytes) = (0, 0);
        while let Some((_, size)) = sizes.recv().await {
            files += 1;
            bytes += size;
        }
        (files, bytes)
    };
    match tokio::time::timeout(Duration::from_secs(60), sum).await {
        Ok((files, bytes)) => writeln!(std::io::stdout(), "{bytes} bytes in {files} files")?,
        Err(_) => cancel.cancel(),
    }
    Ok(())
}
