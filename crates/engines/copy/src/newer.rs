//! Compares the times of a source and its target, for `--update`.
//!
//! Some file systems cut off the times that they store: FAT to two seconds, others to one second or to
//! 100 nanoseconds. A copy with preserved times would be older than its source for ever. So the time of
//! the source is cut off too, as in GNU cp. The file system shows its resolution by the zeros at the end
//! of the three times of the target. Only FAT has steps of two seconds, but a server or FUSE can export it: then
//! setting the time of the target shows the steps, which costs up to three calls for such a file.

use ioloom_sys::attr::{self, Attr, Time};
use ioloom_sys::dir::{Dir, Kind};
use std::ffi::CStr;

/// The type of FAT in `statfs`. It stores only even seconds.
const FAT: u64 = 0x4d44;

const SECOND: u32 = 1_000_000_000;

/// Returns true if a source is newer than its target. `cuts`: whether times are preserved. `has_long_steps` is called
/// only if it matters: whether the target stores only even seconds.
pub(crate) fn is_newer(
    source: Time,
    there: &Attr,
    cuts: bool,
    has_long_steps: impl FnOnce() -> bool,
) -> bool {
    let cut_off = source.0.saturating_sub(there.modified.0) < 2;
    if !cuts || !cut_off || source <= there.modified {
        return source > there.modified;
    }
    let (seconds, nanoseconds) = source;
    let source = (seconds, nanoseconds - nanoseconds % resolution(there));
    let even = (seconds & !1, 0);
    source > there.modified && (even > there.modified || !has_long_steps())
}

/// Returns true if the file `name` in `dir` is on FAT, also if a server or another program exports that.
pub(crate) fn has_long_steps(dir: &Dir, name: &CStr, there: &Attr) -> bool {
    let Ok(system) = attr::file_system(dir) else { return false };
    let may_be_exported =
        system.remote && there.kind == Kind::Regular && resolution(there) == SECOND;
    system.kind == FAT || (may_be_exported && stores_even_seconds(dir, name, there))
}

/// Returns true if a file with an even time gets an even one when it is set to the second before. Sets it back. If this
/// process is killed before that, the file is older than it was, and is copied again.
fn stores_even_seconds(dir: &Dir, name: &CStr, there: &Attr) -> bool {
    let (seconds, _) = there.modified;
    let set = |modified| attr::set_times_at(dir, name, there.accessed, modified);
    if seconds & 1 != 0 || set((seconds - 1, 0)).is_err() {
        return false;
    }
    let now = attr::of_name(dir, name, false).map(|now| now.modified);
    // A later time is that of a program that writes to the file meanwhile.
    if !now.as_ref().is_ok_and(|now| *now >= there.modified) {
        // Ignore a failure: an older file is copied again.
        let _ = set(there.modified);
    }
    now.is_ok_and(|now| now == (seconds - 2, 0))
}

/// Returns true if a directory is on FAT.
pub(crate) fn is_on_fat(dir: &Dir) -> bool {
    attr::file_system(dir).is_ok_and(|system| system.kind == FAT)
}

/// Returns the largest unit, in nanoseconds and at most a second, of which all times of a file are multiples.
fn resolution(of: &Attr) -> u32 {
    let times = [of.accessed.1, of.modified.1, of.changed.1];
    let mut unit = 1;
    while unit < SECOND && times.iter().all(|time| time % (unit * 10) == 0) {
        unit *= 10;
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_cut_off_to_the_resolution_of_its_target() {
        let file = attr::of_file(tempfile::tempfile().unwrap()).unwrap();
        let at = |modified, changed| Attr { accessed: (0, 0), modified, changed, ..file };
        let newer = |source, there: Attr, is_fat| is_newer(source, &there, true, || is_fat);
        // One second: all digits are zeros.
        let second = at((12, 0), (50, 0));
        assert!(!newer((12, 999_999_999), second, false));
        assert!(newer((13, 0), second, false));
        assert!(is_newer((12, 1), &second, false, || true), "times are not preserved");
        // The time of the last change is exact, so the other one is that of the source.
        assert!(newer((12, 1), at((12, 0), (50, 123)), false));
        // 100 nanoseconds.
        assert!(!newer((12, 199), at((12, 100), (50, 700)), false));
        assert!(newer((12, 200), at((12, 100), (50, 700)), false));
        // FAT.
        assert!(!newer((13, 500_000_000), second, true));
        assert!(newer((14, 0), second, true));
        assert!(!newer((11, 0), second, true));
    }

    #[test]
    fn a_file_that_stores_odd_seconds_keeps_its_time() {
        let temp = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::write(temp.path().join("f"), "text").unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let now = || attr::of_name(&dir, c"f", false).unwrap();
        for seconds in [1_600_000_000, 1_600_000_001] {
            let time = (seconds, 0);
            attr::set_times_at(&dir, c"f", time, time).unwrap();
            assert!(!stores_even_seconds(&dir, c"f", &now()));
            assert_eq!(now().modified, time);
        }
    }

    #[test]
    fn the_steps_are_asked_for_only_if_they_matter() {
        let file = attr::of_file(tempfile::tempfile().unwrap()).unwrap();
        let there = Attr { accessed: (0, 0), modified: (12, 0), changed: (50, 0), ..file };
        let asked = |source| {
            let mut asked = false;
            let _ = is_newer(source, &there, true, || {
                asked = true;
                true
            });
            asked
        };
        assert!(asked((13, 0)));
        assert!(!asked((12, 500)) && !asked((14, 0)) && !asked((12, 0)));
    }
}
