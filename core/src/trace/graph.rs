//! Makes the rows of a trace from a static graph, for frameworks that know their operators before they run and record
//! nothing, such as Caffe or `TFLite` Micro.
//!
//! A tensor is allocated when the operator that produces it begins, and freed when the last operator that uses it is
//! done: reference counts in topological order, as in `MXNet`'s note on memory.
//!
//! 1. The operators are put in topological order. A list that is in such an order keeps it, and operators keep their
//!    numbers.
//! 2. The rows at time 0 first allocate the persistent tensors ([`Storage::Persistent`]); then they allocate and write
//!    the tensors that operators use and none produces, which are the inputs of the iteration.
//! 3. Each operator allocates what it produces, reads its inputs and allocates its workspace: memory that it needs only
//!    while it runs. Then its time passes. Then it writes and frees the workspace, and writes its outputs. Then those
//!    of its inputs and outputs that no later operator needs are freed, in their order.
//! 4. At the end of the iteration, the tensors that have to last until then ([`Storage::Iteration`]) are freed, in
//!    their order.
//!
//! An operator that reads and writes the same tensor updates it in place, and gets no new memory for it. An operator
//! that may work in place, but need not, has two tensors, an input and an output. Each gets memory of its own here;
//! this module does not decide whether they share it.
//!
//! Cost: O(operands + operators · log operators) time, where the operands are the inputs and outputs of all operators;
//! memory linear in tensors, operators and operands.

use super::dependencies::{self, Dependencies};
use super::network::{Graph, Storage};
use super::{Event, Op, Row};
use crate::error::{Buffer, RowFault};
use crate::table::{Table, at, count};
use crate::{Error, Workspace, WorkspaceLen};

impl Graph<'_> {
    /// Length of the workspace for [`rows`](Self::rows), which writes the trace of a graph. `tensors` and `nodes` are how many tensors
    /// and operators the graph has, `operands` how many inputs and outputs all operators have together
    /// ([`operands`](Self::operands)).
    #[must_use]
    pub const fn workspace(tensors: usize, nodes: usize, operands: usize) -> WorkspaceLen {
        dependencies::workspace(tensors, nodes, operands).and(WorkspaceLen { words: 0, indices: 2 * tensors + nodes })
    }

    /// Writes the trace of a graph to `rows`; returns how many rows it has. In these rows `Op::First(k)` is the operator of
    /// index `k` in the graph.
    ///
    /// # Errors
    /// [`Error::UnknownTensor`] for an operand that is no tensor, [`Error::TwoWriters`] for a tensor that is produced
    /// twice, [`Error::Cycle`] if operators depend on each other in a cycle, [`Error::ZeroSize`] for a tensor of 0 bytes
    /// that is used or persistent; [`Error::TooManyBlocks`] for 2²⁸ or more tensors, operators or operands, [`Error::Row`]
    /// for 2³² or more rows; [`Error::BufferTooSmall`] if `rows` is shorter than [`most_rows`](Self::most_rows) or the workspace is
    /// too short.
    ///
    /// ```
    /// use sublet_core::trace::{Graph, Node, Storage, Tensor};
    /// use sublet_core::trace::{Event, liveness};
    /// use sublet_core::{Block, Workspace};
    ///
    /// // image ──► convolution ──► relu ──► scores
    /// let weights = Tensor { bytes: 864, storage: Storage::Persistent };
    /// let tensor = |bytes| Tensor { bytes, storage: Storage::Transient };
    /// let tensors = [tensor(3072), weights, tensor(32_768), tensor(32_768)];
    /// let convolution = Node { inputs: &[0, 1], outputs: &[2], workspace: 4096, time_ns: 900 };
    /// let relu = Node { inputs: &[2], outputs: &[3], ..Node::default() };
    /// let graph = Graph { tensors: &tensors, nodes: &[convolution, relu] };
    ///
    /// let len = Graph::workspace(4, 2, graph.operands());
    /// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    /// let mut rows = vec![Default::default(); graph.most_rows()];
    /// let n = graph.rows(Workspace::new(&mut words, &mut indices), &mut rows)?;
    /// let frees: Vec<u32> = rows[..n].iter().filter(|r| r.event == Event::Free).map(|r| r.block).collect();
    /// assert_eq!(frees, [4, 0, 2, 3]); // the workspace is block 4
    /// # Ok::<(), sublet_core::Error>(())
    /// ```
    pub fn rows(&self, mut scratch: Workspace<'_>, rows: &mut [Row]) -> Result<usize, Error> {
        let (tensors, nodes) = (self.tensors.len(), self.nodes.len());
        scratch.check(Self::workspace(tensors, nodes, self.operands()))?;
        let needed = self.most_rows();
        if rows.len() < needed {
            return Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed, got: rows.len() });
        }
        if u32::try_from(needed).is_err() {
            return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
        }
        let dependencies = Dependencies::new(self, &mut scratch)?;
        let mut writer = Writer {
            graph: self,
            rows: Table::new(rows),
            len: 0,
            time_ns: 0,
            users: scratch.indices(tensors),
            seen: scratch.indices(tensors),
        };
        let mut workspaces = scratch.indices(nodes);
        let mut blocks = count(self.tensors);
        for (node, n) in (0..).zip(self.nodes) {
            workspaces[node] = blocks;
            blocks += u32::from(n.workspace > 0);
        }
        writer.given(&dependencies)?;
        for &node in dependencies.order() {
            writer.run(node, workspaces[node], &dependencies);
        }
        for (tensor, t) in (0..).zip(self.tensors) {
            if t.storage == Storage::Iteration && dependencies.users(tensor) > 0 {
                writer.push(Event::Free, tensor, Op::None);
            }
        }
        Ok(usize::try_from(writer.len).unwrap_or_default())
    }

    /// Adds a last operator to the trace of a graph. The operator reads all results, so that they are together on the
    /// device at the end even if the trace is rewritten. The results are the tensors that last to the end of the iteration
    /// ([`Storage::Iteration`]) and that an operator uses. The first `len` elements of `rows` are the trace, as [`rows`](Self::rows)
    /// has written it. The new operator takes no time; its number is the number of operators in the graph. Returns the new
    /// length of the trace: `len` plus the number of results. O(`len`).
    ///
    /// If the trace is to be rewritten, the new operator has to be [ordered](super::Operator::ordered), as operators are by
    /// default: it then keeps its place after the other ordered operators. An operator whose outputs nobody reads has to be
    /// ordered too, since it could otherwise run after the new operator.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] with the length that is needed, if `rows` has no room for the reads.
    ///
    /// ```
    /// use sublet_core::trace::{Graph, Node, Storage, Tensor};
    /// use sublet_core::Workspace;
    /// use sublet_core::trace::{Event, Op, Row};
    /// let result = Tensor { bytes: 8, storage: Storage::Iteration };
    /// let graph = Graph { tensors: &[result; 2], nodes: &[Node { outputs: &[0, 1], ..Node::default() }] };
    /// let len = Graph::workspace(2, 1, graph.operands());
    /// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    /// let mut rows = vec![Row::default(); graph.most_rows()];
    /// let n = graph.rows(Workspace::new(&mut words, &mut indices), &mut rows)?;
    /// rows.resize(n + 2, Row::default());
    /// assert_eq!(graph.read_results(&mut rows, n)?, n + 2);
    /// let reads = rows.iter().filter(|row| row.event == Event::Read).map(|row| (row.op, row.block));
    /// assert!(reads.eq([(Op::First(1), 0), (Op::First(1), 1)]));
    /// # Ok::<(), sublet_core::Error>(())
    /// ```
    pub fn read_results(&self, rows: &mut [Row], len: usize) -> Result<usize, Error> {
        let got = rows.len();
        let too_short = |needed| Error::BufferTooSmall { buffer: Buffer::Rows, needed, got };
        let (trace, free) = rows.split_at_mut_checked(len).ok_or(too_short(len))?;
        let is_result = |row: &&Row| {
            let tensor = usize::try_from(row.block).ok().and_then(|block| self.tensors.get(block));
            row.event == Event::Free && tensor.is_some_and(|tensor| tensor.storage == Storage::Iteration)
        };
        // The trace ends with the frees of the results.
        let results = trace.iter().rev().take_while(is_result).count();
        let needed = len.saturating_add(results);
        if needed > got {
            return Err(too_short(needed));
        }
        let op = Op::First(count(self.nodes));
        for (read, row) in free.iter_mut().zip(trace.iter().skip(len - results)) {
            *read = Row { event: Event::Read, op, ..*row };
        }
        // The reads stand behind the frees now: they go before them.
        let end = rows.get_mut(len - results..needed).unwrap_or_default();
        end.rotate_left(results.min(end.len()));
        Ok(needed)
    }
}

struct Writer<'a, 'g> {
    graph: &'g Graph<'g>,
    rows: Table<'a, Row>,
    len: u32,
    time_ns: u64,
    users: Table<'a, u32>,
    /// 1 + the operator that used the tensor last; 0 if none has, or after its free.
    seen: Table<'a, u32>,
}

impl Writer<'_, '_> {
    /// Only a block allocated before the first access counts as holding its earlier value.
    fn given(&mut self, dependencies: &Dependencies<'_>) -> Result<(), Error> {
        for (tensor, t) in (0..).zip(self.graph.tensors) {
            self.users[tensor] = dependencies.users(tensor);
            let persistent = t.storage == Storage::Persistent;
            if t.bytes == 0 && (persistent || self.users[tensor] > 0) {
                return Err(Error::ZeroSize { block: tensor });
            }
            if persistent {
                self.malloc(tensor, t.bytes, Op::None);
            }
        }
        for (tensor, t) in (0..).zip(self.graph.tensors) {
            let used = t.storage != Storage::Persistent && self.users[tensor] > 0;
            if used && dependencies.producer(tensor).is_none() {
                self.malloc(tensor, t.bytes, Op::None);
                self.push(Event::Write, tensor, Op::None);
            }
        }
        Ok(())
    }

    fn run(&mut self, node: u32, workspace: u32, dependencies: &Dependencies<'_>) {
        let (n, op) = (at(self.graph.nodes, node), Op::First(node));
        for &tensor in n.outputs {
            if dependencies.producer(tensor) == Some(node) {
                self.malloc(tensor, at(self.graph.tensors, tensor).bytes, op);
            }
        }
        for &tensor in n.inputs {
            if self.seen[tensor] != node + 1 {
                self.push(Event::Read, tensor, op);
                self.seen[tensor] = node + 1;
                self.users[tensor] -= 1;
            }
        }
        if n.workspace > 0 {
            self.malloc(workspace, n.workspace, op);
        }
        self.time_ns = self.time_ns.saturating_add(n.time_ns);
        if n.workspace > 0 {
            self.push(Event::Write, workspace, op);
            self.push(Event::Free, workspace, op);
        }
        for &tensor in n.outputs {
            self.push(Event::Write, tensor, op);
            if self.seen[tensor] != node + 1 {
                self.seen[tensor] = node + 1;
                self.users[tensor] -= 1;
            }
        }
        for &tensor in n.inputs.iter().chain(n.outputs) {
            let done = self.users[tensor] == 0 && self.seen[tensor] == node + 1;
            if done && at(self.graph.tensors, tensor).storage == Storage::Transient {
                self.push(Event::Free, tensor, Op::None);
                // A tensor that is named twice is freed once.
                self.seen[tensor] = 0;
            }
        }
    }

    fn malloc(&mut self, block: u32, bytes: u64, op: Op) {
        self.push(Event::Malloc, block, op);
        self.rows[self.len - 1].bytes = bytes;
    }

    fn push(&mut self, event: Event, block: u32, op: Op) {
        self.rows[self.len] = Row { time_ns: self.time_ns, bytes: 0, block, op, event };
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::network::{Node, Tensor};
    use super::*;
    use crate::Block;
    use crate::trace::liveness::{self, Residency};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    /// For each operator: the tensors read, the tensors written, the bytes of its workspace.
    type List = Vec<(Vec<u32>, Vec<u32>, u64)>;

    fn trace(tensors: &[Tensor], list: &List) -> Result<Vec<Row>, Error> {
        let nodes: Vec<Node<'_>> =
            list.iter().map(|(inputs, outputs, w)| Node { inputs, outputs, workspace: *w, time_ns: 3 }).collect();
        let graph = Graph { tensors, nodes: &nodes };
        let len = Graph::workspace(tensors.len(), nodes.len(), graph.operands());
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        let mut to = vec![Row::default(); graph.most_rows()];
        let n = graph.rows(Workspace::new(&mut words, &mut indices), &mut to)?;
        to.truncate(n);
        Ok(to)
    }

    fn transient(n: usize) -> Vec<Tensor> {
        vec![Tensor { bytes: 8, storage: Storage::Transient }; n]
    }

    fn order(rows: &[Row]) -> Vec<u32> {
        let mut order = Vec::new();
        for r in rows {
            if let Op::First(k) = r.op
                && order.last() != Some(&k)
            {
                order.push(k);
            }
        }
        order
    }

    #[test]
    fn rows_stand_as_recorders_write_them() {
        let tensors = [
            Tensor { bytes: 10, storage: Storage::Transient },
            Tensor { bytes: 20, storage: Storage::Persistent },
            Tensor { bytes: 30, storage: Storage::Iteration },
        ];
        let found = trace(&tensors, &vec![(vec![0, 1], vec![2], 40), (vec![2, 1], vec![1], 0)]).unwrap();
        let row = |time_ns, event, block, bytes, op| Row { time_ns, bytes, block, op, event };
        let (first, second) = (Op::First(0), Op::First(1));
        let expected = [
            row(0, Event::Malloc, 1, 20, Op::None),
            row(0, Event::Malloc, 0, 10, Op::None),
            row(0, Event::Write, 0, 0, Op::None),
            row(0, Event::Malloc, 2, 30, first),
            row(0, Event::Read, 0, 0, first),
            row(0, Event::Read, 1, 0, first),
            row(0, Event::Malloc, 3, 40, first),
            row(3, Event::Write, 3, 0, first),
            row(3, Event::Free, 3, 0, first),
            row(3, Event::Write, 2, 0, first),
            row(3, Event::Free, 0, 0, Op::None),
            row(3, Event::Read, 2, 0, second),
            row(3, Event::Read, 1, 0, second),
            row(6, Event::Write, 1, 0, second),
            row(6, Event::Free, 2, 0, Op::None),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn all_results_are_read_at_the_end() {
        let of = |storage| Tensor { bytes: 8, storage };
        let [transient, result] = [of(Storage::Transient), of(Storage::Iteration)];
        let tensors = [result, transient, result, of(Storage::Persistent), result, result];
        // Tensor 5 is used by no operator: it is no result.
        let nodes = [
            Node { outputs: &[0, 1], ..Node::default() },
            Node { inputs: &[1, 3], outputs: &[2, 4], ..Node::default() },
        ];
        let graph = Graph { tensors: &tensors, nodes: &nodes };
        let len = Graph::workspace(tensors.len(), nodes.len(), graph.operands());
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        let mut to = vec![Row::default(); graph.most_rows() + 3];
        let n = graph.rows(Workspace::new(&mut words, &mut indices), &mut to).unwrap();
        let before = to[..n].to_vec();
        assert_eq!(
            graph.read_results(&mut to[..n + 2], n),
            Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed: n + 3, got: n + 2 })
        );
        assert_eq!(graph.read_results(&mut to, n), Ok(n + 3));
        let reads = to[n - 3..n].iter().map(|r| (r.event, r.block, r.op));
        assert!(reads.eq([0, 2, 4].map(|block| (Event::Read, block, Op::First(2)))), "{to:?}");
        assert_eq!([&to[..n - 3], &to[n..n + 3]].concat(), before);
    }

    #[test]
    fn a_list_is_sorted_and_updates_keep_their_place() {
        // The operators are listed backwards; tensor 1 is updated in place between its two readers.
        let list = vec![(vec![1], vec![2], 0), (vec![1], vec![1], 0), (vec![1], vec![3], 0), (vec![0], vec![1], 0)];
        assert_eq!(order(&trace(&transient(4), &list).unwrap()), [3, 0, 1, 2]);
    }

    #[test]
    fn faults_are_named() {
        let fails = |n, list: List| trace(&transient(n), &list).unwrap_err();
        assert_eq!(
            fails(1, vec![(vec![], vec![0], 0), (vec![1], vec![], 0)]),
            Error::UnknownTensor { node: 1, tensor: 1 }
        );
        let twice = vec![(vec![], vec![0], 0), (vec![0], vec![], 0), (vec![], vec![0], 0)];
        assert_eq!(fails(1, twice), Error::TwoWriters { tensor: 0, first: 0, second: 2 });
        assert_eq!(fails(1, vec![(vec![], vec![0, 0], 0)]), Error::TwoWriters { tensor: 0, first: 0, second: 0 });
        // Operators 1 and 2 wait for each other; operator 0 waits for both, and is on no cycle.
        let cycle = vec![(vec![2], vec![3], 0), (vec![1], vec![2], 0), (vec![2], vec![1], 0)];
        assert_eq!(fails(4, cycle), Error::Cycle { node: 1 });
        let empty = [Tensor { bytes: 0, storage: Storage::Transient }];
        assert_eq!(trace(&empty, &vec![(vec![], vec![0], 0)]), Err(Error::ZeroSize { block: 0 }));
        // A tensor that no operator uses takes no memory.
        assert_eq!(trace(&empty, &vec![(vec![], vec![], 0)]), Ok(vec![]));
    }

    #[test]
    fn too_little_memory_says_how_much() {
        let tensors = transient(2);
        let nodes = [Node { inputs: &[0], outputs: &[1], workspace: 1, time_ns: 0 }];
        let graph = Graph { tensors: &tensors, nodes: &nodes };
        let len = Graph::workspace(2, 1, 2);
        let mut to = vec![Row::default(); graph.most_rows()];
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        for n in 0..len.indices {
            let short = graph.rows(Workspace::new(&mut words, &mut indices[..n]), &mut to);
            assert_eq!(short, Err(Error::BufferTooSmall { buffer: Buffer::Indices, needed: len.indices, got: n }));
        }
        let needed = to.len();
        let short = graph.rows(Workspace::new(&mut words, &mut indices), &mut to[1..]);
        assert_eq!(short, Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed, got: needed - 1 }));
    }

    fn before(tensors: &[Tensor], list: &List, a: usize, b: usize) -> bool {
        let accesses = |n: usize, t: u32| {
            let (inputs, outputs, _) = &list[n];
            (inputs.contains(&t), outputs.contains(&t))
        };
        (0..).zip(tensors).any(|(t, tensor)| {
            let persistent = tensor.storage == Storage::Persistent;
            let ([ra, wa], [rb, wb]) = (<[bool; 2]>::from(accesses(a, t)), <[bool; 2]>::from(accesses(b, t)));
            if a == b || !(ra || wa) || !(rb || wb) {
                return false;
            }
            let (produces_a, produces_b) = (wa && !ra && !persistent, wb && !rb && !persistent);
            produces_a || !produces_b && (wa || wb) && a < b
        })
    }

    fn any_graph() -> impl Strategy<Value = (Vec<Tensor>, List)> {
        let storage =
            prop_oneof![4 => Just(Storage::Transient), 1 => Just(Storage::Iteration), 1 => Just(Storage::Persistent)];
        let tensors =
            prop::collection::vec((1u64..9, storage).prop_map(|(bytes, storage)| Tensor { bytes, storage }), 1..8);
        tensors.prop_flat_map(|tensors| {
            let n = u32::try_from(tensors.len()).unwrap();
            let inputs = prop::collection::vec(0..n, 0..4);
            let outputs = prop::collection::btree_set(0..n, 0..3).prop_map(|set| set.into_iter().collect::<Vec<u32>>());
            let list = prop::collection::vec((inputs, outputs, 0u64..2), 0..9);
            (Just(tensors), list)
        })
    }

    proptest! {
        #[test]
        fn order_and_lifetimes_are_those_of_the_definition((tensors, list) in any_graph()) {
            let produces = |n: &usize, t: u32| list[*n].1.contains(&t) && !list[*n].0.contains(&t);
            let transients = (0..).zip(&tensors).filter(|(_, t)| t.storage != Storage::Persistent);
            let crowded = transients.clone().any(|(t, _)| (0..list.len()).filter(|n| produces(n, t)).count() > 1);
            let found = trace(&tensors, &list);
            if crowded {
                let two_writers = matches!(found, Err(Error::TwoWriters { .. }));
                prop_assert!(two_writers);
                return Ok(());
            }
            // The first operator in `left` that has to wait for no other in `left` runs next.
            let mut expected = Vec::new();
            let mut left: Vec<usize> = (0..list.len()).collect();
            while let Some(i) = left.iter().position(|&n| !left.iter().any(|&m| before(&tensors, &list, m, n))) {
                expected.push(left.remove(i));
            }
            if !left.is_empty() {
                let Err(Error::Cycle { node }) = found else { panic!("{found:?}") };
                // Over others, the operator that the error names has to wait for itself.
                let mut reached: Vec<usize> = vec![node as usize];
                let mut i = 0;
                while i < reached.len() {
                    let next: Vec<usize> = left.iter().copied().filter(|&n| before(&tensors, &list, reached[i], n)).collect();
                    prop_assert!(i > 0 || !next.is_empty());
                    if next.contains(&(node as usize)) {
                        return Ok(());
                    }
                    reached.extend(next.into_iter().filter(|n| !reached.contains(n)).collect::<Vec<_>>());
                    i += 1;
                }
                panic!("{node} is on no cycle");
            }
            let found = found.unwrap();
            let ran: Vec<usize> = order(&found).into_iter().map(|k| k as usize).collect();
            let visible = |n: &&usize| !list[**n].0.is_empty() || !list[**n].1.is_empty() || list[**n].2 > 0;
            prop_assert_eq!(&ran, &expected.iter().filter(visible).copied().collect::<Vec<_>>());

            let count = tensors.len() + list.iter().filter(|n| n.2 > 0).count();
            let residencies = liveness::residencies(&found);
            let (mut blocks, mut names) = (vec![Block::default(); residencies], vec![Residency::default(); residencies]);
            let len = liveness::workspace(count);
            let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
            liveness::lifetimes(&found, count, Workspace::new(&mut words, &mut indices), &mut blocks, &mut names).unwrap();
            let lives: BTreeMap<u32, Block> = names.iter().map(|n| n.block).zip(blocks).collect();
            for (t, tensor) in (0..).zip(&tensors) {
                let users: Vec<usize> = (0..ran.len()).filter(|&i| list[ran[i]].0.contains(&t) || list[ran[i]].1.contains(&t)).collect();
                let Some(life) = lives.get(&t) else {
                    prop_assert!(users.is_empty() && tensor.storage != Storage::Persistent);
                    continue;
                };
                // Whether an operator has accesses, and the tensor is alive at all of them.
                let alive = |ran: usize| {
                    let own = (0..).zip(&found).filter(|(_, r)| r.event.is_access() && r.op == Op::First(u32::try_from(ran).unwrap()));
                    own.clone().all(|(i, _)| (life.start..life.end).contains(&i)) && own.count() > 0
                };
                let produced = |i: usize| tensor.storage != Storage::Persistent && produces(&ran[i], t);
                let first = users.first().copied().filter(|&i| produced(i));
                let last = if tensor.storage == Storage::Transient { users.last().copied() } else { ran.len().checked_sub(1) };
                for (k, &ran) in ran.iter().enumerate() {
                    prop_assert_eq!(alive(ran), k >= first.unwrap_or(0) && Some(k) <= last, "tensor {} operator {}", t, ran);
                }
            }
        }
    }
}
