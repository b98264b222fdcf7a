//! A PQ-tree: a tree that describes a set of orders of its leaves (Booth and Lueker 1976).
//!
//! The children of a P node may stand in any order, those of a Q node in one order or its reverse. If some subsets of
//! the leaves must each be consecutive, such a tree describes all orders in which every one of these subsets is
//! consecutive.
//!
//! A tree is stored as an array of tokens, one for each node and each leaf, a parent before its children (preorder).
//! The token of a leaf is its number. The token of a node holds its kind, P or Q, and the number of tokens of its
//! subtree, its own included.
//!
//! [`PqTree::replace`] gets some leaves of a tree, and new leaves that are to replace them. Of the orders of the tree,
//! it keeps those in which the replaced leaves are consecutive. The new leaves come in their place, in any order among
//! themselves. This changes only the smallest subtree that has all replaced leaves. If some nodes below its root lose
//! only a part of their leaves, these nodes become one Q node, together with the new leaves. A subtree that loses no
//! leaf is copied as it is. O(tokens) each time, without recursion.

use crate::table::at;
use crate::workspace::workspace;

/// Set for a P node; a leaf has neither this bit nor [`Q`].
const P: u32 = 1 << 30;
const Q: u32 = 2 << 30;
const KIND: u32 = P | Q;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    None,
    Some,
    All,
}

workspace! {
    pub(super) struct PqTree<'a>(row) {
        tables {
            token: u32[row],
            next: u32[row],
            leaves: u32[row + 1],
            /// By index in `token`: how many leaves before it are to be replaced.
            marked: u32[row + 1],
            child: u32[row],
            chain: u32[row],
        }
        state {
            pub(super) len: u32 = 0,
            next_len: u32 = 0,
        }
    }
}

const fn span(token: u32) -> u32 {
    if token & KIND == 0 { 1 } else { token & !KIND }
}

pub(super) const fn leaf(token: u32) -> Option<u32> {
    if token & KIND == 0 { Some(token) } else { None }
}

pub(super) const fn is_free(token: u32) -> bool {
    token & KIND == P
}

pub(super) fn children(tokens: &[u32], node: u32) -> impl Iterator<Item = u32> + '_ {
    let end = node + span(at(tokens, node));
    let first = if leaf(at(tokens, node)).is_some() { end } else { node + 1 };
    core::iter::successors((first < end).then_some(first), move |&c| Some(c + span(at(tokens, c))).filter(|&c| c < end))
}

impl PqTree<'_> {
    pub(super) fn begin(&mut self, leaves: impl Iterator<Item = u32>) {
        self.next_len = 0;
        self.put_leaves(leaves);
    }

    pub(super) fn load(&mut self, tokens: &[u32]) {
        self.len = u32::try_from(tokens.len()).unwrap_or(0);
        copy(tokens, self.token.range_mut(0, self.len));
        for (i, &token) in (0..self.len).zip(tokens) {
            self.leaves[i + 1] = self.leaves[i] + u32::from(leaf(token).is_some());
        }
    }

    pub(super) fn made(&self) -> &[u32] {
        self.next.range(0, self.next_len)
    }

    /// False if the replaced leaves are consecutive in no order; [`Self::made`] is then no tree.
    pub(super) fn replace(
        &mut self,
        replaced: impl Fn(u32) -> bool,
        count: u32,
        new: impl Iterator<Item = u32> + Clone,
    ) -> bool {
        self.count(replaced);
        self.next_len = 0;
        // Goes down to the lowest node that has all leaves to be replaced below it.
        let mut root = 0;
        while self.part(root) != Part::All {
            match children(self.token.range(0, self.len), root).find(|&c| self.below(c)[1] == count) {
                Some(below) => root = below,
                None => break,
            }
        }
        self.put_tokens(0, root);
        let done = if self.part(root) == Part::All {
            self.put_leaves(new);
            true
        } else if is_free(self.token[root]) {
            self.replace_in_free(root, new)
        } else {
            self.replace_in_row(root, new)
        };
        let (before, after) = (span(self.token[root]), self.next_len - root);
        self.put_tokens(root + before, self.len);
        for above in 0..root {
            let span = span(self.token[above]);
            if leaf(self.token[above]).is_none() && above + span > root {
                self.next[above] = (self.token[above] & KIND) | (span + after - before);
            }
        }
        done
    }

    fn count(&mut self, replaced: impl Fn(u32) -> bool) {
        let mut before = 0;
        for i in 0..self.len {
            before += u32::from(leaf(self.token[i]).is_some_and(&replaced));
            self.marked[i + 1] = before;
        }
    }

    fn below(&self, i: u32) -> [u32; 2] {
        let end = i + span(self.token[i]);
        [self.leaves[end] - self.leaves[i], self.marked[end] - self.marked[i]]
    }

    fn part(&self, i: u32) -> Part {
        match self.below(i) {
            [_, 0] => Part::None,
            [leaves, marked] if marked < leaves => Part::Some,
            _ => Part::All,
        }
    }

    fn open(&mut self, node: u32) -> u32 {
        let mut n = 0;
        for c in children(self.token.range(0, self.len), node) {
            self.child[n] = c;
            n += 1;
        }
        n
    }

    fn replace_in_free(&mut self, root: u32, new: impl Iterator<Item = u32> + Clone) -> bool {
        let n = self.open(root);
        let (mut kept, mut ends, mut end) = (0, 0, [0; 2]);
        for i in 0..n {
            match self.part(self.child[i]) {
                Part::None => kept += 1,
                Part::Some if ends == 2 => return false,
                Part::Some => {
                    *if ends == 0 { &mut end[0] } else { &mut end[1] } = self.child[i];
                    ends += 1;
                }
                Part::All => {}
            }
        }
        let free = self.next_len;
        self.next_len += u32::from(kept > 0);
        self.put_kept(n);
        let row = self.next_len;
        self.next_len += u32::from(ends > 0);
        if ends > 0 && !self.put_chain(end[0], false) {
            return false;
        }
        self.put_leaves(new);
        if ends > 1 && !self.put_chain(end[1], true) {
            return false;
        }
        if ends > 0 {
            self.next[row] = Q | (self.next_len - row);
        }
        if kept > 0 {
            self.next[free] = P | (self.next_len - free);
        }
        true
    }

    fn replace_in_row(&mut self, root: u32, new: impl Iterator<Item = u32> + Clone) -> bool {
        let n = self.open(root);
        let kept = |tree: &Self, i: u32| tree.part(tree.child[i]) == Part::None;
        let first = (0..n).find(|&i| !kept(self, i)).unwrap_or(n);
        let last = (0..n).rev().find(|&i| !kept(self, i)).unwrap_or(0);
        if (first + 1..last).any(|i| self.part(self.child[i]) != Part::All) {
            return false;
        }
        let (begin, end) = (self.child[first], self.child[last]);
        let after = end + span(self.token[end]);
        self.next_len += 1;
        self.put_tokens(root + 1, begin);
        if self.part(begin) == Part::Some && !self.put_chain(begin, false) {
            return false;
        }
        self.put_leaves(new);
        if self.part(end) == Part::Some && !self.put_chain(end, true) {
            return false;
        }
        self.put_tokens(after, root + span(self.token[root]));
        self.next[root] = Q | (self.next_len - root);
        true
    }

    /// With `nearest_first`, what stood nearest to the replaced leaves is written first, else last.
    fn put_chain(&mut self, top: u32, nearest_first: bool) -> bool {
        let (mut node, mut nodes) = (Some(top), 0);
        while let Some(i) = node {
            self.chain[nodes] = i;
            nodes += 1;
            let mut some = children(self.token.range(0, self.len), i).filter(|&c| self.part(c) == Part::Some);
            node = some.next();
            if some.next().is_some() {
                return false;
            }
        }
        (0..nodes).all(|i| {
            let node = self.chain[if nearest_first { nodes - 1 - i } else { i }];
            let n = self.open(node);
            if is_free(self.token[node]) {
                let kept = (0..n).filter(|&i| self.part(self.child[i]) == Part::None).count();
                let group = self.next_len;
                self.next_len += u32::from(kept > 1);
                self.put_kept(n);
                if kept > 1 {
                    self.next[group] = P | (self.next_len - group);
                }
                return true;
            }
            let part = |i: u32| self.part(self.child[i]);
            let rising = part(0) <= part(n - 1);
            let sorted = (1..n).all(|i| if rising { part(i - 1) <= part(i) } else { part(i - 1) >= part(i) });
            if rising == nearest_first {
                self.child.range_mut(0, n).reverse();
            }
            self.put_kept(n);
            sorted
        })
    }

    fn put_kept(&mut self, n: u32) {
        for i in 0..n {
            let c = self.child[i];
            if self.part(c) == Part::None {
                self.put_tokens(c, c + span(self.token[c]));
            }
        }
    }

    fn put_tokens(&mut self, from: u32, to: u32) {
        let end = self.next_len + (to - from);
        copy(self.token.range(from, to), self.next.range_mut(self.next_len, end));
        self.next_len = end;
    }

    fn put_leaves(&mut self, leaves: impl Iterator<Item = u32>) {
        let node = self.next_len;
        self.next_len += 1;
        for leaf in leaves {
            self.next[self.next_len] = leaf;
            self.next_len += 1;
        }
        if self.next_len == node + 2 {
            self.next[node] = self.next[node + 1];
            self.next_len -= 1;
        } else {
            self.next[node] = P | (self.next_len - node);
        }
    }
}

pub(super) fn copy(from: &[u32], to: &mut [u32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
