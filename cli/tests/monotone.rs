//! The lower bound beside an overhead, and `sublet fit --monotone` and `--effort max`.

use crate::support::{Folder, Ran, STALLING, sublet};
use serde_json::Value;

const ALEXNET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/alexnet_train_b32.csv");

fn fit(trace: &str, percent: u32, more: &[&str]) -> Ran {
    let limit = format!("{percent}%");
    sublet(&[&["fit", trace, "--using", "swap", "--limit", &limit, "--json"], more].concat())
}

/// A search may find a faster schedule at a lower limit. With `--monotone` that one is taken at the higher limit too.
#[test]
fn what_fits_into_less_memory_is_a_schedule_for_more() {
    let overhead = |ran: &Ran| ran.json()["overhead"].as_f64().unwrap();
    let [lower, plain] = [52, 54].map(|percent| overhead(&fit(ALEXNET, percent, &[])));
    assert!(lower < plain, "the search is monotone by itself: {lower}, {plain}");
    let ran = fit(ALEXNET, 54, &["--monotone"]);
    assert!(overhead(&ran) <= lower, "{} over {lower}", overhead(&ran));
    let json = ran.json();
    let (to, limit) = (json["fitted_to"].as_u64().unwrap(), json["limit"].as_u64().unwrap());
    assert!(to < limit && json["footprint"].as_u64().unwrap() <= to, "{json}");
}

/// More work than usual finds a faster schedule here. It never takes a slower one, as the usual search is made too.
#[test]
fn more_effort_finds_a_faster_schedule() {
    let trace = ALEXNET.replace("alexnet_train_b32", "googlenet_infer_b1");
    let overhead = |percent: u32, effort: &str| fit(&trace, percent, &["--effort", effort]).json()["overhead"].as_f64();
    let (usual, more) = (overhead(75, "default"), overhead(75, "max"));
    assert!(more.unwrap() < usual.unwrap(), "{more:?} by more effort, {usual:?} without");
    assert_eq!(usual, fit(&trace, 75, &[]).json()["overhead"].as_f64());
    // Where the bound proves that nothing is faster, no second search is made.
    let ran = fit(&trace, 100, &["--effort", "max", "--explain"]);
    assert_eq!((ran.json()["overhead"].as_f64(), ran.json()["tried"].as_array().unwrap().len()), (Some(0.0), 1));
}

#[test]
fn the_lower_bound_stands_beside_the_overhead() {
    let folder = Folder::new();
    let trace = folder.file("t.csv", STALLING);
    let mut above = 0;
    for percent in [95, 80, 60] {
        let ran = fit(&trace, percent, &[]);
        let (json, plain) = (ran.json(), fit(&trace, percent, &["--explain"]));
        let (Some(found), Some(bound)) = (json["overhead"].as_f64(), json["overhead_lower_bound"].as_f64()) else {
            assert_eq!(ran.status, 1, "{ran:?}");
            continue;
        };
        assert!((0.0..=found + 1e-9).contains(&bound), "{json}");
        above += u32::from(bound > 0.0);
        assert_eq!(plain.json()["overhead_lower_bound"], json["overhead_lower_bound"]);
    }
    assert!(above > 0, "no limit asks for anything");
    let text = sublet(&["fit", &trace, "--using", "swap", "--limit", "95%"]).out;
    assert!(text.contains("lower bound"), "{text}");
    // An operator needs more than this limit for its own blocks.
    let never = fit(&trace, 10, &[]);
    assert!(never.status == 1 && never.err.contains("no schedule by these means within"), "{never:?}");
    // The points of a sweep have the lower bound too.
    let swept = sublet(&["sweep", &trace, "--using", "swap", "--points", "4", "--json"]).json();
    let points = swept["points"].as_array().unwrap();
    let bounds: Vec<_> = points.iter().filter_map(|p| p["overhead_lower_bound"].as_f64()).collect();
    assert_eq!(bounds.len(), points.len(), "{swept}");
    assert!(
        bounds.is_sorted()
            && bounds.iter().zip(points).all(|(&bound, p)| bound <= p["overhead"].as_f64().unwrap() + 1e-9)
    );
}

/// With `--reorder` the result has another order than recorded, and `--explain` names the order.
#[test]
fn what_won_has_an_order() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/vgg16_cifar_train_b100.csv");
    let limit = ["fit", trace, "--limit", "43%", "--using", "recompute", "--explain", "--json"];
    let orders = |more: &[&str]| {
        let json = sublet(&[&limit[..], more].concat()).json();
        let ways = json["tried"].as_array().cloned().unwrap_or_default();
        let won = ways.iter().find(|way| way["won"] == true).map(|way| way["order"].clone());
        (won, ways.iter().filter(|way| way["order"] != Value::Null).count())
    };
    let (won, moved) = orders(&["--reorder"]);
    assert!(moved > 0 && won.is_some_and(|order| order.is_string()));
    assert_eq!(orders(&[]), (None, 0), "as recorded it does not fit");
}
