//! `sublet sweep`: the least footprints that it narrows down, and its JSON.

use crate::support::{Folder, STALLING, sublet};

/// What makes the activations of `STALLING` may run again.
const OPERATORS: &str = "op,name,rerun\n0,a,1\n1,b,1\n2,c,1\n3,d,0\n4,e,0\n";

#[test]
fn the_least_footprints_are_what_fit_makes_of_their_limits() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", STALLING);
    let swept = sublet(&["sweep", &trace, "--policy", "auto", "--points", "2", "--json"]).json();
    let bytes = |name: &str| swept[name].as_u64().unwrap();
    assert_eq!(swept["policies"], serde_json::json!(["auto"]));
    assert_eq!(bytes("original_peak"), 8_388_608 + 2 * 7_340_032 + 4096);
    let points = swept["points"].as_array().unwrap();
    assert_eq!((points.len(), points[1]["limit"].as_u64()), (2, Some(bytes("least_limit"))));

    let least = swept["least"].as_array().unwrap();
    assert_eq!(least.iter().map(|l| l["within"].as_f64().unwrap()).collect::<Vec<_>>(), [0.0, 0.05, 0.15]);
    let mut above = bytes("original_peak");
    for l in least {
        let (footprint, overhead) = (l["footprint"].as_u64().unwrap(), l["overhead"].as_f64().unwrap());
        assert!(footprint <= above && overhead <= l["within"].as_f64().unwrap(), "{swept}");
        above = footprint;
        let fitted = sublet(&["fit", &trace, "--using", "swap", "--limit", &l["limit"].to_string(), "--json"]).json();
        assert_eq!((&fitted["footprint"], &fitted["overhead"]), (&l["footprint"], &l["overhead"]));
    }
    assert!(least[0]["footprint"].as_u64().unwrap() >= bytes("swap_lower_bound"), "{swept}");
    // Two activations fit beside each other only while the third is away.
    assert!(bytes("least_limit") < least[0]["footprint"].as_u64().unwrap());
}

/// A schedule for less memory is one for more memory too: at every limit stands the fastest known one within it, however
/// many threads look for it.
#[test]
fn less_memory_never_takes_less_time() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/alexnet_train_b32.csv");
    let sweep = ["sweep", trace, "--policy", "doa", "--points", "12", "--json", "--threads"];
    let [swept, by_three] = ["1", "3"].map(|threads| sublet(&[&sweep[..], &[threads]].concat()).json());
    assert_eq!((&swept, &swept["stopped"]), (&by_three, &false.into()));
    let points = swept["points"].as_array().unwrap();
    assert!(points.len() > 1, "{swept}");
    let mut before = 0.0;
    for p in points {
        let overhead = p["overhead"].as_f64().unwrap();
        assert!(overhead >= before, "{swept}");
        before = overhead;
        assert!(p["footprint"].as_u64().unwrap() <= p["limit"].as_u64().unwrap(), "{p}");
    }
}

#[test]
fn the_table_has_the_policies_that_are_asked_for() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", STALLING);
    let table = sublet(&["sweep", &trace, "--policy", "doa", "--policy", "auto", "--points", "2"]).out;
    let header = table.lines().find(|line| line.starts_with("limit")).unwrap();
    assert_eq!(
        header.split_whitespace().collect::<Vec<_>>(),
        ["limit", "MiB", "%", "of", "peak", "doa", "auto", "bound"]
    );
    assert!(table.lines().any(|line| line.starts_with("at most 15 %")), "{table}");
    let ran = sublet(&["sweep", &trace, "--output", "-", "--json"]);
    assert_eq!(ran.status, 2, "{ran:?}");
}

/// Once the time is up, the points found so far are printed. What was not tried is told apart from what was tried in
/// vain: in JSON, in the table and on the page.
#[test]
fn what_there_was_no_time_for_is_not_called_impossible() {
    let folder = Folder::new();
    let (trace, page) = (folder.file("t.csv", STALLING), folder.path("curve.html"));
    folder.file("t.ops.csv", OPERATORS);
    let args = ["sweep", &trace, "--points", "3", "--time-limit", "0", "--report", &page];
    let ran = sublet(&[&args[..], &["--json"]].concat());
    let swept = ran.json();
    assert_eq!((ran.status, &swept["stopped"]), (0, &true.into()), "{ran:?}");
    assert!(ran.err.contains("stopped early") && swept["least_limit"].as_u64() > Some(0), "{ran:?}");
    let of = |name: &str| swept[name].as_array().unwrap().clone();
    assert_eq!(of("points").len() + of("untried").len(), 3 * of("policies").len(), "{swept}");
    assert!(!of("untried").is_empty() && swept["least_untried"] == true, "{swept}");
    assert!(folder.read("curve.html").contains("\"untried\":[{"));
    let table = sublet(&args).out;
    assert!(table.contains("?: not tried, the time was up") && table.contains("lower ones may exist"), "{table}");
    let row = |line: &&str| line.contains(" 100.0 ");
    assert!(table.lines().find(row).is_some_and(|line| line.contains(" ? ") && !line.contains(" - ")), "{table}");
}

/// What one means reaches, all together reach too: also in the least footprints.
#[test]
fn all_means_have_what_each_alone_has() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", STALLING);
    folder.file("t.ops.csv", OPERATORS);
    let swept = sublet(&["sweep", &trace, "--points", "4", "--using", "swap,recompute", "--json"]).json();
    let points = swept["points"].as_array().unwrap();
    assert_eq!(points.len(), 12, "{swept}");
    for within in swept["least"].as_array().unwrap() {
        let enough = |p: &&serde_json::Value| p["overhead"].as_f64() <= within["within"].as_f64();
        let least = points.iter().filter(enough).filter_map(|p| p["footprint"].as_u64()).min();
        assert!(least.is_none_or(|least| within["footprint"].as_u64().unwrap() <= least), "{swept}");
    }
    for joint in points.iter().filter(|p| p["policy"] == "joint") {
        for alone in points.iter().filter(|p| p["limit"] == joint["limit"]) {
            assert!(joint["overhead"].as_f64() <= alone["overhead"].as_f64(), "{swept}");
        }
    }
    assert_eq!(swept["untried"], serde_json::json!([]));
}
