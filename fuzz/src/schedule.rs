//! Whether a rewritten trace computes what the original computes, row by row, with values that have names.

use std::collections::{HashMap, HashSet};

use sublet_core::trace::{Event, Op, Row};

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Initial(u32),
    Made(Op, u32),
}

/// Whether the rows can follow each other, where blocks are numbered below `blocks`.
pub fn well_formed(rows: &[Row], blocks: usize) -> bool {
    let (mut allocated, mut size) = (HashSet::new(), HashMap::new());
    rows.is_sorted_by_key(|r| r.time_ns)
        && rows.iter().all(|r| {
            let mut same_size = || r.bytes > 0 && *size.entry(r.block).or_insert(r.bytes) == r.bytes;
            (r.block as usize) < blocks
                && match r.event {
                    Event::Malloc => allocated.insert(r.block) && same_size(),
                    Event::Free => allocated.remove(&r.block),
                    _ => allocated.contains(&r.block),
                }
        })
}

/// Whether well-formed rows are as recorded: no copies, each block allocated once, operators in one piece.
pub fn recorded(rows: &[Row]) -> bool {
    let mut seen = HashSet::new();
    let once = rows.iter().filter(|r| r.event == Event::Malloc).all(|r| seen.insert(r.block));
    let mut done = HashSet::new();
    let mut accesses = rows.iter().filter(|r| r.event.is_access()).map(|r| r.op).collect::<Vec<_>>();
    accesses.dedup();
    let whole = accesses.iter().filter(|&&op| op != Op::None).all(|&op| done.insert(op));
    once && whole && !rows.iter().any(|r| matches!(r.event, Event::SwapIn | Event::SwapOut))
}

/// Whether `rewritten` computes what `original`, which is as recorded, computes.
pub fn computes_the_same(original: &[Row], rewritten: &[Row], cyclic: bool) -> bool {
    judge(original, rewritten, cyclic).is_some()
}

fn judge(original: &[Row], rewritten: &[Row], cyclic: bool) -> Option<()> {
    let freed: HashSet<u32> = original.iter().filter(|r| r.event == Event::Free).map(|r| r.block).collect();
    let mallocs = || original.iter().filter(|r| r.event == Event::Malloc);
    let size: HashMap<u32, u64> = mallocs().map(|r| (r.block, r.bytes)).collect();
    let persistent: HashSet<u32> =
        mallocs().filter(|r| r.time_ns == 0 && !freed.contains(&r.block)).map(|r| r.block).collect();

    // Each access of the original: its row, the value it reads or makes, and the row after its operator.
    let mut held: HashMap<u32, Value> = persistent.iter().map(|&b| (b, Value::Initial(b))).collect();
    let mut accesses = Vec::new();
    for (i, r) in original.iter().enumerate() {
        match r.event {
            Event::Free => drop(held.remove(&r.block)),
            Event::Write => drop(held.insert(r.block, Value::Made(r.op, r.block))),
            _ => {}
        }
        if r.event.is_access() {
            accesses.push((i, held.get(&r.block).copied()));
        }
    }
    let last_of = |op| original.iter().rposition(|r| r.event.is_access() && r.op == op).unwrap_or(0);

    let mut resident = HashSet::new();
    let (mut value, mut host): (HashMap<u32, Value>, HashMap<u32, Option<Value>>) = Default::default();
    let (mut at_start, mut initial_copy_used) = (HashSet::new(), HashSet::new());
    let mut next = 0;
    let mut copied = false;
    // Rows of the original between the accesses of the operator that has begun.
    let mut inside: Option<(usize, HashSet<u32>)> = None;
    for r in rewritten {
        let b = r.block;
        let known = *size.get(&b)?;
        let ok = match r.event {
            Event::Malloc => r.bytes == known && !resident.contains(&b),
            _ => resident.contains(&b),
        };
        let inside_ok = match (&inside, r.event) {
            (None, _) | (_, Event::Read | Event::Write) => true,
            (Some((_, own)), Event::Malloc | Event::Free) => own.contains(&b),
            _ => false,
        };
        if !ok || !inside_ok {
            return None;
        }
        match r.event {
            Event::Malloc => {
                resident.insert(b);
                if persistent.contains(&b) && next == 0 && !copied {
                    value.insert(b, Value::Initial(b));
                    at_start.insert(b);
                }
            }
            Event::Free => {
                resident.remove(&b);
                value.remove(&b);
            }
            Event::SwapOut => {
                copied = true;
                host.insert(b, value.get(&b).copied());
            }
            Event::SwapIn => {
                copied = true;
                let back = match host.get(&b) {
                    Some(&kept) => kept?,
                    None if cyclic && persistent.contains(&b) => {
                        initial_copy_used.insert(b);
                        Value::Initial(b)
                    }
                    None => return None,
                };
                value.insert(b, back);
            }
            Event::Read | Event::Write => {
                let &(i, expected) = accesses.get(next)?;
                next += 1;
                if (original[i].event, original[i].block, original[i].op) != (r.event, b, r.op) {
                    return None;
                }
                if inside.is_none() && r.op != Op::None {
                    let end = last_of(r.op);
                    let own = original[i..end].iter().filter(|r| !r.event.is_access()).map(|r| r.block).collect();
                    inside = Some((end, own));
                }
                inside = inside.filter(|&(end, _)| i < end);
                if r.event == Event::Write {
                    value.insert(b, Value::Made(r.op, b));
                } else if r.op != Op::None && value.get(&b).copied() != expected {
                    return None;
                }
            }
        }
    }
    let restored = |&b: &u32| {
        let last = held.get(&b).copied();
        let on_device = resident.contains(&b) && value.get(&b).copied() == last;
        let on_host = host.get(&b).copied().unwrap_or(Some(Value::Initial(b))) == last;
        if at_start.contains(&b) {
            on_device && (on_host || !initial_copy_used.contains(&b))
        } else {
            cyclic && on_host
        }
    };
    (next == accesses.len() && persistent.iter().all(restored)).then_some(())
}
