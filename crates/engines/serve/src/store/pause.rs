//! Stops the commits of a running server while another process copies its store.
//!
//! Between commits, the files of a store are consistent. Two words in the mark's last page, mapped
//! by both processes, keep them so: the server sets one during each commit and looks at the other;
//! the backup sets the other and waits for the first. Each sets its own word before it reads the
//! other's, so they cannot both proceed. A server without a backup pays for one atomic exchange per
//! commit. It continues if the backup ends, even by a kill, or takes longer than [`PAUSED_MAX`]; the
//! backup notices that and fails.

use ioloom_sys::proc;
use ioloom_sys::shared::Words;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Offset of the page for other processes in a mark file.
pub(super) const WORDS_AT: u64 = 8192;
/// Maximum time for which a backup stops commits.
pub(super) const PAUSED_MAX: Duration = Duration::from_secs(30);
/// Interval between looks at the other's word.
const INTERVAL: Duration = Duration::from_millis(1);
/// Words of the page; the process ID in front of them takes less than 64 bytes.
const COMMITTING: usize = 16;
const BACKUP: usize = 17;

/// The two words.
pub(super) struct Pause(Words);

/// A commit in progress.
pub(super) struct Commit<'a>(&'a Words);

impl Drop for Commit<'_> {
    fn drop(&mut self) {
        self.0.word(COMMITTING).store(0, Ordering::SeqCst);
    }
}

impl Pause {
    /// Maps the words of a mark file.
    pub(super) fn new(file: impl AsFd) -> io::Result<Self> {
        Words::new(file, WORDS_AT).map(Self)
    }

    /// Checks that the words are still shared with other processes.
    #[inline]
    pub(super) fn check(&self) -> io::Result<()> {
        self.0.check()
    }

    /// Starts a commit, after any backup.
    #[inline]
    pub(super) fn enter(&self) -> Commit<'_> {
        loop {
            self.0.word(COMMITTING).store(1, Ordering::SeqCst);
            if self.0.word(BACKUP).load(Ordering::SeqCst) == 0 {
                return Commit(&self.0);
            }
            self.0.word(COMMITTING).store(0, Ordering::SeqCst);
            self.wait_for_backup();
        }
    }

    #[cold]
    fn wait_for_backup(&self) {
        let (backup, since) = (self.0.word(BACKUP), Instant::now());
        loop {
            let pid = backup.load(Ordering::SeqCst);
            if pid == 0 {
                return;
            }
            if proc::is_ending(pid) || since.elapsed() > PAUSED_MAX {
                let _ = backup.compare_exchange(pid, 0, Ordering::SeqCst, Ordering::SeqCst);
                return;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Stops commits, calls `f` between two of them, and lets them continue.
    ///
    /// # Errors
    /// Returns an error if another backup is running, if the server does not finish its commit, or
    /// if it did not wait for `f`.
    pub(super) fn while_stopped<T>(&self, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let (backup, pid) = (self.0.word(BACKUP), std::process::id());
        let release =
            || backup.compare_exchange(pid, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if let Err(other) = backup.compare_exchange(0, pid, Ordering::SeqCst, Ordering::SeqCst) {
            let is_left = proc::is_ending(other)
                && backup.compare_exchange(other, pid, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            if !is_left {
                let what = format!("process {other} is copying this store");
                return Err(io::Error::other(what));
            }
        }
        let since = Instant::now();
        while self.0.word(COMMITTING).load(Ordering::SeqCst) != 0 {
            if since.elapsed() > PAUSED_MAX {
                release();
                return Err(io::Error::other("the server does not finish its commit"));
            }
            std::thread::sleep(INTERVAL);
        }
        let result = f();
        self.check()?;
        if release() {
            return result;
        }
        Err(io::Error::other(format!(
            "the copy took longer than {} seconds, so the server continued",
            PAUSED_MAX.as_secs()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn pauses() -> [Pause; 2] {
        let file = tempfile::tempfile().unwrap();
        file.set_len(WORDS_AT + 4096).unwrap();
        [Pause::new(&file).unwrap(), Pause::new(&file).unwrap()]
    }

    #[test]
    fn no_commit_runs_while_a_store_is_copied() {
        let [server, backup] = pauses();
        let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while ended.load(Ordering::SeqCst) < 20_000 {
                    let _commit = server.enter();
                    begun.fetch_add(1, Ordering::SeqCst);
                    std::hint::spin_loop();
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            });
            for _ in 0..20 {
                let look = || (begun.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
                let copy = || {
                    let before = look();
                    std::thread::sleep(INTERVAL);
                    Ok((before, look()))
                };
                let (before, after) = backup.while_stopped(copy).unwrap();
                assert_eq!(before, after, "a commit ran");
                assert_eq!(before.0, before.1, "a commit was in progress");
            }
        });
    }

    #[test]
    fn a_server_does_not_wait_for_a_dead_backup_and_backups_exclude_each_other() {
        let [server, backup] = pauses();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        server.0.word(BACKUP).store(child.id(), Ordering::SeqCst);
        drop(server.enter());
        server.0.word(BACKUP).store(child.id(), Ordering::SeqCst);
        let nested = backup.while_stopped(|| Ok(server.while_stopped(|| Ok(())).is_err()));
        assert!(nested.unwrap());
        let stolen = backup.while_stopped(|| {
            server.0.word(BACKUP).store(0, Ordering::SeqCst);
            Ok(())
        });
        assert!(stolen.is_err(), "the server continued");
    }
}
