//! `sublet fit --explain` and `--time-limit`: what was tried, and the best so far.

use crate::support::{Folder, sublet};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/vgg16_cifar_train_b100.csv");

/// A trace of fewer rows, on which these fits take less than a third of the time that they take on [`TRACE`].
const SHORT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/alexnet_train_b32.csv");

#[test]
fn what_won_is_what_was_made() {
    let ran = sublet(&["fit", SHORT, "--limit", "85%", "--using", "recompute,swap", "--explain", "--json"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let json = ran.json();
    let tried = json["tried"].as_array().unwrap();
    let won: Vec<_> = tried.iter().filter(|way| way["won"] == true).collect();
    let [won] = won[..] else { panic!("one way wins: {json}") };
    let least = tried.iter().filter_map(|way| way["overhead_ns"].as_f64()).fold(f64::INFINITY, f64::min);
    assert_eq!(won["overhead_ns"].as_f64(), Some(least));
    let (time, overhead) = (json["time_ns"].as_f64().unwrap(), json["overhead"].as_f64().unwrap());
    let told = least / (time / (1.0 + overhead));
    assert!((told - overhead).abs() < 1e-4, "{told} {overhead}");
    assert!(tried.iter().any(|way| way["strategy"] == "recompute, then swap"), "{json}");
    // Without the flag nothing is said, and the answer is the same.
    let plain = sublet(&["fit", SHORT, "--limit", "85%", "--using", "recompute,swap", "--json"]).json();
    assert!(plain.get("tried").is_none());
    assert_eq!((&plain["overhead"], &plain["footprint"]), (&json["overhead"], &json["footprint"]));
}

#[test]
fn no_time_is_no_answer_and_a_little_time_is_a_valid_one() {
    let none = sublet(&["fit", TRACE, "--limit", "52%", "--using", "recompute", "--time-limit", "0"]);
    assert_eq!(none.status, 3, "{none:?}");
    assert!(none.err.contains("stopped before anything was found"), "{}", none.err);
    let some = sublet(&["fit", TRACE, "--limit", "52%", "--using", "recompute", "--time-limit", "1000", "--json"]);
    assert_eq!((some.status, &some.json()["verified"]), (0, &true.into()), "{some:?}");
}

/// Four operators of 20 ms; `a` is not used while `b` and `c` are made, and all three do not fit.
const GAP: &str = "time_ns,event,block,bytes,op
0,malloc,x,1048576,
0,malloc,a,67108864,0
0,read,x,,0
20000000,write,a,,0
20000000,malloc,b,67108864,1
20000000,read,x,,1
40000000,write,b,,1
40000000,malloc,c,67108864,2
40000000,read,b,,2
60000000,write,c,,2
60000000,free,b,,2
60000000,read,a,,3
60000000,read,c,,3
80000000,write,x,,3
80000000,free,a,,3
80000000,free,c,,3
";

/// Fits [`GAP`] within the bytes of two of its blocks and the small one, and explains `block`.
fn gaps(block: &str, using: &str) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("gap.csv");
    std::fs::write(&trace, GAP).unwrap();
    std::fs::write(folder.path().join("gap.ops.csv"), "op,name,rerun\n0,first,1\n1,second,1\n2,third,0\n3,fourth,0\n")
        .unwrap();
    let (trace, explain) = (trace.to_str().unwrap(), format!("--explain={block}"));
    let ran = sublet(&["fit", trace, "--limit", "135266304", "--using", using, "--json", &explain]);
    assert_eq!(ran.status, 0, "{ran:?}");
    ran.json()["gaps"].clone()
}

#[test]
fn of_a_block_it_says_what_was_done_and_what_else_it_would_have_cost() {
    // 64 MiB at 12 GB/s and 10 µs, each way.
    let copy = 67_108_864.0 / 12.0 + 10_000.0;
    let close = |value: &serde_json::Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 1.0;
    let swapped = gaps("a", "swap");
    let [gap] = &swapped.as_array().unwrap()[..] else { panic!("one gap: {swapped}") };
    assert_eq!((&gap["after"], &gap["before"]), (&"0 first".into(), &"3 fourth".into()));
    assert_eq!((&gap["choice"], &gap["load_if_kept"]), (&"swapped".into(), &(3u64 * 67_108_864 + 1_048_576).into()));
    assert!(close(&gap["swap_ns"], 2.0 * copy) && close(&gap["recompute_ns"], 2e7), "{gap}");
    // `a` may come back only when `b` is gone, and the operator that reads `a` waits for the copy.
    assert!(close(&gap["cost_ns"], copy), "{gap}");
    assert!(close(&gap["idle_ns"], 4e7 + copy), "{gap}");

    let recomputed = gaps("a", "recompute");
    let [gap] = &recomputed.as_array().unwrap()[..] else { panic!("one gap: {recomputed}") };
    assert_eq!((&gap["choice"], &gap["before"]), (&"recomputed".into(), &"0' first".into()));
    assert!(close(&gap["cost_ns"], 2e7), "{gap}");

    // `x` must stay: it is kept in all its gaps. `b` is used by two operators in a row: it has no gap.
    let kept = gaps("x", "swap");
    assert!(
        kept.as_array().unwrap().iter().all(|gap| gap["choice"] == "kept" && gap["recompute_ns"].is_null()),
        "{kept}"
    );
    assert_eq!(gaps("b", "swap"), serde_json::json!([]));
}

#[test]
fn a_block_that_is_not_there_is_said_before_anything_is_fitted() {
    let ran = sublet(&["fit", TRACE, "--limit", "48%", "--explain=nothing"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.err.contains("--explain=nothing: the trace has no block of this name"), "{}", ran.err);
}

/// A weight that is on the host from its last use to its first one in the next iteration has a gap there.
#[test]
fn the_gap_across_the_end_of_the_iteration_is_told() {
    let folder = Folder::new();
    let out = folder.path("fitted");
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/alexnet_train_b32.csv");
    let fit = ["fit", trace, "--limit", "50%", "--using", "swap", "--json"];
    assert_eq!(sublet(&[&fit[..], &["-o", &out]].concat()).status, 0);
    let rows = std::fs::read_to_string(folder.path("fitted/rewritten.csv")).unwrap();
    let is = |line: &str, event: &str, block: &str| line.split(',').collect::<Vec<_>>()[1..3] == [event, block];
    let at = |event: &str, block: &str| rows.lines().position(|line| is(line, event, block));
    // A block that is copied back before its first use.
    let blocks = rows.lines().filter(|line| line.contains(",swap_in,")).map(|line| line.split(',').nth(2).unwrap());
    let early = |block: &&str| at("swap_in", block) < at("read", block).max(at("write", block));
    let block = blocks.into_iter().find(|block| early(block) && at("swap_in", block) < at("swap_out", block)).unwrap();
    let ran = sublet(&[&fit[..], &[&format!("--explain={block}")]].concat()).json();
    let gap = ran["gaps"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(gap["choice"], "swapped", "{ran}");
    let operator = |line: &str| line.rsplit(',').next().unwrap().to_owned();
    let used = |line: &&str| is(line, "read", block) || is(line, "write", block);
    let operators: Vec<String> = rows.lines().filter(used).map(operator).collect();
    let (first, last) = (operators.first().unwrap(), operators.last().unwrap());
    assert!(gap["before"].as_str().unwrap().contains(first.as_str()), "{gap} {first}");
    assert!(gap["after"].as_str().unwrap().contains(last.as_str()), "{gap} {last}");
}
