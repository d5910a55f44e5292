//! The tree of a scan, built at the end from the parts recorded by the threads.
//!
//! During the walk, each thread records in its own [`Part`] only the nodes it found and the totals
//! it added; threads share nothing but a node counter. Only directories down to the requested depth
//! (and files, if requested) become nodes; deeper entries are added to the node above them. Memory
//! use therefore depends on the output: a total over millions of files needs one node.
//!
//! [`Tree::build`] sorts the nodes into the order of a walk by name, and charges each hard-linked
//! inode to the first of its links in that order. Of two directories, that is the one whose path
//! comes first, compared name by name and byte by byte; within a directory, it is the smaller file
//! name.

use crate::links::{FileId, LinkSet, Settled};
pub use crate::node::{Excluded, Found, Kind, Node};
use crate::shared::Shares;
use crate::{Measure, Tally};
use std::collections::HashMap;
use std::ops::Range;

/// The node number of the root while a tree is being built.
pub const ROOT: u32 = 0;

#[derive(Debug)]
struct Made {
    node: u32,
    parent: u32,
    name_at: usize,
    name_bytes: u32,
    found: Found,
}

/// Everything recorded by one thread.
#[derive(Debug, Default)]
pub struct Part {
    made: Vec<Made>,
    names: Vec<u8>,
    sums: HashMap<u32, Tally>,
    unreadable: Vec<u32>,
    incomplete: Vec<u32>,
    excluded: Vec<(u32, Excluded)>,
}

impl Part {
    /// Adds a node. `parent` is an earlier node from any thread.
    pub fn make(&mut self, node: u32, parent: u32, name: &[u8], found: Found) {
        let name_at = self.names.len();
        self.names.extend_from_slice(name);
        let name_bytes = u32::try_from(name.len()).unwrap_or(u32::MAX);
        self.made.push(Made { node, parent, name_at, name_bytes, found });
    }

    /// Adds totals of entries in or below `node` that are not nodes themselves.
    pub fn add(&mut self, node: u32, sum: Tally) {
        if sum != Tally::default() {
            *self.sums.entry(node).or_default() += sum;
        }
    }

    /// Marks a directory that could not be read completely.
    pub fn unreadable(&mut self, node: u32) {
        self.unreadable.push(node);
    }

    /// Marks a directory of which an entry could not be read.
    pub fn incomplete(&mut self, node: u32) {
        if self.incomplete.last() != Some(&node) {
            self.incomplete.push(node);
        }
    }

    /// Marks an excluded entry.
    pub fn exclude(&mut self, node: u32, why: Excluded) {
        self.excluded.push((node, why));
    }
}

/// The tree of one root.
#[derive(Debug, Clone)]
pub struct Tree {
    nodes: Vec<Node>,
    names: Vec<u8>,
    /// Whether files with several links were found, and each was charged to one of its links.
    charged_once: bool,
}

impl Tree {
    /// Merges the parts of all threads. The name of node [`ROOT`] is the path of the root. Inodes
    /// in `links` are charged to their first link. Returns `None` if no part contains a root.
    pub fn build(parts: Vec<Part>, links: &LinkSet) -> Option<Self> {
        let mut joined = Part::default();
        for part in parts {
            let shift = joined.names.len();
            joined.names.extend_from_slice(&part.names);
            joined
                .made
                .extend(part.made.into_iter().map(|m| Made { name_at: m.name_at + shift, ..m }));
            joined.unreadable.extend(part.unreadable);
            joined.incomplete.extend(part.incomplete);
            joined.excluded.extend(part.excluded);
            for (node, sum) in part.sums {
                joined.add(node, sum);
            }
        }
        let (mut tree, index_of) = Self::ordered(joined)?;
        let mut shares: Option<Shares> = None;
        links.settle(&mut |settled| {
            let found = tree.charge(&settled, &index_of);
            if settled.links > 1 {
                let shares = shares.get_or_insert_with(|| Shares::new(&tree.nodes));
                shares.add(&tree.nodes, found, settled.links, settled.size.disk_bytes);
            }
        });
        if let Some(shares) = shares {
            tree.charged_once = true;
            shares.finish(&mut tree.nodes);
        }
        for at in (1..tree.nodes.len()).rev() {
            let (parent, total) = (tree.nodes[at].parent as usize, tree.nodes[at].total());
            tree.nodes[at].total = total;
            tree.nodes[parent].total += total;
        }
        let root = tree.nodes.first_mut()?;
        root.total = root.total();
        Some(tree)
    }

    /// Returns the nodes in order, and a map from node numbers to indices.
    fn ordered(mut part: Part) -> Option<(Self, HashMap<u32, u32>)> {
        let names = std::mem::take(&mut part.names);
        let name = |m: &Made| &names[m.name_at..m.name_at + m.name_bytes as usize];
        // The root comes first, followed by groups of siblings sorted by name.
        part.made.sort_by(|a, b| {
            (a.node != ROOT, a.parent)
                .cmp(&(b.node != ROOT, b.parent))
                .then_with(|| name(a).cmp(name(b)))
                .then(a.node.cmp(&b.node))
        });
        if part.made.first()?.node != ROOT {
            return None;
        }
        let mut children: HashMap<u32, (usize, usize)> = HashMap::new();
        for (at, made) in part.made.iter().enumerate().skip(1) {
            children.entry(made.parent).or_insert((at, at)).1 = at + 1;
        }
        let nodes = Vec::with_capacity(part.made.len());
        let mut tree = Self { nodes, names: Vec::new(), charged_once: false };
        let mut index_of = HashMap::with_capacity(part.made.len());
        // Indices into `made` that have not been visited yet, with parent and depth; the next one
        // is last.
        let mut waiting = vec![(0_usize, 0_u32, 0_u32)];
        while let Some((at, parent, depth)) = waiting.pop() {
            let made = &part.made[at];
            let index = tree.nodes.len() as u32;
            tree.close(depth);
            index_of.insert(made.node, index);
            let sum = part.sums.remove(&made.node).unwrap_or_default();
            tree.nodes.push(Node::new(
                made.found,
                (made.name_at, made.name_bytes),
                parent,
                depth,
                sum,
            ));
            if let Some((first, end)) = children.get(&made.node) {
                waiting.extend((*first..*end).rev().map(|child| (child, index, depth + 1)));
            }
        }
        tree.close(0);
        for node in part.unreadable {
            if let Some(index) = index_of.get(&node) {
                tree.nodes[*index as usize].unreadable = true;
            }
        }
        for node in part.incomplete {
            if let Some(index) = index_of.get(&node) {
                tree.nodes[*index as usize].incomplete = true;
            }
        }
        for (node, why) in part.excluded {
            if let Some(index) = index_of.get(&node) {
                tree.nodes[*index as usize].excluded = Some(why);
            }
        }
        tree.names = names;
        Some((tree, index_of))
    }

    /// Closes the open nodes at `depth` and deeper; no later node is below them.
    fn close(&mut self, depth: u32) {
        let end = self.nodes.len() as u32;
        let mut at = self.nodes.len().wrapping_sub(1);
        while let Some(node) = self.nodes.get_mut(at) {
            // Only the chain from the last node up to the root is still open.
            if node.end == 0 && node.depth >= depth {
                node.end = end;
            }
            if node.depth <= depth || node.depth == 0 {
                break;
            }
            at = node.parent as usize;
        }
    }

    /// Charges one inode to its first link. Returns the indices of the nodes that contain its links, and the number
    /// of links in each.
    fn charge(&mut self, settled: &Settled<'_>, index_of: &HashMap<u32, u32>) -> Vec<(u32, u32)> {
        let indices: Vec<(u32, u32)> = settled
            .counts
            .iter()
            .filter_map(|(node, count)| Some((*index_of.get(node)?, *count)))
            .collect();
        if !settled.charged_before {
            let first = indices.iter().map(|(index, _)| *index).min_by_key(|index| {
                let node = &self.nodes[*index as usize];
                // A file comes after its directory, so file nodes do not change the totals.
                if node.kind == Kind::Directory { (*index, 0) } else { (node.parent, *index) }
            });
            if let Some(first) = first {
                self.nodes[first as usize].own += settled.size;
            }
        }
        indices
    }

    /// Returns all nodes, starting with the root.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the root.
    pub fn root(&self) -> &Node {
        &self.nodes[0]
    }

    /// Returns the name of a node; for the root, the path as specified.
    pub fn name(&self, index: usize) -> &[u8] {
        let node = &self.nodes[index];
        &self.names[node.name_at..node.name_at + node.name_bytes as usize]
    }

    /// Returns the path of a node, starting with the root path as specified.
    pub fn path(&self, index: usize) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = index;
        while at != 0 {
            names.push(self.name(at));
            at = self.nodes[at].parent as usize;
        }
        let mut path = self.name(0).to_vec();
        for (at, name) in names.into_iter().rev().enumerate() {
            // Only the path of the root can end with a slash; the names in keys of objects can be empty.
            if at > 0 || path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        path
    }

    /// Returns the indices of a node's children, sorted by name.
    pub fn children(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.nodes[index].end as usize;
        let mut next = index + 1;
        std::iter::from_fn(move || {
            let at = next;
            (at < end).then(|| {
                next = self.nodes[at].end as usize;
                at
            })
        })
    }

    /// Returns the first directory, at or below a node, that is on another device than the parent of the node.
    pub fn other_device(&self, index: usize) -> Option<usize> {
        let node = &self.nodes[index];
        let device = self.nodes[node.parent as usize].id.device;
        // With overlayfs, the devices of files differ from that of their directory.
        let differs = |node: &Node| node.kind == Kind::Directory && node.id.device != device;
        (index..node.end as usize).find(|at| differs(&self.nodes[*at]))
    }

    /// Returns all indices, with every directory after its contents, as du prints them.
    pub fn children_first(&self) -> impl Iterator<Item = usize> + '_ {
        let mut open: Vec<usize> = Vec::new();
        let mut next = 0;
        std::iter::from_fn(move || {
            loop {
                match open.last() {
                    Some(at) if self.nodes[*at].end as usize <= next => return open.pop(),
                    None if next == self.nodes.len() => return None,
                    _ => {
                        open.push(next);
                        next += 1;
                    }
                }
            }
        })
    }

    /// Returns the indices of a node's children, largest first; ties are sorted by name.
    pub fn by_size(&self, index: usize, measure: Measure) -> Vec<usize> {
        let mut children: Vec<usize> = self.children(index).collect();
        children.sort_by_key(|at| std::cmp::Reverse(self.nodes[*at].total.by(measure)));
        children
    }

    /// Returns the disk usage in bytes of files that remain when these nodes and everything below them are removed,
    /// because they have other links.
    pub fn kept_bytes(&self, removed: &[usize]) -> u64 {
        let mut files: HashMap<FileId, (u32, &Node)> = HashMap::new();
        for index in removed {
            let range = *index..self.nodes[*index].end as usize;
            for node in self.nodes[range].iter().filter(|node| node.is_linked()) {
                files.entry(node.id).or_insert((0, node)).0 += 1;
            }
        }
        let kept = files.values().filter(|(links, node)| *links < node.links);
        kept.map(|(_, node)| node.size.disk_bytes).sum()
    }

    /// Returns the nodes that files charged in a range of nodes are charged to if the range is removed: those of
    /// their first remaining links.
    fn successors(&self, range: &Range<usize>) -> Vec<(usize, Tally)> {
        let charged =
            self.nodes[range.clone()].iter().filter(|n| n.is_linked() && n.own.inodes > 0);
        let mut charged: HashMap<FileId, Tally> = charged.map(|node| (node.id, node.own)).collect();
        if charged.is_empty() {
            return Vec::new();
        }
        let mut first: HashMap<FileId, usize> = HashMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if range.contains(&at) || !node.is_linked() || !charged.contains_key(&node.id) {
                continue;
            }
            if node.own.inodes > 0 {
                // Every link was counted.
                charged.remove(&node.id);
                continue;
            }
            let first = first.entry(node.id).or_insert(at);
            if (node.parent, at) < (self.nodes[*first].parent, *first) {
                *first = at;
            }
        }
        first.into_iter().filter_map(|(id, at)| Some((at, *charged.get(&id)?))).collect()
    }

    /// Counts shared bytes again, from nodes of files.
    fn share_again(&mut self) {
        let links = self.nodes.iter().enumerate().filter(|(_, node)| node.is_linked());
        // Sorted, as a map of lists would take several times the memory.
        let mut links: Vec<(FileId, u32)> = links.map(|(at, node)| (node.id, at as u32)).collect();
        links.sort_unstable();
        let mut shares = Shares::new(&self.nodes);
        for file in links.chunk_by(|a, b| a.0 == b.0) {
            let node = &self.nodes[file[0].1 as usize];
            let found = file.iter().map(|(_, at)| (*at, 1)).collect();
            shares.add(&self.nodes, found, node.links, node.size.disk_bytes);
        }
        shares.finish(&mut self.nodes);
    }

    /// Subtracts a removed node and everything below it from the totals, and charges linked files to their
    /// next remaining links; shared bytes are counted again. The nodes remain in place, empty and without links.
    pub fn forget(&mut self, index: usize) {
        let (end, gone) = (self.nodes[index].end as usize, self.nodes[index].total);
        let successors = self.successors(&(index..end));
        let mut removed: HashMap<FileId, u32> = HashMap::new();
        for node in self.nodes[index..end].iter().filter(|node| node.is_linked()) {
            *removed.entry(node.id).or_default() += 1;
        }
        let mut at = index;
        while at != 0 {
            at = self.nodes[at].parent as usize;
            let total = &mut self.nodes[at].total;
            total.apparent_bytes = total.apparent_bytes.saturating_sub(gone.apparent_bytes);
            total.disk_bytes = total.disk_bytes.saturating_sub(gone.disk_bytes);
            total.inodes = total.inodes.saturating_sub(gone.inodes);
        }
        for node in &mut self.nodes[index..end] {
            (node.own, node.total, node.shared_bytes, node.links) = Default::default();
        }
        if !removed.is_empty() {
            for node in self.nodes.iter_mut().filter(|node| node.is_linked()) {
                let links = removed.get(&node.id).copied().unwrap_or(0);
                node.links = node.links.saturating_sub(links);
            }
            if self.charged_once {
                self.share_again();
            }
        }
        for (node, size) in successors {
            self.nodes[node].own += size;
            let mut at = node;
            self.nodes[at].total += size;
            while at != 0 {
                at = self.nodes[at].parent as usize;
                self.nodes[at].total += size;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(kind: Kind, bytes: u64, inode: u64, counts: bool) -> Found {
        let id = FileId::new((0, 1), inode);
        Found { kind, size: Tally::entry(bytes, bytes), id, links: 2, counts }
    }

    fn dir(part: &mut Part, node: u32, parent: u32, name: &str) {
        part.make(node, parent, name.as_bytes(), found(Kind::Directory, 1, u64::from(node), true));
    }

    fn names(tree: &Tree, order: impl Iterator<Item = usize>) -> Vec<String> {
        order.map(|i| String::from_utf8_lossy(&tree.path(i)).into_owned()).collect()
    }

    #[test]
    fn nodes_are_ordered_by_name_regardless_of_thread() {
        let (mut a, mut b) = (Part::default(), Part::default());
        dir(&mut a, 0, 0, "r");
        dir(&mut a, 1, 0, "z");
        dir(&mut b, 2, 0, "a");
        dir(&mut b, 3, 1, "m");
        dir(&mut a, 4, 2, "x");
        b.add(4, Tally::entry(10, 512));
        let tree = Tree::build(vec![b, a], &LinkSet::default()).unwrap();
        assert_eq!(names(&tree, 0..5), ["r", "r/a", "r/a/x", "r/z", "r/z/m"]);
        let after = ["r/a/x", "r/a", "r/z/m", "r/z", "r"];
        assert_eq!(names(&tree, tree.children_first()), after);
        assert_eq!(names(&tree, tree.children(0)), ["r/a", "r/z"]);
        assert_eq!(names(&tree, tree.by_size(0, Measure::Disk).into_iter()), ["r/a", "r/z"]);
        let total = tree.root().total;
        assert_eq!((total.apparent_bytes, total.disk_bytes, total.inodes), (15, 517, 6));
        assert_eq!(tree.nodes()[1].total.apparent_bytes, 12);
        assert_eq!((tree.nodes()[1].end, tree.nodes()[0].end), (3, 5));
    }

    #[test]
    fn an_inode_is_charged_to_its_first_path_and_shared_by_the_others() {
        for order in [[1, 2], [2, 1]] {
            let (mut part, links) = (Part::default(), LinkSet::default());
            dir(&mut part, 0, 0, "r/");
            dir(&mut part, 1, 0, "b");
            dir(&mut part, 2, 0, "a");
            for node in order {
                links.note(FileId::new((0, 1), 77), Tally::entry(100, 4096), 2, node);
            }
            let tree = Tree::build(vec![part], &links).unwrap();
            let of = |at: usize| (tree.nodes()[at].total.disk_bytes, tree.nodes()[at].shared_bytes);
            assert_eq!(names(&tree, 0..3), ["r/", "r/a", "r/b"]);
            assert_eq!((of(0), of(1), of(2)), ((4099, 0), (4097, 4096), (1, 4096)));
        }
    }

    #[test]
    fn files_as_nodes_charge_the_same_directory() {
        // r/a/z and r/a/b/y are the same inode: r/a is charged whether or not files are nodes.
        let size = Tally::entry(100, 4096);
        let shared = FileId::new((0, 1), 77);
        for as_nodes in [false, true] {
            let (mut part, links) = (Part::default(), LinkSet::default());
            dir(&mut part, 0, 0, "r");
            dir(&mut part, 1, 0, "a");
            dir(&mut part, 2, 1, "b");
            if as_nodes {
                part.make(3, 1, b"z", found(Kind::Regular, 100, 77, false));
                part.make(4, 2, b"y", found(Kind::Regular, 100, 77, false));
                links.note(shared, size, 2, 4);
                links.note(shared, size, 2, 3);
            } else {
                links.note(shared, size, 2, 2);
                links.note(shared, size, 2, 1);
            }
            let tree = Tree::build(vec![part], &links).unwrap();
            let b = (0..tree.nodes().len()).find(|i| tree.path(*i) == b"r/a/b").unwrap();
            assert_eq!(tree.nodes()[b].total.disk_bytes, 1);
            assert_eq!(tree.root().total.disk_bytes, 3 + 4096);
        }
    }

    #[test]
    fn directories_on_other_devices_are_found() {
        let mut part = Part::default();
        for (node, parent, name) in [(0, 0, "r"), (1, 0, "a"), (3, 0, "b")] {
            dir(&mut part, node, parent, name);
        }
        let id = FileId::new((0, 2), 2);
        part.make(2, 1, b"volume", Found { id, ..found(Kind::Directory, 1, 2, true) });
        part.make(4, 3, b"file", Found { id, ..found(Kind::Regular, 1, 2, true) });
        let tree = Tree::build(vec![part], &LinkSet::default()).unwrap();
        assert_eq!(names(&tree, 0..5), ["r", "r/a", "r/a/volume", "r/b", "r/b/file"]);
        assert_eq!([1, 2, 3].map(|at| tree.other_device(at)), [Some(2), Some(2), None]);
    }

    #[test]
    fn removed_nodes_are_subtracted_from_the_sums() {
        let mut part = Part::default();
        dir(&mut part, 0, 0, "r");
        dir(&mut part, 1, 0, "a");
        dir(&mut part, 2, 1, "b");
        let mut tree = Tree::build(vec![part], &LinkSet::default()).unwrap();
        tree.forget(1);
        assert_eq!(tree.root().total.inodes, 1);
        assert_eq!(tree.nodes()[2].total.inodes, 0);
    }

    #[test]
    fn a_removed_link_leaves_the_file_to_the_next_one() {
        for every in [false, true] {
            let (links, mut part) = (LinkSet::default(), Part::default());
            for (node, parent, name) in [(0, 0, "r"), (1, 0, "a"), (2, 0, "b"), (3, 0, "c")] {
                dir(&mut part, node, parent, name);
            }
            for node in [4, 5, 6] {
                let found = Found { links: 3, ..found(Kind::Regular, 4096, 77, every) };
                part.make(node, node - 3, b"f", found);
                if !every {
                    links.note(found.id, found.size, 3, node);
                }
            }
            let mut tree = Tree::build(vec![part], &links).unwrap();
            assert_eq!(tree.kept_bytes(&[1, 3]), 4096);
            assert_eq!(tree.kept_bytes(&[1, 3, 5]), 0);
            let shared = |tree: &Tree| [0, 3, 5].map(|at| tree.nodes()[at].shared_bytes);
            let share = if every { 0 } else { 4096 };
            assert_eq!(shared(&tree), [0, share, share]);
            tree.forget(1);
            assert_eq!(shared(&tree), [0, share, share]);
            let bytes = |tree: &Tree, at: usize| tree.nodes()[at].total.disk_bytes;
            let expected = if every { [8195, 4097, 4097] } else { [4099, 4097, 1] };
            assert_eq!([0, 3, 5].map(|at| bytes(&tree, at)), expected);
            assert_eq!((tree.kept_bytes(&[3]), tree.kept_bytes(&[3, 5])), (4096, 0));
            tree.forget(3);
            assert_eq!((bytes(&tree, 0), tree.kept_bytes(&[5])), (4098, 0));
            assert_eq!(shared(&tree), [0; 3], "one link is left");
            tree.forget(5);
            assert_eq!(bytes(&tree, 0), 1);
        }
    }

    proptest! {
        #[test]
        fn shared_bytes_are_those_of_files_with_links_outside(
            parents in proptest::collection::vec(any::<u32>(), 1..40),
            found in proptest::collection::vec((any::<u32>(), 0u64..4), 0..30),
        ) {
            let (mut part, links) = (Part::default(), LinkSet::default());
            dir(&mut part, 0, 0, "r");
            for (at, parent) in parents.iter().enumerate() {
                dir(&mut part, at as u32 + 1, parent % (at as u32 + 1), &format!("{at:02}"));
            }
            let count = parents.len() as u32 + 1;
            let links_of = |inode: u64| [2_u32, 3, 5, 30][inode as usize];
            for (node, inode) in &found {
                let size = Tally::entry(1, 1_u64 << (8 * inode));
                let id = FileId::new((0, 2), *inode);
                links.note(id, size, links_of(*inode), node % count);
            }
            let tree = Tree::build(vec![part], &links).unwrap();
            for (at, node) in tree.nodes().iter().enumerate() {
                let below: Vec<u64> =
                    tree.nodes()[at..node.end as usize].iter().map(|n| n.id.inode).collect();
                let expected: u64 = (0..4_u64)
                    .filter(|inode| {
                        let is_below = |at: &u32| below.contains(&u64::from(at % count));
                        let within = found.iter().filter(|(at, of)| of == inode && is_below(at));
                        (1..links_of(*inode) as usize).contains(&within.count())
                    })
                    .map(|inode| 1_u64 << (8 * inode))
                    .sum();
                prop_assert_eq!(node.shared_bytes, expected);
            }
        }

        #[test]
        fn totals_are_sums_and_ends_are_right(
            parents in proptest::collection::vec((any::<u32>(), "[ab]{1,2}", 0u64..99), 0..60),
            workers in 1usize..4,
        ) {
            let mut parts: Vec<Part> = (0..workers).map(|_| Part::default()).collect();
            dir(&mut parts[0], 0, 0, "r");
            let mut parent_of = vec![0_usize];
            let mut bytes = vec![1_u64];
            for (i, (parent, name, size)) in parents.iter().enumerate() {
                let node = i + 1;
                let parent = *parent as usize % node;
                parent_of.push(parent);
                bytes.push(*size);
                let found = found(Kind::Directory, *size, node as u64, true);
                parts[i % workers].make(node as u32, parent as u32, name.as_bytes(), found);
            }
            let tree = Tree::build(parts, &LinkSet::default()).unwrap();
            prop_assert_eq!(tree.nodes().len(), bytes.len());
            for (at, node) in tree.nodes().iter().enumerate() {
                let inode = node.id.inode as usize;
                let below = |mut i: usize| {
                    loop {
                        if i == inode { return true; }
                        if i == 0 { return false; }
                        i = parent_of[i];
                    }
                };
                let all: Vec<usize> = (0..bytes.len()).filter(|i| below(*i)).collect();
                let sum: u64 = all.iter().map(|i| bytes[*i]).sum();
                prop_assert_eq!(node.total.apparent_bytes, sum);
                prop_assert_eq!(node.end as usize - at, all.len());
            }
            prop_assert_eq!(tree.children_first().count(), bytes.len());
        }
    }
}
