//! `du s3://BUCKET/PREFIX` and the other schemes of stores: sizes of prefixes, from the listing.
//!
//! A prefix that ends with a slash is a directory without a size of its own. Objects have no disk usage
//! that a client could see, so it equals the apparent size. Inodes are objects.

use super::args::DuArgs;
use super::input::print_errors_of;
use super::lines::Lines;
use crate::exit::Failure;
use crate::interrupt::StopSignals;
use crate::status_line::StatusLine;
use crate::{out, remote};
use ioloom_du::links::{FileId, LinkSet};
use ioloom_du::tree::{Found, Kind, Part, ROOT, Tree};
use ioloom_du::{Scan, Tally};
use ioloom_model::units::{format_count, format_size};
use ioloom_objects::{Listed, ObjectError};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Errors that are kept.
const ERRORS_KEPT: usize = 1000;

/// Lists what is below a URL. With `print`, prints the lines of the tree.
pub(super) fn scan(args: &DuArgs, url: &str, lines: &Lines, print: bool) -> Result<Scan, Failure> {
    check(args)?;
    let store = remote::open(url)?;
    let signals = StopSignals::catch();
    signals.share();
    let (start, started) = (Instant::now(), SystemTime::now());
    let seen = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let shown = seen.clone();
    let status = StatusLine::start("du-progress", move |elapsed| {
        let objects = shown.0.load(Ordering::Relaxed);
        let per_s = objects as f64 / elapsed.as_secs_f64().max(0.001);
        let size = format_size(shown.1.load(Ordering::Relaxed));
        format!("{} objects, {size}, {} per s", format_count(objects), format_count(per_s as u64))
    });
    let location = store.location();
    let root = location.url();
    // As for files, an export and a treemap have all entries.
    let files = args.all || args.export_ncdu.is_some() || args.svg.is_some();
    let mut objects = Objects::new(root.trim_end_matches('/'), location.prefix(), files);
    let (mut stopped, mut errors, mut errors_count) = (false, Vec::new(), 0);
    let mut failed = |error: ObjectError| {
        errors_count += 1;
        if errors.len() < ERRORS_KEPT {
            errors.push(error.to_string());
        }
    };
    let listed = ioloom_objects::list(&store, &signals.flag, |object| {
        match object {
            Ok(object) => {
                seen.0.fetch_add(1, Ordering::Relaxed);
                seen.1.fetch_add(object.size, Ordering::Relaxed);
                objects.add(&object);
            }
            Err(error) => failed(error),
        }
        stopped = signals.flag.load(Ordering::Relaxed);
        !stopped
    });
    // The listing itself ends at a signal, too.
    stopped |= signals.flag.load(Ordering::Relaxed);
    status.finish();
    listed.err().into_iter().for_each(failed);
    // As with a directory that cannot be opened, nothing listed means no line.
    let empty = objects.count == 0 && !errors.is_empty();
    let roots: Vec<Tree> = if empty { None } else { objects.tree() }.into_iter().collect();
    let unix_s = started.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let scan = Scan {
        roots,
        errors_count,
        errors,
        interrupted: stopped,
        signal: stopped.then(|| signals.exit() as i32 - 128),
        elapsed_ns: start.elapsed().as_nanos() as u64,
        started_unix_s: unix_s,
        method: Some("list".to_owned()),
        ..Scan::default()
    };
    print_errors_of(&scan);
    if print && !stopped {
        let mut text = Vec::new();
        scan.roots.iter().for_each(|tree| lines.tree(tree, &mut text));
        if args.total {
            lines.total(scan.total(), &mut text);
        }
        out::print_bytes_to_slow_reader(&text)?;
    }
    Ok(scan)
}

fn check(args: &DuArgs) -> Result<(), Failure> {
    if args.paths.len() > 1 {
        return Err(Failure::usage("a URL cannot be combined with other paths or URLs"));
    }
    if !args.exclude.is_empty() || !args.exclude_from.is_empty() {
        return Err(Failure::usage("--exclude and --exclude-from cannot be used with objects"));
    }
    if args.interactive {
        return Err(Failure::usage("--interactive cannot be used with objects"));
    }
    Ok(())
}

/// A tree made from the keys of objects.
struct Objects<'a> {
    part: Part,
    /// Nodes of directories by their path below the root.
    directories: HashMap<String, u32>,
    prefix: &'a str,
    next: u32,
    files: bool,
    count: u64,
}

impl<'a> Objects<'a> {
    /// `files`: objects are nodes, too.
    fn new(root: &str, prefix: &'a str, files: bool) -> Self {
        let mut part = Part::default();
        part.make(ROOT, ROOT, root.as_bytes(), found(Kind::Directory, Tally::default(), 0));
        Self { part, directories: HashMap::new(), prefix, next: ROOT + 1, files, count: 0 }
    }

    fn add(&mut self, object: &Listed) {
        self.count += 1;
        let ns = object.modified_ns;
        let time = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000) as u32);
        let size = Tally::entry(object.size, object.size).at(time);
        let below = object.key.strip_prefix(self.prefix).unwrap_or(&object.key);
        // A second slash after the prefix begins a directory with an empty name.
        let below = match self.prefix {
            "" => below,
            _ => below.strip_prefix('/').unwrap_or(below),
        };
        let (directory, name) = below.split_at(below.rfind('/').map_or(0, |slash| slash + 1));
        let parent = self.directory(directory);
        if self.files && !name.is_empty() {
            let node = self.node();
            self.part.make(node, parent, name.as_bytes(), found(Kind::Regular, size, node));
        } else {
            self.part.add(parent, size);
        }
    }

    /// Returns the node of a directory, which is made with those above it if it is new. The path is empty or
    /// ends with a slash.
    fn directory(&mut self, path: &str) -> u32 {
        if let Some(node) = self.directories.get(path) {
            return *node;
        }
        // Not recursive: a key may have hundreds of segments.
        let (mut parent, mut start) = (ROOT, 0);
        for (slash, _) in path.match_indices('/') {
            let (above, name) = (&path[..=slash], &path[start..slash]);
            start = slash + 1;
            parent = match self.directories.get(above) {
                Some(node) => *node,
                None => {
                    let node = self.node();
                    let directory = found(Kind::Directory, Tally::default(), node);
                    self.part.make(node, parent, name.as_bytes(), directory);
                    self.directories.insert(above.to_owned(), node);
                    node
                }
            };
        }
        parent
    }

    fn node(&mut self) -> u32 {
        let node = self.next;
        self.next += 1;
        node
    }

    fn tree(self) -> Option<Tree> {
        Tree::build(vec![self.part], &LinkSet::default())
    }
}

fn found(kind: Kind, size: Tally, node: u32) -> Found {
    Found { kind, size, id: FileId::new((0, 0), u64::from(node)), links: 1, counts: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_in_keys_are_directories() {
        for (root, prefix) in [("s3://b", ""), ("s3://b/d", "d")] {
            let mut objects = Objects::new(root, prefix, true);
            for key in ["a/f", "a//f", "/f", "f", "a///g"] {
                let key =
                    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}/{key}") };
                objects.add(&Listed { key, size: 1, modified_ns: 0, e_tag: None });
            }
            let tree = objects.tree().unwrap();
            let files =
                (0..tree.nodes().len()).filter(|at| tree.nodes()[*at].kind == Kind::Regular);
            let mut paths: Vec<String> =
                files.map(|at| String::from_utf8(tree.path(at)).unwrap()).collect();
            paths.sort();
            let expected = ["//f", "/a///g", "/a//f", "/a/f", "/f"];
            assert_eq!(paths, expected.map(|path| format!("{root}{path}")));
            assert_eq!(tree.root().total.inodes, 5);
        }
    }
}
