//! `--reorder`: operators in another order, by `sublet fit`, `sublet verify` and the judge in Python.

use std::process::Command;

use crate::support::{Folder, folder_from, sublet};
use serde_json::Value;

/// Two random masks, two gradients that are made one after the other, and the two updates at the end.
const TRACE: &str = "\
time_ns,event,block,bytes,op
0,malloc,u,4096,
0,malloc,v,4096,
0,malloc,r,4096,0
0,read,u,,0
1000,write,r,,0
1000,malloc,s,4096,1
1000,read,v,,1
2000,write,s,,1
2000,malloc,g,4096,2
2000,read,r,,2
3000,write,g,,2
3000,free,r,,
3000,malloc,h,4096,3
3000,read,s,,3
5000,write,h,,3
5000,free,s,,
5000,read,g,,4
5000,read,u,,4
6000,write,u,,4
6000,read,h,,5
6000,read,v,,5
7000,write,v,,5
7000,free,g,,
7000,free,h,,
";

const OPS: &str = "\
op,name,phase,inplace,rerun
0,bernoulli_,fwd,0,0
1,bernoulli_,fwd,0,0
2,backward,bwd,0,0
3,backward,bwd,0,0
4,sgd,upd,0,0
5,sgd,upd,0,0
";

/// Whether `sublet verify` accepts rows in another order. The judge must say the same.
fn accepted(ops: &str, rewritten: &str, plan: &str, reorder: bool) -> bool {
    let folder = Folder::new();
    folder.file("t.ops.csv", ops);
    let trace = folder.file("t.csv", TRACE);
    let (rewritten, plan) = (folder.file("r.csv", rewritten), folder.file("p.csv", plan));
    let option: &[&str] = if reorder { &["--reorder"] } else { &[] };
    let ran = sublet(&[&["verify", &trace, &plan, "--rewritten", &rewritten, "--json"], option].concat());
    assert!(ran.status < 2, "{ran:?}");
    let skipped = "rows in another order are not held against the judge";
    if let Some(judges) = folder_from("SUBLET_JUDGES", skipped) {
        let mut judge = Command::new("python3");
        judge
            .arg(judges.join("check_schedule.py"))
            .args([&trace, &rewritten, "--plan", &plan, "--cyclic"])
            .args(option);
        let output = judge.output().expect("python3");
        let verdict: Value = serde_json::from_slice(&output.stdout).expect("the judge prints JSON");
        assert_eq!(verdict["valid"], ran.status == 0, "{verdict} {ran:?}");
        if ran.status == 0 {
            assert_eq!(verdict["time_ns"].as_f64(), ran.json()["time_ns"].as_f64());
        }
    }
    ran.status == 0
}

/// [`TRACE`] with the rows of operator `op`, the mallocs before them and the frees after them put before those of
/// operator `before`.
fn moved(op: usize, before: usize) -> String {
    let lines: Vec<&str> = TRACE.lines().collect();
    let of = |op: usize| {
        let ends = format!(",{op}");
        let own = |line: &&str| line.ends_with(&ends) && !line.contains(",free,");
        let first = lines.iter().position(&own).unwrap();
        let last = lines.iter().rposition(own).unwrap();
        first..last + 1
    };
    let (taken, to) = (of(op), of(before).start);
    let rest: Vec<&str> = lines.iter().enumerate().filter(|(i, _)| !taken.contains(i)).map(|(_, line)| *line).collect();
    let to = if to > taken.start { to - taken.len() } else { to };
    let all = [&rest[..to], &lines[taken], &rest[to..]].concat();
    // The times of a rewritten trace are not used, but a trace whose times go back cannot be read: all are 0.
    let mut rows = String::from("time_ns,event,block,bytes,op\n");
    for line in &all[1..] {
        rows.extend(["0,", line.split_once(',').unwrap().1, "\n"]);
    }
    rows
}

const PLAN: &str = "id,offset\nu,0\nv,4096\nr,8192\ns,12288\ng,16384\nh,20480\n";

#[test]
fn updates_come_early() {
    let folder = Folder::new();
    folder.file("t.ops.csv", OPS);
    let trace = folder.file("t.csv", TRACE);
    let fit = |more: &[&str]| sublet(&[&["fit", &trace, "--limit", "20480", "--json"], more].concat());
    // In the recorded order three blocks are alive at once beside the two weights: five blocks in all, which fit.
    assert_eq!(fit(&["--using", "in-place"]).status, 0);
    let fit = |more: &[&str]| sublet(&[&["fit", &trace, "--limit", "16384", "--json"], more].concat());
    assert_eq!(fit(&["--using", "in-place"]).status, 1);
    let out = folder.path("fitted");
    let ran = fit(&["--using", "order", "--output", &out]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!((&ran.json()["overhead"], &ran.json()["footprint"]), (&0.0.into(), &16_384.into()));
    assert!(ran.json()["moved"].as_u64().unwrap() > 0);
    let (rewritten, plan) = (folder.read("fitted/rewritten.csv"), folder.read("fitted/plan.csv"));
    assert!(accepted(OPS, &rewritten, &plan, true));
    assert!(!accepted(OPS, &rewritten, &plan, false));
}

#[test]
fn an_operator_that_keeps_its_place_is_not_moved() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", TRACE);
    let fit = || sublet(&["fit", &trace, "--limit", "16384", "--using", "order", "--json"]);
    // Without a file that says which operators may move, none may.
    let ran = fit();
    assert!(ran.status == 1 && ran.err.contains("ordered"), "{ran:?}");
    let ordered = |flag| OPS.replace("rerun\n", "rerun,ordered\n").replace(",0,0\n", &format!(",0,0,{flag}\n"));
    folder.file("t.ops.csv", ordered(1));
    assert_eq!(fit().status, 1);
    folder.file("t.ops.csv", ordered(0));
    assert_eq!(fit().status, 0);
    folder.file("t.ops.csv", ordered(2));
    assert_eq!(fit().status, 2);
}

#[test]
fn an_order_that_changes_values_is_refused() {
    let unmoved = moved(4, 5);
    assert!(accepted(OPS, &unmoved, PLAN, true) && accepted(OPS, &unmoved, PLAN, false));
    // The first update before the second gradient is accepted with `--reorder` only.
    let early = moved(4, 3);
    assert!(accepted(OPS, &early, PLAN, true) && !accepted(OPS, &early, PLAN, false));
    // Before its own gradient, the update reads a value that has not been written yet, even if its block is allocated.
    let allocated =
        |rows: String| rows.replace("0,malloc,g,4096,2\n", "").replace("0,malloc,v", "0,malloc,g,4096,\n0,malloc,v");
    assert!(!accepted(OPS, &allocated(moved(4, 2)), PLAN, true));
    assert!(accepted(OPS, &allocated(early), PLAN, true));
    // Operators that draw random numbers keep their order: by their names, or whatever their names if the file says so.
    let swapped = moved(1, 0);
    assert!(!accepted(OPS, &swapped, PLAN, true));
    assert!(accepted(&OPS.replace("bernoulli_", "tanh"), &swapped, PLAN, true));
    let tanh = OPS.replace("bernoulli_", "tanh").replace("rerun\n", "rerun,ordered\n").replace(",0,0\n", ",0,0,1\n");
    assert!(!accepted(&tanh, &swapped, PLAN, true));
}

/// Where recomputation has freed what the peak needs, operators that only add memory run late.
#[test]
fn what_adds_memory_comes_late() {
    let folder = Folder::new();
    let operators = [
        "0,product,a,m,fwd,1",
        "1,product,m,p,fwd,1",
        "2,product,b,q,fwd,1",
        "3,sum,p q,r,fwd,1",
        "4,loss,r,s,fwd,1",
        "5,gradient,s b,dy,bwd,0",
        "6,gradient,s b,dz,bwd,0",
        "7,gradient,s m,dx,bwd,0",
    ];
    let line = |line: &str| {
        let (rest, rerun) = line.rsplit_once(',').unwrap();
        format!("{rest},1000,{rerun},0\n")
    };
    let rows = operators.map(line).concat();
    let graph = folder.file("t.csv", format!("op,name,inputs,outputs,phase,time_ns,rerun,ordered\n{rows}"));
    let tensor = |name: &str| {
        let storage = if "ab".contains(name) {
            "persistent"
        } else if name.starts_with('d') {
            "iteration"
        } else {
            "transient"
        };
        format!("{name},{},{storage}\n", if name == "s" { 256 } else { 4 << 20 })
    };
    let tensors = ["a", "b", "m", "p", "q", "r", "s", "dy", "dz", "dx"].map(tensor).concat();
    folder.file("t.tensors.csv", format!("tensor,bytes,storage\n{tensors}"));
    // The two weights, three values, and the loss.
    let limit = (5 * (4 << 20) + 256).to_string();
    let fit =
        |more: &[&str]| sublet(&[&["fit", &graph, "--limit", &limit, "--using", "recompute", "--json"], more].concat());
    let late = fit(&["--reorder"]);
    assert_eq!((late.status, late.json()["recomputed_ns"].as_u64()), (0, Some(1000)), "{late:?}");
    assert_eq!(fit(&[]).status, 1);
}
