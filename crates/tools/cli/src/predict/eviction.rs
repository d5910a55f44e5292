//! Eviction of the files of a calibration, confirmed by the kernel.

use crate::exit::Failure;
use ioloom_cache::{Incomplete, Source};
use ioloom_failure::{Operation, PathError, quoted};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Threads that evict, attempts to evict a file, and the pause between two. Pages that another processor
/// is adding to its lists, or that a reader still holds, survive the first ones.
const EVICTING: usize = 16;
const EVICTIONS: usize = 20;
const EVICTION_PAUSE: Duration = Duration::from_millis(10);
/// Files that could not be evicted, after which the others are not tried if none could.
const HOPELESS: usize = 2 * EVICTING;

/// Evicts files, or fails if the kernel keeps pages.
pub(super) fn evict(paths: &[PathBuf]) -> Result<(), Failure> {
    let one = |path: &PathBuf| match try_evict(path)? {
        true => Ok(()),
        false => Err(kept(path)),
    };
    on_threads(paths, one).map(|_| ())
}

/// Evicts files and removes those of which the kernel keeps pages from the list, or fails if fewer than
/// `least` would remain, as it does without trying all if none can be evicted. Calls `proceed` before
/// each file. Returns how many were removed.
pub(super) fn leave_out_kept(
    files: &mut Vec<(PathBuf, u64)>,
    least: usize,
    proceed: impl Fn() -> Result<(), Failure> + Sync,
) -> Result<usize, Failure> {
    let (before, out, done) = (files.len(), AtomicUsize::new(0), AtomicUsize::new(0));
    let most = before.saturating_sub(least);
    let one = |(path, _): &(PathBuf, u64)| {
        proceed()?;
        if try_evict(path)? {
            done.fetch_add(1, Ordering::Relaxed);
            return Ok(true);
        }
        let earlier = out.fetch_add(1, Ordering::Relaxed);
        let is_hopeless = least > 0 && earlier >= HOPELESS && done.load(Ordering::Relaxed) == 0;
        if earlier >= most || is_hopeless {
            return Err(kept(path));
        }
        Ok(false)
    };
    let mut evicted = on_threads(&files[..], one)?.into_iter();
    files.retain(|_| evicted.next().unwrap_or(false));
    Ok(before - files.len())
}

/// Calls a function for all items, on several threads, because each open can wait for a slow file system.
/// Returns the results in the order of the items, or an error.
fn on_threads<I: Sync, T: Send>(
    items: &[I],
    one: impl Fn(&I) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let (share, one) = (items.len().div_ceil(EVICTING).max(1), &one);
    std::thread::scope(|scope| {
        let parts: Vec<_> = items
            .chunks(share)
            .map(|part| scope.spawn(move || part.iter().map(one).collect::<Result<Vec<T>, _>>()))
            .collect();
        let mut all = Vec::with_capacity(items.len());
        for part in parts {
            all.extend(part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}

/// Evicts a file. Returns whether the kernel confirms it.
fn try_evict(path: &Path) -> Result<bool, Failure> {
    let fail = |e| Failure::failed(PathError::new(Operation::Open, path, e));
    let file = File::open(path).map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    for again in 0..EVICTIONS {
        if again > 0 {
            std::thread::sleep(EVICTION_PAUSE);
        }
        let (_, after, why) = ioloom_cache::evict_file(&file, bytes, true).map_err(fail)?;
        if after.is_cold() {
            return Ok(true);
        }
        if ioloom_sys::cache::is_memory_backed(path).unwrap_or(false) {
            return Err(kept(path));
        }
        // Another attempt would not know more.
        if why == Some(Incomplete::Unknown) || after.source == Source::Sampled {
            return Ok(false);
        }
    }
    Ok(false)
}

/// Returns the failure of a file of which the kernel keeps pages.
fn kept(path: &Path) -> Failure {
    let why = match ioloom_sys::cache::is_memory_backed(path) {
        Ok(true) => {
            "its file system stores data only in memory; use a directory on another one, for example \
             ext4 or XFS"
        }
        _ => {
            "a program has it mapped or locked, it belongs to another user, or its file system cannot \
             evict, or not confirm it, as overlayfs; use another directory"
        }
    };
    Failure::refused(format!("cannot evict {} from the page cache: {why}", quoted(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_sys::map::{Map, MapAdvice};

    #[test]
    fn a_mapped_file_is_left_out_while_enough_remain() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, [1; 4096]).unwrap();
            (path, 4096)
        };
        let all = vec![write("free"), write("mapped")];
        if !matches!(try_evict(&all[0].0), Ok(true)) {
            // Nothing can be evicted here.
            return;
        }
        let file = File::open(&all[1].0).unwrap();
        let map = Map::new(&file, 4096, MapAdvice::Populate).unwrap();
        let mut few = all.clone();
        let left = leave_out_kept(&mut few, 1, || Ok(())).unwrap();
        assert_eq!((left, &few[..]), (1, &all[..1]));
        let failure = leave_out_kept(&mut all.clone(), 2, || Ok(())).unwrap_err();
        assert!(failure.message.contains("mapped"), "{}", failure.message);
        drop(map);
    }

    #[test]
    fn a_directory_without_a_file_that_can_be_evicted_is_refused_early() {
        let dir = tempfile::tempdir().unwrap();
        let (mut files, mut maps) = (Vec::new(), Vec::new());
        for number in 0..400 {
            let path = dir.path().join(number.to_string());
            std::fs::write(&path, [1; 4096]).unwrap();
            let file = File::open(&path).unwrap();
            maps.push(Map::new(&file, 4096, MapAdvice::Populate).unwrap());
            files.push((path, 4096));
        }
        let tried = AtomicUsize::new(0);
        let proceed = || {
            tried.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        leave_out_kept(&mut files, 1, proceed).unwrap_err();
        drop(maps);
        // Beyond the limit, each thread ends with its next file.
        let tried = tried.into_inner();
        assert!(tried <= HOPELESS + EVICTING, "{tried}");
    }
}
