//! Finds which steps of a program have to wait for which others, with the fewest waits.
//!
//! Problem: steps are given in an order, each on one of three streams. Each step reads and writes some bytes, and the
//! whole list is repeated in every iteration. A step must run after an earlier step, of this iteration or of the one
//! before, if both use the same bytes and at least one of the two writes them. Steps on one stream run in order; a step
//! can wait for an event of another stream. What are the fewest such waits?
//!
//! Steps: for every byte, the step that last wrote it is known, and for each stream the last step that has read it
//! since. Of the steps on another stream that a step must follow, it is enough to wait for the last. Even that wait is
//! left out if it follows from earlier waits of the stream, or from the step's wait for the third stream. To find this,
//! each step has a vector clock: how much of each stream is done when the step runs (Fidge 1988, Mattern 1989). The
//! result is the transitive reduction of a graph without cycles: there is only one, and without any of its edges two
//! steps that share bytes have no order.
//!
//! The first iteration has nothing before it. In later ones a stream has also waited for what it waited for in the
//! iterations before, and may need other waits. So the waits are found iteration by iteration, until nothing changes
//! any more: the last list of waits holds for all further iterations.
//!
//! Cost, in each of a few iterations: O(log n) for each of the n ranges of bytes that steps use; a range whose parts
//! were last used by different steps counts as one range for each part. This module knows bytes and streams only. Tests
//! check it by searching for races in another way, and with real data.

use std::collections::BTreeMap;
use std::ops::Range;

/// How many streams there are: compute, copies out, and copies in.
pub(crate) const LANES: usize = 3;

/// The most iterations for which the waits between steps are computed. All later iterations wait as the last of these
/// does. Fewer iterations are computed if nothing changes any more from one to the next.
const MOST: usize = 16;

/// Here the footprint of a launch or a copy is what decides which other steps it has to wait for: its stream, the bytes
/// that it uses, and the steps that it has to follow in any case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    pub(crate) lane: usize,
    /// The ranges of bytes that the step uses, and for each whether the step writes it.
    pub(crate) ranges: Vec<(Range<u64>, bool)>,
    /// The indices of earlier steps of the same iteration that the step has to follow, whatever bytes they use.
    pub(crate) after: Vec<u32>,
}

/// For each stream, how many of its launches and copies are done, counted over all iterations.
type Clock = [u64; LANES];

/// The users of a range of bytes: the last step that has written them, and the steps that have read them since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Users {
    end: u64,
    /// The step that last wrote the bytes: the number of its stream, and its own number in that stream, counted from 1
    /// over all iterations. `None` if no step has written them.
    writer: Option<(usize, u64)>,
    /// For each stream, its last step that has read the bytes since they were last written: the step's number in that
    /// stream, counted from 1 over all iterations. 0 if there is none.
    readers: Clock,
}

/// Finds the steps on other streams that each step has to wait for. The result has one list for each of the first
/// iterations. The list has for each step, by its index, the indices of the steps to wait for. An index above the
/// step's own stands for a step of the iteration before. All later iterations wait as the last list says.
pub(crate) fn plan(steps: &[Footprint]) -> Vec<Vec<Vec<u32>>> {
    let mut lanes: [Vec<u32>; LANES] = Default::default();
    let mut place = Vec::with_capacity(steps.len());
    for (step, footprint) in (0u32..).zip(steps) {
        place.push(lanes[footprint.lane].len() as u64);
        lanes[footprint.lane].push(step);
    }
    let mut known = [Clock::default(); LANES];
    let mut clocks = vec![Clock::default(); steps.len()];
    let mut memory = BTreeMap::new();
    let mut lists: Vec<Vec<Vec<u32>>> = Vec::new();
    let mut before = Vec::new();
    for iteration in 0..MOST as u64 {
        let mut waits = Vec::with_capacity(steps.len());
        for (step, footprint) in steps.iter().enumerate() {
            let own = footprint.lane;
            let number = iteration * lanes[own].len() as u64 + place[step] + 1;
            let mut needed = Clock::default();
            for (range, write) in &footprint.ranges {
                use_bytes(&mut memory, range, *write, (own, number), &mut needed);
            }
            for &after in &footprint.after {
                let lane = steps[after as usize].lane;
                needed[lane] = needed[lane].max(iteration * lanes[lane].len() as u64 + place[after as usize] + 1);
            }
            let of = |lane: usize, number: u64| {
                let index = (number - 1) % lanes[lane].len() as u64;
                lanes[lane][usize::try_from(index).unwrap_or(usize::MAX)]
            };
            let open: Vec<(usize, u32)> = (0..LANES)
                .filter(|&lane| lane != own && needed[lane] > known[own][lane])
                .map(|lane| (lane, of(lane, needed[lane])))
                .collect();
            let mut clock = known[own];
            for &(_, waited) in &open {
                join(&mut clock, &clocks[waited as usize]);
            }
            clock[own] = number;
            let follows = |lane: usize| {
                open.iter().any(|&(other, waited)| other != lane && clocks[waited as usize][lane] >= needed[lane])
            };
            waits.push(open.iter().filter(|&&(lane, _)| !follows(lane)).map(|&(_, waited)| waited).collect());
            clocks[step] = clock;
            known[own] = clock;
        }
        // What is known, counted from the start of the iteration.
        let relative = |clock: &Clock| -> [i128; LANES] {
            std::array::from_fn(|lane| i128::from(clock[lane]) - i128::from(iteration) * lanes[lane].len() as i128)
        };
        let now: Vec<_> = clocks.iter().map(relative).collect();
        let settled = now == before && lists.last() == Some(&waits);
        if settled {
            break;
        }
        lists.push(waits);
        before = now;
    }
    lists
}

fn join(clock: &mut Clock, other: &Clock) {
    for (known, &more) in clock.iter_mut().zip(other) {
        *known = (*known).max(more);
    }
}

/// Notes that a step, a launch or copy, uses the bytes of `range`, and finds the earlier users of these bytes that the
/// step has to follow. The step has the number `number` in stream `lane`: steps are counted in each stream, from 1 over
/// all iterations. `write` says whether the step writes the bytes. `memory` has the users of each range of bytes, by
/// the address at which the range begins. `needed` has for each stream the number of the last step that this step has
/// to follow, 0 for none. An entry is raised if these bytes require a later step.
fn use_bytes(
    memory: &mut BTreeMap<u64, Users>,
    range: &Range<u64>,
    write: bool,
    (lane, number): (usize, u64),
    needed: &mut Clock,
) {
    if range.is_empty() {
        return;
    }
    split(memory, range.start);
    split(memory, range.end);
    let mut free = range.start;
    let mut gaps = Vec::new();
    for (&start, users) in memory.range_mut(range.clone()) {
        if free < start {
            gaps.push(free..start);
        }
        free = users.end;
        if let Some((writer, at)) = users.writer {
            needed[writer] = needed[writer].max(at);
        }
        if write {
            join(needed, &users.readers);
        } else {
            users.readers[lane] = number;
        }
    }
    if write {
        let inside: Vec<u64> = memory.range(range.clone()).map(|(&start, _)| start).collect();
        for start in inside {
            memory.remove(&start);
        }
        let users = Users { end: range.end, writer: Some((lane, number)), readers: Clock::default() };
        memory.insert(range.start, users);
    } else {
        if free < range.end {
            gaps.push(free..range.end);
        }
        for gap in gaps {
            let mut readers = Clock::default();
            readers[lane] = number;
            memory.insert(gap.start, Users { end: gap.end, writer: None, readers });
        }
    }
}

/// Splits the range of bytes in `memory` that contains address `at` into two: the bytes before `at`, and those from
/// `at` on. Does nothing if a range begins at `at`, or none contains it. `memory` has the users of each range, by the
/// address at which the range begins.
fn split(memory: &mut BTreeMap<u64, Users>, at: u64) {
    if let Some((_, users)) = memory.range_mut(..at).next_back()
        && users.end > at
    {
        let rest = *users;
        users.end = at;
        memory.insert(at, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(lane: usize, ranges: &[(Range<u64>, bool)]) -> Footprint {
        Footprint { lane, ranges: ranges.to_vec(), after: Vec::new() }
    }

    #[test]
    fn a_swap_waits_where_it_must() {
        // A block is written, copied out, its bytes used for another, and copied in at another place.
        let steps = [
            step(0, &[(0..8, true)]),
            step(1, &[(0..8, false), (100..108, true)]),
            step(0, &[(0..8, true)]),
            step(2, &[(100..108, false), (8..16, true)]),
            step(0, &[(8..16, false), (0..8, false)]),
        ];
        let lists = plan(&steps);
        // The second iteration needs nothing else: its first step follows the last of the first, which has waited for
        // all.
        assert_eq!(lists, [[vec![], vec![0], vec![1], vec![1], vec![3]]]);
    }

    #[test]
    fn an_iteration_waits_for_the_one_before() {
        // Copied in anew each time: not before the kernel of the iteration before has read it.
        let steps = [step(2, &[(0..8, true)]), step(0, &[(0..8, false)])];
        assert_eq!(plan(&steps), [[vec![], vec![0]], [vec![1], vec![0]]]);
    }

    #[test]
    fn reads_need_no_order_and_writes_follow_all_of_them() {
        let steps = [
            step(0, &[(0..4, true), (4..8, true)]),
            step(1, &[(0..8, false)]),
            step(0, &[(2..6, false)]),
            step(2, &[(4..8, true)]),
        ];
        assert_eq!(plan(&steps)[0], [vec![], vec![0], vec![], vec![2, 1]]);
    }

    #[test]
    fn what_is_said_is_followed_too() {
        let mut steps = [step(0, &[(0..8, true)]), step(1, &[(8..16, true)]), step(2, &[])];
        steps[2].after = vec![0, 1];
        assert_eq!(plan(&steps)[0], [vec![], vec![], vec![0, 1]]);
        steps[1].after = vec![0];
        assert_eq!(plan(&steps)[0], [vec![], vec![0], vec![1]]);
    }

    #[test]
    fn a_wait_that_follows_from_the_other_is_left_out() {
        // The copy out has waited for the first step: waiting for the copy is enough.
        let steps = [step(0, &[(0..8, true)]), step(1, &[(0..8, false), (8..16, true)]), step(2, &[(0..16, false)])];
        assert_eq!(plan(&steps)[0], [vec![], vec![0], vec![1]]);
    }
}
