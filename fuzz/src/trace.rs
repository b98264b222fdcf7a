//! Arbitrary traces: networks as they are recorded, networks with faults, and arbitrary rows.

use arbitrary::{Arbitrary, Result, Unstructured};
use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Kind, Op, Operator, Recorded, Row};

use crate::number;

/// The rows of a trace, and how many block numbers it is said to have; after faults this may be wrong.
#[derive(Clone, Debug)]
pub struct Trace {
    pub rows: Vec<Row>,
    pub blocks: usize,
}

impl<'a> Arbitrary<'a> for Trace {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut trace = network(u)?;
        match u.int_in_range(0..=7)? {
            0..=3 => {}
            4..=6 => faults(u, &mut trace)?,
            _ => {
                trace.rows.clear();
                while trace.rows.len() < 60 && !u.is_empty() && u.ratio(31, 32)? {
                    trace.rows.push(row(u, 8)?);
                }
                trace.blocks = 8;
            }
        }
        Ok(trace)
    }
}

/// Operators in a chain that read some blocks and write one; most blocks are freed after their last access.
fn network(u: &mut Unstructured<'_>) -> Result<Trace> {
    let weights: u32 = u.int_in_range(0..=4)?;
    let mut sizes = Vec::new();
    for _ in 0..weights {
        sizes.push(u.int_in_range(1..=9)?);
    }
    let mut operators: Vec<(u64, Vec<u32>, u32)> = Vec::new();
    let mut time = 0;
    while operators.len() < 24 && !u.is_empty() && u.ratio(15, 16)? {
        time += if u.ratio(7, 8)? { u.int_in_range(0..=50)? * 20_000 } else { number(u)? >> 8 };
        let made = sizes.len() as u32;
        let mut reads = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            if made > 0 {
                // Blocks that were made lately are read more often than older ones.
                let back = u.int_in_range(1..=made)?.min(u.int_in_range(1..=made)?);
                reads.push(made - back);
            }
        }
        let updates = made > 0 && u.ratio(1, 6)?;
        let written = if updates { u.int_in_range(0..=made - 1)? } else { made };
        if !updates {
            sizes.push(u.int_in_range(1..=12)?);
        }
        operators.push((time, reads, written));
    }
    let unit = 1 << *u.choose(&[0, 10, 20, 20, 20, 30])?;
    let last = |b: u32| operators.iter().rposition(|(_, reads, written)| *written == b || reads.contains(&b));
    let plain = |time_ns, event, block, op| Row { time_ns, bytes: 0, block, op, event };
    let malloc = |time, b: u32, op| Row { bytes: sizes[b as usize] * unit, ..plain(time, Event::Malloc, b, op) };
    let mut rows: Vec<Row> = (0..weights).map(|w| malloc(0, w, Op::None)).collect();
    let (mut made, mut now) = (weights, 0);
    for (k, (time, reads, written)) in operators.iter().enumerate() {
        let op = Op::First(k as u32);
        if *written == made {
            rows.push(malloc(now, made, op));
            made += 1;
        }
        rows.extend(reads.iter().map(|&b| plain(now, Event::Read, b, op)));
        rows.push(plain(*time, Event::Write, *written, op));
        now = *time;
        let mut ended: Vec<u32> = reads.iter().chain([written]).copied().collect();
        ended.sort_unstable();
        ended.dedup();
        ended.retain(|&b| b >= weights && last(b) == Some(k));
        for b in ended {
            if u.ratio(15, 16)? {
                rows.push(plain(now, Event::Free, b, Op::None));
            }
        }
    }
    let mut blocks = sizes.len();
    if u.ratio(1, 6)? {
        let later = now + u.int_in_range(0..=3)? * 10_000;
        rows.push(Row { bytes: unit, ..plain(later, Event::Malloc, made, Op::None) });
        blocks += 1;
    }
    Ok(Trace { rows, blocks })
}

/// Makes one to four random changes: removes, swaps, adds or alters rows, or alters the number of blocks.
///
/// # Errors
/// If the fuzzer's bytes are used up.
pub fn faults(u: &mut Unstructured<'_>, trace: &mut Trace) -> Result<()> {
    for _ in 0..u.int_in_range(1..=4)? {
        let n = trace.rows.len();
        if n == 0 {
            break;
        }
        let at = u.int_in_range(0..=n - 1)?;
        let blocks = u32::try_from(trace.blocks).unwrap_or(u32::MAX);
        match u.int_in_range(0..=6)? {
            0 => {
                trace.rows.remove(at);
            }
            1 => trace.rows.swap(at, u.int_in_range(0..=n - 1)?),
            2 => trace.rows.insert(at, row(u, blocks)?),
            3 => trace.rows[at].time_ns = number(u)?,
            4 => trace.rows[at].bytes = number(u)?,
            5 => trace.rows[at] = row(u, blocks)?,
            _ => trace.blocks = usize::try_from(number(u)?).unwrap_or(usize::MAX),
        }
    }
    Ok(())
}

fn row(u: &mut Unstructured<'_>, blocks: u32) -> Result<Row> {
    use Event::{Free, Malloc, Read, SwapIn, SwapOut, Write};
    let block = if u.ratio(15, 16)? { u.int_in_range(0..=blocks)? } else { u.arbitrary()? };
    let op = match u.int_in_range(0..=5)? {
        0 => Op::None,
        1 => Op::Rerun(u.int_in_range(0..=3)?),
        2 => Op::First(u.arbitrary()?),
        _ => Op::First(u.int_in_range(0..=3)?),
    };
    let event = *u.choose(&[Malloc, Free, Read, Write, SwapOut, SwapIn])?;
    let bytes = if event == Malloc { number(u)? } else { 0 };
    Ok(Row { time_ns: u.int_in_range(0..=3)? * 1000, bytes, block, op, event })
}

/// A device, most often one with sound figures: bandwidths above 0, latencies not negative, all finite.
///
/// # Errors
/// If the fuzzer's bytes are used up.
pub fn device(u: &mut Unstructured<'_>) -> Result<Device> {
    let sound = u.ratio(7, 8)?;
    let mut real = |usual: f64| -> Result<f64> {
        Ok(if sound && u.ratio(3, 4)? { usual * f64::from(u.int_in_range(1..=40u8)?) } else { u.arbitrary()? })
    };
    let [out_bandwidth, in_bandwidth, out_latency, in_latency] = [real(1e9)?, real(1e9)?, real(1e3)?, real(1e3)?];
    let host_capacity = if u.ratio(1, 6)? { Some(number(u)?) } else { None };
    let integrated = u.ratio(1, 8)?;
    Ok(Device { out_bandwidth, in_bandwidth, out_latency, in_latency, host_capacity, integrated })
}

/// Descriptions of operators, up to 24.
///
/// # Errors
/// If the fuzzer's bytes are used up.
pub fn operators(u: &mut Unstructured<'_>) -> Result<Vec<Operator>> {
    let mut operators = Vec::new();
    for _ in 0..u.int_in_range(0..=24)? {
        let kind = *u.choose(&[Kind::Other, Kind::Relu, Kind::ReluBackward])?;
        operators.push(Operator {
            in_place: u.arbitrary()?,
            rerun: u.ratio(3, 4)?,
            ordered: u.ratio(3, 4)?,
            kind,
            element: *u.choose(&[1, 2, 4, 8])?,
        });
    }
    Ok(operators)
}

/// Random changes that are made to a rewritten trace: blocks that leave and come back, then faults.
#[derive(Debug)]
pub struct Spoiled {
    absences: Vec<Absence>,
    faults: Vec<u8>,
}

/// A block that leaves the device at a row, and comes back at a later one. The numbers are taken modulo how many blocks
/// and rows there are.
#[derive(Arbitrary, Debug)]
struct Absence {
    block: u8,
    at: u8,
    back: u8,
    /// Whether the block leaves between two operators, and comes back directly before the next operator that accesses
    /// it; `back` is then ignored.
    in_time: bool,
    from: From,
}

#[derive(Arbitrary, Debug)]
enum From {
    Host,
    /// The operator that has written the block is recomputed.
    Operator,
}

impl<'a> Arbitrary<'a> for Spoiled {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut absences = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            absences.push(u.arbitrary()?);
        }
        let faults = if u.ratio(1, 2)? { u.bytes(12.min(u.len()))?.to_vec() } else { Vec::new() };
        Ok(Self { absences, faults })
    }
}

impl Spoiled {
    /// Makes these changes to `rows`, which were made from the recording.
    #[must_use]
    pub fn of(&self, recorded: &Recorded<'_>, rows: Vec<Row>) -> Vec<Row> {
        let mut trace = Trace { rows, blocks: 2 * recorded.blocks };
        for absence in &self.absences {
            absence.insert(recorded, &mut trace.rows);
        }
        if !self.faults.is_empty() {
            let _ = faults(&mut Unstructured::new(&self.faults), &mut trace);
        }
        trace.rows
    }
}

impl Absence {
    fn insert(&self, recorded: &Recorded<'_>, rows: &mut Vec<Row>) {
        let block = u32::from(self.block) % (recorded.blocks as u32).max(1);
        let places = rows.len() + 1;
        let (at, back) = (usize::from(self.at) % places, usize::from(self.back) % places);
        let (mut at, mut back) = (at.min(back), at.max(back));
        if self.in_time {
            (at, back) = in_time(rows, block, at).unwrap_or((at, back));
        }
        let row = |event, block, op| {
            let same = |r: &&Row| r.event == Event::Malloc && r.block == block;
            let bytes = recorded.rows.iter().find(same).filter(|_| event == Event::Malloc).map_or(0, |r| r.bytes);
            Row { time_ns: 0, bytes, block, op, event }
        };
        let plain = |event| row(event, block, Op::None);
        let (mut leaves, mut returns) = (vec![plain(Event::Free)], vec![plain(Event::Malloc)]);
        let writes = |r: &&Row| r.event == Event::Write && r.block == block && r.op != Op::None;
        match (&self.from, rows[..at].iter().rfind(writes).map(|r| r.op)) {
            (From::Operator, Some(Op::First(k) | Op::Rerun(k))) => {
                let accesses = || recorded.rows.iter().filter(|r| r.event.is_access() && r.op == Op::First(k));
                let touches = |event, block| accesses().any(|r| r.event == event && r.block == block);
                let lasts = |b| {
                    let at_zero = |r: &Row| r.event == Event::Malloc && r.block == b && r.time_ns == 0;
                    recorded.rows.iter().any(at_zero)
                        && !recorded.rows.iter().any(|r| r.event == Event::Free && r.block == b)
                };
                let updated = |b| touches(Event::Read, b) && touches(Event::Write, b) && lasts(b);
                let absent = |b: u32| {
                    let same = |r: &&Row| r.block == b && matches!(r.event, Event::Malloc | Event::Free);
                    b != block && rows[..back].iter().rfind(same).is_none_or(|r| r.event == Event::Free)
                };
                let mut others: Vec<u32> = accesses().map(|r| r.block).filter(|&b| absent(b) && !updated(b)).collect();
                others.sort_unstable();
                others.dedup();
                returns.extend(others.iter().map(|&b| row(Event::Malloc, b, Op::None)));
                returns.extend(accesses().filter(|r| !updated(r.block)).map(|r| row(r.event, r.block, Op::Rerun(k))));
                returns.extend(others.iter().map(|&b| row(Event::Free, b, Op::None)));
            }
            _ => {
                leaves.insert(0, plain(Event::SwapOut));
                returns.push(plain(Event::SwapIn));
            }
        }
        // Insert at the later place first, so that the earlier place stays the same.
        for (place, inserted) in [(back, returns), (at, leaves)] {
            let time_ns = rows[..place].last().map_or(0, |r| r.time_ns);
            rows.splice(place..place, inserted.into_iter().map(|r| Row { time_ns, ..r }));
        }
    }
}

/// Two places between operators: the first at `place`, or after the operator that `place` is in; the second before the
/// next operator that accesses the block. `None` if none accesses it.
fn in_time(rows: &[Row], block: u32, place: usize) -> Option<(usize, usize)> {
    let accesses: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].event.is_access()).collect();
    let same = |i: usize, j: usize| rows[i].op == rows[j].op && rows[i].op != Op::None;
    let mut next = accesses.partition_point(|&i| i < place);
    let mut at = place;
    while next > 0 && accesses.get(next).is_some_and(|&i| same(accesses[next - 1], i)) {
        at = accesses[next] + 1;
        next += 1;
    }
    let mut first = next + accesses[next..].iter().position(|&i| rows[i].block == block)?;
    while first > next && same(accesses[first - 1], accesses[first]) {
        first -= 1;
    }
    Some((at, accesses[first]))
}
