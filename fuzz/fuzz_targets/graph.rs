//! Static graphs, valid and invalid: their rows are those that a naive version of the definition writes; and blocks get
//! lifetimes that do not overlap only if they are never in use at once, in whatever order the operators run.
#![cfg_attr(fuzzing, no_main)]

use arbitrary::{Arbitrary, Result, Unstructured};
use sublet_core::trace::liveness::Residency;
use sublet_core::trace::{Event, Op, Row, parallel};
use sublet_core::trace::{Graph, Node, Storage, Tensor};
use sublet_core::{Block, Error};
use sublet_fuzz::scratch::Scratch;
use sublet_fuzz::{number, schedule};

#[derive(Debug)]
struct Operator {
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    workspace: u64,
    time_ns: u64,
    stream: u32,
}

#[derive(Debug)]
struct Input {
    tensors: Vec<Tensor>,
    operators: Vec<Operator>,
    streams: bool,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut tensors = Vec::new();
        for _ in 0..u.int_in_range(0..=12)? {
            let storage =
                *u.choose(&[Storage::Transient, Storage::Transient, Storage::Iteration, Storage::Persistent])?;
            let bytes = if u.ratio(15, 16)? { u.int_in_range(1..=9)? } else { number(u)? };
            tensors.push(Tensor { bytes, storage });
        }
        let count = tensors.len() as u32;
        let wild = u.ratio(1, 8)?;
        let any = |u: &mut Unstructured<'a>, below: u32| -> Result<u32> {
            Ok(if below > 0 && !(wild && u.ratio(1, 16)?) { u.int_in_range(0..=below - 1)? } else { u.arbitrary()? })
        };
        let mut operators = Vec::new();
        let streams = u.arbitrary()?;
        while operators.len() < 20 && !u.is_empty() && u.ratio(15, 16)? {
            let next = operators.len() as u32;
            // Mostly an operator makes a new tensor from earlier ones, or updates one: otherwise hardly any graph would
            // have an order.
            let there = if u.ratio(7, 8)? { count.min(next + 2) } else { count };
            let mut operands = |most| {
                let most = if there > 0 || wild { most } else { 0 };
                (0..u.int_in_range(0..=most)?).map(|_| any(u, there)).collect::<Result<Vec<u32>>>()
            };
            let (mut inputs, mut outputs) = (operands(4)?, operands(2)?);
            if !u.ratio(1, 32)? {
                if next + 2 < count {
                    outputs = vec![next + 2];
                    inputs.retain(|&t| t != next + 2);
                } else {
                    outputs.truncate(1);
                    inputs.extend(&outputs);
                }
            }
            operators.push(Operator {
                inputs,
                outputs,
                workspace: if u.ratio(1, 4)? { number(u)? } else { 0 },
                time_ns: if u.ratio(15, 16)? { u.int_in_range(0..=9)? } else { number(u)? },
                // A number as large as the number of operators, or larger, stands for no stream.
                stream: u.int_in_range(0..=next / 2 + 1)?,
            });
        }
        if u.ratio(1, 8)? {
            operators.reverse();
        }
        Ok(Self { tensors, operators, streams })
    }
}

sublet_fuzz::target!(|input: Input| {
    let Input { tensors, operators, streams } = &input;
    let nodes: Vec<Node<'_>> = operators
        .iter()
        .map(|o| Node { inputs: &o.inputs, outputs: &o.outputs, workspace: o.workspace, time_ns: o.time_ns })
        .collect();
    let graph = Graph { tensors, nodes: &nodes };
    let naive = Naive { graph };
    let mut rows = vec![Row::default(); graph.most_rows()];
    let mut scratch = Scratch::of(Graph::workspace(tensors.len(), nodes.len(), graph.operands()));
    let found = graph.rows(scratch.lend(), &mut rows).map(|n| &rows[..n]);
    let order = naive.order();
    match found {
        Err(Error::UnknownTensor { node, tensor }) => {
            assert!(tensor as usize >= tensors.len() && naive.uses(node as usize, tensor));
        }
        _ if naive.names_unknown() => panic!("{found:?}"),
        Err(Error::TwoWriters { tensor, first, second }) => {
            let [first, second] = [first as usize, second as usize];
            let twice = nodes[first].outputs.iter().filter(|&&t| t == tensor).count() > 1;
            let both = naive.produces(first, tensor) && naive.produces(second, tensor);
            assert!(if first == second { twice } else { both });
        }
        _ if naive.has_two_writers() => panic!("{found:?}"),
        Err(Error::Cycle { node }) => assert!(order.is_none() && naive.reaches(node as usize, node as usize)),
        Err(Error::ZeroSize { block }) => {
            let Tensor { bytes, storage } = tensors[block as usize];
            let used = (0..nodes.len()).any(|n| naive.uses(n, block));
            assert!(bytes == 0 && (used || storage == Storage::Persistent) && order.is_some());
        }
        Err(e) => panic!("{e}"),
        Ok(rows) => {
            let order = order.expect("what has an order");
            assert_eq!(rows, naive.rows(&order));
            assert!(schedule::well_formed(rows, graph.blocks()) && schedule::recorded(rows));
            let streams: Vec<u32> = operators.iter().filter(|_| *streams).map(|o| o.stream).collect();
            naive.share(&order, &streams);
        }
    }
});

/// A naive version of the definition of a graph's rows.
struct Naive<'a> {
    graph: Graph<'a>,
}

impl Naive<'_> {
    fn reads(&self, n: usize, t: u32) -> bool {
        self.graph.nodes[n].inputs.contains(&t)
    }

    fn writes(&self, n: usize, t: u32) -> bool {
        self.graph.nodes[n].outputs.contains(&t)
    }

    fn uses(&self, n: usize, t: u32) -> bool {
        self.reads(n, t) || self.writes(n, t)
    }

    /// Whether operator `n` produces tensor `t`. A tensor that is there before is updated and not produced.
    fn produces(&self, n: usize, t: u32) -> bool {
        self.writes(n, t) && !self.reads(n, t) && self.graph.tensors[t as usize].storage != Storage::Persistent
    }

    fn nodes(&self) -> std::ops::Range<usize> {
        0..self.graph.nodes.len()
    }

    fn tensors(&self) -> std::ops::Range<u32> {
        0..self.graph.tensors.len() as u32
    }

    fn names_unknown(&self) -> bool {
        let mut all = self.graph.nodes.iter().flat_map(|n| n.inputs.iter().chain(n.outputs));
        all.any(|&t| !self.tensors().contains(&t))
    }

    fn has_two_writers(&self) -> bool {
        let twice = |n: usize, t| self.graph.nodes[n].outputs.iter().filter(|&&o| o == t).count() > 1;
        self.tensors()
            .any(|t| self.nodes().any(|n| twice(n, t)) || self.nodes().filter(|&n| self.produces(n, t)).count() > 1)
    }

    /// Whether operator `a` has to run before operator `b` because of a tensor that both use: the one that produces the
    /// tensor comes first, and one that updates it keeps its place in the list.
    fn before(&self, a: usize, b: usize) -> bool {
        a != b
            && self.tensors().any(|t| {
                let both = self.uses(a, t) && self.uses(b, t);
                let in_list = (self.writes(a, t) || self.writes(b, t)) && a < b;
                both && (self.produces(a, t) || !self.produces(b, t) && in_list)
            })
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let (mut reached, mut i) = (vec![from], 0);
        while i < reached.len() {
            let next: Vec<usize> = self.nodes().filter(|&n| self.before(reached[i], n)).collect();
            if next.contains(&to) {
                return true;
            }
            reached.extend(next.into_iter().filter(|n| !reached.contains(n)).collect::<Vec<_>>());
            i += 1;
        }
        false
    }

    /// The order in which the operators run: each time the first in the list that no operator still left has to
    /// precede. `None` if there is no order.
    fn order(&self) -> Option<Vec<usize>> {
        if self.names_unknown() || self.has_two_writers() {
            return None;
        }
        let (mut order, mut left) = (Vec::new(), self.nodes().collect::<Vec<_>>());
        while let Some(i) = left.iter().position(|&n| !left.iter().any(|&m| self.before(m, n))) {
            order.push(left.remove(i));
        }
        left.is_empty().then_some(order)
    }

    fn workspace_of(&self, n: usize) -> u32 {
        let before = self.graph.nodes[..n].iter().filter(|n| n.workspace > 0).count();
        (self.graph.tensors.len() + before) as u32
    }

    fn rows(&self, order: &[usize]) -> Vec<Row> {
        let used = |t| self.nodes().any(|n| self.uses(n, t));
        let tensor = |t: u32| self.graph.tensors[t as usize];
        let mut rows = Vec::new();
        let mut now = 0u64;
        let row = |time_ns, event, block, bytes, op| Row { time_ns, bytes, block, op, event };
        let persistent = |t: &u32| tensor(*t).storage == Storage::Persistent;
        rows.extend(self.tensors().filter(persistent).map(|t| row(0, Event::Malloc, t, tensor(t).bytes, Op::None)));
        for t in self.tensors().filter(|t| !persistent(t) && used(*t)) {
            if !self.nodes().any(|n| self.produces(n, t)) {
                rows.push(row(0, Event::Malloc, t, tensor(t).bytes, Op::None));
                rows.push(row(0, Event::Write, t, 0, Op::None));
            }
        }
        for (i, &n) in order.iter().enumerate() {
            let (node, op) = (self.graph.nodes[n], Op::First(n as u32));
            for &t in node.outputs.iter().filter(|&&t| self.produces(n, t)) {
                rows.push(row(now, Event::Malloc, t, tensor(t).bytes, op));
            }
            for (k, &t) in node.inputs.iter().enumerate() {
                if !node.inputs[..k].contains(&t) {
                    rows.push(row(now, Event::Read, t, 0, op));
                }
            }
            let scratch = self.workspace_of(n);
            if node.workspace > 0 {
                rows.push(row(now, Event::Malloc, scratch, node.workspace, op));
            }
            now = now.saturating_add(node.time_ns);
            if node.workspace > 0 {
                rows.push(row(now, Event::Write, scratch, 0, op));
                rows.push(row(now, Event::Free, scratch, 0, op));
            }
            rows.extend(node.outputs.iter().map(|&t| row(now, Event::Write, t, 0, op)));
            let mut freed = Vec::new();
            for &t in node.inputs.iter().chain(node.outputs) {
                let later = order[i + 1..].iter().any(|&n| self.uses(n, t));
                if tensor(t).storage == Storage::Transient && !later && !freed.contains(&t) {
                    rows.push(row(now, Event::Free, t, 0, Op::None));
                    freed.push(t);
                }
            }
        }
        for t in self.tensors().filter(|&t| tensor(t).storage == Storage::Iteration && used(t)) {
            rows.push(row(now, Event::Free, t, 0, Op::None));
        }
        rows
    }

    /// Checks the lifetimes for operators that run at the same time.
    fn share(&self, order: &[usize], streams: &[u32]) {
        let Graph { tensors, nodes } = self.graph;
        let mut scratch = Scratch::of(parallel::workspace(tensors.len(), nodes.len(), self.graph.operands()));
        let most = self.graph.blocks();
        let (mut blocks, mut names) = (vec![Block::default(); most], vec![Residency::default(); most]);
        let found = parallel::lifetimes(&self.graph, streams, scratch.lend(), &mut blocks, &mut names);
        let n = match found {
            Ok(n) => n,
            Err(Error::SizeOverflow { .. }) => return,
            Err(e) => panic!("{e}"),
        };
        let users = |name: &Residency| -> Vec<usize> {
            let scratch = |&&n: &&usize| nodes[n].workspace > 0 && self.workspace_of(n) == name.block;
            let is_tensor = (name.block as usize) < tensors.len();
            let uses = |n: &&usize| if is_tensor { self.uses(**n, name.block) } else { scratch(n) };
            order.iter().filter(uses).copied().collect()
        };
        // The operators that have to be done before each operator, because of tensors and of streams.
        let place = |n: usize| order.iter().position(|&o| o == n).unwrap_or(usize::MAX);
        let streamed = |a: usize, b: usize| {
            streams.get(a).is_some_and(|&s| (s as usize) < nodes.len() && streams.get(b) == Some(&s))
                && place(a) < place(b)
        };
        let mut ancestors = vec![vec![false; nodes.len()]; nodes.len()];
        for (i, &b) in order.iter().enumerate() {
            for &a in &order[..i] {
                if self.before(a, b) || streamed(a, b) {
                    let of_a = ancestors[a].clone();
                    ancestors[b].iter_mut().zip(of_a).for_each(|(b, a)| *b |= a);
                    ancestors[b][a] = true;
                }
            }
        }
        for (a, name) in blocks[..n].iter().zip(&names) {
            let used = users(name);
            assert!(used.iter().all(|&n| (a.start..a.end).contains(&(place(n) as u32))), "{name:?} {a:?}");
            for (b, other) in blocks[..n].iter().zip(&names).filter(|(b, _)| a.end <= b.start) {
                let begins = users(other)[0];
                assert!(used.iter().all(|&n| ancestors[begins][n]), "{name:?} {a:?} and {other:?} {b:?}");
            }
        }
    }
}
