//! Small random networks, whose traces are rewritten at random by swaps, recomputation, masks and in-place reuse, and
//! then made faulty at random.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use sublet_core::trace::{Event, Kind, Op, Operator, Recorded, Row};

/// A recorded network.
#[derive(Clone, Debug)]
pub struct Network {
    /// The rows of the recording.
    pub rows: Vec<Row>,
    /// The descriptions of the operators.
    pub operators: Vec<Operator>,
    /// How many block numbers there are.
    pub blocks: u32,
}

const fn row(event: Event, block: u32, op: Op) -> Row {
    Row { time_ns: 0, bytes: 0, block, op, event }
}

impl Network {
    /// Draws one or two weights and an input, then a few operators that write one output each. A ReLU reads one block.
    #[must_use]
    pub fn draw(rng: &mut Xoshiro256PlusPlus) -> Self {
        let weights = rng.random_range(1..=2);
        let mut rows: Vec<Row> = (0..=weights).map(|b| row(Event::Malloc, b, Op::None)).collect();
        rows.push(row(Event::Write, weights, Op::None));
        let mut blocks = weights + 1;
        let mut alive = vec![weights];
        let mut operators = Vec::new();
        for k in 0..rng.random_range(2..7u32) {
            let op = Op::First(k);
            let kind = [Kind::Other, Kind::Relu, Kind::ReluBackward][rng.random_range(0..3)];
            let out = blocks;
            blocks += 1;
            rows.push(row(Event::Malloc, out, op));
            let mut read = vec![alive[rng.random_range(0..alive.len())]];
            if kind != Kind::Relu {
                read.push(alive[rng.random_range(0..alive.len())]);
                read.push(rng.random_range(0..weights));
            }
            read.dedup();
            rows.extend(read.iter().map(|&b| row(Event::Read, b, op)));
            if rng.random_ratio(1, 4) {
                let workspace = blocks;
                blocks += 1;
                let use_of = [Event::Malloc, Event::Write, Event::Read, Event::Free];
                rows.extend(use_of.map(|event| row(event, workspace, op)));
            }
            rows.push(row(Event::Write, out, op));
            if rng.random_ratio(1, 4) {
                rows.push(row(Event::Write, rng.random_range(0..weights), op));
            }
            alive.push(out);
            if rng.random_ratio(1, 3) {
                let dead = alive.swap_remove(rng.random_range(0..alive.len()));
                if dead > weights {
                    rows.push(row(Event::Free, dead, Op::None));
                } else {
                    alive.push(dead);
                }
            }
            let (in_place, rerun) = (rng.random_ratio(2, 3), rng.random_ratio(5, 6));
            operators.push(Operator { in_place, rerun, kind, ..Operator::default() });
        }
        let sizes: Vec<u64> = (0..blocks).map(|_| [3212, 4100][rng.random_range(0..2)]).collect();
        // A block that is allocated at time 0 and never freed is persistent. So only the weights and the input are at
        // time 0.
        let mut now = 1;
        for r in rows.iter_mut().skip(weights as usize + 1) {
            if r.event.is_access() && r.op != Op::None {
                now += rng.random_range(0..30_000);
            }
            r.time_ns = now;
        }
        for r in rows.iter_mut().filter(|r| r.event == Event::Malloc) {
            r.bytes = sizes[r.block as usize];
        }
        Self { rows, operators, blocks }
    }

    /// The network in the form that the core takes.
    #[must_use]
    pub fn recorded(&self) -> Recorded<'_> {
        Recorded { rows: &self.rows, operators: &self.operators, blocks: self.blocks as usize }
    }

    fn bytes(&self, block: u32) -> u64 {
        self.rows.iter().find(|r| r.event == Event::Malloc && r.block == block).map_or(0, |r| r.bytes)
    }

    fn malloc(&self, block: u32) -> Row {
        Row { bytes: self.bytes(block), ..row(Event::Malloc, block, Op::None) }
    }

    fn accesses(&self, k: u32) -> impl Iterator<Item = Row> {
        self.rows.iter().copied().filter(move |r| r.event.is_access() && r.op == Op::First(k))
    }
}

/// The positions in `rows` at which no operator is running. Position i is the one before row i.
fn between(rows: &[Row]) -> Vec<usize> {
    let inside = |i: usize| {
        let op = |r: Option<&Row>| r.map_or(Op::None, |r| r.op);
        let last = rows[..i].iter().rposition(|r| r.event.is_access());
        let next = rows[i..].iter().find(|r| r.event.is_access());
        op(last.map(|l| &rows[l])) != Op::None && op(last.map(|l| &rows[l])) == op(next)
    };
    (0..=rows.len()).filter(|&i| !inside(i)).collect()
}

fn position_after(rows: &[Row], op: Op) -> Option<usize> {
    rows.iter().rposition(|r| r.event.is_access() && r.op == op).map(|i| i + 1)
}

/// Whether the block is on the device just before row `at`.
fn resident(rows: &[Row], at: usize, block: u32) -> bool {
    let last = rows[..at].iter().rev().find(|r| r.block == block && matches!(r.event, Event::Malloc | Event::Free));
    last.is_some_and(|r| r.event == Event::Malloc)
}

/// A random element of `of`; none if it is empty.
fn any<T>(rng: &mut Xoshiro256PlusPlus, mut of: Vec<T>) -> Option<T> {
    if of.is_empty() { None } else { Some(of.swap_remove(rng.random_range(0..of.len()))) }
}

/// Changes the rows at random by one swap, recomputation, mask or in-place reuse. Mostly the changed rows are valid.
///
/// # Panics
/// If the network has no operator.
pub fn rewrite(network: &Network, rows: &mut Vec<Row>, rng: &mut Xoshiro256PlusPlus) {
    let k = rng.random_range(0..u32::try_from(network.operators.len()).unwrap());
    let block = rng.random_range(0..network.blocks);
    match rng.random_range(0..4) {
        // A swap.
        0 => {
            let Some(out) = any(rng, between(rows).into_iter().filter(|&i| resident(rows, i, block)).collect()) else {
                return;
            };
            let until = rows[out..].iter().position(|r| r.block == block).map_or(rows.len(), |n| out + n);
            let back = any(rng, between(rows).into_iter().filter(|i| (out..=until).contains(i)).collect());
            let back = back.unwrap_or(out);
            rows.splice(back..back, [network.malloc(block), row(Event::SwapIn, block, Op::None)]);
            rows.splice(out..out, [row(Event::SwapOut, block, Op::None), row(Event::Free, block, Op::None)]);
        }
        // A recomputation of a value, which is freed just before if it is still there.
        1 => {
            let Some(out) = network.accesses(k).find(|r| r.event == Event::Write).map(|r| r.block) else { return };
            let after = position_after(rows, Op::First(k));
            let can = |&i: &usize| {
                let reads = |r: &Row| r.event == Event::Read && network.rows[0].block != r.block;
                Some(i) >= after
                    && network.accesses(k).filter(reads).all(|r| resident(rows, i, r.block) || r.block == out)
            };
            let Some(at) = any(rng, between(rows).into_iter().filter(can).collect()) else { return };
            let mut again = vec![network.malloc(out)];
            if resident(rows, at, out) {
                again.insert(0, row(Event::Free, out, Op::None));
            }
            let first = network.rows.iter().position(|r| r.op == Op::First(k) && r.event.is_access()).unwrap();
            let last = network.rows.iter().rposition(|r| r.op == Op::First(k) && r.event.is_access()).unwrap();
            again.extend(network.rows[first..=last].iter().map(|r| Row { op: Op::Rerun(k), ..*r }));
            let updated = |b: u32| network.accesses(k).any(|r| r.block == b && r.event == Event::Read);
            again.retain(|r| r.event != Event::Write || r.block == out || !updated(r.block) || rng.random_ratio(1, 8));
            rows.splice(at..at, again);
        }
        // A mask in place of a block that a ReLU reads or writes.
        2 => {
            let relus: Vec<u32> =
                (0u32..).zip(&network.operators).filter(|(_, o)| o.kind == Kind::Relu).map(|(k, _)| k).collect();
            let k = any(rng, relus).unwrap_or(k);
            let Some(b) = any(rng, network.accesses(k).map(|r| r.block).collect()) else { return };
            let mask = network.blocks + b;
            if let Some(at) = position_after(rows, Op::First(k)) {
                let bytes = network.bytes(b).div_ceil(32) - u64::from(rng.random_ratio(1, 8));
                let made = [Row { bytes, ..row(Event::Malloc, mask, Op::None) }, row(Event::Write, mask, Op::First(k))];
                rows.splice(at..at, made);
            }
            for r in rows.iter_mut().filter(|r| r.event == Event::Read && r.block == b) {
                if network.recorded().operator(r.op).kind == Kind::ReluBackward {
                    r.block = mask;
                }
            }
        }
        // Work in place: the first input gives its memory to the first output.
        _ => {
            let first = |event| network.accesses(k).find(|r| r.event == event).map(|r| r.block);
            let (Some(giver), Some(taker)) = (first(Event::Read), first(Event::Write)) else { return };
            let read_later = rows
                .iter()
                .skip_while(|r| r.op != Op::First(k))
                .any(|r| r.block == giver && r.op != Op::First(k) && r.event.is_access());
            if read_later && rng.random_ratio(9, 10) {
                return;
            }
            rows.retain(|r| (r.event, r.block) != (Event::Malloc, taker) && (r.event, r.block) != (Event::Free, giver));
            let Some(at) = rows.iter().rposition(|r| r.op == Op::First(k) && r.event == Event::Read) else { return };
            rows.splice(at + 1..=at, [row(Event::Free, giver, Op::None), network.malloc(taker)]);
        }
    }
}

/// Changes one row at random: removes, doubles, moves or alters it, or inserts a free or copy. The changed rows are
/// rarely valid.
///
/// # Panics
/// If there are no rows.
pub fn spoil(network: &Network, rows: &mut Vec<Row>, rng: &mut Xoshiro256PlusPlus) {
    let i = rng.random_range(0..rows.len());
    match rng.random_range(0..5) {
        0 => drop(rows.remove(i)),
        1 => rows.insert(i, rows[i]),
        2 => rows.swap(i, i.saturating_sub(1)),
        3 => rows[i].block = rng.random_range(0..2 * network.blocks),
        _ => {
            let event = [Event::Free, Event::SwapOut, Event::SwapIn][rng.random_range(0..3)];
            rows.insert(i, row(event, rng.random_range(0..network.blocks), Op::None));
        }
    }
}
