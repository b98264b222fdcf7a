//! Models of TensorFlow Lite that are made here, field by field: weights behind the tables, graphs that call graphs,
//! open shapes, and what else a plan must not spoil.

use std::fs;

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, UnionWIPOffset, WIPOffset};

use crate::support::{Folder, Ran, sublet};

type Table = WIPOffset<TableFinishedWIPOffset>;

/// The types of tensors that are used here.
const FLOAT32: i8 = 0;
const STRING: i8 = 5;
const INT8: i8 = 9;
const INT4: i8 = 17;
const RESOURCE: i8 = 13;
/// The schema's codes of the operators that are used here. The constants after it are indices into it.
const CODES: [i32; 8] = [47, 118, 67, 142, 1, 0, 129, CUSTOM_CODE];
/// The schema's code of an operator with a name of its own, which here is `Own`.
const CUSTOM_CODE: i32 = 32;
const EXP: u32 = 0;
const IF: u32 = 1;
const TRANSPOSE_CONV: u32 = 2;
const VAR_HANDLE: u32 = 3;
const AVERAGE_POOL_2D: u32 = 4;
const ADD: u32 = 5;
const CALL_ONCE: u32 = 6;
const CUSTOM: u32 = 7;
/// The weights that lie behind the tables.
const WEIGHTS: [u8; 16] = *b"weights far away";
/// Stands in the file for the position of the weights until it is known.
const UNKNOWN: u64 = 0x1234_5678_9abc_def0;

#[derive(Clone, Copy)]
struct Tensor {
    shape: &'static [i32],
    kind: i8,
    /// The shape with -1 for open dimensions.
    signature: &'static [i32],
    /// Whether its weights lie behind the tables.
    far: bool,
    /// Whether its weights lie in another file.
    external: bool,
}

#[derive(Clone, Copy)]
struct Operator {
    code: u32,
    inputs: &'static [i32],
    outputs: &'static [i32],
    /// The graphs that an `IF` runs; of the two the first alone for a `CALL_ONCE`.
    branches: Option<[i32; 2]>,
}

struct Graph {
    tensors: Vec<Tensor>,
    operators: Vec<Operator>,
    inputs: &'static [i32],
    outputs: &'static [i32],
}

const fn tensor(shape: &'static [i32]) -> Tensor {
    Tensor { shape, kind: FLOAT32, signature: &[], far: false, external: false }
}

const fn operator(code: u32, inputs: &'static [i32], outputs: &'static [i32]) -> Operator {
    Operator { code, inputs, outputs, branches: None }
}

/// The place in a vtable, in bytes, that says where a field of a table of `FlatBuffers` lies. A vtable begins with two
/// lengths of 2 bytes, then has 2 bytes for each field.
const fn slot(field: u16) -> u16 {
    4 + 2 * field
}

/// A table with these fields.
fn table(b: &mut FlatBufferBuilder<'_>, fill: impl FnOnce(&mut FlatBufferBuilder<'_>)) -> Table {
    let start = b.start_table();
    fill(b);
    let end = b.end_table(start);
    WIPOffset::new(end.value())
}

fn tensor_table(b: &mut FlatBufferBuilder<'_>, t: &Tensor) -> Table {
    let (shape, signature, name) = (b.create_vector(t.shape), b.create_vector(t.signature), b.create_string("t"));
    table(b, |b| {
        b.push_slot_always(slot(0), shape);
        b.push_slot(slot(1), t.kind, 0);
        b.push_slot(slot(2), u32::from(t.far), 0);
        b.push_slot_always(slot(3), name);
        b.push_slot_always(slot(7), signature);
        b.push_slot(slot(10), u32::from(t.external), 0);
    })
}

fn operator_table(b: &mut FlatBufferBuilder<'_>, o: &Operator) -> Table {
    let (inputs, outputs) = (b.create_vector(o.inputs), b.create_vector(o.outputs));
    // The graphs of an `IF`; of a pool, a window of 2 by 2 that moves by 2.
    let options = match (o.branches, o.code) {
        (Some(branches), _) => &[branches[0], branches[1]][..],
        (None, AVERAGE_POOL_2D) => &[0, 2, 2, 2, 2],
        _ => &[],
    };
    let options = (!options.is_empty())
        .then(|| table(b, |b| (0..).zip(options).for_each(|(field, &value)| b.push_slot(slot(field), value, 0))));
    table(b, |b| {
        b.push_slot(slot(0), o.code, 0);
        b.push_slot_always(slot(1), inputs);
        b.push_slot_always(slot(2), outputs);
        if let Some(options) = options {
            b.push_slot_always(slot(4), WIPOffset::<UnionWIPOffset>::new(options.value()));
        }
    })
}

/// The bytes of a model with these graphs. Buffer 0 is empty; buffer 1 has [`WEIGHTS`] behind the tables. `newer` is a
/// field of the table Model that gets a vector without elements.
fn model(graphs: &[Graph], newer: Option<u16>) -> Vec<u8> {
    let b = &mut FlatBufferBuilder::new();
    let codes = CODES.map(|code| {
        let name = b.create_string("Own");
        table(b, |b| {
            if code == CUSTOM_CODE {
                b.push_slot_always(slot(1), name);
            }
            b.push_slot(slot(0), i8::try_from(code).unwrap_or(127), 0);
            b.push_slot(slot(3), code, 0);
        })
    });
    let codes = b.create_vector(&codes);
    let mut made = Vec::new();
    for graph in graphs {
        let tensors: Vec<Table> = graph.tensors.iter().map(|t| tensor_table(b, t)).collect();
        let operators: Vec<Table> = graph.operators.iter().map(|o| operator_table(b, o)).collect();
        let (tensors, operators) = (b.create_vector(&tensors), b.create_vector(&operators));
        let (inputs, outputs) = (b.create_vector(graph.inputs), b.create_vector(graph.outputs));
        made.push(table(b, |b| {
            b.push_slot_always(slot(0), tensors);
            b.push_slot_always(slot(1), inputs);
            b.push_slot_always(slot(2), outputs);
            b.push_slot_always(slot(3), operators);
        }));
    }
    let graphs = b.create_vector(&made);
    let far = |b: &mut FlatBufferBuilder<'_>| {
        b.push_slot_always(slot(1), UNKNOWN);
        b.push_slot_always(slot(2), WEIGHTS.len() as u64);
    };
    let buffers = [table(b, |_| {}), table(b, far)];
    let (buffers, none) = (b.create_vector(&buffers), b.create_vector::<u32>(&[]));
    let root = table(b, |b| {
        b.push_slot_always(slot(0), 3u32);
        b.push_slot_always(slot(1), codes);
        b.push_slot_always(slot(2), graphs);
        b.push_slot_always(slot(4), buffers);
        if let Some(field) = newer {
            b.push_slot_always(slot(field), none);
        }
    });
    b.finish(root, Some("TFL3"));
    let mut bytes = b.finished_data().to_vec();
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    let (at, end) = (far_number(&bytes, UNKNOWN), bytes.len() as u64);
    bytes[at..at + 8].copy_from_slice(&end.to_le_bytes());
    bytes.extend(WEIGHTS);
    bytes
}

/// The byte of the file at which the position of the weights behind the tables stands.
fn far_number(bytes: &[u8], position: u64) -> usize {
    bytes.windows(8).position(|w| w == position.to_le_bytes()).unwrap()
}

/// Whether a field of the table Model is there.
fn has_field(bytes: &[u8], field: u16) -> bool {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let root = u32_at(0);
    let vtable = root - u32_at(root);
    let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
    slot(field) + 2 <= u16_at(vtable) && u16_at(vtable + usize::from(slot(field))) > 0
}

/// A chain of two operators with this index into [`CODES`], over three tensors of this shape.
fn chain(code: u32, shape: &'static [i32]) -> Graph {
    let tensors = vec![tensor(shape); 3];
    Graph {
        tensors,
        operators: vec![operator(code, &[0], &[1]), operator(code, &[1], &[2])],
        inputs: &[0],
        outputs: &[2],
    }
}

/// `sublet plan` of a model, with these options.
fn plan(folder: &Folder, bytes: &[u8], options: &[&str]) -> Ran {
    let file = folder.path("model.tflite");
    fs::write(&file, bytes).unwrap();
    sublet(&[&["plan", &file], options].concat())
}

fn peak(folder: &Folder, graphs: &[Graph], options: &[&str]) -> u64 {
    let ran = plan(folder, &model(graphs, None), &[&["--json"], options].concat());
    assert_eq!(ran.status, 0, "{}", ran.err);
    ran.json()["peak"].as_u64().unwrap()
}

#[test]
fn weights_behind_the_tables_are_found_again_behind_the_plan() {
    let (folder, mut graph) = (Folder::new(), chain(EXP, &[4]));
    graph.tensors.push(Tensor { far: true, ..tensor(&[4]) });
    graph.operators[0].inputs = &[0, 3];
    let old = model(&[graph], None);
    let out = folder.path("planned.tflite");
    assert_eq!(plan(&folder, &old, &["--output", &out]).status, 0);
    let new = fs::read(&out).unwrap();
    let (tables, head) = (old.len() - WEIGHTS.len(), new.len() - old.len());
    let at = head + far_number(&old, tables as u64);
    assert_eq!(new[at..at + 8], ((head + tables) as u64).to_le_bytes());
    assert_eq!(new[head + tables..], WEIGHTS);
    // A file that ends before its weights do.
    let short = plan(&folder, &old[..old.len() - 1], &[]);
    assert_eq!(short.status, 2);
    assert!(short.err.contains("the data of tensor 3:t reaches beyond the end of the file"), "{}", short.err);
}

#[test]
fn no_field_of_a_model_is_lost() {
    let folder = Folder::new();
    let mut graph = chain(EXP, &[4]);
    graph.tensors.push(Tensor { external: true, ..tensor(&[400]) });
    graph.operators[0].inputs = &[0, 3];
    let out = folder.path("planned.tflite");
    let file = model(&[graph], Some(9));
    let ran = plan(&folder, &file, &["--output", &out, "--json"]);
    assert_eq!((ran.status, ran.json()["peak"].as_u64()), (0, Some(32)), "{}", ran.err);
    assert!(has_field(&file, 9) && has_field(&fs::read(&out).unwrap(), 9) && !has_field(&fs::read(&out).unwrap(), 8));
    let unknown = model(&[chain(EXP, &[4])], Some(10));
    assert_eq!(plan(&folder, &unknown, &[]).status, 0);
    let ran = plan(&folder, &unknown, &["--output", &out]);
    assert!(ran.status == 2 && ran.err.contains("fields that this version of sublet does not know"), "{}", ran.err);
}

#[test]
fn a_graph_begins_after_the_one_before_has_ended() {
    let folder = Folder::new();
    let both = [
        Graph {
            tensors: vec![tensor(&[1]), tensor(&[16]), tensor(&[16])],
            operators: vec![Operator { branches: Some([1, 2]), ..operator(IF, &[0, 1], &[2]) }],
            inputs: &[0, 1],
            outputs: &[2],
        },
        Graph {
            tensors: vec![tensor(&[16]), tensor(&[16])],
            operators: vec![operator(EXP, &[0], &[1])],
            inputs: &[0],
            outputs: &[1],
        },
        // Its input is not alive while the other branch runs.
        Graph { tensors: vec![tensor(&[16])], operators: vec![], inputs: &[0], outputs: &[0] },
        chain(EXP, &[4096]),
    ];
    assert_eq!(peak(&folder, &both, &[]), 16 + 4 * 64);
    let ran = plan(&folder, &model(&both, None), &[]);
    assert!(ran.out.contains("graph 3 is not run by graph 0") && !ran.out.contains("graph 2"), "{}", ran.out);
}

#[test]
fn what_no_arena_holds_takes_none_and_what_kernels_need_is_planned() {
    let folder = Folder::new();
    let handle = Graph {
        tensors: vec![tensor(&[4]), tensor(&[4]), Tensor { kind: RESOURCE, ..tensor(&[1]) }],
        operators: vec![operator(VAR_HANDLE, &[], &[2]), operator(EXP, &[0], &[1])],
        inputs: &[0],
        outputs: &[1],
    };
    assert_eq!(peak(&folder, &[handle], &[]), 32);
    // A transposed convolution of integers needs 4 bytes of scratch for each element of its output.
    let mut summing = chain(TRANSPOSE_CONV, &[64]);
    summing.tensors.iter_mut().for_each(|t| t.kind = INT8);
    assert_eq!(peak(&folder, &[summing], &[]), 64 + 64 + 4 * 64);
    assert_eq!(peak(&folder, &[chain(TRANSPOSE_CONV, &[64])], &[]), 2 * 256);
    // A value of 4 bits takes a byte.
    let mut narrow = chain(EXP, &[64]);
    narrow.tensors.iter_mut().for_each(|t| t.kind = INT4);
    assert_eq!(peak(&folder, &[narrow], &[]), 2 * 64);
    // A model whose output is its input.
    let identity = Graph { tensors: vec![tensor(&[4])], operators: vec![], inputs: &[0], outputs: &[0] };
    assert_eq!(peak(&folder, &[identity], &[]), 16);
}

#[test]
fn what_a_graph_gives_back_is_not_written_over() {
    let folder = Folder::new();
    for (outputs, bytes) in [(&[2][..], 256), (&[1, 2], 512)] {
        let graph = Graph { outputs, ..chain(EXP, &[64]) };
        for options in [&["--in-place"][..], &["--overlap", "reference"]] {
            assert_eq!(peak(&folder, &[Graph { outputs, ..chain(EXP, &[64]) }], options), bytes);
        }
        // Nor is it in a graph that another one runs.
        let calling = Graph {
            tensors: vec![tensor(&[1]), tensor(&[1])],
            operators: vec![Operator { branches: Some([1, 2]), ..operator(IF, &[0], &[1]) }],
            inputs: &[0],
            outputs: &[1],
        };
        let other = Graph { tensors: vec![tensor(&[1])], operators: vec![], inputs: &[0], outputs: &[0] };
        assert_eq!(peak(&folder, &[calling, graph, other], &["--in-place"]), 32 + bytes);
    }
}

#[test]
fn open_shapes_and_texts_are_told() {
    let (folder, mut graph) = (Folder::new(), chain(EXP, &[1, 4]));
    graph.tensors[0].signature = &[-1, 4];
    let ran = plan(&folder, &model(&[graph], None), &[]);
    assert!(ran.out.contains("leaves the shape of 0:t open; the plan is for the shapes in the file"), "{}", ran.out);
    let ran = plan(&folder, &model(&[chain(EXP, &[1, 4])], None), &[]);
    assert!(!ran.out.contains("open"), "{}", ran.out);
    let mut graph = chain(EXP, &[4]);
    graph.tensors[1].kind = STRING;
    let ran = plan(&folder, &model(&[graph], None), &[]);
    assert!(ran.status == 2 && ran.err.contains("tensor 1:t holds texts"), "{}", ran.err);
}

/// A shape that the file leaves open is given: what follows is planned for it, and what cannot be told is refused.
#[test]
fn a_shape_may_be_given() {
    let (folder, mut graph) = (Folder::new(), chain(EXP, &[1, 4]));
    graph.tensors.iter_mut().for_each(|tensor| tensor.signature = &[-1, 4]);
    let bytes = model(&[graph], None);
    let given = |shape: &str, more: &[&str]| plan(&folder, &bytes, &[&["--shape", shape], more].concat());
    // Two of three tensors of 16 bytes are alive at once, and of 48 bytes.
    assert_eq!(plan(&folder, &bytes, &["--json"]).json()["peak"], 32);
    for name in ["0:t", "t"] {
        let ran = given(&format!("{name}=3,4"), &["--json"]);
        assert_eq!((ran.status, &ran.json()["peak"]), (0, &96.into()), "{ran:?}");
    }
    assert!(!given("t=3,4", &[]).out.contains("open"));
    for (shape, message) in [
        ("x=3,4", "there is no input x; there are 0:t"),
        ("t=3", "another number of dimensions"),
        ("t=0,4", "expected NAME=SIZE"),
        ("t=4294967295,4294967295", "is too large"),
    ] {
        let ran = given(shape, &[]);
        assert!(ran.status == 2 && ran.err.contains(message), "{ran:?}");
    }
    let into = given("t=3,4", &["--output", &folder.path("planned.tflite")]);
    assert!(into.status == 2 && into.err.contains("cannot hold the plan"), "{into:?}");
    let csv = folder.path("plan.csv");
    assert_eq!(given("t=3,4", &["--output", &csv]).status, 0);
    assert!(folder.read("plan.csv").contains(",48,"), "{}", folder.read("plan.csv"));
}

#[test]
fn the_plan_in_a_model_can_be_written_as_a_table_and_is_verified_for_the_kernels_it_relies_on() {
    let folder = Folder::new();
    let mut graph = chain(AVERAGE_POOL_2D, &[1, 8, 8, 4]);
    graph.tensors[1].shape = &[1, 4, 4, 4];
    graph.tensors[2].shape = &[1, 2, 2, 4];
    let bytes = model(&[graph], None);
    let (out, csv) = (folder.path("planned.tflite"), folder.path("plan.csv"));
    assert_eq!(plan(&folder, &bytes, &["--overlap", "reference", "--output", &out]).status, 0);
    // The file says on which kernels its plan relies; for others it is wrong.
    assert_eq!(sublet(&["verify", &out, "--json"]).json()["kernels"], "reference");
    for kernels in ["portable", "cmsis-nn", "esp-nn"] {
        let other = sublet(&["verify", &out, "--kernels", kernels]);
        assert!(other.status == 1 && other.err.contains("it is valid with --kernels reference"), "{}", other.err);
    }
    assert_eq!(sublet(&["convert", &out, &csv, "--kernels", "portable"]).status, 1);
    assert_eq!(sublet(&["convert", &out, &csv]).status, 0);
    let text = fs::read_to_string(&csv).unwrap();
    assert_eq!((text.lines().count(), text.lines().next()), (4, Some("id,lower,upper,size,offset")));
}

#[test]
fn calls_that_access_too_many_tensors_are_refused() {
    let folder = Folder::new();
    let called = |calls, operands| {
        let call = Operator { branches: Some([1, 0]), ..operator(CALL_ONCE, &[], &[]) };
        let outer = Graph { tensors: vec![tensor(&[1])], operators: vec![call; calls], inputs: &[0], outputs: &[0] };
        let reads: &[i32] = (0..operands).collect::<Vec<_>>().leak();
        let count = usize::try_from(operands).unwrap();
        let inner = Graph {
            tensors: vec![tensor(&[1]); count],
            operators: vec![operator(CUSTOM, reads, &[])],
            inputs: &[],
            outputs: &[],
        };
        plan(&folder, &model(&[outer, inner], None), &[])
    };
    assert_eq!(called(64, 64).status, 0);
    let ran = called(2_100, 2_100);
    let says = "its operators read and write more than 4194304 tensors, over all calls";
    assert!(ran.status == 2 && ran.err.contains(says), "{}", ran.err);
}

#[test]
fn no_model_holds_an_offset_of_2_gib() {
    let (folder, mut sum) = (Folder::new(), chain(ADD, &[1 << 30]));
    sum.tensors.iter_mut().for_each(|t| t.kind = INT8);
    sum.operators = vec![operator(ADD, &[0, 1], &[2])];
    sum.inputs = &[0, 1];
    let (bytes, out, header) = (model(&[sum], None), folder.path("planned.tflite"), folder.path("plan.h"));
    for (what, options) in [("model", &["--output", &out][..]), ("header", &["--header", &header])] {
        let ran = plan(&folder, &bytes, options);
        let says = format!("the arena has 3221225472 bytes; a {what} holds plans below 2 GiB");
        assert!(ran.status == 2 && ran.err.contains(&says), "{} {}", ran.out, ran.err);
    }
    assert_eq!(folder.names(), ["model.tflite"]);
    assert_eq!(plan(&folder, &bytes, &[]).status, 0);
}

#[test]
fn tensors_that_a_plan_leaves_to_the_runtime_are_told() {
    let folder = Folder::new();
    let out = folder.path("planned.tflite");
    assert_eq!(plan(&folder, &model(&[chain(EXP, &[4])], None), &["--output", &out]).status, 0);
    let planned = fs::read(&out).unwrap();
    // A plan: version 1, one graph, three offsets.
    let begin = [1u32, 1, 3].map(u32::to_le_bytes).concat();
    let at = planned.windows(12).position(|window| window == begin).unwrap() + 12;
    for (count, note) in [(0, ""), (1, "leaves 1 tensor to the runtime"), (3, "leaves 3 tensors to the runtime")] {
        let mut bytes = planned.clone();
        bytes[at..at + 4 * count].fill(0xff);
        let file = folder.file("left.tflite", bytes);
        let (text, json) = (sublet(&["verify", &file]), sublet(&["verify", &file, "--json"]).json());
        assert_eq!((text.status, &json["verified"], &json["optimal"]), (0, &true.into(), &(count == 0).into()));
        assert_eq!(
            (json["blocks"].as_u64(), json["left_out"].as_u64().unwrap_or(0)),
            (Some(3 - count as u64), count as u64)
        );
        assert!(text.out.contains(note) && text.out.contains("optimal") == (count == 0), "{}", text.out);
    }
}

/// The operators of the first graph in the order that `--reorder` finds.
fn reordered(folder: &Folder, graph: Graph) -> Vec<u32> {
    let header = folder.path("plan.h");
    let ran = plan(folder, &model(&[graph], None), &["--reorder", "--header", &header]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let text = folder.read("plan.h");
    let lines = text.split_once("sublet_operators[SUBLET_OPERATORS]").unwrap().1.lines();
    lines.filter_map(|line| line.trim_start().split_once("u, /*")?.0.parse().ok()).collect()
}

#[test]
fn what_takes_no_memory_keeps_operators_in_order() {
    let folder = Folder::new();
    let graph = |last: Tensor, between: [Operator; 2]| {
        let shapes: [&[i32]; 6] = [&[8], &[64], &[64], &[1], &[8], &[1]];
        let mut tensors = shapes.map(tensor).to_vec();
        tensors.push(last);
        let [early, late] = between;
        let operators = vec![
            operator(CUSTOM, &[0], &[1]),
            operator(CUSTOM, &[0], &[2]),
            early,
            late,
            operator(CUSTOM, &[2], &[4]),
            operator(CUSTOM, &[3, 4], &[5]),
        ];
        Graph { tensors, operators, inputs: &[0], outputs: &[5] }
    };
    let (empty, handle) = (tensor(&[0]), Tensor { kind: RESOURCE, ..tensor(&[1]) });
    let fourth_is_later = |last, between| {
        let order = reordered(&folder, graph(last, between));
        order.iter().position(|&k| k == 2) < order.iter().position(|&k| k == 3)
    };
    // Without a tie between them, the fourth operator runs before the second large tensor is made for the third.
    assert!(!fourth_is_later(empty, [operator(CUSTOM, &[2], &[]), operator(CUSTOM, &[1], &[3])]));
    // The third makes what the fourth reads.
    let makes = [operator(CUSTOM, &[2], &[6]), operator(CUSTOM, &[6, 1], &[3])];
    // The third changes what the handle stands for.
    let changes = [operator(CUSTOM, &[6, 2], &[]), operator(CUSTOM, &[6, 1], &[3])];
    for (last, between) in [(empty, makes), (handle, makes), (handle, changes)] {
        assert!(fourth_is_later(last, between));
    }
}

#[test]
fn no_order_is_proved_least_where_a_graph_is_called_twice() {
    let folder = Folder::new();
    let graphs = |second| {
        let shapes: [&[i32]; 7] = [&[64], &[256], &[512], &[64], &[64], &[64], &[64]];
        let call = |inputs, outputs, branches| Operator { branches: Some(branches), ..operator(IF, inputs, outputs) };
        let operators = vec![
            operator(CUSTOM, &[0], &[2]),
            operator(CUSTOM, &[2], &[3]),
            call(&[1], &[4], [1, 3]),
            call(&[3, 4], &[5], [second, 4]),
        ];
        let inner = || Graph {
            tensors: vec![tensor(&[384])],
            operators: vec![operator(CUSTOM, &[], &[0])],
            inputs: &[],
            outputs: &[],
        };
        let outer = Graph { tensors: shapes.map(tensor).to_vec(), operators, inputs: &[0, 1], outputs: &[5] };
        let none = || Graph { tensors: vec![], operators: vec![], inputs: &[], outputs: &[] };
        [outer, inner(), inner(), none(), none()]
    };
    // The first call early frees the second input, but keeps what the graph has written until the second call.
    assert_eq!(peak(&folder, &graphs(1), &[]), 13 * 256);
    assert_eq!(peak(&folder, &graphs(1), &["--reorder"]), 13 * 256);
    let of = |second| plan(&folder, &model(&graphs(second), None), &["--reorder", "--json"]).json()["order"].clone();
    assert_eq!((of(1)["found"].as_u64(), of(2)["found"].as_u64()), (None, Some(12 * 256)));
    assert_eq!(peak(&folder, &graphs(2), &["--reorder"]), 12 * 256);
}

/// Tensors that nothing uses, and those of graphs that nothing runs, are all alive at the time -1 for TFLM.
#[test]
fn tflm_places_what_is_never_used() {
    let folder = Folder::new();
    let mut outer = chain(EXP, &[4]);
    outer.tensors.push(tensor(&[16]));
    let bytes = model(&[outer, chain(EXP, &[8])], None);
    let log = |size: u32, unused: i32| {
        let lives = [[0, 1], [1, 2], [2, 2], [-1, -1], [unused, -1], [-1, -1], [-1, -1], [1, 1], [-1, -1]];
        let sizes = [16, 16, 16, 64, 32, 32, 32, size, 77];
        let line = |(id, ([first, last], size)): (usize, ([i32; 2], u32))| {
            format!("{id} (id={id}): size={size}, offset=0, first_used={first} last_used={last}\n")
        };
        lives.into_iter().zip(sizes).enumerate().map(line).collect::<String>()
    };
    let json = plan(&folder, &bytes, &["--json"]).json();
    let compared = sublet(&["compare", &folder.path("model.tflite"), "--json"]).json();
    let today = compared["today"].as_array().unwrap().iter().find(|row| row["allocator"] == "tflm-greedy").unwrap();
    let unused = 64 + 3 * 32;
    assert_eq!(
        (&json["tflm_greedy"], &json["tflm_head"], &today["peak"]),
        (&unused.into(), &unused.into(), &unused.into())
    );
    assert_eq!(json["peak"], 32);
    let printed = folder.file("boot.txt", log(1_000, -1));
    let json = plan(&folder, &bytes, &["--tflm-log", &printed, "--json"]).json();
    assert_eq!((&json["peak"], &json["tflm_head"]), (&(1_008 + 32).into(), &(1_008 + 32).into()));
    let wrong = folder.file("wrong.txt", log(16, 0));
    let ran = plan(&folder, &bytes, &["--tflm-log", &wrong]);
    assert!(ran.status == 2 && ran.err.contains("tensor of 32 bytes, used from -1 to -1"), "{}", ran.err);
}

/// A model as a compiler for an accelerator leaves it: an operator of its own, whose scratch lies over its input and its
/// output, where its commands expect them.
fn compiled(folder: &Folder) -> String {
    let graph = Graph {
        tensors: vec![tensor(&[16]), tensor(&[64]), tensor(&[4]), tensor(&[4])],
        operators: vec![operator(CUSTOM, &[1, 0], &[2]), operator(EXP, &[2], &[3])],
        inputs: &[0],
        outputs: &[3],
    };
    let out = folder.path("compiled.tflite");
    let ran = plan(folder, &model(&[graph], None), &["--output", &out]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    with_offsets(&out, [32, 0, 16, 128])
}

/// Overwrites the offsets of the plan in a file.
fn with_offsets<const N: usize>(file: &str, offsets: [i32; N]) -> String {
    let mut bytes = fs::read(file).unwrap();
    let begin = [1, 1, u32::try_from(N).unwrap()].map(u32::to_le_bytes).concat();
    let at = bytes.windows(12).position(|window| window == begin).unwrap() + 12;
    bytes[at..at + 4 * N].copy_from_slice(&offsets.map(i32::to_le_bytes).concat());
    fs::write(file, bytes).unwrap();
    file.to_owned()
}

fn offsets_in<const N: usize>(file: &str) -> [i32; N] {
    let bytes = fs::read(file).unwrap();
    let begin = [1, 1, u32::try_from(N).unwrap()].map(u32::to_le_bytes).concat();
    let at = bytes.windows(12).position(|window| window == begin).unwrap() + 12;
    std::array::from_fn(|k| i32::from_le_bytes(bytes[at + 4 * k..at + 4 * k + 4].try_into().unwrap()))
}

#[test]
fn a_plan_that_is_there_is_kept() {
    let folder = Folder::new();
    let (file, out) = (compiled(&folder), folder.path("out.tflite"));
    let verified = sublet(&["verify", &file, "--json"]);
    // The scratch has 256 bytes from address 0 on.
    assert_eq!((verified.status, &verified.json()["peak"]), (0, &256.into()), "{}", verified.err);
    let ran = sublet(&["plan", &file, "--reorder", "--in-place", "--json", "--output", &out]);
    let json = ran.json();
    assert_eq!((&json["peak"], &json["kept"], &json["solver"]), (&256.into(), &true.into(), &"file".into()));
    assert_eq!(fs::read(&out).unwrap(), fs::read(&file).unwrap());
    // What the compiler has not placed moves, and nothing else: no plan has its two tensors in other places.
    let ran = sublet(&["plan", &file, "--replace-plan", "--json", "--output", &out]);
    assert_eq!((ran.status, &ran.json()["kept"], &ran.json()["peak"]), (0, &false.into(), &272.into()), "{}", ran.err);
    assert_eq!(offsets_in(&out), [32, 0, 16, 256]);
    assert_eq!(sublet(&["verify", &out]).status, 0);
    // What the compiler does not answer for is looked at: the output of the second operator over its input.
    let wrong = sublet(&["verify", &with_offsets(&file, [32, 0, 16, 20])]);
    assert!(wrong.status == 1 && wrong.err.contains("multiple of 16"), "{}", wrong.err);
    with_offsets(&file, [32, 0, 16, 0]);
    assert_eq!(sublet(&["verify", &file]).status, 0);
    let graph = chain(EXP, &[8]);
    let chained = folder.path("chained.tflite");
    assert_eq!(plan(&folder, &model(&[graph], None), &["--output", &chained]).status, 0);
    let wrong = sublet(&["plan", &with_offsets(&chained, [0, 16, 0])]);
    assert!(wrong.status == 1 && wrong.err.contains("--replace-plan makes another one"), "{}", wrong.err);
    assert_eq!(sublet(&["plan", &chained, "--replace-plan"]).status, 0);
}
