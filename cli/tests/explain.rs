//! `sublet fit --explain` and `--time-limit`: what was tried, and the best so far.

mod support;

use support::sublet;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/vgg16_cifar_train_b100.csv");

#[test]
fn what_won_is_what_was_made() {
    let ran = sublet(&["fit", TRACE, "--limit", "48%", "--using", "recompute,swap", "--explain", "--json"]);
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
    let plain = sublet(&["fit", TRACE, "--limit", "48%", "--using", "recompute,swap", "--json"]).json();
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
