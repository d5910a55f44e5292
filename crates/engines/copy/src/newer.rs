//! Compares the times of a source and its target, for `--update`.
//!
//! Some file systems cut off the times that they store: FAT to two seconds, others to one second or to
//! 100 nanoseconds. A copy with preserved times would be older than its source for ever. So the time of
//! the source is cut off too, as in GNU cp. The file system shows its resolution by the zeros at the end
//! of the three times of the target.

use ioloom_sys::attr::{self, Attr, Time};
use ioloom_sys::dir::Dir;

/// The type of FAT in `statfs`. It stores only even seconds.
const FAT: u64 = 0x4d44;

const SECOND: u32 = 1_000_000_000;

/// Returns true if a source is newer than its target. `cuts`: whether times are preserved. `is_fat` is called
/// only if it matters.
pub(crate) fn is_newer(
    source: Time,
    there: &Attr,
    cuts: bool,
    is_fat: impl FnOnce() -> bool,
) -> bool {
    let cut_off = source.0.saturating_sub(there.modified.0) < 2;
    if !cuts || !cut_off || source <= there.modified {
        return source > there.modified;
    }
    let (seconds, nanoseconds) = source;
    let source = match is_fat() {
        true => (seconds & !1, 0),
        false => (seconds, nanoseconds - nanoseconds % resolution(there)),
    };
    source > there.modified
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
}
