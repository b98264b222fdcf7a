use core::ops::ControlFlow;
use std::collections::BTreeSet;
use std::vec::Vec;

use proptest::prelude::*;

use super::pq_tree::{PqTree, children, is_free, leaf};
use super::*;
use crate::Constraints;
use crate::place::{multistart, tests::cut};
use crate::verify::{self, verify};

fn orders(tokens: &[u32], node: u32) -> BTreeSet<Vec<u32>> {
    if let Some(b) = leaf(tokens[node as usize]) {
        return BTreeSet::from([vec![b]]);
    }
    let below: Vec<_> = children(tokens, node).map(|c| orders(tokens, c)).collect();
    let n = below.len();
    let mut rows: Vec<Vec<usize>> = vec![(0..n).collect(), (0..n).rev().collect()];
    if is_free(tokens[node as usize]) {
        rows = permutations(n);
    }
    let mut all = BTreeSet::new();
    for row in rows {
        let mut made = BTreeSet::from([Vec::new()]);
        for i in row {
            made = made
                .iter()
                .flat_map(|front: &Vec<u32>| below[i].iter().map(move |back| [front.as_slice(), back].concat()))
                .collect();
        }
        all.extend(made);
    }
    all
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(n - 1) {
        for at in 0..n {
            let mut longer = shorter.clone();
            longer.insert(at, n - 1);
            all.push(longer);
        }
    }
    all
}

fn exchanged(order: &[u32], replaced: impl Fn(u32) -> bool, new: &[u32]) -> Vec<Vec<u32>> {
    let first = order.iter().position(|&b| replaced(b)).unwrap();
    let count = order.iter().filter(|&&b| replaced(b)).count();
    if !order[first..first + count].iter().all(|&b| replaced(b)) {
        return Vec::new();
    }
    let (front, back) = (&order[..first], &order[first + count..]);
    let middle = |p: Vec<usize>| p.into_iter().map(|i| new[i]).collect::<Vec<_>>();
    permutations(new.len()).into_iter().map(|p| [front, &middle(p), back].concat()).collect()
}

proptest! {
    #[test]
    fn a_tree_holds_the_orders_in_which_what_was_replaced_is_consecutive(
        steps in prop::collection::vec((1u32..64, 1u32..4), 1..7),
    ) {
        let mut indices = vec![!7; PqTree::workspace(40).indices];
        let mut tree = PqTree::lend(40, &mut Workspace::new(&mut [], &mut indices));
        tree.begin(0..5);
        let mut tokens = tree.made().to_vec();
        let (mut alive, mut next): (Vec<u32>, u32) = ((0..5).collect(), 5);
        for (which, new) in steps {
            let replaced = |b: u32| alive.iter().position(|&a| a == b).is_some_and(|i| which >> i & 1 == 1);
            let count = alive.iter().filter(|&&b| replaced(b)).count();
            let new: Vec<u32> = (next..next + new).collect();
            if count == 0 || alive.len() - count + new.len() > 6 {
                continue;
            }
            let expected: BTreeSet<Vec<u32>> =
                orders(&tokens, 0).iter().flat_map(|order| exchanged(order, replaced, &new)).collect();
            tree.load(&tokens);
            let fits = tree.replace(replaced, u32::try_from(count).unwrap(), new.iter().copied());
            prop_assert_eq!(fits, !expected.is_empty());
            if !fits {
                break;
            }
            tokens = tree.made().to_vec();
            prop_assert_eq!(orders(&tokens, 0), expected);
            next += u32::try_from(new.len()).unwrap();
            alive = alive.iter().copied().filter(|&b| !replaced(b)).chain(new).collect();
        }
    }
}

fn run(blocks: &[Block], options: &Options) -> [u64; 2] {
    let n = blocks.len();
    let len = workspace(n).max(verify::workspace(n)).max(multistart::workspace(n));
    let (mut words, mut indices) = (vec![!7; len.words], vec![!7; len.indices]);
    let mut offsets = vec![0; n];
    let mut scratch = Workspace::new(&mut words, &mut indices);
    let mut go_on = |_: &Summary| ControlFlow::Continue(());
    let once = Options { work: 0, ..*options };
    let skyline =
        multistart::build(blocks, &once, multistart::Series::Any(1), scratch.reborrow(), &mut offsets, &mut go_on)
            .unwrap();
    let found = improve(blocks, options, skyline, scratch.reborrow(), &mut offsets, &mut go_on).unwrap();
    assert_eq!(verify(blocks, &offsets, &options.constraints, scratch).unwrap().peak(), found.peak);
    [skyline.peak, found.peak]
}

#[test]
fn what_fills_every_step_is_put_together() {
    let options = Options { nodes: 20_000, ..Options::default() };
    let (mut before, mut after) = (0, 0);
    for seed in 1..=10 {
        let [skyline, found] = run(&cut(400, 4_000, 64, seed), &options);
        before += u32::from(skyline == 64);
        after += u32::from(found == 64);
    }
    assert!(before == 0 && after >= 8, "{before} of 10 by one skyline, {after} by events");
}

#[test]
fn what_it_cannot_is_left_alone() {
    let blocks = cut(60, 600, 32, 1);
    let options = Options { nodes: 20_000, ..Options::default() };
    let [skyline, found] = run(&blocks, &options);
    assert!(skyline > 32 && found == 32, "{skyline}, {found}");
    let aligned = Options { constraints: Constraints { alignment: 2, ..Constraints::NONE }, ..options };
    let mut less = blocks.clone();
    less.iter_mut().find(|b| b.size > 1).unwrap().size -= 1;
    for (blocks, options) in [(&blocks, &aligned), (&less, &options)] {
        let [skyline, found] = run(blocks, options);
        assert_eq!(skyline, found);
    }
}

#[test]
fn sums_are_all_parts_of_a_size_once_for_each_kind() {
    let sizes = [4, 4, 3, 1, 1];
    let kinds = [0, 0, 2, 3, 4];
    let mut sums = Sums::new(Group::all(5), 5);
    let mut found = Vec::new();
    while let Some(part) = sums.next(|i| sizes[i as usize], |i| kinds[i as usize]) {
        found.push(part.members().collect::<Vec<_>>());
    }
    assert_eq!(found, [vec![0, 3], vec![0, 4], vec![2, 3, 4]]);
}
