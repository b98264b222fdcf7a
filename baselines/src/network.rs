//! A recorded iteration as operators, blocks and values.
//!
//! An *operator* is a group of rows: its accesses, with the mallocs before them and the frees after them; rows after the
//! last access are one more, without accesses. Between two operators lies a *boundary*: boundary o is before operator o.
//! A *version* is the value that a block holds from one write to the next. A block is *managed* if it is freed within the
//! trace and an operator writes each of its versions: whoever recomputes decides when it is there. *Local* blocks are
//! allocated and freed by one operator; all others are allocated and freed as recorded. Cost: O(rows).

use std::ops::Range;

use sublet_core::RowFault;
use sublet_core::trace::{Event, Op, Recorded, Row};
use sublet_core::{Error, owned};

pub(crate) struct Operator {
    /// Accesses, with mallocs before and frees after them.
    pub(crate) rows: Range<usize>,
    pub(crate) accesses: Range<usize>,
    pub(crate) op: Op,
    /// When its first access begins and its last ends, in ns.
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Recorded,
    Local,
    Managed,
}

#[derive(Clone, Copy)]
pub(crate) struct Reference {
    pub(crate) block: usize,
    pub(crate) version: usize,
    pub(crate) writes: bool,
    /// A persistent block that is read and written, like a running mean: a recomputation leaves it alone.
    pub(crate) updated: bool,
}

struct Version {
    writer: Option<usize>,
    /// The first operator that overwrites or frees the block.
    until: Option<usize>,
}

pub(crate) struct Network<'a> {
    pub(crate) recorded: Recorded<'a>,
    pub(crate) operators: Vec<Operator>,
    /// Operators with accesses.
    pub(crate) accessing: usize,
    pub(crate) size: Vec<u64>,
    pub(crate) persistent: Vec<bool>,
    pub(crate) owner: Vec<Owner>,
    pub(crate) references: Vec<Vec<Reference>>,
    versions: Vec<Version>,
    recomputable: Vec<bool>,
    /// The first operator after which it cannot be recomputed, as a block that it needs has changed.
    gone: Vec<Option<usize>>,
}

impl<'a> Network<'a> {
    /// `Error::Row` for a trace that is no recording.
    pub(crate) fn of(recorded: &Recorded<'a>) -> Result<Self, Error> {
        owned::lifetimes(recorded.rows, recorded.blocks)?;
        let (mut size, mut persistent) = (vec![0; recorded.blocks], vec![false; recorded.blocks]);
        for (row, r) in (0..).zip(recorded.rows) {
            let refuse = || Err(Error::Row { row, fault: RowFault::NotRecorded });
            match r.event {
                Event::SwapIn | Event::SwapOut => return refuse(),
                Event::Malloc if size[r.block as usize] > 0 => return refuse(),
                Event::Malloc => (size[r.block as usize], persistent[r.block as usize]) = (r.bytes, r.time_ns == 0),
                Event::Free => persistent[r.block as usize] = false,
                _ if matches!(r.op, Op::Rerun(_)) => return refuse(),
                _ => {}
            }
        }
        let operators = group(recorded.rows);
        let n = operators.len();
        let mut network = Self {
            recorded: *recorded,
            accessing: operators.iter().filter(|o| !o.accesses.is_empty()).count(),
            operators,
            owner: vec![Owner::Recorded; size.len()],
            size,
            persistent,
            references: vec![Vec::new(); n],
            versions: Vec::new(),
            recomputable: vec![false; n],
            gone: vec![None; n],
        };
        network.find_values();
        Ok(network)
    }

    fn find_values(&mut self) {
        #[derive(Clone, Copy, Default)]
        struct Seen {
            version: Option<usize>,
            read: Option<usize>,
            written: Option<usize>,
            allocated: Option<usize>,
            freed: Option<usize>,
        }
        let mut all = vec![Seen::default(); self.size.len()];
        for o in 0..self.operators.len() {
            let mut defined = true;
            for i in self.operators[o].rows.clone() {
                let r = self.recorded.rows[i];
                let block = r.block as usize;
                let seen = &mut all[block];
                let reads = r.event == Event::Read;
                match r.event {
                    Event::Malloc => seen.allocated = Some(o),
                    Event::Free => {
                        seen.freed = Some(o);
                        self.end(seen.version, o);
                    }
                    _ if seen.written == Some(o) || reads && seen.read == Some(o) => {}
                    _ => {
                        let version = seen.version.filter(|_| reads).unwrap_or_else(|| {
                            self.end(seen.version, o);
                            self.versions.push(Version { writer: (!reads).then_some(o), until: None });
                            self.versions.len() - 1
                        });
                        seen.version = Some(version);
                        *(if reads { &mut seen.read } else { &mut seen.written }) = Some(o);
                        self.references[o].push(Reference { block, version, writes: !reads, updated: false });
                        defined &= !reads || self.persistent[block] || self.versions[version].writer.is_some();
                    }
                }
            }
            let op = self.operators[o].op;
            self.recomputable[o] = defined && matches!(op, Op::First(_)) && self.recorded.operator(op).rerun;
            for r in &mut self.references[o] {
                let seen = all[r.block];
                r.updated = seen.read == Some(o) && seen.written == Some(o) && self.persistent[r.block];
            }
        }
        for (block, seen) in all.iter().enumerate().filter(|&(b, _)| !self.persistent[b]) {
            if seen.allocated.is_some() && seen.freed.is_some() {
                let owner = if seen.version.is_some() { Owner::Managed } else { Owner::Recorded };
                self.owner[block] = if seen.allocated == seen.freed { Owner::Local } else { owner };
            }
        }
        for r in self.references.iter().flatten() {
            if self.owner[r.block] == Owner::Managed && self.versions[r.version].writer.is_none() {
                self.owner[r.block] = Owner::Recorded;
            }
        }
        for o in 0..self.operators.len() {
            let fixed = |r: &&Reference| self.owner[r.block] == Owner::Recorded && !r.updated;
            let untils = self.references[o].iter().filter(fixed).filter_map(|r| self.versions[r.version].until);
            self.gone[o] = untils.min();
        }
    }

    fn end(&mut self, version: Option<usize>, operator: usize) {
        if let Some(version) = version.and_then(|v| self.versions.get_mut(v)) {
            version.until.get_or_insert(operator);
        }
    }

    pub(crate) fn accesses(&self, operator: usize) -> impl Iterator<Item = Row> + '_ {
        let rows = &self.recorded.rows[self.operators[operator].accesses.clone()];
        rows.iter().copied().filter(|r| r.event.is_access())
    }

    pub(crate) fn managed(&self, operator: usize) -> impl Iterator<Item = Reference> + '_ {
        self.references[operator].iter().copied().filter(|r| self.owner[r.block] == Owner::Managed)
    }

    pub(crate) fn duration(&self, operator: usize) -> u64 {
        self.operators[operator].end.saturating_sub(self.operators[operator].begin)
    }

    /// When compute reaches a boundary, in ns, if it never waits.
    pub(crate) fn time(&self, boundary: usize) -> u64 {
        boundary.checked_sub(1).map_or(0, |before| self.operators[before].end)
    }

    pub(crate) fn maker(&self, version: usize) -> Option<usize> {
        self.versions[version].writer.filter(|&o| self.recomputable[o])
    }

    pub(crate) fn is_recomputable(&self, operator: usize) -> bool {
        self.recomputable[operator]
    }

    pub(crate) fn may_recompute(&self, operator: usize, now: usize) -> bool {
        self.recomputable[operator] && self.gone[operator].is_none_or(|gone| gone >= now)
    }

    /// The bytes on the device while each operator runs.
    pub(crate) fn loads(&self) -> Vec<u64> {
        let mut present = 0u64;
        let load = |o: &Operator| {
            let mut most = present;
            for r in &self.recorded.rows[o.rows.clone()] {
                match r.event {
                    Event::Malloc => present = present.saturating_add(r.bytes),
                    Event::Free => present = present.saturating_sub(self.size[r.block as usize]),
                    _ => {}
                }
                most = most.max(present);
            }
            most
        };
        self.operators.iter().map(load).collect()
    }

    /// The rows of runs in an order, the recorded runs and recomputations (`true`). A value is allocated before its
    /// first access and freed after its last. None if a run reads a value that is not there.
    pub(crate) fn write(&self, runs: &[(usize, bool)]) -> Option<Vec<Row>> {
        // Backwards: the last run that accesses each value. A value begins where an operator writes its block unread.
        let begins =
            |o: usize, r: &Reference| r.writes && self.managed(o).all(|other| other.writes || other.block != r.block);
        let mut last = vec![None; self.size.len()];
        let mut until = vec![Vec::new(); runs.len()];
        for (i, &(o, _)) in runs.iter().enumerate().rev() {
            for r in self.managed(o) {
                last[r.block].get_or_insert(i);
            }
            until[i] = self.managed(o).filter(|r| begins(o, r)).map(|r| (r.block, last[r.block].take())).collect();
        }
        last.fill(None);
        let (mut out, mut holds, mut now, mut time_ns) = (Vec::new(), vec![None; self.size.len()], 0, 0);
        for (i, &(o, rerun)) in runs.iter().enumerate() {
            let missing = |r: Reference| !r.writes && holds[r.block] != Some(r.version);
            if self.managed(o).any(missing) || rerun && !self.may_recompute(o, now) {
                return None;
            }
            for &(block, end) in &until[i] {
                last[block] = end;
            }
            let op = self.operators[o].op;
            let op = if let (true, Op::First(k)) = (rerun, op) { Op::Rerun(k) } else { op };
            let row = |event, block: usize, op, time_ns| Row {
                time_ns,
                bytes: if event == Event::Malloc { self.size[block] } else { 0 },
                block: u32::try_from(block).unwrap_or(u32::MAX),
                op,
                event,
            };
            for r in self.managed(o).filter(|r| r.writes) {
                if holds[r.block].is_none() {
                    out.push(row(Event::Malloc, r.block, op, time_ns));
                }
                holds[r.block] = Some(r.version);
            }
            let updated = |block: u32| self.references[o].iter().any(|r| r.block == block as usize && r.updated);
            for &r in &self.recorded.rows[self.operators[o].rows.clone()] {
                let stays = match (r.event.is_access(), self.owner[r.block as usize]) {
                    (true, _) => !(rerun && updated(r.block)),
                    (false, Owner::Managed) => false,
                    (false, Owner::Recorded) => !rerun,
                    (false, Owner::Local) => true,
                };
                time_ns = if rerun { time_ns } else { r.time_ns };
                if stays {
                    let op = if r.op == Op::None { Op::None } else { op };
                    out.push(Row { time_ns, op, ..r });
                }
            }
            now = if rerun { now } else { o + 1 };
            for block in self.managed(o).map(|r| r.block).collect::<Vec<_>>() {
                if last[block] == Some(i) {
                    (last[block], holds[block]) = (None, None);
                    out.push(row(Event::Free, block, Op::None, time_ns));
                }
            }
        }
        (now == self.operators.len()).then_some(out)
    }
}

fn group(rows: &[Row]) -> Vec<Operator> {
    let (mut operators, mut begin, mut time) = (Vec::new(), 0, 0);
    while begin < rows.len() {
        let is_access = |&i: &usize| rows[i].event.is_access();
        let first = (begin..rows.len()).find(is_access).unwrap_or(rows.len());
        let op = rows.get(first).map_or(Op::None, |r| r.op);
        let mut last = first;
        if first < rows.len() {
            last += 1;
            for i in (last..rows.len()).filter(is_access).take_while(|&i| op != Op::None && rows[i].op == op) {
                last = i + 1;
            }
        }
        let end = (last..rows.len()).find(|&i| rows[i].event != Event::Free).unwrap_or(rows.len());
        let start = rows.get(first).map_or(time, |r| r.time_ns);
        time = last.checked_sub(1).filter(|_| first < last).map_or(time, |i| rows[i].time_ns);
        operators.push(Operator { rows: begin..end, accesses: first..last, op, begin: start, end: time });
        begin = end;
    }
    operators
}
