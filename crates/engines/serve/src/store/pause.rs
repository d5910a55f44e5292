//! Stops the commits of a running server while another process copies its store.
//!
//! Between commits, the files of a store are consistent. Two words in the mark's last 4096 bytes, mapped
//! by both processes, keep them so: the server sets one during each commit and looks at the other;
//! the backup sets the other and waits for the first. Each sets its own word before it reads the
//! other's, so they cannot both proceed. A server without a backup pays for one atomic exchange per
//! commit. It continues if the backup ends, even by a kill, or takes longer than [`PAUSED_MAX`]; the
//! backup notices that and fails. The word of the backup is its process ID, or, in another PID
//! namespace than the server, where that number means nothing, a random one: then only the time
//! limit ends the wait for a killed backup.

use ioloom_sys::proc;
use ioloom_sys::shared::Words;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Offset of the words for other processes in a mark file.
pub(super) const WORDS_AT: u64 = 8192;
/// Maximum time for which a backup stops commits.
pub(super) const PAUSED_MAX: Duration = Duration::from_secs(30);
/// Interval between looks at the other's word.
const INTERVAL: Duration = Duration::from_millis(1);
/// Words of the page; the process ID in front of them takes less than 64 bytes.
const COMMITTING: usize = 16;
const BACKUP: usize = 17;
/// PID namespace of the server; 0 if it is unknown or the server is of an earlier version.
const NAMESPACE: usize = 18;
/// Set in the word of a backup in another PID namespace. Process IDs are smaller.
const FOREIGN: u32 = 1 << 31;

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

    /// Records the PID namespace of this process, the server.
    pub(super) fn announce(&self) {
        self.0.word(NAMESPACE).store(namespace(), Ordering::SeqCst);
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
            if self.is_left(pid) || since.elapsed() > PAUSED_MAX {
                let _ = backup.compare_exchange(pid, 0, Ordering::SeqCst, Ordering::SeqCst);
                return;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Returns whether a word is a process ID whose process this one can see.
    fn is_known(&self, backup: u32) -> bool {
        let server = self.0.word(NAMESPACE).load(Ordering::SeqCst);
        backup & FOREIGN == 0 && (server == 0 || server == namespace())
    }

    /// Returns whether a backup is known to have ended without clearing its word.
    fn is_left(&self, backup: u32) -> bool {
        self.is_known(backup) && proc::is_ending(backup)
    }

    /// Returns the word of a backup by this process.
    fn own(&self) -> u32 {
        let pid = std::process::id();
        if self.is_known(pid) {
            return pid;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Process IDs of two namespaces can be equal; the times of two calls hardly are.
        FOREIGN | (now.as_nanos() as u32).wrapping_add(pid)
    }

    /// Sets the word of the backup, unless another backup is running. Waits for one that may have
    /// been killed.
    fn claim(&self, own: u32) -> io::Result<()> {
        let (backup, since) = (self.0.word(BACKUP), Instant::now());
        let replaces = |old| backup.compare_exchange(old, own, Ordering::SeqCst, Ordering::SeqCst);
        let mut first = 0;
        loop {
            let Err(other) = replaces(0) else { return Ok(()) };
            let is_another = first != 0 && first != other;
            first = other;
            let is_over = self.is_left(other) || (!is_another && since.elapsed() > PAUSED_MAX);
            if is_over && replaces(other).is_ok() {
                return Ok(());
            }
            if self.is_known(other) {
                let what = format!("process {other} is copying this store");
                return Err(io::Error::other(what));
            }
            if is_another {
                return Err(io::Error::other("another process is copying this store"));
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
        let (backup, own) = (self.0.word(BACKUP), self.own());
        let release =
            || backup.compare_exchange(own, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        self.claim(own)?;
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
        if since.elapsed() < PAUSED_MAX {
            return Err(io::Error::other("the server continued before the copy was complete"));
        }
        Err(io::Error::other(format!(
            "the copy took longer than {} seconds, so the server continued",
            PAUSED_MAX.as_secs()
        )))
    }
}

/// Returns a number that identifies the PID namespace of this process, or 0 if it is unknown.
fn namespace() -> u32 {
    let name = proc::pid_namespace().unwrap_or_default();
    let digits = name.trim_start_matches("pid:[").trim_end_matches(']');
    digits.parse().unwrap_or(0)
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
        let error = stolen.unwrap_err().to_string();
        assert!(error.contains("the server continued before"), "{error}");
    }

    #[test]
    fn a_process_id_of_another_namespace_is_not_looked_up() {
        let [server, backup] = pauses();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        server.announce();
        assert!(server.is_left(child.id()) && backup.own() == std::process::id());
        server.0.word(NAMESPACE).store(1, Ordering::SeqCst);
        assert!(!backup.is_left(child.id()));
        let word = || Ok(server.0.word(BACKUP).load(Ordering::SeqCst));
        let word = backup.while_stopped(word).unwrap();
        assert!(word & FOREIGN != 0 && !server.is_left(word), "{word}");
    }
}
