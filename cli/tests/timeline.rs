//! `timeline.json` of `sublet fit --output`, held against Chrome's trace event format and against the fit's own
//! figures.

use std::collections::{HashMap, HashSet};

use crate::support::{Folder, STALLING, sublet};
use serde_json::Value;

/// Asserts the rules of the format: the fields of every event and of each kind, and that the spans of a track nest.
fn well_formed(events: &[Value]) {
    let mut tracks: HashMap<u64, Vec<(f64, f64)>> = HashMap::new();
    let mut named = HashSet::new();
    for event in events {
        let number = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event}"));
        let tid = event["tid"].as_u64().unwrap_or_else(|| panic!("{event}"));
        assert!(event["name"].as_str().is_some_and(|name| !name.is_empty()), "{event}");
        assert_eq!(event["pid"], 0, "{event}");
        assert!(number("ts") >= 0.0, "{event}");
        let args = event["args"].as_object().unwrap_or_else(|| panic!("{event}"));
        match event["ph"].as_str() {
            Some("X") => {
                assert!(number("dur") >= 0.0, "{event}");
                tracks.entry(tid).or_default().push((number("ts"), number("ts") + number("dur")));
            }
            Some("C") => assert!(!args.is_empty() && args.values().all(Value::is_number), "{event}"),
            Some("M") => match event["name"].as_str() {
                Some("process_name") => assert!(args["name"].is_string(), "{event}"),
                Some("thread_name") => assert!(args["name"].is_string() && named.insert(tid), "{event}"),
                Some("thread_sort_index") => assert!(args["sort_index"].is_u64(), "{event}"),
                _ => panic!("{event}"),
            },
            _ => panic!("{event}"),
        }
    }
    for (tid, mut spans) in tracks {
        assert!(named.contains(&tid), "track {tid} has no name");
        spans.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut open: Vec<f64> = Vec::new();
        // Times are binary fractions of a microsecond: a thousandth of a nanosecond is rounding.
        for (begin, end) in spans {
            open.retain(|&until| until > begin + 1e-6);
            assert!(open.iter().all(|&until| end <= until + 1e-6), "track {tid}: [{begin}, {end}] within {open:?}");
            open.push(end);
        }
    }
}

#[test]
fn is_a_trace_of_events_that_agrees_with_the_fit() {
    let folder = Folder::new();
    let vgg16 = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/vgg16_cifar_train_b100.csv");
    let stalling = folder.file("t.csv", STALLING);
    let cases = [(stalling.as_str(), "17M", "swap"), (vgg16, "190MiB", "swap,recompute")];
    for (trace, limit, using) in cases {
        let out = folder.path("fitted");
        let args = ["fit", trace, "--limit", limit, "--using", using, "--output", &out, "--json"];
        let fitted = sublet(&args).json();
        let timeline: Value = serde_json::from_str(&folder.read("fitted/timeline.json")).unwrap();
        let events = timeline.as_array().unwrap();
        well_formed(events);

        let of =
            |ph: &'static str, name: &'static str| events.iter().filter(move |e| e["ph"] == ph && e["name"] == name);
        let tracks: Vec<&str> = of("M", "thread_name").map(|e| e["args"]["name"].as_str().unwrap()).collect();
        assert_eq!(tracks, ["compute", "out", "in"]);
        let on = |tid: u64| events.iter().filter(move |e| e["ph"] == "X" && e["tid"] == tid);
        let copies: u64 = on(1).chain(on(2)).map(|e| e["args"]["bytes"].as_u64().unwrap()).sum();
        assert_eq!(fitted["swapped_bytes"], copies);
        let loads = of("C", "load").map(|e| e["args"]["bytes"].as_u64().unwrap());
        assert_eq!(fitted["peak_load"], loads.max().unwrap());

        // Only stalls and recomputed operators make the run longer, and each stall waits for one copy. Times are in
        // microseconds.
        let time_us = fitted["time_ns"].as_f64().unwrap() / 1e3;
        let recomputed_us = fitted["recomputed_ns"].as_f64().unwrap() / 1e3;
        assert_eq!(recomputed_us > 0.0, using != "swap", "{fitted}");
        let longer = time_us - time_us / (1.0 + fitted["overhead"].as_f64().unwrap()) - recomputed_us;
        assert!(longer > 100.0, "{fitted}");
        let near = |found: f64, what: &str| assert!((found - longer).abs() < 1e-3, "{what}: {found} of {longer}");
        near(of("X", "stall").map(|e| e["dur"].as_f64().unwrap()).sum(), "stalls");
        near(on(1).chain(on(2)).map(|e| e["args"]["waited_us"].as_f64().unwrap()).sum(), "copies");
        near(of("C", "stalled").next_back().unwrap()["args"]["ms"].as_f64().unwrap() * 1e3, "counter");
        assert!(of("X", "stall").all(|e| e["args"]["block"].is_string()));
        let end =
            events.iter().filter(|e| e["ph"] == "X").map(|e| e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap());
        let end = end.fold(0.0, f64::max);
        assert!(end <= time_us + 1e-3 && end > 0.9 * time_us, "{end} of {time_us}");
    }
}
