//! The disk usage of files with hard links both inside and outside a directory.
//!
//! A file changes this sum in every directory between its links and the lowest one that contains all of them.
//! Instead of visiting these, each link adds its size at its node, and the lowest common directory of two
//! neighbouring links subtracts it: the sums of subtrees then count each file once. Jumps over several levels
//! find that directory in a time that grows with the logarithm of the depth.

use crate::node::Node;
use std::collections::HashMap;

/// Adds up shared bytes.
pub(crate) struct Shares {
    /// For each node one that is above it; 0 for the root.
    jumps: Vec<u32>,
    /// What each node adds to its own sum and to those above it.
    changes: Vec<i128>,
}

impl Shares {
    /// Creates it for the nodes of a tree.
    pub(crate) fn new(nodes: &[Node]) -> Self {
        let depth = |at: u32| nodes[at as usize].depth;
        let mut jumps: Vec<u32> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let jump = match jumps.get(node.parent as usize) {
                None => 0,
                Some(near) => {
                    let far = jumps[*near as usize];
                    let is_even = depth(node.parent) - depth(*near) == depth(*near) - depth(far);
                    if is_even { far } else { node.parent }
                }
            };
            jumps.push(jump);
        }
        Self { jumps, changes: vec![0; nodes.len()] }
    }

    /// Adds a file with `links` links. `found` are the indices of the nodes that contain its links, each once, and
    /// the number of links in each.
    pub(crate) fn add(
        &mut self,
        nodes: &[Node],
        mut found: Vec<(u32, u32)>,
        links: u32,
        disk_bytes: u64,
    ) {
        let bytes = i128::from(disk_bytes);
        let all: u64 = found.iter().map(|(_, count)| u64::from(*count)).sum();
        if all > u64::from(links) {
            return self.add_each(nodes, &found, links, bytes);
        }
        found.sort_unstable();
        for (index, _) in &found {
            self.changes[*index as usize] += bytes;
        }
        for pair in found.windows(2) {
            let common = self.common(nodes, pair[0].0, pair[1].0);
            self.changes[common] -= bytes;
        }
        if all == u64::from(links)
            && let (Some(first), Some(last)) = (found.first(), found.last())
        {
            let common = self.common(nodes, first.0, last.0);
            self.changes[common] -= bytes;
        }
    }

    /// Adds a file of which more links were found than it has: it changed, or mounts show it twice.
    fn add_each(&mut self, nodes: &[Node], found: &[(u32, u32)], links: u32, bytes: i128) {
        let mut within: HashMap<usize, u32> = HashMap::new();
        for (index, count) in found {
            let mut at = *index as usize;
            loop {
                let sum = within.entry(at).or_default();
                *sum = sum.saturating_add(*count);
                if at == 0 {
                    break;
                }
                at = nodes[at].parent as usize;
            }
        }
        for (at, _) in within.into_iter().filter(|(_, count)| *count < links) {
            self.changes[at] += bytes;
            if at > 0 {
                self.changes[nodes[at].parent as usize] -= bytes;
            }
        }
    }

    /// Returns the lowest node that contains two others; `first` is not after `last`.
    fn common(&self, nodes: &[Node], first: u32, last: u32) -> usize {
        let contains = |at: usize| nodes[at].end > last;
        let mut at = first as usize;
        while !contains(at) {
            let jump = self.jumps[at] as usize;
            at = if contains(jump) { nodes[at].parent as usize } else { jump };
        }
        at
    }

    /// Sets the sums of all nodes.
    pub(crate) fn finish(mut self, nodes: &mut [Node]) {
        for (at, node) in nodes.iter_mut().enumerate().rev() {
            let sum = self.changes[at];
            node.shared_bytes = u64::try_from(sum).unwrap_or(u64::MAX);
            if at > 0 {
                self.changes[node.parent as usize] += sum;
            }
        }
    }
}
