//! The meaning of colours in a picture: what becomes of a block, the op that allocates it, or its size.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Serialize;
use sublet_core::Block;

use super::numbers::bytes;
use super::ops::Ops;
use super::run::Run;
use crate::marks::Fate;

/// A way to colour blocks and operators.
#[derive(Debug, Serialize)]
pub(super) struct Coloring {
    /// What the colours mean.
    pub(super) by: &'static str,
    pub(super) groups: Vec<Group>,
    /// The group of each block.
    pub(super) group: Vec<usize>,
    /// By operator of the run: the group that has its colour; none for one without a colour.
    pub(super) operator: Vec<Option<usize>>,
}

/// Blocks of one colour.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    pub(super) label: String,
    pub(super) color: &'static str,
    pub(super) blocks: usize,
}

/// For names that have no order: hues alternate, so that neighbours in the ranking look different. Each colour is light
/// enough for dark text and dark enough for white paper, so that it serves light and dark pages.
const HUES: [&str; 10] =
    ["#5c93e4", "#e7b551", "#4dc0b5", "#e66d75", "#a584dc", "#63bb73", "#ea8d52", "#8bc7e5", "#e593c2", "#b7c86b"];
/// How many classes of sizes there are at most.
const CLASSES: u32 = 9;
/// The colours of the classes of sizes, from the smallest to the largest.
const RAMP: [&str; CLASSES as usize] =
    ["#bc90d7", "#e38ab5", "#f38d85", "#f2a86e", "#eac66e", "#bbd381", "#74c698", "#50b6c1", "#5e93e1"];
/// What becomes of a block in a fit, in the order of [`Fate`], with its colour.
const FATES: [(&str, &str); 5] = [
    ("kept on the device", "#b3b9c4"),
    ("swapped to the host and back", "#5c93e4"),
    ("recomputed", "#ea8d52"),
    ("replaced by its mask", "#a584dc"),
    ("written over its input, in place", "#63bb73"),
];
/// The colour of ops without a hue of their own.
const OTHERS: &str = "#b9a99a";
/// The colour of blocks that no op allocates.
const NO_OP: &str = "#9ea5b0";

impl Coloring {
    /// Colours by what becomes of each block; a recomputed operator has the colour of recomputed blocks.
    pub(super) fn by_fate(fates: &[Fate], run: &Run<'_>) -> Self {
        let groups = FATES.map(|(label, color)| Group::new(label, color)).into();
        let recomputes = |&rerun: &bool| rerun.then_some(Fate::Recomputed as usize);
        let operators = run.operators.rerun.iter().map(recomputes).collect();
        Self::of("what becomes of the block", groups, fates.iter().map(|&fate| fate as usize).collect(), operators)
    }

    /// Colours the ops whose blocks fill most of the map; ties go to the name that comes first in the alphabet. An op
    /// that runs has the colour of the blocks that it allocates.
    pub(super) fn by_op(blocks: &[Block], op: &[Option<usize>], ops: &Ops<'_>, run: Option<&Run<'_>>) -> Self {
        let names: Vec<_> = op.iter().map(|op| op.map(|i| ops.name(i))).collect();
        let mut area: HashMap<&str, u128> = HashMap::new();
        for (b, name) in blocks.iter().zip(&names) {
            if let Some(name) = name {
                *area.entry(name).or_default() += u128::from(b.size) * u128::from(b.width());
            }
        }
        let mut ranked: Vec<_> = area.into_iter().collect();
        ranked.sort_unstable_by_key(|&(name, area)| (Reverse(area), name));
        let rank: HashMap<_, _> = ranked.iter().enumerate().map(|(i, &(name, _))| (name, i)).collect();

        let hues = HUES.len().min(ranked.len());
        let mut groups: Vec<_> = ranked.iter().zip(HUES).map(|(&(name, _), color)| Group::new(name, color)).collect();
        groups.push(Group::new(&format!("{} other ops", ranked.len() - hues), OTHERS));
        groups.push(Group::new("no op: persistent or input", NO_OP));
        let group = names.iter().map(|name| name.map_or(hues + 1, |name| rank[name].min(hues))).collect();
        let of_op = |op: &Option<usize>| op.and_then(|op| rank.get(ops.name(op)).map(|&rank| rank.min(hues)));
        let operators = run.map_or_else(Vec::new, |run| run.operators.op.iter().map(of_op).collect());
        Self::of("op that allocates the block", groups, group, operators)
    }

    /// Colours by powers of two: a class for each in which large blocks lie, and one for all smaller blocks, which are
    /// hardly seen in a map of bytes.
    pub(super) fn by_size(blocks: &[Block]) -> Self {
        let power = |b: &Block| b.size.max(1).ilog2();
        let highest = blocks.iter().map(power).max().unwrap_or(0);
        let lowest = (highest + 1).saturating_sub(CLASSES);
        let groups = (lowest..=highest).map(|bits| {
            let above = 1u64.checked_shl(bits + 1).map_or_else(|| "16 EiB".into(), bytes);
            let below = lowest > 0 && bits == lowest;
            let label = if below { format!("below {above}") } else { format!("{} to {above}", bytes(1 << bits)) };
            Group::new(&label, RAMP[(CLASSES - 1 - (highest - bits)) as usize])
        });
        let group = blocks.iter().map(|b| power(b).saturating_sub(lowest) as usize).collect();
        Self::of("size of the block", groups.collect(), group, Vec::new())
    }

    /// Counts the blocks of each group and leaves out empty groups.
    fn of(by: &'static str, mut groups: Vec<Group>, mut group: Vec<usize>, mut operator: Vec<Option<usize>>) -> Self {
        for &g in &group {
            groups[g].blocks += 1;
        }
        let used = |at: usize, g: &Group| g.blocks > 0 || operator.contains(&Some(at));
        let used: Vec<_> = groups.iter().enumerate().map(|(at, g)| used(at, g)).collect();
        let moved: Vec<_> = used
            .iter()
            .scan(0, |next, &used| {
                let at = *next;
                *next += usize::from(used);
                Some(at)
            })
            .collect();
        for g in group.iter_mut().chain(operator.iter_mut().flatten()) {
            *g = moved[*g];
        }
        let mut used = used.into_iter();
        groups.retain(|_| used.next() == Some(true));
        Self { by, groups, group, operator }
    }
}

impl Group {
    fn new(label: &str, color: &'static str) -> Self {
        Self { label: label.into(), color, blocks: 0 }
    }
}
