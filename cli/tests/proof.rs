//! Proofs that no plan is lower: `VeriPB` accepts them, and refuses them once something in them is wrong.

use std::process::{Command, Stdio};

use crate::support::{Folder, sublet};

/// At most 9 bytes are alive at once, and no plan is below 10.
const ABOVE_ITS_LOAD: &str = "id,lower,upper,size\n0,0,1,4\n1,0,2,3\n2,2,3,1\n3,1,3,1\n4,1,3,1\n5,0,4,2\n6,1,5,2\n7,2,5,1\n8,3,6,3\n9,2,6,1\n10,4,6,2\n11,5,6,3\n";

/// What `VeriPB` says of two files; none where it is not installed.
fn accepted(formula: &str, proof: &str) -> Option<bool> {
    let ran = Command::new("veripb").args(["--opb", formula, proof]).stderr(Stdio::null()).output();
    let Ok(ran) = ran else {
        eprintln!("skipped: proofs are not checked; `cargo install veripb` gives the checker");
        return None;
    };
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    Some(ran.status.success() && said.contains("s VERIFIED UNSATISFIABLE"))
}

#[test]
fn an_optimum_above_the_load_is_proved_and_a_planted_step_is_refused() {
    let folder = Folder::new();
    let input = folder.file("in.csv", ABOVE_ITS_LOAD);
    let name = folder.path("claim");
    let ran = sublet(&["plan", &input, "--proof", &name]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.err.contains("no plan fits in 9"), "{ran:?}");
    let [formula, proof] = ["opb", "pbp"].map(|end| folder.path(&format!("claim.{end}")));
    let Some(is_accepted) = accepted(&formula, &proof) else { return };
    assert!(is_accepted, "the proof as it was written");

    // A proof that claims a contradiction before its first step is refused.
    let (claim, steps) = (folder.read("claim.opb"), folder.read("claim.pbp"));
    let second = steps.match_indices('\n').nth(1).expect("two lines of heading").0;
    let planted = format!("{}\nrup >= 1 ;{}", &steps[..second], &steps[second..]);
    assert_eq!(accepted(&formula, &folder.file("planted.pbp", &planted)), Some(false));

    // A learned clause without one of its literals claims more than was shown.
    let is_wide = |line: &&str| line.starts_with("rup") && line.matches("+1").count() > 1;
    let wide = steps.lines().find(is_wide).expect("a learned clause");
    let narrow = format!(
        "rup {} >= 1 ;",
        wide.split(" +1 ").nth(1).map(|l| format!("+1 {}", l.trim_end_matches(" >= 1 ;"))).unwrap_or_default()
    );
    assert_eq!(accepted(&formula, &folder.file("narrow.pbp", steps.replacen(wide, &narrow, 1))), Some(false));

    // The same steps prove nothing of a formula with more room.
    let roomy: String = claim
        .lines()
        .map(|line| {
            if line.starts_with('-') && !line.contains('b') {
                let (terms, bound) = line.trim_end_matches(" ;").split_once(">= ").expect("an inequality");
                format!("{terms}>= {} ;\n", bound.parse::<i64>().expect("a number") - 1)
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    assert_ne!(roomy, claim);
    assert_eq!(accepted(&folder.file("roomy.opb", &roomy), &proof), Some(false));
}

#[test]
fn a_capacity_that_is_missed_is_proved_too() {
    let folder = Folder::new();
    let input = folder.file("in.csv", ABOVE_ITS_LOAD);
    let name = folder.path("claim");
    let ran = sublet(&["plan", &input, "--capacity", "9", "--proof", &name]);
    assert_eq!(ran.status, 1, "{ran:?}");
    if let Some(is_accepted) = accepted(&folder.path("claim.opb"), &folder.path("claim.pbp")) {
        assert!(is_accepted);
    }
}

#[test]
fn what_is_not_so_is_not_proved() {
    let folder = Folder::new();
    let input = folder.file("in.csv", "id,lower,upper,size\na,0,2,4\nb,1,3,4\n");
    let name = folder.path("claim");
    let ran = sublet(&["plan", &input, "--proof", &name]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.err.contains("the max load shows it"), "{ran:?}");
    // The plan of a poor solver is not the lowest, so that there is no proof.
    let input = folder.file("poor.csv", ABOVE_ITS_LOAD);
    let ran = sublet(&["plan", &input, "--solver", "size-first-fit", "--proof", &name]);
    assert!(ran.status == 3 && ran.err.contains("no proof: blocks can be piled within"), "{ran:?}");
    assert!(!std::path::Path::new(&folder.path("claim.opb")).exists());
    let pinned = folder.file("pinned.csv", "id,lower,upper,size,offset\na,0,3,4,0\n");
    let ran = sublet(&["plan", &pinned, "--proof", &name]);
    assert!(ran.status == 2 && ran.err.contains("--proof"), "{ran:?}");
}
