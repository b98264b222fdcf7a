//! Static graphs in, generated networks out.

use crate::support::{Folder, sublet};

const OPERATORS: &str = "\
op,name,inputs,outputs,workspace,time_ns,inplace
0,convolution,image weights,maps,4096,900,0
1,relu,maps,active,,100,1
2,sum,active maps,scores,,50,0
";
const TENSORS: &str = "\
tensor,bytes,storage
image,3072,transient
weights,864,persistent
maps,32768,transient
active,32768,transient
scores,4,iteration
";

#[test]
fn the_page_about_graphs_has_this_one() {
    let page = include_str!("../../docs/graphs.md");
    for file in [OPERATORS, TENSORS] {
        let lines = format!("    {}", file.trim_end().replace('\n', "\n    "));
        assert!(page.contains(&lines), "{lines}");
    }
}

fn graph(operators: &str, tensors: &str) -> (Folder, String) {
    let folder = Folder::new();
    folder.file("net.tensors.csv", tensors);
    let file = folder.file("net.csv", operators);
    (folder, file)
}

#[test]
fn a_graph_is_a_trace_to_every_command() {
    let (folder, file) = graph(OPERATORS, TENSORS);
    let trace = sublet(&["convert", &file, "-", "--to", "trace"]);
    assert_eq!(
        trace.out,
        "time_ns,event,block,bytes,op\n\
         0,malloc,weights,864,\n\
         0,malloc,image,3072,\n\
         0,write,image,,\n\
         0,malloc,maps,32768,0\n\
         0,read,image,,0\n\
         0,read,weights,,0\n\
         0,malloc,workspace 0,4096,0\n\
         900,write,workspace 0,,0\n\
         900,free,workspace 0,,0\n\
         900,write,maps,,0\n\
         900,free,image,,\n\
         900,malloc,active,32768,1\n\
         900,read,maps,,1\n\
         1000,write,active,,1\n\
         1000,malloc,scores,4,2\n\
         1000,read,active,,2\n\
         1000,read,maps,,2\n\
         1050,write,scores,,2\n\
         1050,free,active,,\n\
         1050,free,maps,,\n\
         1050,read,scores,,3\n\
         1050,free,scores,,\n"
    );
    let plan = folder.path("plan.csv");
    assert_eq!(sublet(&["plan", &file, "--output", &plan, "--json"]).json()["max_load"], 864 + 2 * 32_768 + 4);
    assert_eq!(sublet(&["verify", &file, &plan, "--json"]).json()["verified"], true);
    assert_eq!(sublet(&["stats", &file]).status, 0);
    assert_eq!(sublet(&["compare", &file]).status, 0);
    assert_eq!(sublet(&["fit", &file, "--limit", "1MiB", "--json"]).json()["original_peak"], 864 + 2 * 32_768 + 4);
}

#[test]
fn what_is_kept_for_the_iteration_is_there_at_its_end() {
    const OPERATORS: &str = "\
op,name,inputs,outputs,time_ns,rerun,ordered
0,keep,image,kept,1000000,1,0
1,widen,image,wide,1000000,1,0
2,narrow,wide,scores,1000000,1,0
";
    const TENSORS: &str = "\
tensor,bytes,storage
image,1000,transient
kept,1000000,iteration
wide,1000000,transient
scores,4,iteration
";
    let fitted = |tensors: &str| {
        let (folder, file) = graph(OPERATORS, tensors);
        let to = folder.path("fitted");
        let told =
            sublet(&["fit", &file, "--limit", "1200000", "--using", "recompute", "--output", &to, "--json"]).json();
        (told["overhead"].as_f64().unwrap(), folder.read("fitted/rewritten.csv"))
    };
    // The two large tensors do not fit at once. So `kept` is freed, and recomputed when `wide` is gone: one of three
    // equal operators runs twice, which adds a third of the time.
    let (overhead, rewritten) = fitted(TENSORS);
    let events: Vec<[&str; 2]> =
        rewritten.lines().map(|line| line.split(',').collect::<Vec<_>>()).map(|row| [row[1], row[2]]).collect();
    let place = |event: &str, block: &str| events.iter().rposition(|&row| row == [event, block]).unwrap();
    assert!((overhead - 1.0 / 3.0).abs() < 1e-6, "{overhead}");
    assert!(
        place("free", "wide") < place("malloc", "kept") && place("malloc", "kept") < place("read", "kept"),
        "{rewritten}"
    );
    // Where `kept` is not needed at the end, nothing is recomputed.
    assert!(fitted(&TENSORS.replace("iteration", "transient")).0.abs() < 1e-6);
}

#[test]
fn all_that_is_kept_for_the_iteration_is_there_at_once() {
    const OPERATORS: &str = "\
op,name,inputs,outputs,time_ns,rerun,ordered
0,one,image,first,1000000,1,0
1,two,image,second,1000000,1,0
2,three,image,third,1000000,1,0
";
    const TENSORS: &str = "\
tensor,bytes,storage
image,8,iteration
first,64,iteration
second,64,iteration
third,64,iteration
";
    let (_folder, file) = graph(OPERATORS, TENSORS);
    let fit = |limit: &str| sublet(&["fit", &file, "--using", "recompute", "--alignment", "1", "--limit", limit]);
    let refused = fit("199B");
    assert!(refused.status == 1 && refused.err.contains("200 bytes have to be on the device at once"), "{refused:?}");
    assert_eq!(fit("200B").status, 0);
    // Where only one has to last, each of the others has its place after it.
    let (_folder, file) = graph(OPERATORS, &TENSORS.replacen("iteration", "transient", 3));
    let ran = sublet(&["fit", &file, "--using", "recompute", "--alignment", "1", "--limit", "72B"]);
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn what_is_wrong_with_a_graph_is_named() {
    let wrong = |from: &str, to: &str| {
        let (_folder, file) = graph(&OPERATORS.replace(from, to), TENSORS);
        let ran = sublet(&["plan", &file]);
        assert_eq!(ran.status, 2, "{}", ran.err);
        ran.err
    };
    for (from, to, message) in [
        ("image weights", "image wights", "net.csv:2:15: there is no tensor wights"),
        ("maps,active,,100", "maps,maps2,,100", "net.csv:3:13: there is no tensor maps2"),
        (
            "maps,active,,100",
            "image,maps,,100",
            "net.csv:3: op 1 writes maps, which op 0 has written and this one does not read",
        ),
        ("maps,active,,100", "maps,active active,,100", "net.csv:3: op 1 writes active twice"),
        ("image weights", "image scores", "net.csv:2: op 0 needs, through others, what it writes itself"),
        ("1,relu", "7,relu", "expected the op 1: they are numbered from 0"),
        ("900,0", "900,yes", "expected 0 or 1"),
    ] {
        let err = wrong(from, to);
        assert!(err.contains(message), "{err}");
    }
    for (from, to, message) in [
        ("32768", "0", "net.tensors.csv:4:6: expected a size of at least one byte"),
        ("active", "maps", "net.tensors.csv:5:1: tensor maps is there already, in line 4"),
        ("active", "the active", "expected a name without spaces"),
        ("persistent", "forever", "expected transient, iteration or persistent"),
    ] {
        let (_folder, file) = graph(OPERATORS, &TENSORS.replacen(from, to, 1));
        let err = sublet(&["plan", &file]).err;
        assert!(err.contains(message), "{err}");
    }
    let (_folder, file) = graph(&OPERATORS.replacen("inplace", "in_place", 1), TENSORS);
    assert!(sublet(&["plan", &file]).err.contains("not read: the column \"in_place\""));
    let folder = Folder::new();
    let alone = folder.file("alone.csv", OPERATORS);
    assert!(sublet(&["plan", &alone]).err.contains("alone.tensors.csv"));
}

/// Two branches with large intermediate values and small results: one after the other they take less.
const BRANCHES: &str = "\
op,name,inputs,outputs,ordered,inplace
0,left,image,wide,0,0
1,right,image,broad,0,0
2,sum,wide,a,0,0
3,sum,broad,b,0,0
4,add,a b,c,0,1
";
const BRANCH_TENSORS: &str = "tensor,bytes\nimage,1\nwide,9\nbroad,9\na,1\nb,1\nc,1\n";

fn planned(operators: &str, tensors: &str, options: &[&str]) -> serde_json::Value {
    let (_folder, file) = graph(operators, tensors);
    sublet(&[&["plan", &file, "--json"], options].concat()).json()
}

#[test]
fn a_graph_is_planned_in_the_order_that_needs_least_memory() {
    let file = planned(BRANCHES, BRANCH_TENSORS, &[]);
    assert!(file["peak"] == 19 && file.get("runs").is_none());
    let found = planned(BRANCHES, BRANCH_TENSORS, &["--reorder"]);
    assert!(found["peak"] == 11 && found["optimal"] == true && found["order"]["file"] == 19, "{found}");
    assert_eq!(found["runs"], serde_json::json!([1, 3, 0, 2, 4]));
    // Where the first two are ordered, they run in their order.
    let ordered = BRANCHES
        .replace("left,image,wide,0", "left,image,wide,1")
        .replace("right,image,broad,0", "right,image,broad,1");
    let found = planned(&ordered, BRANCH_TENSORS, &["--reorder"]);
    let runs: Vec<u64> = found["runs"].as_array().unwrap().iter().map(|k| k.as_u64().unwrap()).collect();
    let place = |k| runs.iter().position(|&run| run == k);
    assert!(place(0) < place(1) && found["peak"] == 11, "{found}");
}

#[test]
fn outputs_of_a_graph_lie_over_inputs_that_nobody_reads_later() {
    let (folder, file) = graph(OPERATORS, TENSORS);
    // The sum reads what the relu has read: it stays.
    assert_eq!(sublet(&["plan", &file, "--in-place", "--json"]).json()["blocks"], 6);
    let alone = OPERATORS.replace("active maps", "active");
    let file = folder.file("net.csv", &alone);
    let plan = folder.path("plan.csv");
    let told = sublet(&["plan", &file, "--in-place", "--output", &plan]).out;
    assert!(told.contains("runs      0 1 2\n") && folder.read("plan.csv").contains("\nmaps+active,"), "{told}");
    let peaks = [&[][..], &["--in-place"]].map(|options| planned(&alone, TENSORS, options)["peak"].as_u64().unwrap());
    assert_eq!(peaks, [864 + 2 * 32768, 864 + 3072 + 4096 + 32768]);
    let refused = sublet(&["plan", &file, "--overlap"]);
    assert!(refused.err.contains("of the options for models it takes --reorder and --in-place"), "{}", refused.err);
}

#[test]
fn a_generated_network_is_a_trace_a_graph_and_the_same_every_time() {
    let folder = Folder::new();
    let [trace, again, graph] = ["trace.csv", "again.csv", "graph.csv"].map(|name| folder.path(name));
    let vgg = ["generate", "vgg", "--depth", "11", "--image", "cifar", "--batch", "4", "--output"];
    let told = sublet(&[&vgg[..], &[&trace, "--json"]].concat()).json();
    sublet(&[&vgg[..], &[&again]].concat());
    assert!(folder.read("trace.csv") == folder.read("again.csv"));
    assert!(folder.read("trace.ops.csv") == folder.read("again.ops.csv"));
    sublet(&[&vgg[..], &[&graph, "--graph"]].concat());
    let [of_trace, of_graph] = [&trace, &graph].map(|file| sublet(&["plan", file, "--json"]).json());
    assert_eq!(of_trace["max_load"], told["max_load"]);
    for key in ["blocks", "max_load", "peak"] {
        assert_eq!(of_trace[key], of_graph[key], "{key}");
    }
}

#[test]
fn alexnet_takes_the_time_that_was_recorded() {
    let folder = Folder::new();
    let told = sublet(&["generate", "alexnet", "--batch", "32", "--output", &folder.path("net.csv"), "--json"]).json();
    let end = include_str!("../../traces/alexnet_train_b32.csv").lines().last().and_then(|row| row.split(',').next());
    assert_eq!(told["time_ns"].to_string(), end.unwrap());
    assert_eq!(told["operators"], 73);
}

#[test]
fn the_networks_that_there_are_are_named() {
    let folder = Folder::new();
    let file = folder.path("net.csv");
    let refused = |arguments: &[&str]| {
        let ran = sublet(&[&["generate"], arguments, &["--batch", "1", "--output", &file]].concat());
        assert_eq!(ran.status, 2);
        ran.err
    };
    assert!(refused(&["resnet", "--depth", "1000"]).contains("3 n + 2 from 14 on, such as 998"));
    assert!(refused(&["resnet", "--depth", "50", "--blocks", "3,4,6"]).contains("expected four numbers"));
    assert!(refused(&["resnet", "--depth", "50", "--blocks", "3,4,6,4"]).contains("50 layers are 16 blocks"));
    assert!(refused(&["wrn", "--depth", "30"]).contains("6 n + 4 from 10 on, such as 28"));
    assert!(refused(&["vgg", "--depth", "12"]).contains("there are 11, 13, 16 and 19"));
    assert!(refused(&["regnet", "--tenths", "31"]).contains("4, 8, 16, 32, 80, 160 and 320"));
    assert!(refused(&["unet", "--side", "100"]).contains("a side of 100 cannot be halved 4 times"));
    assert!(refused(&["mixer", "--patch", "15"]).contains("a patch of 15 has to divide 224"));
    assert!(refused(&["lstm", "--steps", "0"]).contains("the number of steps is 0"));
    assert!(refused(&["lstm", "--flops", "0"]).contains("expected a number above 0"));
    let standard = sublet(&["generate", "vgg", "--depth", "11", "--batch", "1", "--output", "-"]);
    assert!(standard.err.contains("expected NAME.csv"));
    assert!(folder.names().is_empty());
}
