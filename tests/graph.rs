//! Static graphs against recordings: a network's graph, read off its trace, gives the trace's blocks back.

use std::collections::{BTreeMap, HashMap, HashSet};

use sublet_core::Workspace;
use sublet_core::trace::{Event, Op, Row};
use sublet_core::trace::{Graph, Node, Storage, Tensor};
use sublet_tests::recording::{Recording, max_load};

/// The recorded networks in which each tensor is produced by one operator.
const NETWORKS: [&str; 10] = [
    "alexnet_train_b32",
    "googlenet_infer_b1",
    "resnet50_infer_b1",
    "resnet50_train_b32",
    "seq2seq_infer_100w",
    "vgg16_cifar_train_b100",
    "googlenet_train_b32",
    "gpt2_train_b8",
    "lstm4x1024_train_b64",
    "preresnet200_train_b32",
];

/// An operator as a recording shows it.
#[derive(Clone, Debug, Default)]
struct Recorded {
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    workspace: u64,
    /// The time from the end of the operator before to the end of this one, in ns.
    time_ns: u64,
}

/// The graph of a recording: its tensors and its operators. Also returns the scratch blocks, which are workspaces of
/// operators and no tensors of the graph, each with its operator.
fn graph_of(recording: &Recording) -> (Vec<Tensor>, Vec<Recorded>, HashMap<u32, u32>) {
    let rows = &recording.rows;
    let scratch: HashMap<u32, u32> = rows
        .iter()
        .filter_map(|r| match (r.event, r.op) {
            (Event::Free, Op::First(k)) => Some((r.block, k)),
            _ => None,
        })
        .collect();
    // A block that is freed after the last access lives to the end of the iteration.
    let last_access = rows.iter().rposition(|r| r.event.is_access()).unwrap();
    let mut tensors = vec![Tensor::default(); recording.blocks];
    let mut operators = vec![Recorded::default(); recording.operators.len()];
    for tensor in &mut tensors {
        tensor.storage = Storage::Persistent;
    }
    let mut now = 0;
    for (i, r) in rows.iter().enumerate() {
        let tensor = &mut tensors[r.block as usize];
        match r.event {
            Event::Malloc => tensor.bytes = r.bytes,
            Event::Free => tensor.storage = if i > last_access { Storage::Iteration } else { Storage::Transient },
            _ => {}
        }
        let Op::First(k) = r.op else { continue };
        let operator = &mut operators[k as usize];
        operator.time_ns += r.time_ns - now;
        now = r.time_ns;
        match r.event {
            Event::Malloc if scratch.contains_key(&r.block) => operator.workspace = operator.workspace.max(r.bytes),
            Event::Read => operator.inputs.push(r.block),
            Event::Write if !scratch.contains_key(&r.block) => operator.outputs.push(r.block),
            _ => {}
        }
    }
    (tensors, operators, scratch)
}

/// For each block: its size in bytes; the operator that allocates it, or, if none does, the first that accesses it; and
/// the operator that accesses it last. `None` stands for a row outside of operators.
fn lives(rows: &[Row], is_tensor: impl Fn(u32) -> bool) -> BTreeMap<u32, (u64, Option<u32>, Option<u32>)> {
    let mut lives = BTreeMap::new();
    let mut untouched = HashSet::new();
    for r in rows.iter().filter(|r| is_tensor(r.block)) {
        let op = if let Op::First(k) = r.op { Some(k) } else { None };
        match r.event {
            Event::Malloc => {
                lives.insert(r.block, (r.bytes, op, None));
                untouched.insert(r.block);
            }
            Event::Read | Event::Write => {
                let life = lives.get_mut(&r.block).unwrap();
                if untouched.remove(&r.block) {
                    life.1 = life.1.or(op);
                }
                life.2 = op;
            }
            _ => {}
        }
    }
    lives
}

#[test]
fn a_recorded_networks_graph_gives_its_blocks_back() {
    for name in NETWORKS {
        let Some(recording) = Recording::named(name) else {
            println!("Skipped: {name} (SUBLET_DATA is not set)");
            continue;
        };
        let (tensors, operators, scratch) = graph_of(&recording);
        let node = |o: &'static Recorded| Node {
            inputs: &o.inputs,
            outputs: &o.outputs,
            workspace: o.workspace,
            time_ns: o.time_ns,
        };
        let operators: &'static [Recorded] = operators.leak();
        let nodes: Vec<Node<'_>> = operators.iter().map(node).collect();
        let graph = Graph { tensors: &tensors, nodes: &nodes };
        let len = Graph::workspace(tensors.len(), nodes.len(), graph.operands());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let mut rows = vec![Row::default(); graph.most_rows()];
        let n = graph.rows(Workspace::new(&mut words, &mut indices), &mut rows).unwrap();
        rows.truncate(n);

        let tensor = |b: u32| (b as usize) < tensors.len() && !scratch.contains_key(&b);
        let (ours, recorded) = (lives(&rows, tensor), lives(&recording.rows, tensor));
        assert_eq!(ours.len(), recorded.len(), "{name}");
        for (block, life) in ours {
            assert_eq!(life, recorded[&block], "{name}: block {block}");
        }
        assert_eq!(rows.last().unwrap().time_ns, recording.rows.last().unwrap().time_ns, "{name}");
        // Recorders keep some blocks for longer than they are read.
        let (ours, recorded) = (max_load(&rows), recording.max_load());
        println!("{name}: {ours} of {recorded}");
        assert!(ours <= recorded && recorded - ours <= recorded / 10, "{name}: {ours} of {recorded}");
    }
}
