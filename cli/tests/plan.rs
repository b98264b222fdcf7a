//! From files to plans and back, by the binary alone.

use crate::support::{Folder, pickle, sublet, sublet_reading};
use serde_json::json;

/// Block 1 is allocated again after its free, block 2 is never freed.
const TRACE: &str = "\
time_ns,event,block,bytes,op
0,malloc,0,64,
0,write,0,,
0,malloc,1,32,0
0,read,0,,0
5,write,1,,0
5,swap_out,1,,
6,free,1,,
7,malloc,2,16,1
9,write,2,,1
9,malloc,1,32,
9,swap_in,1,,
9,free,0,,
9,read,1,,1'
9,free,1,,
";

/// The lifetimes of [`TRACE`], found by hand: the rows of each block's malloc and free, counted from 0.
const LIFETIMES: &str = "\
id,lower,upper,size
0,0,11,64
1,2,6,32
2,7,14,16
1#1,9,13,32
";

#[test]
fn a_trace_becomes_an_instance_a_plan_and_a_proof() {
    let folder = Folder::new();
    let trace = folder.file("net.csv", TRACE);
    let (instance, plan) = (folder.path("instance.csv"), folder.path("plan.csv"));
    assert_eq!(sublet(&["convert", &trace, &instance]).status, 0);
    assert_eq!(folder.read("instance.csv"), LIFETIMES);

    let ran = sublet(&["plan", &trace, "--output", &plan, "--json"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let of_trace = ran.json();
    let fields = ["input", "blocks", "max_load", "peak", "ratio", "optimal", "solver", "seconds", "verified"];
    assert!(fields.iter().all(|f| of_trace.get(f).is_some()), "{of_trace}");
    assert_eq!(of_trace.as_object().unwrap().len(), fields.len(), "{of_trace}");
    assert_eq!(of_trace["input"], trace);
    assert_eq!((&of_trace["blocks"], &of_trace["max_load"]), (&json!(4), &json!(112)));
    assert_eq!((&of_trace["peak"], &of_trace["ratio"]), (&json!(112), &json!(1.0)));
    assert_eq!((&of_trace["optimal"], &of_trace["verified"]), (&json!(true), &json!(true)));
    assert!(of_trace["seconds"].as_f64().unwrap() >= 0.0);

    // The plan of the trace is valid for the instance as well: it has the same lifetimes and sizes.
    for problem in [&trace, &instance] {
        let ran = sublet(&["verify", problem, &plan, "--json"]);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert_eq!((&ran.json()["peak"], &ran.json()["verified"]), (&json!(112), &json!(true)));
        assert_eq!(ran.json().get("solver"), None);
    }
    let without_offsets: String =
        folder.read("plan.csv").lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned() + "\n").collect();
    assert_eq!(without_offsets, LIFETIMES);

    // Read as an instance, the plan pins every block, and becomes itself.
    let again = folder.path("again.plan.csv");
    assert_eq!(sublet(&["convert", &plan, &again]).status, 0);
    assert_eq!(folder.read("again.plan.csv"), folder.read("plan.csv"));
    assert_eq!(sublet(&["plan", &plan, "--output", &again]).status, 0);
    assert_eq!(folder.read("again.plan.csv"), folder.read("plan.csv"));
}

#[test]
fn a_trace_is_written_as_it_was_read() {
    let folder = Folder::new();
    let file = folder.file("net.csv", TRACE);
    assert_eq!(sublet(&["convert", &file, "-", "--to", "trace"]).out, TRACE);
    assert_eq!(sublet_reading(&["convert", "-", "-", "--to", "trace"], [TRACE.into()]).out, TRACE);
}

#[test]
fn an_instance_becomes_a_trace_with_the_same_pairs_alive_together() {
    let folder = Folder::new();
    // b ends where c begins: its free comes before the malloc.
    let instance = folder.file("in.csv", "id,lower,upper,size\na,0,90,8\nc,50,90,2\nb,10,50,4\n");
    let trace = folder.path("net.trace.csv");
    assert_eq!(sublet(&["convert", &instance, &trace]).status, 0);
    let rows = "0,malloc,a,8,\n10,malloc,b,4,\n50,free,b,,\n50,malloc,c,2,\n90,free,a,,\n90,free,c,,\n";
    assert_eq!(folder.read("net.trace.csv"), format!("time_ns,event,block,bytes,op\n{rows}"));
    let back = sublet(&["convert", &trace, "-", "--to", "instance"]).out;
    assert_eq!(back, "id,lower,upper,size\na,0,4,8\nb,1,2,4\nc,3,5,2\n");
}

#[test]
fn what_a_format_cannot_hold_is_refused() {
    let folder = Folder::new();
    let aligned = folder.file("a.csv", "id,lower,upper,size,alignment\na,0,1,8,64\n");
    let ran = sublet(&["convert", &aligned, &folder.path("trace.csv")]);
    assert_eq!(
        (ran.status, ran.err.contains("block a has an alignment, which a trace cannot hold")),
        (2, true),
        "{ran:?}"
    );
    let ran = sublet(&["convert", &aligned, &folder.path("plan.csv")]);
    assert_eq!(
        (ran.status, ran.err.contains("block a has no offset; `sublet plan` gives it one")),
        (2, true),
        "{ran:?}"
    );
    let overlapping = folder.file("b.csv", "id,lower,upper,size,offset\na,0,2,8,0\nb,1,3,8,7\n");
    let ran = sublet(&["convert", &overlapping, &folder.path("plan.csv")]);
    assert_eq!((ran.status, ran.err.contains("blocks a and b")), (1, true), "{ran:?}");
    assert_eq!(folder.names(), ["a.csv", "b.csv"]);
}

#[test]
fn alignments_and_pins_survive_and_bind() {
    let folder = Folder::new();
    let text = "id,lower,upper,size,alignment,offset\na,0,4,10,1,\nb,1,3,10,32,\nc,2,4,10,1,16\n";
    let file = folder.file("in.csv", text);
    assert_eq!(sublet(&["convert", &file, "-", "--to", "instance"]).out, text);
    let plan = folder.path("plan.csv");
    assert_eq!(sublet(&["plan", &file, "--output", &plan]).status, 0);
    let offset = |id: &str| -> u64 {
        let text = folder.read("plan.csv");
        let row = text.lines().find(|l| l.starts_with(id)).unwrap();
        row.rsplit_once(',').unwrap().1.parse().unwrap()
    };
    assert_eq!((offset("b") % 32, offset("c")), (0, 16));
    // A larger alignment of the whole arena binds every block.
    let free = folder.file("free.csv", "id,lower,upper,size\na,0,2,10\nb,1,3,10\n");
    assert_eq!(sublet(&["plan", &free, "--alignment", "4K", "--json"]).json()["peak"], 4106);
    let plan = folder.file("free.plan.csv", "id,offset\na,0\nb,10\n");
    assert_eq!(sublet(&["verify", &free, &plan]).status, 0);
    let ran = sublet(&["verify", &free, &plan, "--alignment", "4"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("block b has the offset 10, which is not a multiple of 4"), "{ran:?}");
}

#[test]
fn a_spoiled_plan_says_what_is_wrong_and_names_the_blocks() {
    let folder = Folder::new();
    let problem = folder.file("in.csv", "id,lower,upper,size,offset\nx1,0,2,8,\nx2,1,3,8,\nx3,2,4,8,64\n");
    for (plan, more, message) in [
        ("x1,0\nx2,7\nx3,64\n", &[][..], "blocks x1 and x2 are both alive at 1 and share an address"),
        ("x1,0\nx2,8\nx3,64\n", &["--capacity", "71"], "block x3 ends at 72, above the capacity 71"),
        ("x1,0\nx2,8\nx3,0\n", &[], "block x3 has the offset 0, but is pinned at 64"),
        ("x1,-1\nx2,8\nx3,64\n", &[], "block x1 has a negative offset"),
        ("x1,18446744073709551615\nx2,8\nx3,64\n", &[], "block x1 at offset 18446744073709551615 ends beyond"),
        ("x1,0\nx3,64\n", &[], "block x2 has no offset"),
        ("x1,0\nx2,8\nx3,64\nx4,0\n", &[], "the plan names block x4, which"),
        ("x1,0\nx2,8\nx3,64\nx1,0\n", &[], "the plan gives block x1 a second offset"),
    ] {
        let plan = folder.file("plan.csv", format!("id,offset\n{plan}"));
        let args = [&["verify", &problem, &plan][..], more].concat();
        let ran = sublet(&args);
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.contains(message), "{ran:?}");
        let ran = sublet(&[&args[..], &["--json"]].concat());
        assert_eq!(ran.status, 1, "{ran:?}");
        assert_eq!((&ran.json()["verified"], &ran.json()["optimal"]), (&json!(false), &json!(false)));
        assert!(ran.json()["error"].as_str().unwrap().contains(message), "{ran:?}");
    }
    for (column, told) in [("lower", 1), ("upper", 4), ("size", 9)] {
        let plan = folder.file("plan.csv", format!("id,offset,{column}\nx1,0,{told}\n"));
        let ran = sublet(&["verify", &problem, &plan]);
        assert_eq!(ran.status, 1, "{ran:?}");
        assert!(ran.err.contains(&format!("plan.csv:2: block x1: the plan says {column} {told}, ")), "{ran:?}");
    }
}

#[test]
fn a_missed_capacity_tells_peak_and_bound() {
    let folder = Folder::new();
    let file = folder.file("in.csv", "id,lower,upper,size\na,0,2,1000\nb,1,3,1000\n");
    let plan = folder.path("plan.csv");
    let ran = sublet(&["plan", &file, "--capacity", "1K", "--output", &plan]);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(
        ran.err.contains(
            "no plan fits within 1024 bytes: every plan takes at least 2000 bytes; the best that was found takes 2000 bytes"
        ),
        "{ran:?}"
    );
    let ran = sublet(&["plan", &file, "--capacity", "1999", "--json"]);
    assert_eq!(ran.status, 1, "{ran:?}");
    let found = ran.json();
    assert_eq!((&found["peak"], &found["lower_bound"], &found["max_load"]), (&json!(2000), &json!(2000), &json!(2000)));
    assert_eq!((&found["verified"], &found["answer"]), (&json!(false), &json!("proved: none fits")));
    assert_eq!(folder.names(), ["in.csv"]);
    assert_eq!(sublet(&["plan", &file, "--capacity", "2000"]).status, 0);
}

#[test]
fn pins_that_overlap_are_refused() {
    let folder = Folder::new();
    let file = folder.file("in.csv", "id,lower,upper,size,offset\nx1,0,2,8,0\nx2,1,3,8,4\n");
    let ran = sublet(&["plan", &file]);
    assert_ne!(ran.status, 0, "{ran:?}");
    assert!(ran.err.contains("x1 and x2"), "{ran:?}");
}

#[test]
fn a_plan_on_standard_output_stands_alone() {
    let ran = sublet_reading(&["plan", "-", "--output", "-"], [LIFETIMES.into()]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.starts_with("id,lower,upper,size,offset\n0,0,11,64,"), "{ran:?}");
    assert_eq!(ran.out.lines().count(), 5);
    assert!(ran.err.contains("max load  112 B (112 bytes)\n"), "{ran:?}");
}

#[test]
fn people_get_aligned_lines() {
    let folder = Folder::new();
    let file = folder.file("in.csv", LIFETIMES);
    let ran = sublet(&["plan", &file]);
    let values: Vec<(&str, &str)> = ran.out.lines().map(|l| (l[..10].trim_end(), &l[10..])).collect();
    assert_eq!(
        values[..5],
        [
            ("input", file.as_str()),
            ("blocks", "4"),
            ("max load", "112 B (112 bytes)"),
            ("peak", "112 B (112 bytes)"),
            ("ratio", "1.000000, optimal"),
        ]
    );
    assert_eq!(values.last(), Some(&("verified", "yes")));
}

#[test]
fn times_beyond_32_bits_are_kept() {
    let folder = Folder::new();
    let text = "\
id,lower,upper,size
a,1700000000000000000,1700000000000000500,8
b,0,1700000000000000001,8
c,1700000000000000500,18446744073709551615,8
";
    let file = folder.file("in.csv", text);
    assert_eq!(sublet(&["convert", &file, "-", "--to", "instance"]).out, text);
    let plan = folder.path("plan.csv");
    assert_eq!(sublet(&["plan", &file, "--output", &plan, "--json"]).json()["peak"], 16);
    assert_eq!(sublet(&["verify", &file, &plan]).status, 0);
    let plan = folder.file("plan.csv", "id,offset\na,0\nb,0\nc,0\n");
    let ran = sublet(&["verify", &file, &plan]);
    assert!(ran.err.contains("blocks a and b are both alive at 1700000000000000000 and"), "{ran:?}");
}

#[test]
fn a_snapshot_becomes_a_trace() {
    let folder = Folder::new();
    let events = [
        // 0x100 was there before the recording.
        ("free_requested", 0x100, 512, 1000),
        ("free_completed", 0x100, 512, 1000),
        ("segment_alloc", 0x0, 1 << 21, 1001),
        ("alloc", 0x200, 100, 1002),
        // A request that is completed later frees when it is completed.
        ("free_requested", 0x200, 100, 1003),
        ("alloc", 0x400, 30, 1004),
        ("free_completed", 0x200, 100, 1005),
        // The same address is another block.
        ("alloc", 0x200, 60, 1006),
        // A request that nothing completes frees by itself.
        ("free_requested", 0x400, 30, 1007),
    ];
    let events = events.map(|(action, address, bytes, time)| pickle::event(action, address, bytes, time));
    let block = |state: &str, size, requested| {
        pickle::dict(&[
            ("size", pickle::int(size)),
            ("requested_size", pickle::int(requested)),
            ("state", pickle::text(state)),
        ])
    };
    let segment = |device, address, blocks: &[Vec<u8>]| {
        pickle::dict(&[
            ("device", pickle::int(device)),
            ("address", pickle::int(address)),
            ("blocks", pickle::list(blocks)),
        ])
    };
    let segments = [
        // Without addresses the blocks fill the segment: 0x200 is known, 0x600 was never seen.
        segment(
            1,
            0x200,
            &[block("active_allocated", 0x200, 60), block("inactive", 0x200, 0), block("active_allocated", 512, 7)],
        ),
        segment(0, 0x9000, &[block("active_allocated", 512, 512)]),
    ];
    let snapshot = pickle::of(&pickle::dict(&[
        ("segments", pickle::list(&segments)),
        ("device_traces", pickle::list(&[pickle::list(&[]), pickle::list(&events)])),
    ]));
    let file = folder.file("snapshot.pickle", snapshot);
    let expected = "\
time_ns,event,block,bytes,op
0,malloc,0,512,
0,malloc,1,7,
0,free,0,,
2000,malloc,2,100,
4000,malloc,3,30,
5000,free,2,,
6000,malloc,4,60,
7000,free,3,,
";
    assert_eq!(sublet(&["convert", &file, "-", "--to", "trace"]).out, expected);
    assert_eq!(sublet(&["plan", &file, "--json"]).json()["blocks"], 5);
}

#[test]
fn an_rmm_log_becomes_a_trace() {
    let folder = Folder::new();
    let log = "\
Thread,Time,Action,Pointer,Size,Stream
7,23:59:59:500000,allocate,0xa0,256,0x0
7, 23:59:59.500001, allocate failure, (nil), 99999, 0x0
7, 23:59:59.500002, allocate, 0xb0, 64, 0x0
\"8\",\"23:59:59.500001\",\"free\",\"0xc0\",\"16\",\"0x0\"
7,00:00:00:500000,free,0xa0,256,0x0
7,00:00:00:600000,allocate,(nil),0,0x0
7,00:00:00:700000,allocate,0xa0,32,0x0
7,00:00:00:700000,deallocate,0xb0,64,0x0
";
    let expected = "\
time_ns,event,block,bytes,op
0,malloc,0,16,
0,malloc,1,256,
2000,malloc,2,64,
2000,free,0,,
1000000000,free,1,,
1200000000,malloc,3,32,
1200000000,free,2,,
";
    let file = folder.file("rmm.log", log);
    let converted = sublet(&["convert", &file, "-", "--to", "trace"]);
    assert_eq!(converted.out, expected);
    let note = |requests: &str, size| format!("{requests} failed, the largest of {size}, and have no blocks here\n");
    assert_eq!(converted.err, format!("note: {file}: {}", note("1 request", "97.66 KiB")));
    let twice = folder.file("twice.log", log.replace("\"8\"", "7,23:59:59.5,allocate failure,(nil),7,0x0\n\"8\""));
    assert!(sublet(&["plan", &twice]).err.contains(&note("2 requests", "97.66 KiB")));
    let whole = folder.file("none.log", log.replace("allocate failure, (nil), 99999", "allocate, 0xd0, 16"));
    assert_eq!(sublet(&["plan", &whole]).err, "");
    let torn = folder.file("torn.log", log.replace("99999", "?"));
    assert!(sublet(&["plan", &torn]).err.contains("expected a whole number of bytes"));
}

#[test]
fn the_mip_in_lp_text() {
    let folder = Folder::new();
    let file = folder.file("in.csv", "id,lower,upper,size,alignment,offset\na,0,2,8,1,\nb,1,3,4,16,\nc,2,4,2,1,0\n");
    let lp = folder.path("model.lp");
    assert_eq!(sublet(&["convert", &file, &lp, "--capacity", "100"]).status, 0);
    let expected = "\
\\ placement of 3 blocks
\\ x_0: offset of block a
\\ x_1: offset of block b
\\ x_2: offset of block c
Minimize
 peak: u
Subject To
 top_0: x_0 - u <= -8
 top_1: x_1 - u <= -4
 align_1: x_1 - 16 a_1 = 0
 top_2: x_2 - u <= -2
 below_0_1: x_0 - x_1 - 100 z_0_1 <= -8
 above_0_1: x_1 - x_0 + 100 z_0_1 <= 96
 below_1_2: x_1 - x_2 - 100 z_1_2 <= -4
 above_1_2: x_2 - x_1 + 100 z_1_2 <= 98
Bounds
 0 <= u <= 100
 x_0 >= 0
 x_1 >= 0
 x_2 = 0
Generals
 u
 x_0
 x_1
 a_1
 x_2
Binaries
 z_0_1
 z_1_2
End
";
    assert_eq!(folder.read("model.lp"), expected);
    // Without a capacity, W is large enough for any problem: the pinned blocks, and all others above them with padding.
    assert!(sublet(&["convert", &file, "-", "--to", "lp"]).out.contains("0 <= u <= 29\n"));
}

#[cfg(unix)]
#[test]
fn a_new_file_is_for_everyone_and_a_link_stays_a_link() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new();
    let input = folder.file("in.csv", LIFETIMES);
    let mode = |name: &str| std::fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o777;
    folder.file("by_hand", "");
    assert_eq!(sublet(&["plan", &input, "--output", &folder.path("plan.csv")]).status, 0);
    assert_eq!(mode("plan.csv"), mode("by_hand"));
    let old = folder.file("old.csv", "");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&old, folder.path("link.csv")).unwrap();
    assert_eq!(sublet(&["plan", &input, "--output", &folder.path("link.csv")]).status, 0);
    assert!(std::fs::symlink_metadata(folder.path("link.csv")).unwrap().is_symlink());
    assert_eq!((folder.read("old.csv"), mode("old.csv")), (folder.read("plan.csv"), 0o640));
    assert_eq!(sublet(&["plan", &input, "--output", "/dev/null"]).status, 0);
}

/// The help of every command has lines of at most 100 columns. The text behind the options must have so even before it
/// is wrapped: otherwise wrapping would break a line of the source into a long one and a short one.
#[test]
fn help_is_wrapped_once() {
    let help = |command: &str, columns: &str| {
        let mut sublet = std::process::Command::new(env!("CARGO_BIN_EXE_sublet"));
        let ran = sublet.args(command.split_whitespace()).arg("--help").env("COLUMNS", columns).output().unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    let listed = |help: &str| {
        let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
        names.filter(|name| *name != "help").map(str::to_owned).collect::<Vec<_>>()
    };
    let mut commands = vec![String::new()];
    for at in 0.. {
        let Some(command) = commands.get(at).cloned() else { break };
        let (wrapped, whole) = (help(&command, "100"), help(&command, "10000"));
        commands.extend(listed(&whole).iter().map(|name| format!("{command} {name}")));
        let behind = whole.rfind("Print help").map(|last| &whole[last..]).unwrap();
        for line in wrapped.lines().chain(behind.lines()) {
            assert!(line.chars().count() <= 100, "sublet{command} --help: {line}");
        }
    }
    assert!(commands.len() > 15, "{commands:?}");
}

#[test]
fn help_has_examples_and_shells_get_completions() {
    for command in ["plan", "verify", "convert"] {
        let ran = sublet(&[command, "--help"]);
        assert_eq!(ran.status, 0);
        assert!(ran.out.contains(&format!("Examples:\n  sublet {command} ")), "{ran:?}");
    }
    assert!(sublet(&["--help"]).out.contains("Exit status: 0 fine; 1 it is proved that no plan fits"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = sublet(&["completions", shell]);
        assert_eq!(ran.status, 0);
        assert!(ran.out.contains("alignment"), "{shell}");
    }
    let folder = Folder::new();
    assert_eq!(sublet(&["man", &folder.path(".")]).status, 0);
    assert!(std::fs::read_to_string(folder.path("sublet-plan.1")).unwrap().contains("\\-\\-alignment"));
    assert_eq!(sublet(&["man", &folder.path("none")]).status, 2);
}
