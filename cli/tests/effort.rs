//! How hard `sublet plan` tries, and what interrupts it.

mod support;

use support::{Folder, sublet};

/// A full rectangle that no heuristic fills; its optimum is the max load.
const HARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/hard.csv");

#[test]
fn the_search_closes_the_gap_that_the_heuristics_leave() {
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
