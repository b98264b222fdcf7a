//! Data that tells where it comes from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sublet_core::trace::{Event, Op, Row};
use sublet_cuda::backend::Backend;
use sublet_cuda::host::{self, HostBackend, Slice};
use sublet_cuda::{Error, Launch, Operand, Part, Runtime};

use super::fit::Trace;

/// A mask holds the number of its block, changed by this.
const MASK: u64 = 0x5a5a_5a5a_5a5a_5a5a;

fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(17) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

/// No number: what an operator yields that runs again without its inputs.
const UNDEFINED: u64 = 0xeeee_eeee_eeee_eeee;

/// The bytes of a number.
pub(crate) fn fill(seed: u64, bytes: &mut [u8]) {
    if seed == UNDEFINED {
        return bytes.fill(0xee);
    }
    for (i, chunk) in (0u64..).zip(bytes.chunks_mut(8)) {
        let word = if i == 0 { seed } else { mix(seed, i) };
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

/// The number of these bytes, if they are those of one.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    let seed = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let word = |i: u64| if i == 0 { seed } else { mix(seed, i) };
    let right = |(i, chunk): (u64, &[u8])| chunk == &word(i).to_le_bytes()[..chunk.len()];
    (0u64..).zip(bytes.chunks(8)).all(right).then_some(seed)
}

/// The numbers of an operator's outputs, from those of what it reads.
fn output(op: Op, iteration: u64, block: u32, reads: &[(u32, u64)], updated: &[u32]) -> u64 {
    let k = match op {
        // An input differs from iteration to iteration.
        Op::None => return mix(mix(77, iteration), block.into()),
        Op::First(k) | Op::Rerun(k) => k,
    };
    // What is updated besides is not read by a rerun, so that nothing else depends on it.
    let seen = reads.iter().filter(|(read, _)| *read == block || !updated.contains(read));
    seen.fold(mix(k.into(), block.into()), |seed, &(read, number)| mix(mix(seed, read.into()), number))
}

/// What the network computes, by numbers.
pub(crate) struct Reference<'t> {
    trace: &'t Trace,
    persistent: Vec<u32>,
    values: HashMap<u32, u64>,
}

impl<'t> Reference<'t> {
    pub(crate) fn new(trace: &'t Trace) -> Self {
        let freed = |b: u32| trace.rows.iter().any(|r| r.event == Event::Free && r.block == b);
        let first = trace.rows.iter().filter(|r| r.event == Event::Malloc && r.time_ns == 0);
        let persistent: Vec<u32> = first.map(|r| r.block).filter(|&b| !freed(b)).collect();
        let values = persistent.iter().map(|&b| (b, initial(b))).collect();
        Self { trace, persistent, values }
    }

    /// Another network with these persistent blocks: `was` are their numbers here, by those there.
    pub(crate) fn turned_into<'n>(&self, trace: &'n Trace, was: &HashMap<u32, u32>) -> Reference<'n> {
        let mut other = Reference::new(trace);
        for (block, old) in was {
            other.values.insert(*block, self.values[old]);
        }
        other
    }

    pub(crate) fn updated(&self, op: Op) -> Vec<u32> {
        let k = if let Op::Rerun(k) = op { Op::First(k) } else { op };
        let does = |b: u32, event| self.trace.rows.iter().any(|r| r.op == k && r.event == event && r.block == b);
        let of = self.persistent.iter().copied();
        of.filter(|&b| op != Op::None && does(b, Event::Read) && does(b, Event::Write)).collect()
    }

    /// Runs one iteration; what each operator reads of each block.
    pub(crate) fn iterate(&mut self, iteration: u64) -> HashMap<(Op, u32), u64> {
        let mut seen = HashMap::new();
        let mut rows = self.trace.rows.iter().filter(|r| r.event.is_access()).peekable();
        while let Some(first) = rows.next() {
            let mut accesses: Vec<&Row> = vec![first];
            while first.op != Op::None && rows.peek().is_some_and(|r| r.op == first.op) {
                accesses.extend(rows.next());
            }
            let mut reads: Vec<(u32, u64)> = Vec::new();
            let mut written: Vec<u32> = Vec::new();
            for r in accesses {
                match r.event {
                    Event::Read if !written.contains(&r.block) && reads.iter().all(|(b, _)| *b != r.block) => {
                        reads.push((r.block, self.values[&r.block]));
                    }
                    Event::Write if !written.contains(&r.block) => written.push(r.block),
                    _ => {}
                }
            }
            let updated = self.updated(first.op);
            for b in written {
                self.values.insert(b, output(first.op, iteration, b, &reads, &updated));
            }
            seen.extend(reads.into_iter().map(|(b, seed)| ((first.op, b), seed)));
        }
        seen
    }

    pub(crate) fn launches(&self) -> Launches {
        let updated = self.trace.rows.iter().map(|r| (r.op, self.updated(r.op))).collect();
        Launches { updated, seen: HashMap::new(), iteration: 0, faults: Faults::default() }
    }

    fn content(&self, block: u32, seed: u64) -> Vec<u8> {
        let bytes = self.trace.rows.iter().find(|r| r.block == block).map_or(0, |r| r.bytes);
        let mut content = vec![0; usize::try_from(bytes).unwrap()];
        fill(seed, &mut content);
        content
    }

    /// Gives the runtime's persistent blocks what they hold now.
    pub(crate) fn write<B: Backend>(&self, runtime: &mut Runtime<B>) -> Result<(), Error> {
        let kept: Vec<u32> = runtime.program().persistent_blocks().collect();
        kept.iter().try_for_each(|&b| runtime.write(b, &self.content(b, self.values[&b])))
    }

    /// What persists in the runtime and is not what it should be.
    pub(crate) fn compare<B: Backend>(&self, runtime: &mut Runtime<B>) -> Result<Vec<String>, Error> {
        let kept: Vec<u32> = runtime.program().persistent_blocks().collect();
        let mut found = Vec::new();
        for (b, seed) in self.persistent().filter(|(b, _)| kept.contains(b)) {
            let right = self.content(b, seed);
            let mut bytes = vec![0; right.len()];
            runtime.read(b, &mut bytes)?;
            if bytes != right {
                found.push(format!("block {b} ends as {:?}, not {seed}", number(&bytes)));
            }
        }
        Ok(found)
    }

    pub(crate) fn persistent(&self) -> impl Iterator<Item = (u32, u64)> {
        self.persistent.iter().map(|&b| (b, self.values[&b]))
    }
}

fn initial(block: u32) -> u64 {
    mix(123, block.into())
}

/// What was wrong with data.
pub(crate) type Faults = Arc<Mutex<Vec<String>>>;

/// Merges operands at one address, and tells which slice each has.
pub(crate) fn slices(operands: &[Operand], address: impl Fn(&Operand) -> u64) -> (Vec<host::Operand>, Vec<usize>) {
    let mut merged: Vec<host::Operand> = Vec::new();
    let slice_of = operands
        .iter()
        .map(|o| {
            let (address, bytes) = (address(o), o.bytes);
            let known = merged.iter().position(|m| (m.address, m.bytes) == (address, bytes));
            let slice = known.unwrap_or_else(|| {
                merged.push(host::Operand { address, bytes, write: false });
                merged.len() - 1
            });
            merged[slice].write |= o.write;
            slice
        })
        .collect();
    (merged, slice_of)
}

/// A backend behind which there is a host that kernels run on.
pub(crate) trait OnHost: Backend<Stream = host::Stream> {
    fn host(&self) -> &HostBackend;
}

impl OnHost for HostBackend {
    fn host(&self) -> &HostBackend {
        self
    }
}

/// Launches the kernel of an operator: checks all that it reads, and fills what it writes.
pub(crate) fn launch<B: OnHost>(
    host: &HostBackend,
    next: &Launch<'_, B>,
    launches: &Launches,
    ns: f64,
) -> Result<(), Error> {
    let operands = next.operands().to_vec();
    let (merged, slice_of) = slices(&operands, |o| next.address_of(o));
    let about = launches.about(next);
    host.launch(next.stream, ns, &merged, move |slices: &mut [Slice<'_>]| {
        let read = |(o, &slice): (&Operand, &usize)| if o.read { number(slices[slice].bytes()) } else { None };
        let numbers: Vec<_> = operands.iter().zip(&slice_of).map(read).collect();
        let outputs = outputs(&about, &operands, &numbers);
        for (seed, &slice) in outputs.iter().zip(&slice_of) {
            if let Some(seed) = seed {
                fill(*seed, slices[slice].bytes_mut());
            }
        }
    })
}

/// What an operator needs to know of its place in the network.
#[derive(Clone)]
pub(crate) struct About {
    op: Op,
    part: Part,
    iteration: u64,
    /// The persistent blocks that it updates.
    updated: Vec<u32>,
    /// By operand: what it reads; none where that is not said.
    expected: Vec<Option<u64>>,
    faults: Faults,
}

/// The network as it is launched.
pub(crate) struct Launches {
    pub(crate) updated: HashMap<Op, Vec<u32>>,
    pub(crate) seen: HashMap<(Op, u32), u64>,
    pub(crate) iteration: u64,
    pub(crate) faults: Faults,
}

impl Launches {
    pub(crate) fn about<B: Backend>(&self, next: &Launch<'_, B>) -> About {
        let first = if let Op::Rerun(k) = next.op { Op::First(k) } else { next.op };
        let expected = |o: &Operand| self.seen.get(&(next.op, o.block)).copied().filter(|_| o.read);
        About {
            op: next.op,
            part: next.part,
            iteration: self.iteration,
            updated: self.updated[&first].clone(),
            // An access outside operators has no number of its own by which it could be found.
            expected: next.operands().iter().map(|o| expected(o).filter(|_| next.op != Op::None)).collect(),
            faults: self.faults.clone(),
        }
    }
}

/// What an operator fills the blocks with that it writes, from the numbers of those that it reads. A block that is read and
/// holds something else than in the reference is a fault; but an operator may run again without its inputs, if nobody
/// uses what it yields.
pub(crate) fn outputs(about: &About, operands: &[Operand], numbers: &[Option<u64>]) -> Vec<Option<u64>> {
    let About { op, part, iteration, ref updated, ref expected, ref faults } = *about;
    let mut reads = Vec::new();
    let mut is_defined = true;
    for ((o, found), expected) in operands.iter().zip(numbers).zip(expected).filter(|((o, _), _)| o.read) {
        let found = found.map(|seed| if o.mask { seed ^ MASK } else { seed });
        if (found.is_none() || expected.is_some_and(|expected| found != Some(expected))) && !matches!(op, Op::Rerun(_))
        {
            let text = format!("iteration {iteration}, {op:?}: block {} (mask {}) is {found:?}", o.block, o.mask);
            faults.lock().unwrap().push(text);
        }
        is_defined &= found.is_some();
        reads.push((o.block, found.unwrap_or_default()));
    }
    let mut made: HashMap<u32, u64> = reads.iter().copied().collect();
    for o in operands.iter().filter(|o| o.write && !o.mask) {
        made.insert(o.block, output(op, iteration, o.block, &reads, updated));
    }
    let of = |o: &Operand| {
        assert!(part == Part::Whole || o.mask || !o.write);
        let seed = made.get(&o.block).copied().unwrap_or_default();
        let seed = if o.mask { seed ^ MASK } else { seed };
        o.write.then_some(if is_defined { seed } else { UNDEFINED })
    };
    operands.iter().map(of).collect()
}

/// Runs iterations and compares all that persists; what was wrong.
pub(crate) fn run<B: OnHost>(runtime: &mut Runtime<B>, trace: &Trace, iterations: u64) -> Result<Vec<String>, Error> {
    let mut reference = Reference::new(trace);
    reference.write(runtime)?;
    let mut launches = reference.launches();
    let host = runtime.backend().host().clone();
    // What is accessed outside operators is so by its block.
    let work = |op, block| (op, if op == Op::None { Some(block) } else { None });
    let mut times: HashMap<(Op, Option<u32>), f64> = HashMap::new();
    let mut before = 0;
    for r in trace.rows.iter().filter(|r| r.event.is_access()) {
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let passed = (r.time_ns - before) as f64;
        *times.entry(work(r.op, r.block)).or_default() += passed;
        before = r.time_ns;
    }
    for iteration in 0..iterations {
        launches.iteration = iteration;
        launches.seen = reference.iterate(iteration);
        runtime.iterate(|next| {
            let first = if let Op::Rerun(k) = next.op { Op::First(k) } else { next.op };
            let block = next.operands().first().map_or(0, |o| o.block);
            launch(&host, next, &launches, times[&work(first, block)])
        })?;
    }
    let mut found = reference.compare(runtime)?;
    found.append(&mut launches.faults.lock().unwrap());
    Ok(found)
}
