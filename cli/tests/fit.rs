//! `sublet fit` and `sublet sweep`, and what the judge in Python says of them.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Folder, Ran, folder_from, sublet};
use serde_json::Value;
use sublet_core::simulate::Device;

const SKIPPED: &str = "rewritten traces are not held against the judge";

/// The corpus and the judge of rewritten traces.
fn corpus() -> Option<(PathBuf, PathBuf)> {
    let data = folder_from("SUBLET_DATA", SKIPPED)?;
    let judges = folder_from("SUBLET_JUDGES", SKIPPED)?;
    Some((data.join("traces"), judges.join("check_schedule.py")))
}

fn judge(script: &PathBuf, args: &[&str]) -> Value {
    let output = Command::new("python3").arg(script).args(args).output().expect("python3");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// A weight, and a chain of two activations of which the first is read again at the end.
const TRACE: &str = "\
time_ns,event,block,bytes,op
0,malloc,w,4096,
0,malloc,a,8388608,0
0,read,w,,0
1000000,write,a,,0
1000000,malloc,b,8388608,1
1000000,read,a,,1
2000000,write,b,,1
2000000,malloc,c,8388608,2
2000000,read,b,,2
9000000,write,c,,2
9000000,free,b,,
9000000,read,c,,3
11000000,write,w,,3
11000000,free,c,,
11000000,read,a,,4
11500000,write,w,,4
11500000,free,a,,
";

fn peak_of(trace: &str) -> u64 {
    sublet(&["stats", trace, "--json"]).json()["max_load"].as_u64().unwrap()
}

#[test]
fn writes_the_trace_the_plan_and_the_timeline() {
    let folder = Folder::new();
    let (trace, out) = (folder.file("t.csv", TRACE), folder.path("fitted"));
    let report = folder.path("fit.html");
    let ran =
        sublet(&["fit", &trace, "--using", "swap", "--limit", "17M", "--output", &out, "--report", &report, "--json"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let json = ran.json();
    assert_eq!(json["verified"], true);
    assert_eq!(json["original_peak"], 3 * 8_388_608 + 4096);
    assert_eq!(json["overhead"], 0.0, "a leaves while op 1 runs, and returns while op 3 runs");
    assert_eq!(json["swapped_bytes"], 2 * 8_388_608);
    assert!(json["footprint"].as_u64().unwrap() <= 17 << 20);
    let rewritten = folder.read("fitted/rewritten.csv");
    assert!(rewritten.contains(",swap_out,a,,") && rewritten.contains(",swap_in,a,,"), "{rewritten}");
    assert!(folder.read("fitted/plan.csv").contains("\na#1,"));
    let timeline: Value = serde_json::from_str(&folder.read("fitted/timeline.json")).unwrap();
    let on = |tid: u64| timeline.as_array().unwrap().iter().filter(|e| e["ph"] == "X" && e["tid"] == tid).count();
    assert_eq!((on(0), on(1), on(2)), (5, 1, 1));
    assert!(folder.read("fit.html").contains("a#1"));
    let again = sublet(&[
        "verify",
        &trace,
        &format!("{out}/plan.csv"),
        "--rewritten",
        &format!("{out}/rewritten.csv"),
        "--json",
    ]);
    assert_eq!((again.status, &again.json()["time_ns"]), (0, &json["time_ns"]));
}

#[test]
fn a_stall_is_on_the_timeline() {
    let folder = Folder::new();
    let (trace, out) = (
        folder.file(
            "t.csv",
            TRACE.replace("9000000", "2200000").replace("11000000", "2300000").replace("11500000", "2700000"),
        ),
        folder.path("fitted"),
    );
    let json = sublet(&["fit", &trace, "--using", "swap", "--limit", "17M", "--output", &out, "--json"]).json();
    assert!(json["overhead"].as_f64().unwrap() > 0.1, "{json}");
    let timeline: Value = serde_json::from_str(&folder.read("fitted/timeline.json")).unwrap();
    let stalls: f64 =
        timeline.as_array().unwrap().iter().filter(|e| e["name"] == "stall").map(|e| e["dur"].as_f64().unwrap()).sum();
    let longer = json["time_ns"].as_f64().unwrap() - 2_700_000.0;
    assert!((stalls * 1e3 - longer).abs() < 1.0, "{stalls} µs of {longer} ns");
}

#[test]
fn below_what_is_possible_what_is_needed_is_told() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", TRACE);
    let ran = sublet(&["fit", &trace, "--limit", "10M", "--json"]);
    assert_eq!((ran.status, &ran.json()["verified"]), (1, &Value::Bool(false)), "{ran:?}");
    let needed = ran.json()["needed"].as_u64().unwrap();
    assert!(ran.err.contains(&needed.to_string()), "{ran:?}");
    let status = |limit: u64| sublet(&["fit", &trace, "--limit", &limit.to_string()]).status;
    assert_eq!(status(needed - 1), 1);
    let least = least_limit(&["fit", &trace]);
    assert!(least >= needed && status(least) == 0 && (least == needed || status(least - 1) == 3), "{least} {needed}");
}

/// At once: the status comes before anything is searched for.
#[test]
fn a_limit_below_the_weights_that_stay_is_impossible() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/alexnet_train_b32.csv");
    let ran = sublet(&["fit", trace, "--limit", "500MiB", "--keep-persistent", "--time-limit", "0", "--json"]);
    assert_eq!((ran.status, ran.json()["needed"].as_u64() > Some(500 << 20)), (1, true), "{ran:?}");
}

#[test]
fn devices() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", TRACE);
    let fit =
        |device: &str| sublet(&["fit", &trace, "--using", "swap", "--limit", "17M", "--device", device, "--json"]);
    let integrated = fit("jetson-orin");
    assert_eq!(integrated.status, 2);
    assert!(integrated.err.contains("share one memory") && integrated.err.contains("recomputation"), "{integrated:?}");
    // Only recomputation saves memory on that device. It can here, once the update of the weight is left out: the
    // recomputed operator reads the weight.
    let constant = folder.file("constant.csv", TRACE.replace("11000000,write,w,,3\n", ""));
    let again = |more: &[&str]| {
        sublet(&[&["fit", &constant, "--limit", "17M", "--device", "jetson-orin", "--json"], more].concat())
    };
    // No file says which operators may be recomputed.
    assert!(again(&[]).status == 2 && again(&[]).err.contains("--using recompute"));
    let again = again(&["--using", "recompute"]).json();
    assert_eq!((&again["swapped_bytes"], &again["recomputed_ns"]), (&Value::from(0), &Value::from(1_000_000)));
    assert!(fit("abacus").err.contains("gtx1080ti"));
    assert_eq!(fit("h200").json()["overhead"], 0.0);
    let slow = folder.file("slow.csv", "out_bytes_per_s,in_bytes_per_s,latency_ns\n1000000000,2000000000,5000\n");
    assert!(fit(&slow).json()["overhead"].as_f64().unwrap() > 0.2);
    // A file as the runtime writes it for the links that it has measured.
    let links = Device { in_bandwidth: 2e9, ..Device::symmetric(1e9) };
    let links = Device { host_capacity: Some(1 << 30), out_latency: 4000.0, in_latency: 6000.0, ..links };
    let measured = folder.file("measured.csv", sublet_cuda::measure::device_file(&links));
    assert_eq!(fit(&measured).json()["overhead"], fit(&slow).json()["overhead"]);
    let none = folder.file("none.csv", "out_bytes_per_s,in_bytes_per_s,latency_ns\n0,1,1\n");
    assert_eq!(fit(&none).status, 2);
    let full = folder
        .file("full.csv", "out_bytes_per_s,in_bytes_per_s,latency_ns,host_bytes\n12000000000,12000000000,10000,1000\n");
    // Nothing can leave to so small a host.
    assert!(fit(&full).json()["least_limit"].as_u64().unwrap() > 3 * 8_388_608);
}

#[test]
fn a_limit_may_be_a_part_of_the_peak() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", TRACE);
    let peak = peak_of(&trace);
    let json = sublet(&["fit", &trace, "--using", "swap", "--limit", "75%", "--json"]).json();
    assert_eq!((&json["limit"], &json["verified"]), (&Value::from(peak * 3 / 4), &Value::Bool(true)));
    let ran = sublet(&["fit", &trace, "--limit", "120%"]);
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains("at most 100 % of the peak"), "{ran:?}");
}

#[test]
fn an_instance_cannot_be_fitted() {
    let folder = Folder::new();
    let instance = folder.file("i.csv", "id,lower,upper,size\na,0,2,8\n");
    let ran = sublet(&["fit", &instance, "--limit", "8B"]);
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains("expected a trace"), "{ran:?}");
}

#[test]
fn a_sweep_is_a_table_a_curve_and_a_page() {
    let folder = Folder::new();
    let (trace, csv, html) = (folder.file("t.csv", TRACE), folder.path("curve.csv"), folder.path("curve.html"));
    let ran =
        sublet(&["sweep", &trace, "--points", "3", "--using", "swap,recompute", "--output", &csv, "--report", &html]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("by swaps alone, every schedule without overhead takes at least"), "{}", ran.out);
    let curve = folder.read("curve.csv");
    let joint: Vec<&str> = curve.lines().filter(|l| l.contains(",joint,")).collect();
    assert_eq!(joint.len(), 3, "{curve}");
    assert!(curve.contains(",swap,") && curve.contains(",recompute,"), "{curve}");
    assert!(folder.read("curve.html").contains("polyline"));
}

/// Asserts that the judge's figures are the tool's.
fn agree(ran: &Ran, verdict: &Value) {
    let json = ran.json();
    assert_eq!(verdict["valid"], true, "{verdict} {json}");
    for name in ["peak_load", "footprint", "swapped_bytes", "recomputed_ns"] {
        assert_eq!(verdict[name], json[name], "{name}");
    }
    let (theirs, ours) = (verdict["time_ns"].as_f64().unwrap(), json["time_ns"].as_f64().unwrap());
    assert!((theirs - ours).abs() <= 1e-5 * theirs, "{theirs} {ours}");
}

/// The least limit that a fit with these arguments is known to reach.
fn least_limit(args: &[&str]) -> u64 {
    let fit = |limit: u64| sublet(&[args, &["--limit", &format!("{limit}B"), "--json"]].concat()).json();
    let refused = fit(1);
    if let Some(least) = refused["least_limit"].as_u64() {
        return least;
    }
    let made = fit(refused["needed"].as_u64().unwrap());
    made["footprint"].as_u64().or(made["least_limit"].as_u64()).unwrap()
}

#[test]
fn the_judge_accepts_swaps_at_every_limit() {
    let Some((traces, script)) = corpus() else { return };
    for (name, percents) in [
        ("vgg11_cifar_train_b100", &[95, 70, 50][..]),
        ("alexnet_train_b64", &[95, 70, 50]),
        ("googlenet_train_b32", &[86]),
        ("gpt2_train_b8", &[97]),
        ("resnet50_cifar_train_b100", &[45]),
        ("preresnet200_train_b32", &[82]),
        ("inception_resnet_v2_train_b32", &[82]),
        ("seq2seq_train_b64", &[82]),
    ] {
        let trace = traces.join(format!("{name}.csv")).to_str().unwrap().to_owned();
        for percent in percents {
            let limit = peak_of(&trace) * percent / 100;
            assert!(overhead(&trace, limit, "swap", &script).is_finite(), "{name} {percent}");
        }
    }
}

/// Fits with some means; the judge must accept the result. Returns the overhead, infinite where nothing fits.
fn overhead(trace: &str, limit: u64, using: &str, script: &PathBuf) -> f64 {
    let folder = Folder::new();
    let (limit, out) = (limit.to_string(), folder.path("fitted"));
    let ran = sublet(&["fit", trace, "--limit", &limit, "--using", using, "--output", &out, "--json"]);
    if [1, 3].contains(&ran.status) {
        return f64::INFINITY;
    }
    let (rewritten, plan) = (format!("{out}/rewritten.csv"), format!("{out}/plan.csv"));
    agree(&ran, &judge(script, &[trace, &rewritten, "--plan", &plan, "--limit", &limit, "--cyclic"]));
    ran.json()["overhead"].as_f64().unwrap()
}

const ALL: &str = "swap,recompute,in-place,relu";

/// All means together are never worse than any alone, and the judge accepts what each makes.
#[test]
fn all_means_together_are_never_worse_than_one() {
    let Some((traces, script)) = corpus() else { return };
    for name in ["vgg16_cifar_train_b100", "googlenet_train_b32", "resnet18_cifar_train_b100", "alexnet_train_b32"] {
        let trace = traces.join(format!("{name}.csv")).to_str().unwrap().to_owned();
        let peak = peak_of(&trace);
        for percent in [95, 70, 40] {
            let overhead = |using| overhead(&trace, peak * percent / 100, using, &script);
            let joint = overhead(ALL);
            for single in ["swap", "recompute", "in-place", "relu"] {
                let alone = overhead(single);
                assert!(joint <= alone, "{name} at {percent}: {joint} of {alone} by {single}");
            }
        }
    }
}

/// Limits that cost no time, and that only in-place reuse or masks reach.
#[test]
fn less_memory_at_no_cost() {
    let Some((traces, script)) = corpus() else { return };
    for (name, percent, using) in [
        ("gpt2_train_b8", 93, "in-place"),
        ("vgg16_cifar_train_b100", 84, "relu"),
        ("resnet50_cifar_train_b100", 92, "relu,in-place"),
    ] {
        let trace = traces.join(format!("{name}.csv")).to_str().unwrap().to_owned();
        let limit = peak_of(&trace) * percent / 100;
        assert!(overhead(&trace, limit, using, &script) <= 0.0, "{name}");
        let least = least_limit(&["fit", &trace, "--using", using]);
        assert!(least <= limit && overhead(&trace, least, using, &script) <= 0.0, "{name} {least}");
    }
    let trace = traces.join("gpt2_train_b8.csv").to_str().unwrap().to_owned();
    let with = overhead(&trace, peak_of(&trace) * 60 / 100, ALL, &script);
    assert!(with <= 0.12, "{with}");
}

/// Without a file that says which operators give the same result when recomputed, none is, unless it is asked for.
#[test]
fn random_operators_do_not_run_again_by_chance() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", TRACE);
    let fit = |trace: &str, more: &[&str]| sublet(&[&["fit", trace, "--limit", "17M", "--json"], more].concat());
    let bare = fit(&trace, &[]);
    assert_eq!(bare.json()["using"], serde_json::json!(["swap"]));
    assert!(bare.err.starts_with("note: no operator is recomputed") && bare.json()["notes"].is_array(), "{bare:?}");
    let asked = fit(&trace, &["--using", "swap,recompute"]);
    assert!(asked.err.starts_with("note: it is assumed that every operator"), "{asked:?}");
    let told = folder.file("told.csv", TRACE);
    let ops = ["0", "1", "2", "3", "4"].map(|op| [op, ",op,fwd,1,1\n"].concat()).concat();
    folder.file("told.ops.csv", format!("op,name,phase,inplace,rerun\n{ops}"));
    let told = fit(&told, &[]);
    assert_eq!((told.err.as_str(), told.json()["notes"].is_null()), ("", true), "{told:?}");
    assert_eq!(told.json()["using"], serde_json::json!(["swap", "recompute", "in-place", "order"]));
}

/// Overheads that have been reached, and must not get worse: the limit in percent of the peak, and the overheads in
/// percent by recomputation alone and by all means together.
#[test]
fn overheads_of_computing_again() {
    let Some((traces, script)) = corpus() else { return };
    for (name, percent, again, joint) in [
        ("resnet50_train_b32", 60, 7.5, 4.5),
        ("resnet50_train_b32", 40, 16.0, 12.0),
        ("vgg16_cifar_train_b100", 60, 7.0, 0.1),
        ("googlenet_train_b32", 60, 7.0, 3.5),
        ("gpt2_train_b8", 80, 6.0, 5.0),
    ] {
        let trace = traces.join(format!("{name}.csv")).to_str().unwrap().to_owned();
        let limit = peak_of(&trace) * percent / 100;
        let [alone, together] = ["recompute", ALL].map(|using| overhead(&trace, limit, using, &script));
        assert!(100.0 * alone <= again && 100.0 * together <= joint, "{name} at {percent}: {alone} and {together}");
    }
}

/// The least limit that is named works, however small the host.
#[test]
fn the_least_limit_that_is_named_works() {
    let Some((traces, script)) = corpus() else { return };
    let folder = Folder::new();
    let host = |bytes: u64| {
        let text =
            format!("out_bytes_per_s,in_bytes_per_s,latency_ns,host_bytes\n12000000000,12000000000,10000,{bytes}\n");
        folder.file("host.csv", text)
    };
    for name in ["vgg11_cifar_train_b100", "alexnet_train_b32", "googlenet_train_b32"] {
        let trace = traces.join(format!("{name}.csv")).to_str().unwrap().to_owned();
        let peak = peak_of(&trace);
        let least = least_limit(&["fit", &trace, "--using", "swap"]);
        let overhead = overhead(&trace, least, "swap", &script);
        assert!(least < peak * 9 / 10 && overhead.is_finite(), "{name} {least}");
        // With an eighth of the peak on the host the least is at most an eighth below the peak.
        let small = host(peak / 8);
        let fit =
            |limit: &str| sublet(&["fit", &trace, "--using", "swap", "--limit", limit, "--device", &small, "--json"]);
        let least = least_limit(&["fit", &trace, "--using", "swap", "--device", &small]);
        assert!(least >= peak - peak / 8 && least < peak, "{name} {least} of {peak}");
        assert_eq!(fit(&least.to_string()).status, 0, "{name} {least}");
    }
}

/// The least limit that is named is close to what a lower bound proves: a limit lower by 1/1,024 is proved too low.
#[test]
fn the_least_limit_that_is_named_is_near_the_lower_bound() {
    let Some((traces, _)) = corpus() else { return };
    let trace = traces.join("../more_traces/bert_base_train_b16.csv").to_str().unwrap().to_owned();
    let refused =
        |limit: u64| sublet(&["fit", &trace, "--limit", &limit.to_string(), "--using", "recompute", "--json"]);
    let least = least_limit(&["fit", &trace, "--using", "recompute"]);
    assert_eq!(refused(least).status, 0);
    let below = refused(least - least / 1024);
    assert!(below.err.contains("no schedule by these means within"), "{below:?}");
}

/// Footprints that have been reached without overhead, and must not get worse, in percent of the peak.
#[test]
fn footprints_without_overhead() {
    let Some((traces, _)) = corpus() else { return };
    for (name, percent) in [
        ("resnet50_cifar_train_b100", 47),
        ("resnet18_cifar_train_b100", 32),
        ("vgg16_cifar_train_b100", 55),
        ("vgg11_cifar_train_b100", 62),
        ("resnet50_train_b32", 84),
        ("seq2seq_train_b64", 78),
        ("googlenet_train_b32", 87),
        ("preresnet200_train_b32", 81),
        ("inception_resnet_v2_train_b32", 78),
        ("lstm4x1024_train_b64", 56),
    ] {
        let trace = traces.join(format!("{name}.csv")).to_str().unwrap().to_owned();
        let limit = (peak_of(&trace) * percent / 100).to_string();
        let json = sublet(&["fit", &trace, "--using", "swap", "--limit", &limit, "--json"]).json();
        assert!(json["overhead"].as_f64().unwrap() <= 0.001, "{name} {json}");
    }
}

/// Overheads that have been reached, and must not get worse: the limit in percent of the peak, the overhead in percent.
#[test]
fn footprints_with_little_overhead() {
    let Some((traces, _)) = corpus() else { return };
    for (name, percent, most) in [
        ("resnet18_cifar_train_b100", 22, 5.0),
        ("resnet18_cifar_train_b100", 18, 15.0),
        ("vgg16_cifar_train_b100", 48, 5.0),
        ("vgg16_cifar_train_b100", 40, 15.0),
        ("vgg11_cifar_train_b100", 55, 5.0),
        ("vgg11_cifar_train_b100", 44, 15.0),
    ] {
        let trace = traces.join(format!("{name}.csv")).to_str().unwrap().to_owned();
        let limit = (peak_of(&trace) * percent / 100).to_string();
        let json = sublet(&["fit", &trace, "--using", "swap", "--limit", &limit, "--json"]).json();
        assert!(json["overhead"].as_f64().unwrap() <= most / 100.0, "{name} {percent} {json}");
    }
}

#[test]
fn no_published_policy_is_ahead_of_the_search() {
    let Some((traces, _)) = corpus() else { return };
    let folder = Folder::new();
    for name in ["alexnet_train_b32", "alexnet_train_b64"] {
        let trace = traces.join(format!("{name}.csv")).to_str().unwrap().to_owned();
        let csv = folder.path("curve.csv");
        let mut args = vec!["sweep", &trace, "--points", "4", "--output", &csv];
        let policies = ["bayes", "doa", "aoa", "wdoa", "swdoa", "layer"];
        args.extend(["auto"].iter().chain(&policies).flat_map(|policy| ["--policy", policy]));
        assert_eq!(sublet(&args).status, 0);
        let curve = folder.read("curve.csv");
        let rows: Vec<Vec<&str>> = curve.lines().skip(1).map(|l| l.split(',').collect()).collect();
        let by = |policy: &str| rows.iter().filter(|r| r[2] == policy).count();
        assert!(policies.into_iter().all(|policy| by(policy) > 0) && by("auto") == 4, "{name}: {curve}");
        for row in rows.iter().filter(|r| r[2] == "auto") {
            for other in rows.iter().filter(|r| r[0] == row[0]) {
                let overhead = |row: &[&str]| row[5].parse::<f64>().unwrap();
                assert!(overhead(row) <= overhead(other), "{name} {row:?} {other:?}");
            }
        }
    }
}

/// Rows are removed, doubled and moved; the verifier and the judge must agree on each result.
#[test]
fn the_judge_and_the_verifier_agree_on_broken_traces() {
    let Some((traces, script)) = corpus() else { return };
    let folder = Folder::new();
    let trace = traces.join("vgg11_cifar_train_b100.csv").to_str().unwrap().to_owned();
    let out = folder.path("fitted");
    let limit = (peak_of(&trace) / 2).to_string();
    assert_eq!(sublet(&["fit", &trace, "--using", "swap", "--limit", &limit, "--output", &out]).status, 0);
    let rewritten = folder.read("fitted/rewritten.csv");
    let (header, rows) = rewritten.split_once('\n').unwrap();
    // Times are not judged. With all of them 0, the rows are a trace that can be read in any order.
    let rows: Vec<String> = rows.lines().map(|l| format!("0,{}", l.split_once(',').unwrap().1)).collect();
    let copies: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].contains("swap_")).collect();
    let mut random = 1u64;
    let mut below = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % n
    };
    let (mut valid, mut invalid) = (0, 0);
    for round in 0..80 {
        let mut mutated = rows.clone();
        // Near a copy, where most can go wrong.
        let at = (copies[below(copies.len())] + below(9)).saturating_sub(4).min(rows.len() - 1);
        match round % 4 {
            0 => drop(mutated.remove(at)),
            1 => mutated.insert(at, rows[at].clone()),
            2 => mutated.swap(at, (at + 1).min(rows.len() - 1)),
            _ => {
                let row = mutated.remove(at);
                mutated.insert((at + below(60)).saturating_sub(30).min(rows.len() - 1), row);
            }
        }
        let file = folder.file("mutated.csv", format!("{header}\n{}\n", mutated.join("\n")));
        let plan = folder.path("mutated.plan.csv");
        let placed = sublet(&["plan", &file, "--output", &plan]).status == 0;
        let ours = placed.then(|| sublet(&["verify", &trace, &plan, "--rewritten", &file, "--json"]));
        let mut args = vec![trace.as_str(), &file, "--cyclic"];
        if placed {
            args.extend(["--plan", &plan]);
        }
        let theirs = judge(&script, &args);
        if let Some(ran) = ours.filter(|ran| ran.status == 0) {
            agree(&ran, &theirs);
            valid += 1;
        } else {
            assert_eq!(theirs["valid"], false, "round {round}: {theirs}");
            invalid += 1;
        }
    }
    assert!(valid > 10 && invalid > 10, "{valid} valid, {invalid} invalid");
}

#[test]
fn the_example_of_swapping_is_accepted() {
    let Some((traces, script)) = corpus() else { return };
    let folder = Folder::new();
    let trace = traces.join("vgg11_cifar_train_b100.csv").to_str().unwrap().to_owned();
    let example = traces.parent().unwrap().join("examples/vgg11_cifar_train_b100.at60.rewritten.csv");
    let example = example.to_str().unwrap();
    let plan = folder.path("plan.csv");
    assert_eq!(sublet(&["plan", example, "--output", &plan]).status, 0);
    let ran = sublet(&["verify", &trace, &plan, "--rewritten", example, "--json"]);
    agree(&ran, &judge(&script, &[&trace, example, "--plan", &plan, "--cyclic"]));
}

/// Sizes are rounded up while a trace is fitted. An output is not written over an input of another size, even if both
/// are rounded up to the same size.
#[test]
fn only_outputs_of_the_size_of_their_input_are_written_over_it() {
    let folder = Folder::new();
    let written = |output: u32| {
        let rows = format!(
            "time_ns,event,block,bytes,op\n1,malloc,x,100,0\n1,write,x,,0\n1,malloc,y,{output},1\n1,read,x,,1\n\
             9,write,y,,1\n9,free,x,,\n9,malloc,z,8,2\n9,read,y,,2\n20,write,z,,2\n20,free,y,,\n"
        );
        let trace = folder.file("t.csv", rows);
        folder.file("t.ops.csv", "op,name,phase,inplace,rerun\n0,a,,0,1\n1,b,,1,1\n2,c,,0,1\n");
        sublet(&["fit", &trace, "--limit", "512", "--json"])
    };
    let (same, other) = (written(100), written(120));
    assert_eq!(
        (same.json()["in_place"].as_u64(), same.json()["verified"].as_bool()),
        (Some(1), Some(true)),
        "{same:?}"
    );
    assert_eq!((other.json()["in_place"].as_u64(), other.status), (Some(0), 0), "{other:?}");
}
