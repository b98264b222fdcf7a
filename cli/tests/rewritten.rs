//! `sublet verify --rewritten`: traces with copies, recomputation, masks and work in place.

use crate::support::{Folder, Ran, folder_from, sublet};

/// A ReLU in place, two convolutions, and a gradient that reads what the ReLU wrote.
const TRACE: &str = "\
time_ns,event,block,bytes,op
0,malloc,w,64,
0,malloc,x,6400,
1,write,x,,
1,malloc,y,6400,0
1,read,x,,0
1000,write,y,,0
1000,free,x,,
1000,malloc,z,6400,1
1000,read,y,,1
1000,read,w,,1
3000,write,z,,1
3000,malloc,g,6400,2
3000,read,z,,2
4000,write,g,,2
4000,free,z,,
4000,malloc,d,6400,3
4000,read,g,,3
4000,read,y,,3
5000,write,d,,3
5000,write,w,,3
";

const OPS: &str = "\
op,name,phase,inplace,rerun
0,relu,fwd,1,1
1,convolution,fwd,0,1
2,convolution,bwd,0,0
3,threshold_backward,bwd,0,0
";

/// [`OPS`] with the column `element`, in which the ReLU has these bytes.
fn of_element(bytes: &str) -> String {
    let cell = |line: &str| match line {
        l if l.starts_with("op,") => "element".to_owned(),
        l if l.contains(",relu,") => bytes.to_owned(),
        _ => String::new(),
    };
    OPS.lines().flat_map(|line| [line.to_owned(), ",".into(), cell(line), "\n".into()]).collect()
}

/// The ReLU works in place and leaves a mask, and the first convolution runs twice.
const REWRITTEN: &str = "\
time_ns,event,block,bytes,op
0,malloc,w,64,
0,malloc,x,6400,
0,write,x,,
0,malloc,y~,200,
0,read,x,,0
0,free,x,,
0,malloc,y,6400,0
0,write,y,,0
0,write,y~,,0
0,malloc,z,6400,1
0,read,y,,1
0,read,w,,1
0,write,z,,1
0,free,z,,
0,malloc,z,6400,1'
0,read,y,,1'
0,read,w,,1'
0,write,z,,1'
0,free,y,,
0,malloc,g,6400,2
0,read,z,,2
0,write,g,,2
0,free,z,,
0,malloc,d,6400,3
0,read,g,,3
0,read,y~,,3
0,write,d,,3
0,write,w,,3
";

const PLAN: &str = "id,offset\nw,0\ny~,64\nx,300\ny,300\nz,6700\nz#1,6700\ng,300\nd,6700\n";

fn verify(ops: &str, rewritten: &str, plan: &str) -> Ran {
    let folder = Folder::new();
    folder.file("t.ops.csv", ops);
    let trace = folder.file("t.csv", TRACE);
    let (rewritten, plan) = (folder.file("r.csv", rewritten), folder.file("p.csv", plan));
    sublet(&["verify", &trace, &plan, "--rewritten", &rewritten, "--json"])
}

#[test]
fn second_runs_masks_and_work_in_place_are_accepted() {
    let ran = verify(OPS, REWRITTEN, PLAN);
    let json = ran.json();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!((&json["footprint"], &json["recomputed_ns"]), (&13_100.into(), &2000.into()));
    assert_eq!(json["time_ns"], 7000.0);
}

#[test]
fn what_the_operators_do_not_allow_is_refused() {
    let refused = |ops: &str, rewritten: &str, plan: &str, why: &str| {
        let ran = verify(ops, rewritten, plan);
        assert!(ran.status == 1 && ran.err.contains(why), "{why}: {ran:?}");
    };
    refused(&OPS.replace("1,convolution,fwd,0,1", "1,convolution,fwd,0,0"), REWRITTEN, PLAN, "may not be recomputed");
    refused(&OPS.replace("0,relu,fwd,1,1", "0,relu,fwd,0,1"), REWRITTEN, PLAN, "no such row between its accesses");
    refused(&OPS.replace("0,relu,", "0,sigmoid,"), REWRITTEN, PLAN, "right after a ReLU");
    refused(&OPS.replace("threshold_backward", "sigmoid_backward"), REWRITTEN, PLAN, "not the access that comes next");
    refused(OPS, &REWRITTEN.replace("y~,200", "y~,199"), PLAN, "a bit for each element");
    refused(OPS, &REWRITTEN.replace("0,write,y~,,0\n", ""), PLAN, "another value");
    refused(OPS, REWRITTEN, &PLAN.replace("\ny,300", "\ny,264"), "another offset");
    // A recomputed operator that reads another value gives another result.
    let undefined = REWRITTEN.replace("0,malloc,z,6400,1'", "0,free,y,,\n0,malloc,y,6400,\n0,malloc,z,6400,1'");
    refused(OPS, &undefined, &format!("{PLAN}y#1,300\n"), "row 22: the block has another value");
}

#[test]
fn the_examples_of_the_corpus_are_accepted() {
    let Some(data) = folder_from("SUBLET_DATA", "examples of rewritten traces are not verified") else { return };
    let file = |name: &str| data.join("examples").join(name).to_str().unwrap().to_owned();
    let rewritten = file("tiny.in_place_and_mask.rewritten.csv");
    let plan = file("tiny.in_place_and_mask.plan.csv");
    let ran = sublet(&["verify", &file("tiny.csv"), &plan, "--rewritten", &rewritten, "--json"]);
    assert_eq!((ran.status, &ran.json()["footprint"]), (0, &12_928.into()), "{ran:?}");
}

/// A mask of 1600 bits is enough for a block of 6400 bytes with elements of 4 bytes, and too short with elements of 2.
/// No mask is shorter than 1/32 of its block, even with elements of 8 bytes.
#[test]
fn a_mask_has_a_bit_for_each_element_of_the_size_that_is_told() {
    for bytes in ["", "4", "8"] {
        assert_eq!(verify(&of_element(bytes), REWRITTEN, PLAN).status, 0, "{bytes}");
    }
    for (bytes, mask) in [("2", 400), ("1", 800)] {
        let ran = verify(&of_element(bytes), REWRITTEN, PLAN);
        assert!(ran.status == 1 && ran.err.contains("a bit for each element"), "{bytes}: {ran:?}");
        let longer = |mask: u64| REWRITTEN.replace("y~,200", &format!("y~,{mask}"));
        let at = PLAN.replace("y~,64", "y~,13100");
        assert_eq!(verify(&of_element(bytes), &longer(mask), &at).status, 0, "{bytes}");
        assert_eq!(verify(&of_element(bytes), &longer(mask - 1), &at).status, 1, "{bytes}");
    }
    let ran = verify(&of_element("3"), REWRITTEN, PLAN);
    assert!(ran.status == 2 && ran.err.contains("1, 2, 4 or 8"), "{ran:?}");
}

#[test]
fn fit_makes_masks_for_elements_of_the_size_that_is_told() {
    for (bytes, mask) in [("1", 800), ("2", 400), ("4", 200), ("8", 200)] {
        let folder = Folder::new();
        folder.file("t.ops.csv", of_element(bytes));
        let trace = folder.file("t.csv", TRACE);
        let to = folder.path("fitted");
        let ran = sublet(&["fit", &trace, "--limit", "14000", "--alignment", "1", "--using", "relu", "--output", &to]);
        assert_eq!(ran.status, 0, "{ran:?}");
        let rewritten = folder.read("fitted/rewritten.csv");
        assert!(rewritten.contains(&format!(",malloc,y~,{mask},")), "{bytes}: {rewritten}");
    }
}
