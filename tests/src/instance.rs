//! Instances made from a seed: the same bytes on every platform and in every run.

use std::io::{self, Write};

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sublet_core::Block;

/// Height of the rectangle that [`tight`] cuts, in bytes.
pub const TIGHT_HEIGHT: u64 = 1 << 30;

/// Its cuts are at multiples of this many bytes.
const TIGHT_GRAIN: u64 = 512;

/// Width of the same rectangle, in steps.
const TIGHT_WIDTH: u32 = 1 << 20;

/// The seeded generator that all instances draw from.
#[must_use]
pub fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// `n` blocks, one beginning at each step, that live for exponentially distributed times, so that about `alive` are
/// alive at once; sizes are log-uniform from 64 bytes to 4 MiB.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the values are in range by construction")]
pub fn random(n: u32, alive: u32, seed: u64) -> Vec<Block> {
    let mut rng = rng(seed);
    let block = |start: u32| {
        let width = libm::ceil(-f64::from(alive) * libm::log(1.0 - rng.random::<f64>())).max(1.0);
        let size = libm::exp2(6.0 + 16.0 * rng.random::<f64>());
        Block::new(start, start.saturating_add(width as u32), size as u64)
    };
    (0..n).map(block).collect()
}

/// `n` blocks that fill a rectangle of [`TIGHT_HEIGHT`], and the offsets where they do: the optimum is known to be the
/// max load. Guillotine cuts: a random piece is cut in two at a random place, over and over; then the pieces are
/// shuffled.
#[must_use]
pub fn tight(n: u32, seed: u64) -> (Vec<Block>, Vec<u64>) {
    let mut rng = rng(seed);
    let mut pieces = vec![(Block::new(0, TIGHT_WIDTH, TIGHT_HEIGHT), 0)];
    while pieces.len() < n as usize {
        let i = rng.random_range(0..pieces.len());
        let (piece, offset) = pieces[i];
        if rng.random() {
            if piece.width() < 2 {
                continue;
            }
            let cut = rng.random_range(piece.start + 1..piece.end);
            pieces[i].0.end = cut;
            pieces.push((Block { start: cut, ..piece }, offset));
        } else {
            let grains = piece.size / TIGHT_GRAIN;
            if grains < 2 {
                continue;
            }
            let cut = rng.random_range(1..grains) * TIGHT_GRAIN;
            pieces[i].0.size = cut;
            pieces.push((Block { size: piece.size - cut, ..piece }, offset + cut));
        }
    }
    pieces.shuffle(&mut rng);
    pieces.into_iter().unzip()
}

/// Writes an instance, `id,lower,upper,size`; ids count from 0.
///
/// # Errors
/// What writing gives.
pub fn write(blocks: &[Block], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "id,lower,upper,size")?;
    for (id, b) in blocks.iter().enumerate() {
        writeln!(out, "{id},{},{},{}", b.start, b.end, b.size)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_has_the_blocks_and_the_number_alive_that_were_asked_for() {
        let blocks = random(20_000, 50, 3);
        assert_eq!(blocks.len(), 20_000);
        let alive = blocks.iter().filter(|b| b.start <= 10_000 && 10_000 < b.end).count();
        let mean: f64 = blocks.iter().map(|b| f64::from(b.width())).sum::<f64>() / 20_000.0;
        assert!((25..=100).contains(&alive), "{alive}");
        assert!((49.0..53.0).contains(&mean), "{mean}");
        assert!(blocks.iter().all(|b| (64..=4 << 20).contains(&b.size)));
        assert_ne!(blocks, random(20_000, 50, 4));
    }

    #[test]
    fn tight_fills_its_rectangle() {
        let (blocks, offsets) = tight(500, 7);
        let plan = crate::verify(&blocks, &offsets, &sublet_core::Constraints::NONE).unwrap();
        assert_eq!((blocks.len(), plan.peak()), (500, TIGHT_HEIGHT));
        assert!(plan.is_optimal());
        let area: u128 = blocks.iter().map(|b| u128::from(b.size) * u128::from(b.width())).sum();
        assert_eq!(area, u128::from(TIGHT_HEIGHT) * u128::from(TIGHT_WIDTH));
    }
}
