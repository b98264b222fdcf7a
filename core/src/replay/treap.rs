//! An ordered set of numbers, in memory that the caller lends.
//!
//! Problem: the pool of an allocator keeps its blocks in the order of their addresses, and its runs of free bytes in
//! the order of their sizes. It asks each of the two sets for the member with the lowest key, an address or a size,
//! that is at least a given one, or the highest that is at most it. The memory of the pool is fixed.
//!
//! Paper: treaps (Aragon and Seidel 1989): a search tree by key that is a heap by priority. Priorities are a hash of
//! the node's number, so that the tree is the same in every run. Keys are not stored: the caller gives a function that
//! returns the key of a number. No two members have the same key, and the order of members must not change while they
//! are in the set.
//!
//! Cost: O(log n) expected for each call, without recursion; two 32-bit indices a node.

use crate::table::Table;
use crate::{Workspace, WorkspaceLen};

/// Numbers in `1..=n`, which are the nodes of the tree; 0 stands for no node. The caller gives the keys.
pub(super) struct Treap<'a> {
    /// Of node i: `2i` (lower keys) and `2i + 1` (higher keys); 0 for no child. The root is at 1.
    children: Table<'a, u32>,
}

const ROOT: u32 = 1;

const fn lower(node: u32) -> u32 {
    2 * node
}

const fn higher(node: u32) -> u32 {
    2 * node + 1
}

/// The node's number, its bits mixed by a bijection: no two nodes have the same priority.
const fn priority(node: u32) -> u32 {
    let x = node.wrapping_mul(0x9E37_79B1);
    (x ^ (x >> 15)).wrapping_mul(0x85EB_CA6B)
}

impl<'a> Treap<'a> {
    pub(super) const fn workspace(nodes: usize) -> WorkspaceLen {
        WorkspaceLen { words: 0, indices: 2 * nodes + 2 }
    }

    pub(super) fn new(nodes: usize, scratch: &mut Workspace<'a>) -> Self {
        let mut children = scratch.stale_indices(2 * nodes + 2);
        children[ROOT] = 0;
        Self { children }
    }

    /// `node` must not be in the set.
    pub(super) fn insert<K: Ord>(&mut self, node: u32, key: impl Fn(u32) -> K) {
        let wanted = key(node);
        let mut link = ROOT;
        let mut rest = self.children[link];
        while rest != 0 && priority(rest) > priority(node) {
            link = if key(rest) < wanted { higher(rest) } else { lower(rest) };
            rest = self.children[link];
        }
        // The node goes here. The subtree below is split into the members with lower keys and those with higher keys.
        self.children[link] = node;
        let (mut low, mut high) = (lower(node), higher(node));
        while rest != 0 {
            if key(rest) < wanted {
                self.children[low] = rest;
                low = higher(rest);
                rest = self.children[low];
            } else {
                self.children[high] = rest;
                high = lower(rest);
                rest = self.children[high];
            }
        }
        self.children[low] = 0;
        self.children[high] = 0;
    }

    pub(super) fn remove<K: Ord>(&mut self, node: u32, key: impl Fn(u32) -> K) {
        let wanted = key(node);
        let mut link = ROOT;
        loop {
            let at = self.children[link];
            if at == node {
                break;
            }
            debug_assert!(at != 0, "{node} is no member");
            if at == 0 {
                return;
            }
            link = if key(at) < wanted { higher(at) } else { lower(at) };
        }
        let (mut low, mut high) = (self.children[lower(node)], self.children[higher(node)]);
        while low != 0 && high != 0 {
            if priority(low) > priority(high) {
                self.children[link] = low;
                link = higher(low);
                low = self.children[link];
            } else {
                self.children[link] = high;
                link = lower(high);
                high = self.children[link];
            }
        }
        self.children[link] = low.max(high);
    }

    /// 0 if there is none.
    pub(super) fn at_least<K: Ord>(&self, wanted: &K, key: impl Fn(u32) -> K) -> u32 {
        let (mut node, mut found) = (self.children[ROOT], 0);
        while node != 0 {
            if key(node) < *wanted {
                node = self.children[higher(node)];
            } else {
                found = node;
                node = self.children[lower(node)];
            }
        }
        found
    }

    pub(super) fn at_most<K: Ord>(&self, wanted: &K, key: impl Fn(u32) -> K) -> u32 {
        let (mut node, mut found) = (self.children[ROOT], 0);
        while node != 0 {
            if key(node) > *wanted {
                node = self.children[lower(node)];
            } else {
                found = node;
                node = self.children[higher(node)];
            }
        }
        found
    }
}
