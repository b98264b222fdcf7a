//! Instances made from a seed: the same bytes on every platform and in every run.

use std::io::{self, Write};
use std::path::Path;
use std::{env, fs};

use rand::seq::{IteratorRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sublet_core::Block;

/// Height of the rectangle that [`tight`] cuts, in bytes.
pub const TIGHT_HEIGHT: u64 = 1 << 30;

/// The offsets at which [`tight`] cuts are multiples of this, in bytes.
const TIGHT_GRAIN: u64 = 512;

/// Width of the rectangle that [`tight`] cuts, in steps.
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

/// `n` blocks, and offsets at which they fill a range of [`TIGHT_HEIGHT`] bytes at every step: so the least peak is
/// known to be the max load.
#[must_use]
pub fn tight(n: u32, seed: u64) -> (Vec<Block>, Vec<u64>) {
    cut(n, TIGHT_WIDTH, TIGHT_HEIGHT, TIGHT_GRAIN, &mut rng(seed))
}

/// Cuts a rectangle of `width` steps and `height` bytes into `n` blocks; returns the blocks, in random order, and the
/// offset of each. Over and over, a random piece is cut in two, at a random step or at a random multiple of `grain`
/// bytes. Never ends if there is no room for so many pieces.
#[must_use]
pub fn cut(n: u32, width: u32, height: u64, grain: u64, rng: &mut Xoshiro256PlusPlus) -> (Vec<Block>, Vec<u64>) {
    let mut pieces = vec![(Block::new(0, width, height), 0)];
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
            let grains = piece.size / grain;
            if grains < 2 {
                continue;
            }
            let cut = rng.random_range(1..grains) * grain;
            pieces[i].0.size = cut;
            pieces.push((Block { size: piece.size - cut, ..piece }, offset + cut));
        }
    }
    pieces.shuffle(rng);
    pieces.into_iter().unzip()
}

/// Joins blocks in time, up to `joins` times, without a change of the load at any step. Of two blocks, one of which
/// ends at the step at which the other begins, the earlier one must not be larger: it now lives until the later one
/// ends, and the later one gets smaller by its bytes. Blocks that filled a rectangle mostly do not fit into it any
/// more.
pub fn join(blocks: &mut Vec<Block>, joins: u32, rng: &mut Xoshiro256PlusPlus) {
    for _ in 0..joins {
        let meets = |&(a, b): &(usize, usize)| blocks[a].end == blocks[b].start && blocks[a].size <= blocks[b].size;
        let pairs = (0..blocks.len()).flat_map(|a| (0..blocks.len()).map(move |b| (a, b)));
        let Some((earlier, later)) = pairs.filter(meets).choose(rng) else { return };
        blocks[earlier].end = blocks[later].end;
        blocks[later].size -= blocks[earlier].size;
        blocks.retain(|b| b.size > 0);
    }
}

/// Writes an instance, `id,lower,upper,size`; ids count from 0.
///
/// # Errors
/// The error of writing to `out`.
pub fn write(blocks: &[Block], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "id,lower,upper,size")?;
    for (id, b) in blocks.iter().enumerate() {
        writeln!(out, "{id},{},{},{}", b.start, b.end, b.size)?;
    }
    Ok(())
}

/// Reads what [`fn@write`] writes.
///
/// # Panics
/// If the text is anything else.
#[must_use]
pub fn read(text: &str) -> Vec<Block> {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("id,lower,upper,size"));
    let block = |line: &str| {
        let mut numbers = line.split(',').skip(1).map(|number| number.parse::<u64>().unwrap());
        let mut next = || numbers.next().unwrap();
        Block::new(next().try_into().unwrap(), next().try_into().unwrap(), next())
    };
    lines.map(block).collect()
}

/// The eleven instances that `MiniMalloc` (Moffitt 2023) was published with, A to K, from the folder that `SUBLET_DATA`
/// names. If it is not set, returns `None`, and prints what is `skipped`.
///
/// # Panics
/// If the folder does not hold them.
#[must_use]
pub fn minimalloc(skipped: &str) -> Option<Vec<(char, Vec<Block>)>> {
    let Some(data) = env::var_os("SUBLET_DATA") else {
        eprintln!("skipped: {skipped}; SUBLET_DATA is not set");
        return None;
    };
    let instance = |name| {
        let file = Path::new(&data).join(format!("minimalloc/{name}.1048576.csv"));
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        (name, read(&text))
    };
    Some(('A'..='K').map(instance).collect())
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
    fn what_is_written_is_read() {
        let mut written = Vec::new();
        write(&random(50, 7, 1), &mut written).unwrap();
        assert_eq!(read(str::from_utf8(&written).unwrap()), random(50, 7, 1));
    }

    #[test]
    fn joined_blocks_have_the_load_they_had() {
        let load = |blocks: &[Block], step| -> u64 {
            blocks.iter().filter(|b| b.start <= step && step < b.end).map(|b| b.size).sum()
        };
        let mut rng = rng(5);
        for _ in 0..20 {
            let (mut blocks, _) = cut(20, 16, 32, 1, &mut rng);
            let before = blocks.clone();
            join(&mut blocks, 3, &mut rng);
            assert_ne!(blocks, before);
            assert!((0..16).all(|step| load(&blocks, step) == 32));
        }
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
