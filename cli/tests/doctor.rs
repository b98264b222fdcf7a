//! `sublet doctor` on memory snapshots of PyTorch.

use crate::support::{Folder, pickle, sublet, sublet_limited};
use serde_json::json;
use std::fmt::Write as _;

const MIB: u64 = 1 << 20;

fn frame(file: &str, line: u64, name: &str) -> Vec<u8> {
    pickle::dict(&[("name", pickle::text(name)), ("filename", pickle::text(file)), ("line", pickle::int(line))])
}

/// A stack of three frames, innermost first: one inside of PyTorch, the user's code at `line`, and its caller.
fn stack(line: u64) -> Vec<u8> {
    pickle::list(&[
        frame("/opt/torch/nn/functional.py", 2000, "linear"),
        frame("/home/me/net.py", line, "forward"),
        frame("/home/me/train.py", 7, "main"),
    ])
}

fn event(action: &str, address: u64, bytes: u64, frames: Vec<u8>) -> Vec<u8> {
    pickle::dict(&[
        ("action", pickle::text(action)),
        ("addr", pickle::int(address)),
        ("size", pickle::int(bytes)),
        ("frames", frames),
    ])
}

fn segment(address: u64, bytes: u64, blocks: &[Vec<u8>]) -> Vec<u8> {
    pickle::dict(&[
        ("device", pickle::int(0)),
        ("address", pickle::int(address)),
        ("total_size", pickle::int(bytes)),
        ("blocks", pickle::list(blocks)),
    ])
}

fn part(bytes: u64, state: &str, frames: Vec<u8>) -> Vec<u8> {
    pickle::dict(&[("size", pickle::int(bytes)), ("state", pickle::text(state)), ("frames", frames)])
}

fn snapshot(events: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    pickle::of(&pickle::dict(&[
        ("segments", pickle::list(segments)),
        ("device_traces", pickle::list(&[pickle::list(events)])),
    ]))
}

/// Two blocks with a hole between them that a third does not fit into.
pub(crate) fn fragmented() -> Vec<u8> {
    let none = || pickle::list(&[]);
    let events = [
        event("segment_alloc", 0, 20 * MIB, none()),
        event("alloc", 2 * MIB, 6 * MIB, stack(10)),
        event("alloc", 8 * MIB, 6 * MIB, stack(11)),
        event("alloc", 14 * MIB, 6 * MIB, stack(10)),
        event("free_requested", 8 * MIB, 6 * MIB, none()),
        event("free_completed", 8 * MIB, 6 * MIB, none()),
        // 6 of the 20 MiB are free.
        pickle::dict(&[
            ("action", pickle::text("oom")),
            ("device_free", pickle::int(MIB)),
            ("size", pickle::int(12 * MIB)),
            ("frames", none()),
        ]),
        event("segment_alloc", 32 * MIB, 10 * MIB, none()),
        event("alloc", 32 * MIB, 10 * MIB, stack(12)),
        event("free_completed", 14 * MIB, 6 * MIB, none()),
        event("segment_free", 32 * MIB, 10 * MIB, none()),
    ];
    // Two MiB were there before the recording.
    let parts = [
        part(2 * MIB, "active_allocated", stack(3)),
        part(6 * MIB, "active_allocated", stack(10)),
        part(12 * MIB, "inactive", none()),
    ];
    snapshot(&events, &[segment(0, 20 * MIB, &parts)])
}

#[test]
fn what_is_lost_and_who_holds_the_rest() {
    let folder = Folder::new();
    let file = folder.file("snapshot.pickle", fragmented());
    let told = sublet(&["doctor", &file, "--json"]).json();
    // In use at most: 2 from before, 6 and 6 of line 10, 10 of line 12, while 30 were reserved.
    for (what, mib) in [("reserved", 30), ("in_use", 24), ("lost", 6), ("plan", 24), ("lower_bound", 24)] {
        assert_eq!(told[what], mib * MIB, "{what}");
    }
    assert_eq!(
        told["refused"],
        // 14 MiB are in use, so that 26 would be needed of 21.
        json!([{
            "event": 6, "bytes": 12 * MIB, "device_free": MIB, "reserved": 20 * MIB, "reserved_free": 6 * MIB,
            "plan": 26 * MIB, "verdict": "full"
        }])
    );
    let holders: Vec<_> = told["holders"].as_array().unwrap().iter().map(|h| (&h["place"], &h["bytes"])).collect();
    let place = |line| json!(format!("/home/me/net.py:{line} forward"));
    let expected = [(place(10), json!(12 * MIB)), (place(12), json!(10 * MIB)), (place(3), json!(2 * MIB))];
    assert_eq!(holders, expected.iter().map(|(place, bytes)| (place, bytes)).collect::<Vec<_>>());
    assert_eq!(told["holders"][0]["frames"][0], "/opt/torch/nn/functional.py:2000 linear");
    let page = sublet(&["doctor", &file]).out;
    for line in
        ["reserved   30.00 MiB", "lost       6.00 MiB  20.0 %", "12.00  50.0       2  /home/me/net.py:10 forward"]
    {
        assert!(page.contains(line), "{page}");
    }
}

/// Six blocks of 4 MiB, of which every second is freed: 12 of 24 MiB are free, and no piece is larger than 4.
fn holes(asked: u64) -> Vec<u8> {
    let none = || pickle::list(&[]);
    let mut events = vec![event("segment_alloc", 0, 24 * MIB, none())];
    events.extend((0..6).map(|i| event("alloc", 4 * i * MIB, 4 * MIB, stack(10 + i))));
    events.extend((0..3).map(|i| event("free_completed", 8 * i * MIB, 4 * MIB, none())));
    let oom = [("action", "oom")].map(|(key, value)| (key, pickle::text(value)));
    let numbers = [("device_free", MIB), ("size", asked)].map(|(key, value)| (key, pickle::int(value)));
    events.push(pickle::dict(&[&oom[..], &numbers[..]].concat()));
    let parts: Vec<_> = (0..6)
        .map(|i| part(4 * MIB, if i % 2 == 0 { "inactive" } else { "active_allocated" }, stack(10 + i)))
        .collect();
    snapshot(&events, &[segment(0, 24 * MIB, &parts)])
}

/// A request that was refused: was the memory full, or in pieces?
#[test]
fn full_and_fragmented_are_told_apart() {
    let folder = Folder::new();
    for (asked, plan, verdict, said) in [
        (
            8,
            24,
            "fragmented",
            "fragmented: by a plan these blocks and the request take 24.00 MiB of the 25.00 MiB that were there",
        ),
        (14, 26, "full", "full: by a plan these blocks and the request take 26.00 MiB, and 25.00 MiB were there"),
    ] {
        let file = folder.file("snapshot.pickle", holes(asked * MIB));
        let refused = &sublet(&["doctor", &file, "--json"]).json()["refused"][0];
        assert_eq!((&refused["plan"], &refused["verdict"]), (&json!(plan * MIB), &json!(verdict)), "{asked}");
        let page = sublet(&["doctor", &file]).out;
        assert!(page.contains(said), "{page}");
    }
}

/// What is there without a history: a moment.
#[test]
fn segments_without_events_show_one_moment() {
    let folder = Folder::new();
    let parts = [part(2 * MIB, "active_allocated", stack(3)), part(6 * MIB, "inactive", stack(4))];
    let segments =
        [segment(0, 8 * MIB, &parts), segment(8 * MIB, 8 * MIB, &[part(8 * MIB, "active_allocated", stack(5))])];
    for content in [snapshot(&[], &segments), pickle::of(&pickle::list(&segments))] {
        let file = folder.file("snapshot.pickle", content);
        let told = sublet(&["doctor", &file, "--json"]).json();
        for (what, mib) in [("reserved", 16), ("in_use", 10), ("lost", 6), ("largest_free", 6)] {
            assert_eq!(told[what], mib * MIB, "{what}");
        }
        assert_eq!(told["holders"][0]["place"], "/home/me/net.py:5 forward");
        assert!(sublet(&["doctor", &file]).out.contains("largest    6.00 MiB  free piece"));
        let planned = sublet(&["plan", &file]);
        assert_eq!(planned.status, 2, "{planned:?}");
    }
}

#[test]
fn two_snapshots_are_compared() {
    let folder = Folder::new();
    let (before, after) = (folder.file("before", holes(MIB)), folder.file("after", fragmented()));
    let told = sublet(&["doctor", &after, "--before", &before, "--json"]).json();
    let change = |line, bytes: i64| json!({ "place": format!("/home/me/net.py:{line} forward"), "bytes": bytes });
    let mib = 1 << 20;
    let changes = told["changes"].as_array().unwrap();
    // Line 10: 12 MiB now, 4 before; line 12: 10 now, 4 before.
    assert_eq!(changes[..2], [change(10, 8 * mib), change(12, 6 * mib)]);
    assert!(changes.contains(&change(15, -4 * mib)), "{changes:?}");
    assert!(sublet(&["doctor", &after, "--before", &before]).out.contains("+8.00  /home/me/net.py:10 forward"));
}

#[test]
fn what_a_snapshot_does_not_tell_is_not_made_up() {
    let folder = Folder::new();
    let file = folder.file("snapshot.pickle", snapshot(&[event("alloc", 512, MIB, pickle::list(&[]))], &[]));
    let told = sublet(&["doctor", &file, "--json"]).json();
    assert_eq!((&told["reserved"], &told["lost"]), (&json!(null), &json!(null)));
    assert_eq!(told["holders"][0]["place"], "not told, or from before the recording");
}

/// A log of RMM: who holds what by thread and stream, what a plan takes, and what it would take with what failed.
#[test]
fn a_log_of_rmm_is_diagnosed_too() {
    let folder = Folder::new();
    let rows = [
        "1,10:00:00.1,allocate,0x1000,4194304,7",
        "2,10:00:00.2,allocate,0x9000000,8388608,8",
        "2,10:00:00.3,allocate failure,(nil),16777216,8",
        "1,10:00:00.4,free,0x1000,4194304,7",
        "1,10:00:00.5,allocate,0x1000,2097152,7",
        "1,10:00:00.6,free,0x5000000,1048576,7",
    ];
    let log = folder.file("rmm.csv", format!("Thread,Time,Action,Pointer,Size,Stream\n{}\n", rows.join("\n")));
    let ran = sublet(&["doctor", &log, "--json"]);
    let told = ran.json();
    for (what, mib) in [("in_use", 13), ("plan", 13), ("lower_bound", 13)] {
        assert_eq!(told[what], mib * MIB, "{what}: {told}");
    }
    assert_eq!((&told["device"], &told["reserved"], &told["lost"]), (&json!(null), &json!(null), &json!(null)));
    // 1 MiB from before the log, 4 and 8 of the log, and the 16 that were asked for.
    assert_eq!(
        told["refused"],
        json!([{ "event": 2, "bytes": 16 * MIB, "device_free": null, "reserved": null, "reserved_free": null,
                 "plan": 29 * MIB, "verdict": "unknown" }])
    );
    let holders: Vec<_> = told["holders"].as_array().unwrap().iter().map(|h| (&h["place"], &h["bytes"])).collect();
    let expected = [("thread 2, stream 8", 8 * MIB), ("thread 1, stream 7", 4 * MIB)];
    let expected = expected.map(|(place, bytes)| (json!(place), json!(bytes)));
    assert_eq!(holders[..2], expected.each_ref().map(|(place, bytes)| (place, bytes)));
    assert_eq!(holders[2].0, "not told, or from before the recording");
    let page = sublet(&["doctor", &log]).out;
    assert!(page.contains("take 29.00 MiB; how much there was is not told"), "{page}");
}

/// Of 3,000 events the page shows a thousand: the most bytes of each three, the peak among them.
#[test]
fn a_page_of_many_events_keeps_the_peaks() {
    let folder = Folder::new();
    let mut log = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    let mut alive: Vec<(u64, u64)> = Vec::new();
    let (mut loads, mut load) = (Vec::new(), 0u64);
    for i in 0..3000u64 {
        let bytes = 512 * (1 + i * i % 37);
        if i % 3 < 2 && alive.len() < 40 {
            alive.push((4096 * (i + 1), bytes));
            load += bytes;
            writeln!(log, "{},10:00:00,allocate,{:#x},{bytes},0", i % 2, 4096 * (i + 1)).unwrap();
        } else {
            let (address, bytes) = alive.remove(usize::try_from(i).unwrap() % alive.len());
            load -= bytes;
            writeln!(log, "0,10:00:00,free,{address:#x},{bytes},0").unwrap();
        }
        loads.push(load);
    }
    let (file, page) = (folder.file("rmm.csv", log), folder.path("doctor.html"));
    assert_eq!(sublet(&["doctor", &file, "--report", &page, "-q"]).status, 0);
    let page = folder.read("doctor.html");
    let (_, data) = page.split_once(r#"id="data">"#).unwrap();
    let told: serde_json::Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let numbers = |value: &serde_json::Value| -> Vec<u64> {
        value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
    };
    let bands: Vec<Vec<u64>> =
        told["timeline"]["bands"].as_array().unwrap().iter().map(|band| numbers(&band["bytes"])).collect();
    let shown: Vec<u64> = (0..1000).map(|i| bands.iter().map(|band| band[i]).sum()).collect();
    assert_eq!(shown, loads.chunks(3).map(|three| *three.iter().max().unwrap()).collect::<Vec<_>>());
    let at = numbers(&told["timeline"]["at"]);
    assert!(at.iter().zip(&shown).all(|(&at, shown)| loads[usize::try_from(at).unwrap()] == *shown));
    assert_eq!(shown.iter().max().unwrap(), &told["diagnosis"]["in_use"].as_u64().unwrap());
}

#[test]
fn what_is_no_snapshot_is_refused() {
    let folder = Folder::new();
    let whole = fragmented();
    for (content, message) in [
        (&b"id,lower,upper,size\n"[..], "expected a memory snapshot: a pickle"),
        (&whole[..whole.len() / 2], "cut off"),
        (&b"\x80\x04cos\nsystem\n."[..], "nothing was run"),
    ] {
        let ran = sublet(&["doctor", &folder.file("file", content)]);
        assert_eq!((ran.status, ran.err.contains(message)), (2, true), "{ran:?}");
    }
}

/// 64,000 events of 400 frames: 130 MB of pickle in 128 MiB of address space, the program included.
#[test]
#[ignore = "long: ./ci.sh test runs it"]
#[cfg(target_os = "linux")]
fn a_long_snapshot_passes_in_little_memory() {
    let ran = sublet_limited("ulimit -v 131072", &["doctor", "-", "--json"], long_snapshot(64, 1000, 400));
    assert_eq!(ran.status, 0, "{ran:?}");
    let told = ran.json();
    assert_eq!((&told["events"], &told["in_use"]), (&json!(64_000), &json!(2 * MIB)));
    assert_eq!(told["holders"][0]["frames"].as_array().unwrap().len(), 400);
}

/// A snapshot of `chunks` times `events` events, each with a list of its own of the same frames.
fn long_snapshot(chunks: u64, events: u64, frames: u32) -> impl Iterator<Item = Vec<u8>> {
    let mut begin = b"\x80\x04}(".to_vec();
    begin.extend(pickle::text("frames of the program"));
    begin.push(b'(');
    for i in 0..frames {
        begin.extend(frame("/home/me/net.py", i.into(), "forward"));
        begin.extend([&b"r"[..], &i.to_le_bytes()].concat());
    }
    begin.push(b't');
    begin.extend(pickle::text("device_traces"));
    begin.extend(b"](](");
    let again: Vec<u8> = (0..frames).flat_map(|i| [&b"j"[..], &i.to_le_bytes()].concat()).collect();
    let list = [b"](", &again[..], b"e"].concat();
    let chunk = move |k: u64| {
        let mut chunk = Vec::new();
        for i in 0..events {
            let action = if i % 2 == 0 { "alloc" } else { "free_completed" };
            chunk.extend(event(action, 512, MIB * (1 + k % 2), list.clone()));
        }
        [chunk, b"e(".to_vec()].concat()
    };
    [begin].into_iter().chain((0..chunks).map(chunk)).chain([b"eeu.".to_vec()])
}
