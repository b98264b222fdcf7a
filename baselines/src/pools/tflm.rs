//! The planner of TensorFlow Lite Micro, `GreedyMemoryPlanner`: the largest buffer first, each into the first gap.
//!
//! Buffers with an offset of their own come first and are taken as they are, whatever they overlap. The others come by
//! size; of equal sizes the later one comes first, since they are listed from the end and sorted stably. Lifetimes are
//! inclusive on both sides.

/// A buffer of TFLM's planner.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Its size, in bytes.
    pub bytes: u64,
    /// The first and the last time at which the buffer is needed; both are -1 if it never is.
    pub life: [i64; 2],
    /// The offset that the model tells, in bytes; none where the planner chooses it.
    pub offset: Option<u64>,
}

/// The offsets that TFLM gives these buffers.
#[must_use]
pub fn plan(buffers: &[Buffer]) -> Vec<u64> {
    let told = (0..buffers.len()).filter(|&i| buffers[i].offset.is_some());
    let mut free: Vec<usize> = (0..buffers.len()).rev().filter(|&i| buffers[i].offset.is_none()).collect();
    free.sort_by_key(|&i| std::cmp::Reverse(buffers[i].bytes));
    let mut offsets = vec![0; buffers.len()];
    // By offset; of equal offsets the one that came first.
    let mut placed: Vec<usize> = Vec::new();
    for i in told.chain(free) {
        let b = &buffers[i];
        let mut offset = 0;
        for &j in &placed {
            let other = &buffers[j];
            if other.life[0] > b.life[1] || b.life[0] > other.life[1] {
                continue;
            }
            if offsets[j] >= offset + b.bytes {
                break;
            }
            offset = offset.max(offsets[j] + other.bytes);
        }
        offsets[i] = b.offset.unwrap_or(offset);
        let place = placed.partition_point(|&j| offsets[j] <= offsets[i]);
        placed.insert(place, i);
    }
    offsets
}

/// The bytes that TFLM takes for buffers: the head of its arena.
#[must_use]
pub fn head(buffers: &[Buffer]) -> u64 {
    plan(buffers).iter().zip(buffers).map(|(offset, b)| offset + b.bytes).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: u64, first: i64, last: i64) -> Buffer {
        Buffer { bytes, life: [first, last], offset: None }
    }

    #[test]
    fn of_equal_sizes_the_later_one_goes_first() {
        assert_eq!(plan(&[buffer(16, 0, 1), buffer(16, 1, 2)]), [16, 0]);
        assert_eq!(plan(&[buffer(16, 0, 1), buffer(32, 1, 2), buffer(16, 2, 3)]), [32, 0, 32]);
    }

    #[test]
    fn lifetimes_are_inclusive_and_gaps_are_used() {
        assert_eq!(plan(&[buffer(64, 0, 1), buffer(48, 1, 2), buffer(32, 2, 3)]), [0, 64, 0]);
    }

    #[test]
    fn told_offsets_stay_and_others_go_around() {
        let told = |offset, b| Buffer { offset: Some(offset), ..b };
        assert_eq!(plan(&[buffer(16, 0, 1), told(16, buffer(32, 0, 1)), told(16, buffer(32, 1, 1))]), [0, 16, 16]);
        assert_eq!(head(&[buffer(32, 0, 1), told(16, buffer(32, 0, 1))]), 80);
    }
}
