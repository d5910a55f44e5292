//! The independent checker: everything that can be known about a tree, path by path.
//!
//! It uses only plain system calls and shares no code with the program. Times of the run itself are
//! recorded as "now", because the two programs run one after the other. Attributes are read before
//! contents, which would change access times.

use anyhow::Context;
use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The type of FUSE in `statfs`.
const FUSE: u64 = 0x6573_5546;

/// Beginning of the names that libfuse gives deleted files until they are closed.
const DELETED: &[u8] = b".fuse_hidden";

/// What is known about one path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Record {
    pub(super) fields: BTreeMap<&'static str, String>,
}

/// A tree by path.
pub(super) type Snapshot = BTreeMap<PathBuf, Record>;

/// Takes a snapshot of everything below `dir`. `since` is the time, in seconds since 1970, from
/// which on times are "now".
pub(super) fn take(dir: &Path, since: i64) -> anyhow::Result<Snapshot> {
    let system = rustix::fs::statfs(dir).with_context(|| format!("{}", dir.display()))?;
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    let kind = system.f_type as u64 & 0xffff_ffff;
    take_on(dir, since, kind == FUSE)
}

/// `on_fuse`: whether to ignore deleted files that are still open.
fn take_on(dir: &Path, since: i64, on_fuse: bool) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::new();
    let mut links: BTreeMap<(u64, u64), Vec<PathBuf>> = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        let path = dir.join(&below);
        let meta = fs::symlink_metadata(&path).with_context(|| format!("{}", path.display()))?;
        let mut record = record(&path, &meta, since)?;
        if meta.is_dir() {
            for entry in fs::read_dir(&path).with_context(|| format!("list {}", path.display()))? {
                let name = entry.context("list")?.file_name();
                if !(on_fuse && name.as_encoded_bytes().starts_with(DELETED)) {
                    open.push(below.join(name));
                }
            }
        } else if meta.nlink() > 1 {
            links.entry((meta.dev(), meta.ino())).or_default().push(below.clone());
        }
        if below.as_os_str().is_empty() {
            record.fields.clear();
        }
        snapshot.insert(below, record);
    }
    for group in links.values_mut() {
        // The other name is that of a deleted file.
        if on_fuse && group.len() == 1 {
            continue;
        }
        group.sort();
        let names: Vec<String> = group.iter().map(|p| format!("{p:?}")).collect();
        for path in group.iter() {
            if let Some(record) = snapshot.get_mut(path) {
                record.fields.insert("links", names.join(" = "));
            }
        }
    }
    Ok(snapshot)
}

fn record(path: &Path, meta: &fs::Metadata, since: i64) -> anyhow::Result<Record> {
    let mut record = Record::default();
    let mut set = |name, value: String| record.fields.insert(name, value);
    let kind = meta.file_type();
    let word = match () {
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "pipe",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () if kind.is_block_device() => "block device",
        () => "file",
    };
    set("type", word.to_owned());
    set("mode", format!("{:o}", meta.mode() & 0o7777));
    set("owner", format!("{}:{}", meta.uid(), meta.gid()));
    let time = |seconds: i64, nanoseconds: i64| {
        if seconds >= since { "now".to_owned() } else { format!("{seconds}.{nanoseconds:09}") }
    };
    set("mtime", time(meta.mtime(), meta.mtime_nsec()));
    set("atime", time(meta.atime(), meta.atime_nsec()));
    if kind.is_char_device() || kind.is_block_device() {
        set("device", format!("{:#x}", meta.rdev()));
    }
    if kind.is_symlink() {
        set("target", format!("{:?}", fs::read_link(path).context("read a link")?));
    } else {
        set("attributes", attributes(path)?);
    }
    if kind.is_file() {
        set("bytes", meta.len().to_string());
        set("extents", extents(path, meta.len()).unwrap_or_else(|e| e.to_string()));
        set("contents", format!("{:016x}", contents(path)?));
    }
    Ok(record)
}

/// Returns all attributes that this user can see, with their values.
fn attributes(path: &Path) -> anyhow::Result<String> {
    let mut names = vec![0_u8; 1 << 16];
    let count = match rustix::fs::llistxattr(path, &mut names) {
        Ok(count) => count,
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::PERM) => return Ok(String::new()),
        Err(error) => return Err(error).context("list attributes"),
    };
    let mut all = Vec::new();
    for name in names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0_u8; 1 << 16];
        let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap_or(0);
        // An access ACL of three entries says what the mode says. FUSE stores it all the same.
        if name == b"system.posix_acl_access" && length == 28 {
            continue;
        }
        let value: String = value[..length].iter().map(|byte| format!("{byte:02x}")).collect();
        all.push(format!("{}={value}", String::from_utf8_lossy(name)));
    }
    all.sort();
    Ok(all.join(" "))
}

/// Returns the ranges of data, as the file system reports them.
fn extents(path: &Path, bytes: u64) -> anyhow::Result<String> {
    let file = File::open(path).context("open")?;
    let (mut at, mut text) = (0, String::new());
    while at < bytes {
        let Ok(start) = seek(&file, SeekFrom::Data(at)) else { break };
        let end = seek(&file, SeekFrom::Hole(start)).context("find a hole")?;
        text += &format!("{start}-{end} ");
        at = end;
    }
    Ok(text)
}

/// Returns a checksum of the contents (FNV-1a).
fn contents(path: &Path) -> anyhow::Result<u64> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut buffer = vec![0; 1 << 16];
    let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    loop {
        let count = file.read(&mut buffer).context("read")?;
        if count == 0 {
            return Ok(hash);
        }
        for byte in &buffer[..count] {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// A difference: path, field, and both values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) path: OsString,
    pub(super) field: &'static str,
    pub(super) theirs: String,
    pub(super) ours: String,
}

/// Returns the differences of two snapshots, sorted by path.
pub(super) fn compare(theirs: &Snapshot, ours: &Snapshot) -> Vec<Difference> {
    let mut found = Vec::new();
    let paths: std::collections::BTreeSet<&PathBuf> = theirs.keys().chain(ours.keys()).collect();
    for path in paths {
        let mut add = |field, theirs: &str, ours: &str| {
            let (theirs, ours) = (theirs.to_owned(), ours.to_owned());
            found.push(Difference { path: path.clone().into_os_string(), field, theirs, ours });
        };
        match (theirs.get(path), ours.get(path)) {
            (Some(old), None) => add("entry", old.word(), "absent"),
            (None, Some(new)) => add("entry", "absent", new.word()),
            (Some(old), Some(new)) => {
                let names: std::collections::BTreeSet<&&'static str> =
                    old.fields.keys().chain(new.fields.keys()).collect();
                for name in names {
                    let value =
                        |record: &Record| record.fields.get(*name).cloned().unwrap_or_default();
                    let (old, new) = (value(old), value(new));
                    if old != new {
                        add(name, &old, &new);
                    }
                }
            }
            (None, None) => {}
        }
    }
    found
}

impl Record {
    /// Reports whether the path is of this type.
    pub(super) fn is(&self, word: &str) -> bool {
        self.word() == word
    }

    /// Returns the type.
    pub(super) fn word(&self) -> &str {
        self.fields.get("type").map_or("directory", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Returns the fields in which two directories differ after `change` was applied to one.
    fn fields(change: impl Fn(&Path)) -> Vec<&'static str> {
        let place = std::env::temp_dir().join(format!("ioloom-snapshot-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        let both = ["a", "b"].map(|name| {
            let dir = place.join(name);
            fs::create_dir_all(dir.join("d")).unwrap();
            fs::write(dir.join("d/f"), "some bytes").unwrap();
            fs::write(dir.join("d/g"), "some bytes").unwrap();
            std::os::unix::fs::symlink("f", dir.join("d/l")).unwrap();
            dir
        });
        change(&both[1]);
        let [theirs, ours] = both.map(|dir| take(&dir, 1_000_000).unwrap());
        fs::remove_dir_all(&place).unwrap();
        let mut fields: Vec<_> = compare(&theirs, &ours).iter().map(|d| d.field).collect();
        fields.dedup();
        fields
    }

    #[test]
    fn names_of_deleted_files_are_ignored_only_on_fuse() {
        let dir = std::env::temp_dir().join(format!("ioloom-deleted-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("f"), "some bytes").unwrap();
        let before = take_on(&dir, 0, true).unwrap();
        fs::hard_link(dir.join("f"), dir.join(".fuse_hidden0000000100000002")).unwrap();
        let [fuse, other] = [true, false].map(|on_fuse| take_on(&dir, 0, on_fuse).unwrap());
        fs::remove_dir_all(&dir).unwrap();
        assert!(compare(&before, &fuse).is_empty());
        assert_eq!(other.len(), before.len() + 1);
        assert!(other[Path::new("f")].fields.contains_key("links"));
    }

    #[test]
    fn every_kind_of_difference_is_seen() {
        assert!(fields(|_| {}).is_empty());
        assert_eq!(fields(|dir| fs::remove_file(dir.join("d/f")).unwrap()), ["entry"]);
        assert_eq!(fields(|dir| fs::write(dir.join("d/f"), "some bytez").unwrap()), ["contents"]);
        let mode = |dir: &Path| {
            fs::set_permissions(dir.join("d"), fs::Permissions::from_mode(0o701)).unwrap();
        };
        assert_eq!(fields(mode), ["mode"]);
        let link = |dir: &Path| {
            fs::remove_file(dir.join("d/g")).unwrap();
            fs::hard_link(dir.join("d/f"), dir.join("d/g")).unwrap();
        };
        assert_eq!(fields(link), ["links"]);
        let target = |dir: &Path| {
            fs::remove_file(dir.join("d/l")).unwrap();
            std::os::unix::fs::symlink("g", dir.join("d/l")).unwrap();
        };
        assert_eq!(fields(target), ["target"]);
        let time = |dir: &Path| {
            let file = File::options().write(true).open(dir.join("d/f")).unwrap();
            let old = std::time::UNIX_EPOCH + std::time::Duration::new(5, 6);
            file.set_modified(old).unwrap();
        };
        assert_eq!(fields(time), ["mtime"]);
        let sparse = |dir: &Path| {
            File::options().write(true).open(dir.join("d/f")).unwrap().set_len(1 << 20).unwrap();
        };
        assert!(fields(sparse).contains(&"bytes"));
    }
}
