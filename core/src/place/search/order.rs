//! The order in which the search tries blocks, where several blocks could be the next to be placed.

use rand_xoshiro::rand_core::Rng;

use super::state::State;
use crate::sort;
use crate::table::Table;

/// With `noise`, in thousandths, the load does not count.
pub(super) fn rank(
    state: &mut State<'_>,
    key: &mut Table<'_, u64>,
    aside: &mut Table<'_, u32>,
    noise: Option<(&mut impl Rng, u64)>,
) {
    let n = state.n;
    let order = &mut state.rank;
    let largest = (0..n).map(|b| state.size[b]).max().unwrap_or(0);
    // Sizes are cut to 24 bits. Times a length below 2^28 and a noise of at most 1100, areas stay below 2^63.
    let shift = (u64::BITS - largest.leading_zeros()).saturating_sub(24);
    let length = |b| u64::from(state.high[b] - state.low[b]);
    let mut random = noise;
    let plain = random.is_none();
    let mut blur = |x: u64| x * random.as_mut().map_or(1000, |(random, most)| thousandths(*random, *most));
    sort::identity(order, n);
    for b in 0..n {
        key[b] = !(blur(state.size[b] >> shift) * length(b));
    }
    sort::by_key(order, n, aside, |b| key[b]);
    for b in 0..n {
        key[b] = !blur(length(b));
    }
    sort::by_key(order, n, aside, |b| key[b]);
    if plain {
        sort::by_key(order, n, aside, |b| !state.load[b]);
    }
    invert(order, n, aside);
}

const NEAR: u64 = 200;

/// The entries of `offset` are no offsets afterwards.
pub(super) fn follow(
    state: &mut State<'_>,
    offset: &mut Table<'_, u64>,
    aside: &mut Table<'_, u32>,
    random: &mut impl Rng,
) {
    let n = state.n;
    let highest = (0..n).map(|b| offset[b]).max().unwrap_or(0);
    // Offsets are cut to 48 bits. Times at most 1200, they stay below 2^59.
    let shift = (u64::BITS - highest.leading_zeros()).saturating_sub(48);
    for b in 0..n {
        offset[b] = (offset[b] >> shift) * thousandths(random, NEAR);
    }
    sort::identity(&mut state.rank, n);
    sort::by_key(&mut state.rank, n, aside, |b| offset[b]);
    invert(&mut state.rank, n, aside);
}

fn thousandths(random: &mut impl Rng, most: u64) -> u64 {
    1000 - most + u64::from(random.next_u32()) % (2 * most + 1)
}

fn invert(order: &mut Table<'_, u32>, n: u32, aside: &mut Table<'_, u32>) {
    for i in 0..n {
        aside[order[i]] = i;
    }
    for b in 0..n {
        order[b] = aside[b];
    }
}
