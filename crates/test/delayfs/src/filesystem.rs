//! The requests of the kernel, and what the server answers.

use crate::Options;
use crate::counters::Tally;
use crate::kind::Kind;
use crate::service::{Request as Delayed, Service};
use crate::tree::{Node, Tree, content};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry,
    ReplyOpen, ReplyStatfs, Request,
};
use std::ffi::OsStr;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// Most background requests, such as readahead, that the kernel sends at the same time; with more
/// waiting it considers the server congested.
const BACKGROUND_MAX: u16 = 4096;

/// How long the kernel may keep entries and attributes.
const EXPIRED: Duration = Duration::ZERO;

/// A file system that is served.
#[derive(Debug)]
pub(crate) struct Server {
    tree: Tree,
    options: Options,
    tally: Arc<Tally>,
    service: Service,
    opens_released: AtomicBool,
    reads_released: AtomicBool,
}

impl Server {
    pub(crate) fn new(options: Options, tally: Arc<Tally>) -> io::Result<Self> {
        let service = Service::start(options.limit.map(usize::from), Arc::clone(&tally))?;
        let tree = Tree::new(&options);
        let (opens_released, reads_released) = Default::default();
        Ok(Self { tree, options, tally, service, opens_released, reads_released })
    }

    /// Counts a request, and answers it after the delay of its kind. `bytes` is what it returns.
    fn after_delay(&self, kind: Kind, bytes: usize, answer: impl FnOnce() + Send + 'static) {
        let in_flight = self.tally.arrived(kind);
        let tally = Arc::clone(&self.tally);
        let answer = Box::new(move || {
            tally.answered(kind, bytes);
            answer();
        });
        let delay = self.delay(kind);
        self.service.submit(Delayed { kind, delay, answer });
        let wanted = self.options.until_overlap.map_or(u64::MAX, |n| n.get() as u64);
        if in_flight >= wanted
            && let Some(released) = self.released(kind)
            && !released.swap(true, Ordering::Relaxed)
        {
            self.service.release(kind);
        }
    }

    fn delay(&self, kind: Kind) -> Duration {
        if self.released(kind).is_some_and(|released| released.load(Ordering::Relaxed)) {
            return Duration::ZERO;
        }
        match kind {
            Kind::Lookup => self.options.lookup,
            Kind::Getattr => self.options.getattr,
            Kind::Open => self.options.open,
            Kind::Read => self.options.read,
        }
    }

    /// Returns whether the delays of this kind have ended, if they can.
    fn released(&self, kind: Kind) -> Option<&AtomicBool> {
        match kind {
            Kind::Open => Some(&self.opens_released),
            Kind::Read => Some(&self.reads_released),
            Kind::Lookup | Kind::Getattr => None,
        }
    }

    fn attributes(&self, node: Node, user: &Request) -> FileAttr {
        let size = self.tree.size(node);
        let (kind, perm) = match node {
            Node::File(_) => (FileType::RegularFile, 0o444),
            Node::Root | Node::Dir(_) => (FileType::Directory, 0o555),
        };
        FileAttr {
            ino: INodeNo(self.tree.inode(node)),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: user.uid(),
            gid: user.gid(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// Returns the bytes of a file in this range, which its end cuts.
    fn bytes(&self, inode: INodeNo, offset: u64, size: u32) -> Option<(usize, u64, usize)> {
        let node = self.tree.node(inode.0)?;
        let Node::File(file) = node else { return None };
        let left = self.tree.size(node).saturating_sub(offset);
        Some((file, offset, usize::try_from(left.min(u64::from(size))).ok()?))
    }
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = |what: &str| io::Error::other(format!("the kernel refused {what}"));
        // Otherwise the kernel sends the lookups of one directory one by one.
        let parallel = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        parallel.map_err(|_| refused("parallel lookups"))?;
        let background = config.set_max_background(BACKGROUND_MAX);
        background.map_err(|_| refused("the number of background requests"))?;
        let congested = config.set_congestion_threshold(BACKGROUND_MAX);
        congested.map_err(|_| refused("the congestion threshold"))?;
        Ok(())
    }

    fn lookup(&self, user: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = self.tree.node(parent.0);
        let node = parent.and_then(|parent| self.tree.child(parent, name));
        let found = node.map(|node| self.attributes(node, user));
        self.after_delay(Kind::Lookup, 0, move || match found {
            Some(attributes) => reply.entry(&EXPIRED, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        });
    }

    fn getattr(&self, user: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.tree.node(inode.0).map(|node| self.attributes(node, user));
        self.after_delay(Kind::Getattr, 0, move || match found {
            Some(attributes) => reply.attr(&EXPIRED, &attributes),
            None => reply.error(Errno::ENOENT),
        });
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Without a flag, reads go through the page cache, and the kernel discards what it holds.
        let flags = match self.options.short {
            Some(_) => FopenFlags::FOPEN_DIRECT_IO,
            None => FopenFlags::empty(),
        };
        self.after_delay(Kind::Open, 0, move || reply.opened(FileHandle(0), flags));
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let most = self.options.short.map_or(usize::MAX, NonZeroUsize::get);
        let range = self.bytes(inode, offset, size);
        let range = range.map(|(file, offset, len)| (file, offset, len.min(most)));
        let len = range.map_or(0, |(_, _, len)| len);
        self.after_delay(Kind::Read, len, move || match range {
            Some((file, offset, len)) => reply.data(&content(file, offset, len)),
            None => reply.error(Errno::EIO),
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // Without blocks, the files count as made up, and readers query their sizes.
        let blocks = if self.options.short.is_some() { 1 << 20 } else { 0 };
        reply.statfs(blocks, 0, 0, 0, 0, 4096, 255, 4096);
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(dir) = self.tree.node(inode.0) else { return reply.error(Errno::ENOENT) };
        let dots = [(".".to_owned(), dir), ("..".to_owned(), self.tree.parent(dir))];
        let entries = self.tree.entries(dir).into_iter().map(|node| (self.tree.name(node), node));
        let all = dots.into_iter().chain(entries).zip(1..);
        for ((name, node), next) in all.skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            let kind = match node {
                Node::File(_) => FileType::RegularFile,
                Node::Root | Node::Dir(_) => FileType::Directory,
            };
            if reply.add(INodeNo(self.tree.inode(node)), next, kind, &name) {
                break;
            }
        }
        reply.ok();
    }
}
