//! Random trees: a list of entries from a seed, and its creation in a directory.
//!
//! The same list is created once for each program, so both start from equal trees: odd names,
//! sparse and preallocated files, groups of hard links, symbolic links that dangle or loop, pipes,
//! sockets, devices (as root), set-id and sticky bits, attributes, access lists, and times to the
//! nanosecond. Owners, modes and times are set last, children before their directories.

use super::random::Random;
use anyhow::{Context, bail};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The unprivileged user and group of some entries, and of the programs in runs without root.
pub(super) const PLAIN: u32 = 65534;

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Data(u64, Vec<u8>),
    /// Space without data, inside or beyond the length.
    Reserved(u64, u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Directory,
    File {
        bytes: u64,
        pieces: Vec<Piece>,
    },
    /// Another name of an earlier entry.
    Link(usize),
    Symlink(Vec<u8>),
    Pipe,
    Socket,
    /// A character or block device with these numbers.
    Device {
        block: bool,
        major: u32,
        minor: u32,
    },
}

/// An entry. Its parent is an earlier directory; entry 0 is the root of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) parent: usize,
    pub(super) name: Vec<u8>,
    pub(super) what: What,
    pub(super) mode: u32,
    owner: (u32, u32),
    times: [(i64, u32); 2],
    attributes: Vec<(String, Vec<u8>)>,
}

impl Entry {
    /// Returns true if it was changed before 1970.
    pub(super) fn is_old(&self) -> bool {
        let [_, (seconds, _)] = self.times;
        seconds < 0
    }

    /// Returns true if an access list takes the place of the mode.
    fn is_listed(&self) -> bool {
        self.attributes.iter().any(|(name, _)| name == "system.posix_acl_access")
    }
}

/// A tree to create.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) entries: Vec<Entry>,
}

/// What a tree may contain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Whether the programs run as root; otherwise most entries belong to [`PLAIN`].
    pub(super) root: bool,
    pub(super) entries_max: u64,
    /// Whether pipes, sockets and devices occur.
    pub(super) special: bool,
    /// Whether some directories and files are closed to their owner.
    pub(super) closed: bool,
    /// The earliest time, in seconds since 1970; some times are in this second.
    pub(super) earliest: i64,
}

/// An earliest time before 1970.
pub(super) const OLD: i64 = -86_400 * 365;

const NAMES: [&[u8]; 14] = [
    b"a",
    b"b",
    b"plain",
    b"new\nline",
    b"\xff\xfe",
    b" space ",
    b"-dash",
    b"it's",
    b"\xc3\xa9",
    b"*",
    b".hidden",
    b"tab\t",
    b"--",
    b"back\\slash",
];
const MODES: [u32; 12] =
    [0o644, 0o600, 0o755, 0o700, 0o640, 0o444, 0o4755, 0o2755, 0o1777, 0o6711, 0o664, 0o666];

impl Tree {
    /// Draws a tree whose root has this name.
    pub(super) fn draw(random: &mut Random, name: &[u8], limits: Limits) -> Self {
        let mut tree =
            Self { entries: vec![entry(random, 0, name.to_vec(), What::Directory, limits)] };
        tree.entries[0].mode = 0o755;
        let count = 1 + random.below(limits.entries_max);
        let deep = random.chance(15);
        for _ in 0..count {
            let dirs: Vec<usize> = tree.indices(|what| *what == What::Directory);
            let parent =
                if deep && random.chance(70) { dirs[dirs.len() - 1] } else { *random.pick(&dirs) };
            let name = tree.free_name(random, parent);
            let what = tree.draw_what(random, limits, parent);
            let new = entry(random, parent, name, what, limits);
            tree.entries.push(new);
        }
        tree
    }

    /// Draws a tree for the place that `self` is copied to: some of the same paths, as the same or
    /// another kind, and some others.
    pub(super) fn draw_target(&self, random: &mut Random, name: &[u8], limits: Limits) -> Self {
        let mut tree =
            Self { entries: vec![entry(random, 0, name.to_vec(), What::Directory, limits)] };
        tree.entries[0].mode = 0o755;
        // The index in the new tree of each directory that both have.
        let mut same: Vec<Option<usize>> = vec![None; self.entries.len()];
        same[0] = Some(0);
        for (index, old) in self.entries.iter().enumerate().skip(1) {
            let Some(parent) = same[old.parent].filter(|_| random.chance(60)) else { continue };
            let directory = old.what == What::Directory;
            let what = if directory && random.chance(90) {
                What::Directory
            } else if !directory && random.chance(70) {
                draw_file(random)
            } else {
                tree.draw_what(random, limits, parent)
            };
            same[index] = (what == What::Directory).then_some(tree.entries.len());
            let new = entry(random, parent, old.name.clone(), what, limits);
            tree.entries.push(new);
        }
        tree
    }

    fn indices(&self, test: impl Fn(&What) -> bool) -> Vec<usize> {
        (0..self.entries.len()).filter(|index| test(&self.entries[*index].what)).collect()
    }

    fn free_name(&self, random: &mut Random, parent: usize) -> Vec<u8> {
        loop {
            let mut name = random.pick(&NAMES).to_vec();
            if random.chance(60) {
                name.extend(random.below(100).to_string().bytes());
            }
            if random.chance(2) {
                name = vec![b'n'; 255];
            }
            let taken = |e: &Entry| e.parent == parent && e.name == name;
            if !self.entries.iter().skip(1).any(taken) {
                return name;
            }
        }
    }

    fn draw_what(&self, random: &mut Random, limits: Limits, parent: usize) -> What {
        let files = self.indices(|what| !matches!(what, What::Directory | What::Link(_)));
        match random.below(100) {
            0..28 => What::Directory,
            28..62 => draw_file(random),
            62..74 if !files.is_empty() => What::Link(*random.pick(&files)),
            74..90 => What::Symlink(self.draw_target_of_link(random, parent)),
            90..100 if limits.special => match random.below(4) {
                0 => What::Pipe,
                1 => What::Socket,
                2 if limits.root => What::Device { block: false, major: 1, minor: 3 },
                3 if limits.root => What::Device { block: true, major: 7, minor: 200 },
                _ => What::Pipe,
            },
            _ => draw_file(random),
        }
    }

    /// Draws the text of a symbolic link in `parent`: to an entry, to itself, to nothing, outside.
    fn draw_target_of_link(&self, random: &mut Random, parent: usize) -> Vec<u8> {
        match random.below(10) {
            0 => b"nowhere".to_vec(),
            1 => b".".to_vec(),
            2 => b"..".to_vec(),
            3 => b"loop".to_vec(),
            4 => [&b"../".repeat(self.depth(parent) + 1)[..], b"outside/kept"].concat(),
            _ => {
                let entry = random.index(self.entries.len());
                [&b"../".repeat(self.depth(parent))[..], &self.below_root(entry)].concat()
            }
        }
    }

    fn depth(&self, mut index: usize) -> usize {
        let mut depth = 0;
        while index != 0 {
            index = self.entries[index].parent;
            depth += 1;
        }
        depth
    }

    /// Returns the path of an entry below the root of the tree; `.` for the root.
    pub(super) fn below_root(&self, index: usize) -> Vec<u8> {
        if index == 0 {
            return b".".to_vec();
        }
        let entry = &self.entries[index];
        if entry.parent == 0 {
            return entry.name.clone();
        }
        [&self.below_root(entry.parent)[..], b"/", &entry.name].concat()
    }

    /// Returns the path of an entry, beginning with the name of the root.
    pub(super) fn path(&self, index: usize) -> PathBuf {
        let root = PathBuf::from(OsStr::from_bytes(&self.entries[0].name));
        if index == 0 { root } else { root.join(OsStr::from_bytes(&self.below_root(index))) }
    }

    /// Returns the index of the entry with a path.
    pub(super) fn index_of(&self, path: &Path) -> Option<usize> {
        (0..self.entries.len()).find(|index| self.path(*index) == path)
    }

    /// Returns the entry that has the type and attributes of a file with several names.
    pub(super) fn original(&self, index: usize) -> usize {
        match self.entries[index].what {
            What::Link(to) => to,
            _ => index,
        }
    }

    /// Returns the set-id and sticky bits of an entry by its path; zero if there is none.
    pub(super) fn special_bits(&self, path: &Path) -> u32 {
        let entry = self.index_of(path).map(|at| &self.entries[self.original(at)]);
        entry.filter(|entry| !entry.is_listed()).map_or(0, |entry| entry.mode & 0o7000)
    }

    pub(super) fn has_symlink(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.what, What::Symlink(_)))
    }

    /// Returns true if a plain user cannot read a file with this name.
    pub(super) fn has_closed(&self, name: &OsStr) -> bool {
        let closed = |entry: &Entry| {
            let bit = if entry.owner.0 == PLAIN { 0o400 } else { 0o004 };
            entry.mode & bit == 0 && !entry.is_listed()
        };
        (0..self.entries.len()).any(|index| {
            self.entries[index].name == name.as_bytes()
                && closed(&self.entries[self.original(index)])
        })
    }

    /// Returns an order of creation: of the entries whose directory exists, `pick` chooses the next
    /// by its position.
    pub(super) fn order(&self, mut pick: impl FnMut(usize) -> usize) -> Vec<usize> {
        let (mut order, mut ready) = (Vec::new(), vec![0]);
        while !ready.is_empty() {
            let next = ready.remove(pick(ready.len()));
            order.push(next);
            let is_child = |at: &usize| *at != 0 && self.entries[*at].parent == next;
            ready.extend((0..self.entries.len()).filter(is_child));
        }
        order
    }

    /// Creates the tree in `place`. Attributes that the file system does not support are left out.
    pub(super) fn create(&self, place: &Path) -> anyhow::Result<()> {
        let order: Vec<usize> = (0..self.entries.len()).collect();
        self.create_in(place, &order)
    }

    /// Creates the tree with its entries in another order.
    pub(super) fn create_in(&self, place: &Path, order: &[usize]) -> anyhow::Result<()> {
        let mut made: BTreeMap<usize, PathBuf> = BTreeMap::new();
        for index in order {
            let (path, original) = (place.join(self.path(*index)), self.original(*index));
            let ended = match made.get(&original) {
                Some(first) => std::fs::hard_link(first, &path).map_err(Into::into),
                None => make(&path, &self.entries[original]),
            };
            ended.with_context(|| format!("create {}", path.display()))?;
            made.entry(original).or_insert(path);
        }
        for (index, entry) in self.entries.iter().enumerate().rev() {
            let path = place.join(self.path(index));
            if !matches!(entry.what, What::Link(_)) {
                finish(&path, entry).with_context(|| format!("finish {}", path.display()))?;
            }
        }
        // Setting the times of a child changes nothing, but its creation changed its parent.
        for (index, entry) in self.entries.iter().enumerate().rev() {
            if !matches!(entry.what, What::Link(_)) {
                set_times(&place.join(self.path(index)), entry).context("set times")?;
            }
        }
        Ok(())
    }
}

fn make(path: &Path, entry: &Entry) -> anyhow::Result<()> {
    let special =
        |kind, device| rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device);
    match &entry.what {
        What::Directory => std::fs::create_dir(path)?,
        What::File { bytes, pieces } => write(path, *bytes, pieces)?,
        What::Link(_) => bail!("a link is created as the file that it leads to"),
        What::Symlink(to) => std::os::unix::fs::symlink(OsStr::from_bytes(to), path)?,
        What::Pipe => special(FileType::Fifo, 0)?,
        What::Socket => special(FileType::Socket, 0)?,
        What::Device { block, major, minor } => {
            let kind = if *block { FileType::BlockDevice } else { FileType::CharacterDevice };
            special(kind, rustix::fs::makedev(*major, *minor))?;
        }
    }
    Ok(())
}

fn draw_file(random: &mut Random) -> What {
    let mut pieces = Vec::new();
    let mut end: u64 = 0;
    for _ in 0..random.below(4) {
        // Starts on a block, so that holes are holes on every file system.
        let start = end.div_ceil(4096) * 4096
            + 4096 * random.below(40) * u64::from(random.chance(50) as u8);
        if random.chance(15) {
            let length = 4096 * (1 + random.below(16));
            pieces.push(Piece::Reserved(start, length));
            end = end.max(start + length);
        } else {
            let length = [1, 100, 4096, 5000, 20_000][random.index(5)];
            // Some pieces are zeros, which are data and not a hole.
            let zero = random.chance(15);
            let data = (0..length).map(|_| if zero { 0 } else { random.next() as u8 });
            pieces.push(Piece::Data(start, data.collect()));
            end = end.max(start + length as u64);
        }
    }
    let tail = if random.chance(20) { 4096 * random.below(64) } else { 0 };
    What::File { bytes: end + tail, pieces }
}

fn entry(random: &mut Random, parent: usize, name: Vec<u8>, what: What, limits: Limits) -> Entry {
    let directory = what == What::Directory;
    let mut mode = *random.pick(&MODES);
    if directory {
        mode |= 0o700;
    }
    if limits.closed && random.chance(8) {
        mode &= !*random.pick(&[0o700, 0o400, 0o100, 0o500]);
    }
    let owner = if limits.root {
        [(0, 0), (PLAIN, PLAIN), (1000, 100)][random.index(3)]
    } else if random.chance(90) {
        (PLAIN, PLAIN)
    } else {
        (0, 0)
    };
    let mut time = || match random.below(8) {
        0 => (0, 0),
        1 => (limits.earliest, 999_999_999),
        _ => (random.below(1_700_000_000) as i64, random.below(1_000_000_000) as u32),
    };
    let times = [time(), time()];
    let attributes = draw_attributes(random, &what, limits);
    Entry { parent, name, what, mode, owner, times, attributes }
}

fn draw_attributes(random: &mut Random, what: &What, limits: Limits) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    if !matches!(what, What::Directory | What::File { .. }) {
        return all;
    }
    if random.chance(12) {
        let value = (0..random.below(40)).map(|_| random.next() as u8).collect();
        all.push(("user.note".to_owned(), value));
    }
    if random.chance(12) {
        all.push(("system.posix_acl_access".to_owned(), access_list(random.below(8) as u16)));
    }
    if *what == What::Directory && random.chance(12) {
        all.push(("system.posix_acl_default".to_owned(), access_list(random.below(8) as u16)));
    }
    if limits.root && matches!(what, What::File { .. }) && random.chance(4) {
        // Revision 2 with CAP_NET_RAW, permitted and effective.
        let mut value = vec![0; 20];
        value[..8].copy_from_slice(&[1, 0, 0, 2, 0, 32, 0, 0]);
        all.push(("security.capability".to_owned(), value));
    }
    all
}

/// Returns an access list, in the kernel's format, that grants `permissions` to user 1000.
fn access_list(permissions: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries =
        [(1, 7, none), (2, permissions, 1000), (4, 5, none), (16, 7, none), (32, 4, none)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permission, id) in entries {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&u16::to_le_bytes(permission));
        bytes.extend_from_slice(&u32::to_le_bytes(id));
    }
    bytes
}

fn write(path: &Path, bytes: u64, pieces: &[Piece]) -> anyhow::Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes)?;
    for piece in pieces {
        match piece {
            Piece::Data(at, data) => file.write_all_at(data, *at)?,
            // Not every file system reserves space; the file is then sparse.
            Piece::Reserved(at, length) => {
                let _ = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, *at, *length);
            }
        }
    }
    Ok(())
}

/// Sets the attributes, the owner and the mode.
fn finish(path: &Path, entry: &Entry) -> anyhow::Result<()> {
    for (name, value) in &entry.attributes {
        let set = rustix::fs::lsetxattr(path, name.as_str(), value, XattrFlags::empty());
        let unsupported = |e: &rustix::io::Errno| {
            [rustix::io::Errno::NOTSUP, rustix::io::Errno::PERM].contains(e)
        };
        if let Err(error) = set
            && !unsupported(&error)
        {
            return Err(error).with_context(|| name.clone());
        }
    }
    if rustix::process::getuid().is_root() {
        let (user, group) = (Uid::from_raw(entry.owner.0), Gid::from_raw(entry.owner.1));
        rustix::fs::chownat(CWD, path, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    // A mode would replace the mask of an access list.
    if !matches!(entry.what, What::Symlink(_)) && !entry.is_listed() {
        rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(entry.mode), AtFlags::empty())?;
    }
    // A change of the owner removes it.
    for (name, value) in entry.attributes.iter().filter(|(name, _)| name.starts_with("security.")) {
        let _ = rustix::fs::lsetxattr(path, name.as_str(), value, XattrFlags::empty());
    }
    Ok(())
}

fn set_times(path: &Path, entry: &Entry) -> anyhow::Result<()> {
    let [access, modification] = entry
        .times
        .map(|(seconds, nanoseconds)| Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() });
    let times = Timestamps { last_access: access, last_modification: modification };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

impl Tree {
    /// Returns the tree without one entry, if nothing depends on it.
    pub(super) fn without(&self, index: usize) -> Option<Self> {
        let needs = |e: &Entry| e.parent == index || e.what == What::Link(index);
        if index == 0 || self.entries.iter().skip(1).any(needs) {
            return None;
        }
        let shift = |other: usize| if other > index { other - 1 } else { other };
        let mut entries = self.entries.clone();
        entries.remove(index);
        for entry in &mut entries {
            entry.parent = shift(entry.parent);
            if let What::Link(to) = &mut entry.what {
                *to = shift(*to);
            }
        }
        Some(Self { entries })
    }

    /// Returns the groups of paths that are one inode, each with at least two paths.
    pub(super) fn link_groups(&self) -> Vec<Vec<PathBuf>> {
        let mut groups = Vec::new();
        for (first, _) in self.entries.iter().enumerate() {
            let same = |e: &&Entry| e.what == What::Link(first);
            let mut group = vec![self.path(first)];
            let others = self.entries.iter().enumerate().filter(|(_, e)| same(e));
            group.extend(others.map(|(index, _)| self.path(index)));
            if group.len() > 1 {
                groups.push(group);
            }
        }
        groups
    }

    /// Describes the tree, one line per entry.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let what = match &entry.what {
                What::File { bytes, pieces } => {
                    let piece = |piece: &Piece| match piece {
                        Piece::Data(at, data) => format!(" data {at}+{}", data.len()),
                        Piece::Reserved(at, length) => format!(" reserved {at}+{length}"),
                    };
                    let pieces: String = pieces.iter().map(piece).collect();
                    format!("file {bytes}{pieces}")
                }
                What::Link(to) => format!("link to {}", self.path(*to).display()),
                What::Symlink(to) => format!("symlink to {:?}", OsStr::from_bytes(to)),
                other => format!("{other:?}"),
            };
            let attributes: Vec<&str> = entry.attributes.iter().map(|(n, _)| n.as_str()).collect();
            text += &format!(
                "  {:?} {what} mode {:o} owner {}:{} mtime {}.{:09} {}\n",
                self.path(index),
                entry.mode,
                entry.owner.0,
                entry.owner.1,
                entry.times[1].0,
                entry.times[1].1,
                attributes.join(" ")
            );
        }
        text
    }
}
