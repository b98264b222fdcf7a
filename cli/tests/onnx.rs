//! Models of ONNX that are made here, field by field: what an operator may write over, which tensors are counted, and
//! which models are refused.

use std::fs;

use crate::support::{Folder, Ran, sublet};

/// A field of a message with a length: text, bytes or another message.
fn field(number: usize, content: &[u8]) -> Vec<u8> {
    let mut bytes = varint(number << 3 | 2);
    bytes.extend(varint(content.len()));
    bytes.extend(content);
    bytes
}

/// A field with a number.
fn number(field: usize, value: usize) -> Vec<u8> {
    let mut bytes = varint(field << 3);
    bytes.extend(varint(value));
    bytes
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

const FLOAT: usize = 1;
const INT64: usize = 7;
const TEXT: usize = 8;

/// A value with its type and its shape.
fn value(name: &str, kind: usize, shape: &[usize]) -> Vec<u8> {
    let shape: Vec<u8> = shape.iter().flat_map(|&d| field(1, &number(1, d))).collect();
    let tensor = [number(1, kind), field(2, &shape)].concat();
    [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
}

/// An operator `Domain.Name` or `Name`, with its inputs and outputs as words.
fn node(name: &str, inputs: &str, outputs: &str) -> Vec<u8> {
    let (domain, name) = name.split_once('.').unwrap_or(("", name));
    let list = |number, words: &str| words.split(' ').flat_map(|w| field(number, w.as_bytes())).collect::<Vec<u8>>();
    let inputs = if inputs.is_empty() { Vec::new() } else { list(1, inputs) };
    [inputs, list(2, outputs), field(4, name.as_bytes()), field(7, domain.as_bytes())].concat()
}

/// A model: operators, names of constants, inputs, outputs, and other values.
fn model(nodes: &[Vec<u8>], constants: &str, values: [&[Vec<u8>]; 3]) -> Vec<u8> {
    let mut graph: Vec<u8> = nodes.iter().flat_map(|node| field(1, node)).collect();
    graph.extend(constants.split_ascii_whitespace().flat_map(|name| field(5, &field(8, name.as_bytes()))));
    for (number, values) in [11, 12, 13].into_iter().zip(values) {
        graph.extend(values.iter().flat_map(|value| field(number, value)));
    }
    [number(1, 8), field(7, &graph)].concat()
}

fn plan(model: &[u8], options: &[&str]) -> Ran {
    run("plan", model, options)
}

fn run(command: &str, model: &[u8], options: &[&str]) -> Ran {
    let folder = Folder::new();
    let file = folder.path("model.onnx");
    fs::write(&file, model).unwrap();
    sublet(&[&[command, &file], options].concat())
}

/// The peak of a plan with in-place reuse, in bytes.
fn peak(model: &[u8]) -> u64 {
    let ran = plan(model, &["--in-place", "--json"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    ran.json()["peak"].as_u64().unwrap()
}

fn refused(model: &[u8], options: &[&str]) -> String {
    let ran = plan(model, options);
    assert_eq!(ran.status, 2, "{}", ran.out);
    ran.err
}

/// Values of 64 bytes with these names.
fn floats(names: &str) -> Vec<Vec<u8>> {
    names.split_ascii_whitespace().map(|name| value(name, FLOAT, &[4, 4])).collect()
}

#[test]
fn what_a_model_gives_back_is_not_written_over() {
    let last = [node("Neg", "x", "logits"), node("Softmax", "logits", "probs")];
    assert_eq!(peak(&model(&last, "", [&floats("x"), &floats("logits probs"), &[]])), 128);
    assert_eq!(peak(&model(&last, "", [&floats("x"), &floats("probs"), &floats("logits")])), 64);
    let through = [node("Relu", "x", "y")];
    assert_eq!(peak(&model(&through, "", [&floats("x"), &floats("x y"), &[]])), 128);
}

#[test]
fn recomputation_keeps_all_that_a_model_gives_back() {
    let fit = |model: &[u8], limit: &str| {
        run("fit", model, &["--using", "recompute", "--alignment", "1", "--json", "--limit", limit])
    };
    // While a is made x, y1 and a are needed, and y1, a and b while b is made: the output y1 stays to the end.
    let chain = [node("Neg", "x", "y1"), node("Exp", "x", "a"), node("Exp", "a", "b"), node("Exp", "b", "y2")];
    let chain = model(&chain, "", [&floats("x"), &floats("y1 y2"), &floats("a b")]);
    // Three outputs of 64 bytes, each cheap to compute again from eight bytes.
    let wide = [node("Neg", "x", "y1"), node("Exp", "x", "y2"), node("Abs", "x", "y3")];
    let wide = model(&wide, "", [&[value("x", FLOAT, &[2])], &floats("y1 y2 y3"), &[]]);
    for (model, needed) in [(&chain, 192), (&wide, 200)] {
        let refused = fit(model, &format!("{}B", needed - 1));
        let told = format!("{needed} bytes have to be on the device at once");
        assert!(refused.status == 1 && refused.err.contains(&told), "{refused:?}");
        let fitted = fit(model, &format!("{needed}B"));
        assert_eq!((fitted.status, fitted.json()["footprint"].as_u64()), (0, Some(needed)), "{fitted:?}");
        // A model has no times.
        let json = fitted.json();
        assert!(json["overhead"].is_null() && json["overhead_lower_bound"].is_null(), "{fitted:?}");
        let untimed = "the input has no times of operators, so overheads cannot be told";
        assert!(json["notes"].as_array().unwrap().iter().any(|note| note == untimed), "{fitted:?}");
        assert!(fitted.err.contains(untimed), "{fitted:?}");
    }
    // So no curve of overheads can be drawn.
    let swept = run("sweep", &chain, &["--using", "recompute"]);
    assert!(swept.status == 2 && swept.err.contains("the input has no times of operators"), "{swept:?}");
}

#[test]
fn operators_take_the_times_that_a_run_has_noted() {
    let timed = |name: &str, inputs: &str, outputs: &str, time_ns: &str| {
        let entry = [field(1, b"sublet.time_ns"), field(2, time_ns.as_bytes())].concat();
        [node(name, inputs, outputs), field(9, &entry)].concat()
    };
    let tensor = |name: &str, n: usize| value(name, FLOAT, &[n]);
    // `a` is large, and read again in the end. To recompute it takes 3 of 10 us.
    let chain = |first: &str, time_ns: &str| {
        let nodes = [
            timed(first, "x", "a", time_ns),
            timed("ReduceSum", "a", "b", "2000"),
            timed("Exp", "b", "c", "1000"),
            timed("ReduceSum", "c", "d", "1000"),
            timed("Add", "a d", "y", "3000"),
        ];
        let inner = [tensor("a", 1000), tensor("b", 1), tensor("c", 1000), tensor("d", 1)];
        model(&nodes, "", [&[tensor("x", 1)], &[tensor("y", 1)], &inner])
    };
    let fitted = run("fit", &chain("Exp", "3000"), &["--using", "recompute", "--limit", "60%", "--json"]);
    assert_eq!((fitted.status, fitted.json()["time_ns"].as_f64()), (0, Some(13_000.0)), "{fitted:?}");
    assert!(run("sweep", &chain("Exp", "3000"), &["--using", "recompute", "--points", "2"]).status == 0);
    // Which operators give the same result when they run again is known by what they compute.
    let fit = |first: &str| run("fit", &chain(first, "3000"), &["--limit", "60%", "--device", "jetson-orin"]);
    let known = fit("Exp");
    assert!(known.status == 0 && !known.err.contains("recomputed"), "{known:?}");
    assert!(["RandomNormalLike", "custom.Exp"].iter().all(|unknown| fit(unknown).status > 0));
    let refused = plan(&chain("Exp", "3 us"), &[]);
    assert!(refused.status == 2 && refused.err.contains("Exp is no number of ns: \"3 us\""), "{refused:?}");
    assert_eq!(plan(&chain("Exp", &u64::MAX.to_string()), &[]).status, 0);
}

#[test]
fn a_fit_writes_over_what_an_operator_of_onnx_may_write_over() {
    let tensor = |name: &str, n: usize| value(name, FLOAT, &[n]);
    // `a` is read again after `d`, which may lie over `c`.
    let nodes = [
        node("Exp", "x", "a"),
        node("ReduceSum", "a", "b"),
        node("Expand", "b", "c"),
        node("Neg", "c", "d"),
        node("ReduceSum", "d", "e"),
        node("Add", "a e", "y"),
    ];
    let inner = [tensor("a", 1024), tensor("b", 1), tensor("c", 1024), tensor("d", 1024), tensor("e", 1)];
    let model = model(&nodes, "", [&[tensor("x", 1)], &[tensor("y", 1)], &inner]);
    let fitted = run("fit", &model, &["--device", "jetson-orin", "--limit", "9KiB", "--json"]);
    assert_eq!((fitted.status, fitted.json()["in_place"].as_u64()), (0, Some(1)), "{fitted:?}");
}

#[test]
fn what_one_order_needs_is_no_bound_on_all_orders() {
    // The order that is found needs 960 bytes; of other orders it is known that they need 896.
    let sum = |j: usize| node("Sum", &format!("a{j} a{} a{}", (3 * j + 1) % 12, (7 * j + 2) % 12), &format!("b{j}"));
    let mut nodes: Vec<Vec<u8>> = (0..12).map(|i| node("Neg", "x", &format!("a{i}"))).collect();
    nodes.extend((0..12).map(sum));
    let names = |letter: char| (0..12).map(|i| format!("{letter}{i}")).collect::<Vec<_>>().join(" ");
    nodes.push(node("Sum", &names('b'), "y"));
    let model = model(&nodes, "", [&floats("x"), &floats("y"), &floats(&format!("{} {}", names('a'), names('b')))]);
    // Nor is a plan of that order, whose max load is its peak, proved optimal.
    let found = plan(&model, &["--reorder", "--json"]).json();
    assert_eq!((found["peak"].as_u64(), found["optimal"].as_bool()), (Some(960), Some(false)), "{found}");
    let page = |options: &[&str]| plan(&model, &[options, &["--report", "-"]].concat()).out;
    let claims = |page: String| page.contains("\"optimal\":true");
    assert!(!claims(page(&["--reorder"])) && claims(page(&[])));
    for (capacity, status, answer) in [("959B", 3, "none found"), ("895B", 1, "proved: none fits")] {
        let ran = plan(&model, &["--reorder", "--json", "--capacity", capacity]);
        let json = ran.json();
        assert_eq!((ran.status, json["answer"].as_str()), (status, Some(answer)), "{ran:?}");
        assert_eq!((json["peak"].as_u64(), json["lower_bound"].as_u64()), (Some(960), Some(896)), "{ran:?}");
    }
}

#[test]
fn only_an_operand_that_is_read_no_later_than_it_is_written_is_written_over() {
    // A kernel may take the maximum of the first two operands first, and of the result and the third one last. So the
    // output may lie over the first or the second operand, and not over the third.
    let three = |first: &str| [node("Neg", "x", "c"), node("Max", &format!("{first} K c"), "y")];
    assert_eq!(peak(&model(&three("K"), "K", [&floats("x"), &floats("y"), &floats("c")])), 128);
    let two = [node("Neg", "x", "c"), node("Max", "c K", "y")];
    assert_eq!(peak(&model(&two, "K", [&floats("x"), &floats("y"), &floats("c")])), 64);
    // The exponent has as many bytes as the output but half as many elements, each of which is read twice.
    let power = [node("Cast", "x", "p"), node("Pow", "K p", "y")];
    let exponent = [value("p", INT64, &[1, 8])];
    assert_eq!(peak(&model(&power, "K", [&floats("x"), &[value("y", FLOAT, &[2, 8])], &exponent])), 128);
    // An operator of another domain with the same name.
    let own = [node("my.Relu", "x", "y")];
    assert_eq!(peak(&model(&own, "", [&floats("x"), &floats("y"), &[]])), 128);
    // The first operand is a constant; the second one is the shape, of which the output is no view.
    let view = [node("Neg", "x", "t"), node("Reshape", "K t", "y")];
    assert_eq!(peak(&model(&view, "K", [&floats("x"), &floats("y"), &floats("t")])), 128);
}

#[test]
fn a_table_of_other_blocks_is_told_apart_from_a_wrong_plan() {
    let folder = Folder::new();
    let chain = [node("Neg", "x", "y"), node("Neg", "y", "z")];
    let (file, table) = (folder.path("model.onnx"), folder.path("plan.csv"));
    fs::write(&file, model(&chain, "", [&floats("x"), &floats("z"), &floats("y")])).unwrap();
    for (options, status) in [(&[][..], 0), (&["--in-place"], 1)] {
        assert_eq!(sublet(&[&["plan", &file, "--output", &table], options].concat()).status, 0);
        let ran = sublet(&["verify", &file, &table]);
        assert!(ran.status == status && ran.err.contains("--in-place") == (status == 1), "{ran:?}");
    }
}

#[test]
fn operators_keep_the_numbers_of_the_file() {
    let folder = Folder::new();
    let nodes = [node("Constant", "", "K"), node("Relu", "x", "y"), node("Add", "y K", "z")];
    let model = model(&nodes, "", [&floats("x"), &floats("z"), &floats("y")]);
    let (asked, header) = (folder.path("asked.csv"), folder.path("plan.h"));
    fs::write(&asked, "op,bytes\n2,1000\n").unwrap();
    let ran = plan(&model, &["--workspace", &asked, "--header", &header, "--json"]);
    assert_eq!(ran.json()["peak"], 1000 + 128, "{}", ran.err);
    let text = fs::read_to_string(&header).unwrap();
    assert!(text.contains("    1u, /* Relu */\n    2u, /* Add */\n"), "{text}");
    fs::write(&asked, "op,bytes\n0,1000\n").unwrap();
    assert!(refused(&model, &["--workspace", &asked]).contains("no operator has this number"));
    // A header holds offsets of 31 bits.
    let large = [value("x", FLOAT, &[1 << 30])];
    let large = self::model(&[node("Relu", "x", "y")], "", [&large, &[value("y", FLOAT, &[1 << 30])], &[]]);
    assert!(refused(&large, &["--header", &header]).contains("a header holds plans below 2 GiB"));
}

#[test]
fn what_is_not_counted_is_told_and_what_is_random_is_counted() {
    let inner = field(5, &field(6, &field(1, &node("Neg", "x", "inside"))));
    let branch = [[node("If", "c", "y"), inner].concat()];
    let condition = [value("c", FLOAT, &[1]), value("x", FLOAT, &[4, 4])];
    let ran = plan(&model(&branch, "", [&condition, &floats("y"), &[]]), &[]);
    assert!(
        ran.out.contains("what the graphs inside of If need beside their inputs and outputs is not counted"),
        "{}",
        ran.out
    );
    // Functions that the file defines, of which one is called.
    let calls = [node("my.Block", "x", "t"), node("Relu", "t", "y")];
    let function = |name: &str, domain: &str| {
        let body = field(7, &node("Neg", "a", "b"));
        field(25, &[field(1, name.as_bytes()), body, field(10, domain.as_bytes())].concat())
    };
    let plain = model(&calls, "", [&floats("x"), &floats("y"), &floats("t")]);
    let functions = [plain.clone(), function("Block", "my"), function("Relu", "my"), function("Neg", "")].concat();
    assert_eq!(plan(&functions, &["--json"]).json()["inner_graphs"], serde_json::json!(["my.Block"]));
    assert!(plan(&functions, &[]).out.contains("the graphs inside of my.Block need"));
    assert_eq!(plan(&plain, &["--json"]).json()["inner_graphs"], serde_json::json!([]));
    let random = |kind: &str| [node(kind, "K", "r"), node("Add", "x r", "y")];
    for (kind, peak) in [("RandomNormalLike", 192), ("Neg", 128)] {
        let model = model(&random(kind), "K", [&floats("x"), &floats("y"), &floats("r")]);
        assert_eq!(plan(&model, &["--json"]).json()["peak"], peak, "{kind}");
    }
}

#[test]
fn shapes_are_needed_of_what_is_read() {
    // The mask of a dropout, which nobody reads and whose shape the file does not tell.
    let dropout = [node("Dropout", "x", "y mask"), node("Neg", "y", "z")];
    let values = |more: &str| model(&dropout, "", [&floats("x"), &floats("z"), &floats(more)]);
    assert_eq!(plan(&values("y"), &["--json"]).json()["peak"], 128);
    assert!(refused(&values(""), &[]).contains("the shape of tensor y is not known"));
    let texts = [value("x", TEXT, &[4])];
    assert!(
        refused(&model(&dropout, "", [&texts, &floats("z"), &floats("y")]), &[]).contains("tensor x has the type 8")
    );
    // So that no operator writes later what another has made.
    let twice = model(&[node("Neg", "x", "y"), node("Abs", "x", "y")], "", [&floats("x"), &floats("y"), &[]]);
    assert!(refused(&twice, &[]).contains("y is written twice"));
    let never = model(&[node("Neg", "x", "y")], "", [&floats("x"), &floats("y w"), &[]]);
    assert!(refused(&never, &[]).contains("no operator writes the output 2:w"));
    assert!(refused(&values("y"), &["--output", "plan.onnx"]).contains("an .onnx holds no plan"));
}

/// The operators of a model's graph, as bytes, and all else of it.
fn parts(model: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    fn length(bytes: &[u8]) -> (usize, usize) {
        let count = bytes.iter().position(|b| b & 0x80 == 0).unwrap() + 1;
        (bytes[..count].iter().rev().fold(0, |n, b| n << 7 | usize::from(b & 0x7f)), count)
    }
    // The version, in two bytes; then the graph.
    let (graph_len, count) = length(&model[3..]);
    let (mut nodes, mut rest) = (Vec::new(), model[..3 + count].to_vec());
    let mut at = 3 + count;
    while at < 3 + count + graph_len {
        let (len, count) = length(&model[at + 1..]);
        let field = &model[at..at + 1 + count + len];
        if field[0] == 1 << 3 | 2 {
            nodes.push(field.to_vec());
        } else {
            rest.extend(field);
        }
        at += field.len();
    }
    rest.extend(&model[at..]);
    (nodes, rest)
}

#[test]
fn the_order_is_written_into_the_model_and_nothing_else() {
    // Reductions, each of which could follow what it reads, come at the end; one operator computes a constant.
    let nodes = [
        node("Neg", "c", "d"),
        node("Exp", "x", "a"),
        node("Exp", "a", "b"),
        node("Add", "b d", "y"),
        node("own.Sum", "a", "s"),
        node("own.Sum", "b", "t"),
    ];
    let small = |names: &str| names.split(' ').map(|name| value(name, FLOAT, &[])).collect::<Vec<_>>();
    let outputs = [floats("y"), small("s t")].concat();
    let mut bytes = model(&nodes, "c", [&floats("x"), &outputs, &floats("a b d")]);
    // A field that this version does not know, after the graph.
    bytes.extend(field(99, b"kept as it is"));
    let folder = Folder::new();
    let [file, ordered] = ["model.onnx", "ordered.onnx"].map(|name| folder.path(name));
    fs::write(&file, &bytes).unwrap();
    let ran = sublet(&["plan", &file, "--reorder", "--output", &ordered]);
    assert!(ran.status == 0 && ran.out.contains("execution_order is PRIORITY_BASED"), "{ran:?}");
    let written = fs::read(&ordered).unwrap();
    let ((old, rest), (new, rest_of_new)) = (parts(&bytes), parts(&written));
    assert_eq!((rest, written.len()), (rest_of_new, bytes.len()));
    assert_eq!(new, [0, 1, 2, 4, 5, 3].map(|i: usize| old[i].clone()));
    // The file's own order now needs what the search has found.
    let peak = |file: &str, options: &[&str]| {
        sublet(&[&["plan", file, "--json"], options].concat()).json()["peak"].as_u64().unwrap()
    };
    assert_eq!(peak(&ordered, &[]), peak(&file, &["--reorder"]));
    assert!(peak(&file, &[]) > peak(&ordered, &[]));
    // An order needs a model of ONNX, and to be asked for; a graph in two parts is refused.
    for refused in [&["plan", &file, "--output", &ordered][..], &["plan", &file, "--reorder", "--output", &file]] {
        assert_eq!(sublet(refused).status, 2, "{refused:?}");
    }
    fs::write(&file, [bytes, field(7, &node("Neg", "x", "z"))].concat()).unwrap();
    let ran = sublet(&["plan", &file, "--reorder", "--output", &ordered]);
    assert!(ran.status == 2 && fs::read(&ordered).unwrap() == written, "{ran:?}");
    let trace = folder.path("blocks.csv");
    fs::write(&trace, "id,lower,upper,size\n0,0,2,8\n").unwrap();
    assert_eq!(sublet(&["plan", &trace, "--output", &ordered]).status, 2);
}
