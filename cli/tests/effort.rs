//! How hard `sublet plan` tries, and what interrupts it.

use crate::support::{Folder, sublet};

/// A full rectangle that no heuristic fills; its optimum is the max load.
const HARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/hard.csv");

#[test]
fn the_gap_that_the_heuristics_leave_is_closed() {
    let fast = sublet(&["plan", HARD, "--effort", "fast", "--json"]).json();
    assert_eq!(fast["optimal"], false, "{fast}");
    assert!(fast["ratio"].as_f64().unwrap() > 1.0);
    assert!(fast.get("nodes").is_none(), "{fast}");

    let default = sublet(&["plan", HARD, "--json"]).json();
    assert_eq!((&default["optimal"], &default["solver"]), (&true.into(), &"search".into()), "{default}");
    assert_eq!(default["peak"], default["max_load"]);
    assert_eq!(default["lower_bound"], default["max_load"]);
    assert!(default["nodes"].as_u64().unwrap() > 0);
}

/// Eighteen blocks whose load is at most 60 bytes; no plan has a peak below 62.
const LIFTED: &str = "id,lower,upper,size\na,1,4,9\nb,0,3,21\nc,3,8,1\nd,7,8,2\ne,0,1,9\nf,3,8,3\ng,0,4,1\nh,0,7,23\n\
    i,1,4,2\nj,1,5,2\nk,0,8,1\nl,7,8,51\nm,4,6,13\nn,0,4,1\no,3,6,17\np,5,8,2\nq,0,1,4\nr,6,7,30\n";

/// Found, none found, and proved that there is none are three answers.
#[test]
fn a_missed_capacity_is_proved_or_not() {
    let folder = Folder::new();
    let file = folder.file("in.csv", LIFTED);
    let ask = |effort, capacity| {
        let ran = sublet(&["plan", &file, "--effort", effort, "--capacity", capacity, "--json"]);
        let told = ran.json();
        (ran.status, told["answer"].as_str().unwrap().to_owned(), told["peak"].as_u64().unwrap(), ran.err)
    };
    let (status, answer, peak, _) = ask("default", "62");
    assert_eq!((status, answer.as_str(), peak), (0, "found", 62));
    let (status, answer, peak, told) = ask("default", "61");
    assert_eq!((status, answer.as_str(), peak), (1, "proved: none fits", 62));
    assert!(told.contains(
        "no plan fits within 61 bytes: every plan takes at least 62 bytes; the best that was found takes 62 bytes"
    ));
    let (status, answer, peak, told) = ask("fast", "61");
    assert_eq!((status, answer.as_str()), (3, "none found"));
    assert!(peak > 61 && told.contains("no plan within 61 bytes was found, and none is proved impossible"), "{told}");
}

/// Where the capacity is a byte below the least peak, the peak that is told is the one that is found without a
/// capacity.
#[test]
fn what_a_missed_capacity_would_take_is_what_planning_without_one_takes() {
    let found = sublet(&["plan", HARD, "--json"]).json();
    let peak = found["peak"].as_u64().unwrap();
    for threads in ["1", "2"] {
        let below = (peak - 1).to_string();
        let ran = sublet(&["plan", HARD, "--capacity", &below, "--threads", threads, "--json"]);
        assert_eq!((ran.status, ran.json()["peak"].as_u64()), (1, Some(peak)), "{ran:?}");
    }
}

#[test]
fn the_plan_does_not_depend_on_the_number_of_threads() {
    let folder = Folder::new();
    let plans = ["1", "2", "7"].map(|threads| {
        let file = folder.path(threads);
        let ran = sublet(&["plan", HARD, "--effort", "max", "--threads", threads, "--output", &file]);
        assert_eq!(ran.status, 0, "{ran:?}");
        folder.read(threads)
    });
    assert_eq!(plans[0], plans[1]);
    assert_eq!(plans[0], plans[2]);
}

#[test]
fn no_time_at_all_is_enough_for_a_valid_plan() {
    let folder = Folder::new();
    let file = folder.path("plan.csv");
    let ran = sublet(&["plan", HARD, "--effort", "max", "--time-limit", "0", "--output", &file, "--json"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.json()["verified"], true);
    assert_eq!(sublet(&["verify", HARD, &file]).status, 0);
}

#[test]
fn times_and_threads_that_make_no_sense_are_refused() {
    for (flag, value) in [("--time-limit", "-1"), ("--time-limit", "inf"), ("--time-limit", "soon"), ("--threads", "0")]
    {
        let ran = sublet(&["plan", HARD, &format!("{flag}={value}")]);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.err.contains(flag), "{ran:?}");
    }
}
