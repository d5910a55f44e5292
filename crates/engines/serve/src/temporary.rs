//! Temporary names, in the directory of the files that they replace.
//!
//! A temporary name is that of the file, `.new-` and 16 random hexadecimal digits. Only files with such a
//! name are removed as left over from an interruption: other names belong to the user, such as
//! `stock.txt.new` of an editor or `store.new-monday` of a backup. A temporary file can have a temporary
//! name too, as the copy of a fjall store that is verified before it gets its name.

use ioloom_sys::fault;
use ioloom_sys::make::random_number;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What follows the name of the file, followed by the digits.
const MARK: &[u8] = b".new-";
const DIGITS: usize = 16;
/// Additional files of an SQLite database.
pub(crate) const SQLITE_ENDS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Returns an unused temporary name for a file.
pub(crate) fn name_for(path: &Path) -> PathBuf {
    let mut name = path.components().collect::<PathBuf>().into_os_string();
    name.push(format!(".new-{:016x}", random_number()));
    name.into()
}

/// Returns the temporary files and directories of a file that exist. The caller has locked the file, so
/// that no other process is using them.
///
/// # Errors
/// Fails if the directory cannot be read.
pub(crate) fn left_over(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in fault::call("read-directory", || fs::read_dir(dir))? {
        let entry = entry?;
        if entry.file_name().as_bytes().strip_prefix(name).is_some_and(is_temporary) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Reports whether this is what follows the name of a file in a temporary name of it.
fn is_temporary(rest: &[u8]) -> bool {
    let Some((digits, end)) =
        rest.strip_prefix(MARK).and_then(|rest| rest.split_at_checked(DIGITS))
    else {
        return false;
    };
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_of_sqlite = || SQLITE_ENDS.iter().any(|known| known.as_bytes() == end);
    digits.iter().all(is_digit) && (end.is_empty() || is_of_sqlite() || is_temporary(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_program_are_left_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("stock.txt");
        let mut ours = vec![name_for(&file), name_for(&file)];
        assert_ne!(ours[0], ours[1]);
        let mut log = ours[0].clone().into_os_string();
        log.push("-wal");
        ours.push(log.into());
        ours.push(name_for(&ours[0]));
        ours.iter().for_each(|path| fs::write(path, "").unwrap());
        for other in [
            "stock.txt",
            "stock.txt.new",
            "stock.txt.new-",
            "stock.txt.new-monday",
            "stock.txt.new-0123456789abcde",
            "stock.txt.new-0123456789abcdef0",
            "stock.txt.new-0123456789ABCDEF",
            "stock.txt.new-0123456789abcdef.mark",
            "stock.txt.new-0123456789abcdeg",
            "stock.txt.new-0123456789abcdef.new-monday",
            "other.new-0123456789abcdef",
            "stock.txt.old.new-0123456789abcdef",
        ] {
            fs::write(dir.path().join(other), "").unwrap();
        }
        let mut found = left_over(&file).unwrap();
        found.sort();
        ours.sort();
        assert_eq!(found, ours);
    }
}
