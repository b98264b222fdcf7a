//! Lifetimes for operators that run at the same time. Random graphs are placed and run with data, in random orders and
//! with random overlap: when an operator ends, its inputs must be what was written, to the last byte.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use sublet_core::place::Solver;
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Graph, Node, Storage, Tensor};
use sublet_core::trace::{Row, parallel};
use sublet_core::{Block, Workspace};
use sublet_models::{Lstm, Network, ResNet, Roofline, Setting};
use sublet_tests::instance;

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap()
}

/// A random graph.
struct Drawn {
    tensors: Vec<Tensor>,
    operators: Vec<(Vec<u32>, Vec<u32>, u64)>,
}

impl Drawn {
    /// Draws operators that read some tensors, update some of them, and produce one or two.
    fn random(rng: &mut Xoshiro256PlusPlus) -> Self {
        let mut tensors: Vec<Tensor> = Vec::new();
        let tensor = |rng: &mut Xoshiro256PlusPlus| {
            let storage =
                [Storage::Transient, Storage::Transient, Storage::Transient, Storage::Iteration, Storage::Persistent];
            Tensor { bytes: rng.random_range(1..5), storage: storage[rng.random_range(0..5)] }
        };
        for _ in 0..rng.random_range(1..3) {
            tensors.push(tensor(rng));
        }
        let mut operators = Vec::new();
        for _ in 0..rng.random_range(1..14) {
            let there = u32::try_from(tensors.len()).unwrap();
            let inputs: Vec<u32> = (0..rng.random_range(0..3)).map(|_| rng.random_range(0..there)).collect();
            let mut outputs = Vec::new();
            if rng.random_ratio(1, 5) {
                outputs.extend(inputs.first());
            }
            for _ in 0..rng.random_range(0..3) {
                outputs.push(u32::try_from(tensors.len()).unwrap());
                let mut produced = tensor(rng);
                if produced.storage == Storage::Persistent {
                    produced.storage = Storage::Transient;
                }
                tensors.push(produced);
            }
            operators.push((inputs, outputs, rng.random_range(0..2) * rng.random_range(1..4)));
        }
        Self { tensors, operators }
    }

    fn of(network: &Network) -> Self {
        let operators = network.operators.iter().map(|o| (o.inputs.clone(), o.outputs.clone(), o.workspace));
        Self { tensors: network.tensors.clone(), operators: operators.collect() }
    }

    fn with<T>(&self, f: impl FnOnce(&Graph<'_>) -> T) -> T {
        let nodes: Vec<Node<'_>> = self
            .operators
            .iter()
            .map(|(inputs, outputs, workspace)| Node { inputs, outputs, workspace: *workspace, time_ns: 1 })
            .collect();
        f(&Graph { tensors: &self.tensors, nodes: &nodes })
    }

    /// The lifetimes of the blocks that hold for every order of the operators, and the number of each block in the
    /// graph.
    fn parallel(&self, streams: &[u32]) -> (Vec<Block>, Vec<Residency>) {
        self.with(|graph| {
            let len = parallel::workspace(graph.tensors.len(), graph.nodes.len(), graph.operands());
            let (mut words, mut indices) = (vec![3; len.words], vec![3; len.indices]);
            let mut blocks = vec![Block::default(); graph.blocks()];
            let mut names = vec![Residency::default(); graph.blocks()];
            let lent = Workspace::new(&mut words, &mut indices);
            let n = parallel::lifetimes(graph, streams, lent, &mut blocks, &mut names).unwrap();
            blocks.truncate(n);
            names.truncate(n);
            (blocks, names)
        })
    }

    /// The stream of each operator: `paths` streams, by the longest paths of the graph.
    fn longest_paths(&self, paths: u32) -> Vec<u32> {
        self.with(|graph| {
            let len = parallel::paths_workspace(graph.tensors.len(), graph.nodes.len(), graph.operands());
            let (mut words, mut indices) = (vec![3; len.words], vec![3; len.indices]);
            let mut streams = vec![0; graph.nodes.len()];
            parallel::longest_paths(graph, paths, Workspace::new(&mut words, &mut indices), &mut streams).unwrap();
            streams
        })
    }

    /// As [`parallel`](Self::parallel), but the lifetimes hold only if the operators run one after the other, in the
    /// order of the list.
    fn serial(&self) -> (Vec<Block>, Vec<Residency>) {
        self.with(|graph| {
            let len = Graph::workspace(graph.tensors.len(), graph.nodes.len(), graph.operands());
            let (mut words, mut indices) = (vec![3; len.words], vec![3; len.indices]);
            let mut rows = vec![Row::default(); graph.most_rows()];
            let n = graph.rows(Workspace::new(&mut words, &mut indices), &mut rows).unwrap();
            rows.truncate(n);
            let n = liveness::residencies(&rows);
            let (mut blocks, mut names) = (vec![Block::default(); n], vec![Residency::default(); n]);
            let len = liveness::workspace(graph.blocks());
            let (mut words, mut indices) = (vec![3; len.words], vec![3; len.indices]);
            let lent = Workspace::new(&mut words, &mut indices);
            liveness::lifetimes(&rows, graph.blocks(), lent, &mut blocks, &mut names).unwrap();
            (blocks, names)
        })
    }

    /// For each operator, those that have to be done before it begins, by the definition: because of a tensor, or
    /// because they are before it on the same stream. The operators of a drawn graph are listed in topological order.
    fn before(&self, streams: &[u32]) -> Vec<Vec<usize>> {
        let produces = |n: usize, t: u32| {
            let (inputs, outputs, _) = &self.operators[n];
            outputs.contains(&t) && !inputs.contains(&t) && self.tensors[t as usize].storage != Storage::Persistent
        };
        let waits = |a: usize, b: usize| {
            (0..u32::try_from(self.tensors.len()).unwrap()).any(|t| {
                let [(ra, wa), (rb, wb)] =
                    [a, b].map(|n| (self.operators[n].0.contains(&t), self.operators[n].1.contains(&t)));
                let touched = (ra || wa) && (rb || wb);
                touched && (produces(a, t) || !produces(b, t) && (wa || wb) && a < b)
            })
        };
        let n = self.operators.len();
        let behind = |a: usize, b: usize| a < b && streams.get(a).is_some_and(|s| *s < number(n) && *s == streams[b]);
        (0..n).map(|b| (0..n).filter(|&a| a != b && (waits(a, b) || behind(a, b))).collect()).collect()
    }

    /// Runs the operators in a random order that the dependencies allow, some at the same time, in memory in which each
    /// tensor and workspace lies at its offset. Returns whether every value and every workspace was intact when it was
    /// needed.
    fn run(&self, streams: &[u32], offsets: &[Option<u64>], rng: &mut Xoshiro256PlusPlus) -> bool {
        #[derive(Clone, Copy, PartialEq)]
        enum Is {
            Waiting,
            Running,
            Done,
        }
        let before = self.before(streams);
        let workspace = |n: usize| self.tensors.len() + self.operators[..n].iter().filter(|o| o.2 > 0).count();
        let bytes =
            |b: usize, n: usize| if b < self.tensors.len() { self.tensors[b].bytes } else { self.operators[n].2 };
        let mut memory = vec![0u32; 4096];
        let mut version = vec![1u32; self.tensors.len()];
        let cells = |b: usize, n: usize| {
            let from = usize::try_from(offsets[b].unwrap()).unwrap();
            from..from + usize::try_from(bytes(b, n)).unwrap()
        };
        let mark = |b: usize, version: u32| u32::try_from(b).unwrap() * 1000 + version;
        for t in 0..self.tensors.len() {
            let used = self.operators.iter().any(|o| o.0.contains(&number(t)) || o.1.contains(&number(t)));
            let produced = (0..self.operators.len()).any(|n| {
                let (inputs, outputs, _) = &self.operators[n];
                outputs.contains(&number(t)) && !inputs.contains(&number(t))
            });
            if used && (!produced || self.tensors[t].storage == Storage::Persistent) {
                memory[cells(t, 0)].fill(mark(t, 1));
            }
        }
        let mut is = vec![Is::Waiting; self.operators.len()];
        loop {
            let ready = |n: &usize| match is[*n] {
                Is::Waiting => before[*n].iter().all(|&m| is[m] == Is::Done),
                Is::Running => true,
                Is::Done => false,
            };
            let ready: Vec<usize> = (0..is.len()).filter(ready).collect();
            let Some(&n) = ready.get(rng.random_range(0..ready.len().max(1))) else { break };
            let (inputs, outputs, scratch) = &self.operators[n];
            let whole =
                |memory: &[u32], b: usize, version: u32| memory[cells(b, n)].iter().all(|&c| c == mark(b, version));
            if is[n] == Is::Waiting {
                is[n] = Is::Running;
                // A kernel may write its outputs and its workspace as soon as it begins; the tensors that it updates
                // change at its end.
                for &t in outputs.iter().filter(|t| !inputs.contains(t)) {
                    memory[cells(t as usize, n)].fill(mark(t as usize, 999));
                }
                if *scratch > 0 {
                    memory[cells(workspace(n), n)].fill(mark(workspace(n), 1));
                }
            } else {
                is[n] = Is::Done;
                if inputs.iter().any(|&t| !whole(&memory, t as usize, version[t as usize])) {
                    return false;
                }
                if outputs.iter().any(|t| !inputs.contains(t) && !whole(&memory, *t as usize, 999)) {
                    return false;
                }
                if *scratch > 0 && !whole(&memory, workspace(n), 1) {
                    return false;
                }
                for &t in outputs {
                    version[t as usize] += 1;
                    memory[cells(t as usize, n)].fill(mark(t as usize, version[t as usize]));
                }
            }
        }
        // Values that are kept to the end are intact.
        (0..self.tensors.len()).all(|t| {
            let kept = self.tensors[t].storage != Storage::Transient && offsets[t].is_some();
            let written = self.operators.iter().any(|o| o.1.contains(&number(t)) || o.0.contains(&number(t)));
            !kept || !written || memory[cells(t, 0)].iter().all(|&c| c == mark(t, version[t]))
        })
    }
}

/// Places the blocks. Returns the offset of each by its number in the graph; `None` for a number that is no block here.
fn place((blocks, names): &(Vec<Block>, Vec<Residency>), count: usize) -> Vec<Option<u64>> {
    let (_, offsets) = sublet_tests::place(Solver::Portfolio, blocks);
    let mut by_number = vec![None; count];
    for (name, offset) in names.iter().zip(offsets) {
        by_number[name.block as usize] = Some(offset);
    }
    by_number
}

#[test]
fn every_order_computes_the_same_and_lifetimes_of_one_order_do_not() {
    let mut rng = instance::rng(7);
    let (mut serial_failed, mut shared) = (0, 0);
    for case in 0..150 {
        let drawn = Drawn::random(&mut rng);
        let count = drawn.tensors.len() + drawn.operators.iter().filter(|o| o.2 > 0).count();
        let operators = u32::try_from(drawn.operators.len()).unwrap();
        let streams = match case % 3 {
            0 => Vec::new(),
            1 => drawn.longest_paths(2),
            // Some operators are on no stream.
            _ => (0..operators).map(|_| [0, 1, 2, u32::MAX][rng.random_range(0..4)]).collect(),
        };
        let lives = drawn.parallel(&streams);
        let safe = place(&lives, count);
        let unsafe_offsets = place(&drawn.serial(), count);
        let peak =
            lives.0.iter().zip(&lives.1).map(|(b, n)| safe[n.block as usize].unwrap() + b.size).max().unwrap_or(0);
        shared += u32::from(peak < lives.0.iter().map(|b| b.size).sum());
        let mut failed = false;
        for _ in 0..30 {
            assert!(drawn.run(&streams, &safe, &mut rng), "case {case}");
            failed |= !drawn.run(&streams, &unsafe_offsets, &mut rng);
        }
        serial_failed += u32::from(failed);
    }
    // The lifetimes of one order lead to faults, which the run finds; and with the lifetimes for every order memory is
    // still shared.
    println!("{serial_failed} of 150 fail with the lifetimes of one order; {shared} share memory");
    assert!(serial_failed > 15 && shared > 40, "{serial_failed} {shared}");
}

/// If the lifetimes of two blocks do not overlap, every operator that uses the first is an ancestor of the first
/// operator that uses the second.
#[test]
fn what_does_not_overlap_is_ordered() {
    let mut rng = instance::rng(8);
    for _ in 0..300 {
        let drawn = Drawn::random(&mut rng);
        let before = drawn.before(&[]);
        let n = drawn.operators.len();
        let mut ancestors = vec![vec![false; n]; n];
        for b in 0..n {
            for &a in &before[b] {
                ancestors[b][a] = true;
                let further = ancestors[a].clone();
                ancestors[b].iter_mut().zip(further).for_each(|(to, from)| *to |= from);
            }
        }
        let users = |b: usize| -> Vec<usize> {
            let t = u32::try_from(b).unwrap();
            (0..n).filter(|&k| drawn.operators[k].0.contains(&t) || drawn.operators[k].1.contains(&t)).collect()
        };
        let (blocks, names) = drawn.parallel(&[]);
        // Only transient tensors are looked at, and no workspaces.
        let inner: Vec<(Block, Vec<usize>)> = blocks
            .iter()
            .zip(&names)
            .filter(|(_, name)| (name.block as usize) < drawn.tensors.len())
            .filter(|(_, name)| drawn.tensors[name.block as usize].storage == Storage::Transient)
            .map(|(block, name)| (*block, users(name.block as usize)))
            .collect();
        for (a, users_of_a) in &inner {
            for (b, users_of_b) in &inner {
                // These two may share memory.
                if a.end <= b.start {
                    let begins = users_of_b[0];
                    assert!(users_of_a.iter().all(|&u| ancestors[begins][u]), "{a:?} {b:?}");
                }
            }
        }
    }
}

#[test]
fn networks_pay_little_for_it() {
    let setting = Setting { batch: 8, training: true, device: Roofline::GTX1080TI };
    let load = |blocks: &[Block]| {
        let end = blocks.iter().map(|b| b.end).max().unwrap() as usize;
        let mut change = vec![0i128; end + 1];
        for b in blocks {
            change[b.start as usize] += i128::from(b.size);
            change[b.end as usize] -= i128::from(b.size);
        }
        let sums = change.iter().scan(0, |sum, c| {
            *sum += c;
            Some(*sum)
        });
        sums.max().unwrap()
    };
    let resnet = ResNet { depth: 50, ..ResNet::default() }.build(&setting).unwrap();
    let lstm = Lstm { steps: 16, ..Lstm::default() }.build(&setting).unwrap();
    // Without streams, all gradients of an LSTM's weights may be computed before any of them is added up: that takes
    // much memory.
    for (name, network, streams, most) in [
        ("resnet50", &resnet, 0, 1.02),
        ("resnet50", &resnet, 2, 1.02),
        ("lstm", &lstm, 0, 10.0),
        ("lstm", &lstm, 2, 1.5),
    ] {
        let drawn = Drawn::of(network);
        let on = if streams > 0 { drawn.longest_paths(streams) } else { Vec::new() };
        let (serial, parallel) = (load(&drawn.serial().0), load(&drawn.parallel(&on).0));
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        let ratio = parallel as f64 / serial as f64;
        println!("{name}, {streams} streams: {serial} in one order, {parallel} in any, {ratio:.4}");
        assert!((1.0..most).contains(&ratio), "{name}: {ratio}");
        assert!(include_str!("../docs/graphs.md").contains(&format!(" {ratio:.3} |")), "{name}: {ratio:.3}");
    }
    // On one stream there is only one order: no lifetime is longer than in that order.
    let drawn = Drawn::of(&resnet);
    assert_eq!(load(&drawn.parallel(&drawn.longest_paths(1)).0), load(&drawn.serial().0));
}
