//! Where results go: each to a place of its own, and none over what is read.

use std::fs;
use std::path::Path;

use crate::support::{Folder, STALLING, sublet};

/// A trace, the file of operators beside it, and the content of both.
fn recorded(folder: &Folder) -> (String, String, [String; 2]) {
    let trace = folder.file("t.csv", STALLING);
    let operators = folder.file("t.ops.csv", "op,name,phase,inplace,rerun\n");
    let held = [&trace, &operators].map(|file| fs::read_to_string(file).unwrap());
    (trace, operators, held)
}

#[test]
fn no_result_overwrites_what_is_read() {
    let folder = Folder::new();
    let (trace, operators, held) = recorded(&folder);
    let within = Path::new(&trace).parent().unwrap().to_str().unwrap();
    let (dotted, page) = (format!("{within}/./t.csv"), folder.path("plan.csv"));
    for args in [
        &["plan", &trace, "-o", &trace][..],
        &["plan", &trace, "-o", &dotted],
        &["plan", &trace, "-o", &operators],
        &["plan", &trace, "--report", &trace],
        &["plan", &trace, "--certificate", &trace],
        &["convert", &trace, &trace, "--to", "instance"],
        &["convert", &trace, &operators, "--to", "instance"],
        &["sweep", &trace, "--points", "2", "-o", &trace],
        &["fit", &trace, "--limit", "90%", "--report", &trace],
        &["fit", &trace, "--limit", "90%", "-o", within, "--report", &page],
        &["fit", &trace, "--limit", "90%", "-o", "-"],
        &["sweep", &trace, "--points", "2", "--report", "curve.svg"],
    ] {
        let ran = sublet(args);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{args:?}: {ran:?}");
        assert_eq!([&trace, &operators].map(|file| fs::read_to_string(file).unwrap()), held, "{args:?}");
    }
    assert_eq!(sublet(&["fit", &trace, "--limit", "90%", "-o", &folder.path("fitted")]).status, 0);
    let rewritten = folder.path("fitted/rewritten.csv");
    let ran = sublet(&["fit", &rewritten, "--limit", "100%", "-o", &folder.path("fitted")]);
    assert!(ran.status == 2 && ran.err.contains("which is read"), "{ran:?}");
}

/// If a file that was asked for goes to standard output, the text for people goes to standard error.
#[test]
fn a_file_on_standard_output_is_alone_there() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", STALLING);
    let certificate = sublet(&["plan", &trace, "--certificate", "-"]);
    assert!(certificate.json().is_object() && certificate.err.contains("verified"), "{certificate:?}");
    for args in [
        &["plan", &trace, "--report", "-"][..],
        &["fit", &trace, "--limit", "90%", "--report", "-"],
        &["sweep", &trace, "--points", "2", "--report", "-"],
        &["plan", &trace, "--bank", "all=1GiB", "--report", "-"],
    ] {
        let ran = sublet(args);
        assert!(ran.out.trim_start().starts_with("<!") && ran.out.trim_end().ends_with("</html>"), "{args:?}");
        assert!(!ran.err.is_empty(), "{args:?}");
    }
}

/// Several results may go to one device such as /dev/null, since it is no regular file.
#[cfg(unix)]
#[test]
fn a_device_takes_any_number_of_results() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", STALLING);
    let ran = sublet(&["plan", &trace, "-o", "/dev/null", "--report", "/dev/null", "--certificate", "/dev/null"]);
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn a_plan_for_several_memories_is_verified_in_each() {
    let folder = Folder::new();
    let instance = folder.file("i.csv", "id,lower,upper,size\na,0,4,8\nb,0,4,8\nc,2,6,8\n");
    let plan = folder.path("plan.csv");
    let banks = ["--bank", "fast=8", "--bank", "slow=64:4"];
    assert_eq!(sublet(&[&["plan", &instance, "-o", &plan][..], &banks].concat()).status, 0);
    let found = sublet(&["verify", &instance, &plan, "--json"]).json();
    assert_eq!(found["banks"].as_array().map(Vec::len), Some(2), "{found}");
    assert_eq!(sublet(&[&["verify", &instance, &plan][..], &banks].concat()).status, 0);
    // A bank that is too small, one that is not named, and blocks that share an address.
    let small = sublet(&["verify", &instance, &plan, "--bank", "fast=7", "--bank", "slow=64"]);
    assert!(small.status == 1 && small.err.contains("bank fast: block"), "{small:?}");
    let unnamed = sublet(&["verify", &instance, &plan, "--bank", "fast=8"]);
    assert!(unnamed.status == 1 && unnamed.err.contains("which no --bank names"), "{unnamed:?}");
    let one = fs::read_to_string(&plan).unwrap().replace("fast", "slow");
    let shared = sublet(&["verify", &instance, &folder.file("one.csv", one)]);
    assert!(shared.status == 1 && shared.err.contains("bank slow: block"), "{shared:?}");
}

/// Status 1 is a proof; a heuristic that gives up ends with 3.
#[test]
fn banks_are_called_impossible_only_where_it_is_proved() {
    let folder = Folder::new();
    let few = "id,lower,upper,size,alignment\n0,2,4,4,1\n1,3,4,6,2\n2,0,4,3,2\n3,2,3,4,1\n4,0,4,3,2\n";
    let banks = ["--bank", "a=9:3", "--bank", "b=7:2:align=4"];
    let plan = |rows: &str, banks: &[&str]| sublet(&[&["plan", &folder.file("i.csv", rows)][..], banks].concat());
    assert_eq!(plan(few, &banks).status, 0);
    let pinned = "id,lower,upper,size,alignment,offset\n0,0,3,6,1,\n1,0,4,6,1,5\n2,2,3,5,4,\n";
    assert_eq!(plan(pinned, &["--bank", "a=11", "--bank", "b=11:1:align=2"]).status, 0);
    let many = (5..17).fold(few.to_owned(), |rows, i| format!("{rows}{i},{i},{},1,1\n", i + 1));
    let gave_up = plan(&many, &banks);
    assert!(gave_up.status == 3 && gave_up.err.contains("none is proved impossible"), "{gave_up:?}");
    for rows in [format!("{few}5,0,4,3,1\n"), format!("{many}17,0,4,10,1\n")] {
        let proved = plan(&rows, &banks);
        assert!(proved.status == 1 && proved.err.contains("that is proved"), "{proved:?}");
    }
}

#[test]
fn blocks_lie_in_chunks_that_are_no_longer_than_asked() {
    let folder = Folder::new();
    let instance = folder.file("i.csv", "id,lower,upper,size\na,0,2,6\nb,1,3,5\nc,2,4,6\n");
    let plan = folder.path("p.csv");
    let chunks = |size: &str| sublet(&["plan", &instance, "--chunk", size, "--json", "-o", &plan]).json();
    let found = chunks("8");
    assert!(found["total"] == 11 && found["optimal"] == true && found["chunks"][0]["peak"] == 6, "{found}");
    assert_eq!(folder.read("p.csv"), "id,lower,upper,size,offset,bank\na,0,2,6,0,0\nb,1,3,5,0,1\nc,2,4,6,0,0\n");
    assert_eq!(sublet(&["verify", &instance, &plan]).status, 0);
    assert_eq!(chunks("1GiB")["chunks"].as_array().map(Vec::len), Some(1));
    assert_eq!(sublet(&["plan", &instance, "--chunk", "8:1"]).status, 3);
    assert!(sublet(&["plan", &instance, "--chunk", "8:65"]).err.contains("expected 1 to 64 ranges"));
}
