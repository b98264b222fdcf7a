//! Writes a plan into the metadata of a model, and its operators in another order.
//!
//! The old bytes stay as they are behind a new head, moved by a multiple of 16, so that weights keep their alignment;
//! writing the model anew would lose it. The head has a table Model of its own. Its fields lead to those of the old
//! one. Its vectors of buffers and of metadata have two more entries. `OfflineMemoryAllocation`: version 1, the number of
//! graphs, the number of offsets, and the offsets. `sublet`: a text with the kernels that the plan relies on. Operators are reordered by overwriting their vector. Some models
//! have weights behind the tables, at positions counted from the begin of the file: these numbers grow by the length
//! of the head.

use crate::failure::InputError;
use crate::input::tflite::flat::{Flat, FlatTable};
use crate::input::tflite::{BUFFERS, Far, GRAPHS, IDENTIFIER, KERNELS, METADATA, OPERATORS, PLAN, RECORD};

/// The number of fields of the table Model: the first is the version, the others are distances.
const FIELDS: usize = 10;
const ALIGNMENT: usize = 16;

/// The model with these offsets, one for each tensor, and the operators of its first graph in this order. `kernels` is
/// the name of those that the plan relies on.
///
/// # Errors
/// A file that is no model, or that distances of 32 bits cannot span; a field that is newer than this program.
pub(crate) fn splice(
    file: &str,
    model: &[u8],
    order: &[u32],
    offsets: &[i32],
    kernels: &str,
) -> Result<Vec<u8>, InputError> {
    let reordered = reorder(file, model, order)?;
    let flat = Flat::new(file, &reordered);
    let root = flat.root()?;
    if root.has_fields_from(FIELDS)? {
        return Err(
            flat.fault(root.at, "the model has fields that this version of sublet does not know: no plan is written")
        );
    }
    let mut head = Head::default();
    let entries = metadata(root)?;
    head.far = far(root)?;
    let buffers = root.vector(BUFFERS, 4)?;

    // The parts of the head: distance to the table, identifier, vtable, table.
    head.bytes.extend([0; 4]);
    head.bytes.extend(IDENTIFIER);
    let vtable_bytes = 4 + 2 * FIELDS;
    let vtable = head.reserve(vtable_bytes.next_multiple_of(4));
    let table = head.reserve(4 + 4 * FIELDS);
    head.set_distance(0, table);
    head.set_u16(vtable, vtable_bytes);
    head.set_u16(vtable + 2, 4 + 4 * FIELDS);
    head.set_u32(table, table - vtable);
    for field in 0..FIELDS {
        let slot = table + 4 + 4 * field;
        let old = root.field(field)?;
        if old.is_none() && field != 0 && field != METADATA {
            continue;
        }
        head.set_u16(vtable + 4 + 2 * field, slot - table);
        match (field, old) {
            (0, old) => head.set_u32(slot, old.map_or(Ok(3), |at| flat.u32(at))? as usize),
            (BUFFERS | METADATA, _) | (_, None) => {}
            (_, Some(at)) => head.links.push((slot, flat.follow(at)?)),
        }
    }
    let old = buffers.tables().map(|t| t.map(|t| t.at)).collect::<Result<_, _>>()?;
    let new_buffers = head.vector(table + 4 + 4 * BUFFERS, old);
    let new_entries = head.vector(table + 4 + 4 * METADATA, entries);
    let plan = plan(root.vector(GRAPHS, 4)?.len, offsets);
    let record = format!("{KERNELS}{kernels}");
    let contents = [(PLAN, plan.as_slice()), (RECORD, record.as_bytes())];
    for (((name, data), buffer), [slot, entry]) in
        contents.into_iter().zip(buffers.len..).zip([0, 4].map(|at| [new_buffers + at, new_entries + at]))
    {
        head.entry(entry, name, buffer);
        head.buffer(slot, data);
    }
    head.finish(flat, &reordered)
}

/// The weights and options that lie behind the model's tables, each once.
fn far(root: FlatTable<'_>) -> Result<Vec<Far>, InputError> {
    let mut found = Vec::new();
    for buffer in root.vector(BUFFERS, 4)?.tables() {
        found.extend(Far::of_buffer(buffer?)?);
    }
    for graph in root.vector(GRAPHS, 4)?.tables() {
        for operator in graph?.vector(OPERATORS, 4)?.tables() {
            found.extend(Far::of_operator(operator?)?);
        }
    }
    found.sort_unstable_by_key(|far| far.at);
    found.dedup();
    Ok(found)
}

/// The words of a plan.
fn plan(graphs: usize, offsets: &[i32]) -> Vec<u8> {
    let [graphs, count] = [graphs, offsets.len()].map(|n| i32::try_from(n).unwrap_or(i32::MAX));
    [1, graphs, count].iter().chain(offsets).flat_map(|word| word.to_le_bytes()).collect()
}

/// The entries of the metadata without an earlier plan.
fn metadata(root: FlatTable<'_>) -> Result<Vec<usize>, InputError> {
    let mut kept = Vec::new();
    for entry in root.vector(METADATA, 4)?.tables() {
        let entry = entry?;
        if ![PLAN, RECORD].contains(&entry.bytes(0)?) {
            kept.push(entry.at);
        }
    }
    Ok(kept)
}

/// The same bytes with the vector of the first graph's operators in another order; each entry is the distance to its
/// table.
fn reorder(file: &str, model: &[u8], order: &[u32]) -> Result<Vec<u8>, InputError> {
    let flat = Flat::new(file, model);
    let vector = flat.root()?.vector(GRAPHS, 4)?.table(0)?.vector(OPERATORS, 4)?;
    let tables: Vec<usize> = vector.tables().map(|t| t.map(|t| t.at)).collect::<Result<_, _>>()?;
    let mut bytes = model.to_vec();
    for (slot, &operator) in order.iter().enumerate() {
        let at = vector.at + 4 * slot;
        let distance = tables.get(operator as usize).and_then(|to| to.checked_sub(at));
        let distance = distance.and_then(|d| u32::try_from(d).ok()).filter(|_| order.len() == tables.len());
        let distance = distance.ok_or_else(|| flat.fault(at, "the operators cannot be put in another order"))?;
        bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
    }
    Ok(bytes)
}

/// The bytes before the old ones.
#[derive(Default)]
struct Head {
    bytes: Vec<u8>,
    /// Distances into the old bytes: where they stand, and to which old byte they lead.
    links: Vec<(usize, usize)>,
    /// What lies behind the old tables.
    far: Vec<Far>,
}

impl Head {
    fn reserve(&mut self, bytes: usize) -> usize {
        let at = self.bytes.len();
        self.bytes.resize(at + bytes, 0);
        at
    }

    /// Writes a number in 32 bits. It fits: all are lengths and distances in a file that `finish` refuses above 2 GiB.
    fn set_u32(&mut self, at: usize, value: usize) {
        self.bytes[at..at + 4].copy_from_slice(&u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes());
    }

    fn set_u16(&mut self, at: usize, value: usize) {
        self.bytes[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes());
    }

    fn set_distance(&mut self, at: usize, to: usize) {
        self.set_u32(at, to - at);
    }

    /// Adds a vector of old tables with room for two more; returns where the distance of the first of these stands.
    fn vector(&mut self, slot: usize, old: Vec<usize>) -> usize {
        let at = self.reserve(4 + 4 * (old.len() + 2));
        self.set_distance(slot, at);
        self.set_u32(at, old.len() + 2);
        let last = at + 4 + 4 * old.len();
        self.links.extend(old.into_iter().enumerate().map(|(i, to)| (at + 4 + 4 * i, to)));
        last
    }

    /// The table Metadata: a name, and the number of a buffer.
    fn entry(&mut self, slot: usize, text: &[u8], buffer: usize) {
        let vtable = self.reserve(8);
        for (i, value) in [8, 12, 4, 8].into_iter().enumerate() {
            self.set_u16(vtable + 2 * i, value);
        }
        let table = self.reserve(12);
        self.set_u32(table, table - vtable);
        self.set_u32(table + 8, buffer);
        self.set_distance(slot, table);
        let name = self.reserve((4 + text.len() + 1).next_multiple_of(4));
        self.set_distance(table + 4, name);
        self.set_u32(name, text.len());
        self.bytes[name + 4..name + 4 + text.len()].copy_from_slice(text);
    }

    /// Adds the table Buffer with these bytes, aligned as weights are.
    fn buffer(&mut self, slot: usize, data: &[u8]) {
        let vtable = self.reserve(8);
        for (i, value) in [6, 8, 4].into_iter().enumerate() {
            self.set_u16(vtable + 2 * i, value);
        }
        let table = self.reserve(8);
        self.set_u32(table, table - vtable);
        self.set_distance(slot, table);
        self.reserve((self.bytes.len() + 4).next_multiple_of(ALIGNMENT) - self.bytes.len() - 4);
        let len = self.reserve(4);
        self.set_distance(table + 4, len);
        self.set_u32(len, data.len());
        self.bytes.extend(data);
        self.reserve(self.bytes.len().next_multiple_of(4) - self.bytes.len());
    }

    /// Puts the head and the old bytes together.
    fn finish(mut self, flat: Flat<'_>, old: &[u8]) -> Result<Vec<u8>, InputError> {
        self.reserve(self.bytes.len().next_multiple_of(ALIGNMENT) - self.bytes.len());
        let len = self.bytes.len();
        // Runtimes read sums of distances as signed numbers.
        if i32::try_from(len + old.len()).is_err() {
            return Err(flat.fault(0, "with a plan the model would be larger than 2 GiB"));
        }
        for (at, to) in std::mem::take(&mut self.links) {
            self.set_u32(at, len + to - at);
        }
        self.bytes.extend(old);
        for Far { at, position, .. } in self.far {
            self.bytes[len + at..len + at + 8].copy_from_slice(&position.saturating_add(len as u64).to_le_bytes());
        }
        Ok(self.bytes)
    }
}
