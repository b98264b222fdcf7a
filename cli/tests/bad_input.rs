//! Input that is wrong ends with status 2 and a sentence that says where it is wrong and what was expected.

use crate::support::{Folder, pickle, sublet, sublet_limited};

/// Plans a file of this content. The file must be refused at this place (`:line:column`, `:line`, or nothing) with this
/// message.
#[track_caller]
fn refused(content: impl AsRef<[u8]>, place: &str, message: &str) {
    let folder = Folder::new();
    let file = folder.file("input", content);
    let ran = sublet(&["plan", &file]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{ran:?}");
    let begin = format!("error: {file}{place}: ");
    assert!(ran.err.starts_with(&begin) && ran.err.contains(message), "expected {begin:?} … {message:?}, got {ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

/// Plans a file of this content, which is fine.
#[track_caller]
fn accepted(content: impl AsRef<[u8]>, blocks: u64, peak: u64) {
    let folder = Folder::new();
    let ran = sublet(&["plan", &folder.file("input", content), "--json"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!((&ran.json()["blocks"], &ran.json()["peak"]), (&blocks.into(), &peak.into()));
}

const INSTANCE: &str = "id,lower,upper,size\n";
const TRACE: &str = "time_ns,event,block,bytes,op\n";
const RMM: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

fn instance(rows: &str) -> String {
    format!("{INSTANCE}{rows}")
}

fn trace(rows: &str) -> String {
    format!("{TRACE}{rows}")
}

fn rmm(rows: &str) -> String {
    format!("{RMM}{rows}")
}

#[test]
fn a_file_without_a_problem() {
    refused("", "", "the file is empty; expected an instance (id,lower,upper,size[,alignment]), a graph");
    refused(INSTANCE, ":2", "expected a block, found only the header");
    refused(TRACE, ":2", "expected a row, found only the header");
    refused(RMM, ":2", "expected an allocation, found none");
    refused("a,b,c\n1,2,3\n", ":1", "expected an instance (id,lower,upper,size[,alignment]), a graph");
    refused("a,0,2,8\nb,1,3,8\n", ":1", "the first line has to name the columns; expected an instance");
    refused(b"\x7fELF\x02\x01\x01\0\0\0", ":1", "this is not text");
    refused(b"id,lower,upper,size\n\xff\xfe,0,1,2\n", ":2:1", "expected a name in UTF-8");
    refused("i\0d,lower,upper,size\n", ":1", "this is not text");
}

#[test]
fn a_file_that_is_not_there() {
    let ran = sublet(&["plan", "no/such/file.csv"]);
    assert_eq!(ran.status, 2);
    assert!(ran.err.starts_with("error: no/such/file.csv: cannot be read: "), "{ran:?}");
    let folder = Folder::new();
    assert_eq!(sublet(&["plan", &folder.path(".")]).status, 2);
}

#[test]
fn line_ends_byte_order_marks_and_blank_lines_are_taken() {
    accepted("id,lower,upper,size\r\na,0,2,8\r\nb,1,3,8\r\n", 2, 16);
    accepted("\u{feff}id,lower,upper,size\na,0,2,8\n\nb,1,3,8", 2, 16);
    accepted("size,alignment, upper,id,lower\n8,,2,a,0\n8,1, 3 ,b,1\n", 2, 16);
    accepted(trace("0,malloc,a,8,\r\n\r\n1,free,a,,\r\n"), 1, 8);
}

/// As spreadsheets and pandas write: quotes, tabs, an index, whole numbers as floating point, packed.
#[test]
fn tables_of_other_programs_are_taken() {
    use std::io::Write;
    let plain = "id,lower,upper,size\na,0,2,8\nb,1,3,8\n";
    accepted(plain, 2, 16);
    accepted("\"id\",\"lower\",\"upper\",\"size\"\n\"a\",\"0\",2, \"8\" \n\"b\",1,3,8\n", 2, 16);
    accepted("id\tlower\tupper\tsize\na\t0\t2\t8\nb\t1\t3\t8\n", 2, 16);
    accepted(",id,lower,upper,size,\n0,a,0.0,2.0,8.0,\n1,b,1.0,3.00,8,\n", 2, 16);
    accepted("Unnamed: 0,id,lower,upper,size\n0,a,0,2,8\n1,b,1,3,8\n", 2, 16);
    accepted(trace("0.0,malloc,a,8.0,\n1.0,read,a,,3.0\n2.0,free,a,,\n"), 1, 8);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(plain.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    accepted(&gzip, 2, 16);
    accepted(ruzstd::encoding::compress_to_vec(plain.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest), 2, 16);
    refused(&gzip[..gzip.len() / 2], "", "cannot be read");
    refused(b"\x28\xb5\x2f\xfd\x00", "", "cannot be unpacked");
}

/// The operators beside a packed trace belong to it, packed or not.
#[test]
fn what_lies_beside_a_packed_file_is_found() {
    let folder = Folder::new();
    let pack =
        |text: &str| ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    let graph = folder.file("net.csv.zst", pack("op,name,inputs,outputs\n0,conv,a,b\n"));
    let without = sublet(&["plan", &graph]);
    assert!(without.status == 2 && without.err.contains("there is no such file"), "{without:?}");
    folder.file("net.tensors.csv.zst", pack("tensor,bytes\na,8\nb,8\n"));
    assert_eq!(sublet(&["plan", &graph, "--json"]).json()["peak"], 16);
}

#[test]
fn columns_that_nobody_reads_are_told() {
    let folder = Folder::new();
    let file = folder.file("input", "id,lower,upper,size,alignmnt,colour\na,0,1,1,64,red\n");
    let ran = sublet(&["plan", &file]);
    assert_eq!(ran.status, 0);
    assert!(
        ran.err.starts_with(&format!("note: {file}: not read: the columns \"alignmnt\", \"colour\" beside id")),
        "{ran:?}"
    );
}

#[test]
fn options_that_make_no_sense_say_what_would() {
    let folder = Folder::new();
    let file = folder.file("input", instance("a,0,1,1\n"));
    for (option, value, message) in [
        ("--threads", "0", "1 or more"),
        ("--capacity", "-1", "expected a size such as 4096, 512MiB"),
        ("--time-limit", "-1", "not negative"),
        ("--output", "no/such/folder/p.csv", "there is no folder no/such/folder"),
        ("--report", "x.png", "a report is a page (.html) or a picture (.svg)"),
    ] {
        let ran = sublet(&["plan", &file, option, value]);
        assert!(ran.status == 2 && ran.err.contains(message), "{option}: {ran:?}");
    }
}

#[test]
fn columns() {
    refused("id,lower,upper\na,0,1\n", ":1", "expected a column \"size\", found only id,lower,upper");
    refused("lower,upper,size\n0,1,1\n", ":1", "expected a column \"id\"");
    refused("id,lower,size\na,0,1\n", ":1", "expected a column \"upper\"");
    for mixed in ["id,lower,upper,end,size\na,0,1,1,1\n", "id,start,end,upper,size\na,0,1,1,1\n"] {
        refused(
            mixed,
            ":1",
            "the columns \"upper\" and \"end\" mix two conventions: use \"upper\", the step after the last",
        );
    }
    refused("id,lower,upper,size,size\na,0,1,1,1\n", ":1", "the column \"size\" is there twice");
    refused("time_ns,event,block,op\n0,malloc,0,\n", ":1", "expected a column \"bytes\"");
    refused("Thread,Time,Action,Size\n1,0,allocate,8\n", ":1", "expected a column \"Pointer\"");
    for column in ["gaps", "hint"] {
        accepted(format!("id,lower,upper,size,{column}\na,0,1,1,\n"), 1, 1);
        let message = format!("expected nothing: \"{column}\" is not supported, found \"3\"");
        refused(format!("id,lower,upper,size,{column}\na,0,1,1,3\n"), ":2:9", &message);
    }
}

#[test]
fn a_truncated_file() {
    refused(instance("a,0,1,8\nb,0"), ":3", "expected 4 cells (id,lower,upper,size), found 2");
    refused(trace("0,malloc,0,8,\n5,fr"), ":3", "expected 5 cells");
    refused(instance("a,0,1,8,9\n"), ":2", "found 5");
    let snapshot = pickle::of(&pickle::dict(&[("device_traces", pickle::list(&[]))]));
    refused(&snapshot[..snapshot.len() - 4], ": byte 20", "cut off");
}

#[test]
fn numbers() {
    let cases = [
        ("-3", ""),
        ("1.5", ""),
        ("1e3", ""),
        ("", ""),
        ("0x10", ""),
        ("٣", ""),
        ("18446744073709551616", " up to 18446744073709551615"),
    ];
    for (number, limit) in cases {
        let expected = |of: &str| format!("expected a whole number of {of}{limit}, found \"{number}\"");
        refused(instance(&format!("a,0,1,{number}\n")), ":2:7", &expected("bytes"));
        refused(instance(&format!("a,{number},1,1\n")), ":2:3", &expected("steps"));
        refused(instance(&format!("a,0,{number},1\n")), ":2:5", &expected("steps"));
        refused(trace(&format!("{number},malloc,a,8,\n")), ":2:1", &expected("ns"));
    }
    for op in ["-1", "1.5", "'", "4294967296", "x"] {
        refused(trace(&format!("0,malloc,a,8,{op}\n")), ":2:14", "expected the number of an op, such as 7 or 7'");
    }
    refused(trace("0,malloc,a,-8,\n"), ":2:12", "expected a whole number of bytes, found \"-8\"");
    let long = "9".repeat(50_000);
    refused(instance(&format!("a,0,1,{long}\n")), ":2:7", "9999…\"");
}

#[test]
fn sums_beyond_64_bits() {
    let half = 1u64 << 63;
    refused(
        instance(&format!("a,0,1,{half}\n\nb,7,8,{half}\n")),
        ":4",
        "up to block b the sizes, alignments and pins add up to more than 64 bits hold",
    );
    refused(trace(&format!("0,malloc,a,{half},\n0,read,a,,\n0,malloc,b,{half},\n")), ":4", "up to block b the sizes");
    let last = u64::MAX;
    refused(format!("id,lower,end,size\na,0,{last},1\n"), ":2:5", "expected a time below 18446744073709551615");
}

#[test]
fn lifetimes_and_sizes() {
    refused(instance("a,5,3,8\n"), ":2:5", "expected a time of at least 6, one step after the start, found \"3\"");
    refused(instance("a,5,5,8\n"), ":2:5", "expected a time of at least 6");
    refused("id,lower,end,size\na,5,4,8\n", ":2:5", "expected a time of at least 5");
    let last = u64::MAX;
    refused(instance(&format!("a,{last},7,8\n")), ":2:3", "expected a time below 18446744073709551615");
    accepted("id,lower,end,size\na,5,5,8\nb,6,6,8\n", 2, 8);
    refused(instance("a,0,1,0\n"), ":2:7", "expected a size of at least one byte");
    refused(trace("0,malloc,a,0,\n"), ":2:12", "expected a size of at least one byte");
}

#[test]
fn alignments_and_pins() {
    for alignment in ["0", "3", "4097"] {
        let rows = format!("id,lower,upper,size,alignment\na,0,1,1,{alignment}\n");
        refused(rows, ":2:9", &format!("expected a power of two, found \"{alignment}\""));
        let ran = sublet(&["plan", "unread.csv", "--alignment", alignment]);
        assert_eq!(ran.status, 2);
        assert!(ran.err.contains(&format!("expected a power of two, found {alignment}")), "{ran:?}");
    }
    let rows = "id,lower,upper,size,alignment,offset\na,0,1,1,8,8\nb,0,1,1,8,4\n";
    refused(rows, ":3", "block b is pinned at 4, which is not a multiple of its alignment 8");
}

#[test]
fn ids() {
    refused(
        instance("a,0,1,1\nb,0,1,1\n\na,1,2,1\n"),
        ":5",
        "expected a new id, found \"a\", which line 2 has already",
    );
    refused(instance("7,0,1,1\n7,1,2,1\n"), ":3", "expected a new id, found \"7\", which line 2 has already");
    refused(instance(",0,1,1\n"), ":2:1", "expected a name in the column \"id\"");
    refused(instance("\"a\"\"b\",0,1,1\n"), ":2:2", "expected a name without quotes and commas");
    refused(instance("\"a,b\",0,1,1\n"), ":2:2", "expected a name without quotes and commas");
    refused(instance("\"a,0,1,1\n"), ":2:1", "expected a quote that ends this cell on its line");
    refused(instance("\"a\"b,0,1,1\n"), ":2:4", "expected the end of the cell after its quote");
    // The second residency of block 1 and the block "1#1" would have the same name.
    refused(trace("0,malloc,1,8,\n0,free,1,,\n0,malloc,1,8,\n0,malloc,1#1,8,\n"), ":5", "are both called 1#1");
}

#[test]
fn traces_that_cannot_be() {
    refused(trace("0,malloc,a,8,\n0,free,b,,\n"), ":3", "block b is freed, but it is not allocated");
    refused(trace("0,malloc,a,8,\n1,free,a,,\n2,free,a,,\n"), ":4", "block a is freed, but it is not allocated");
    refused(trace("0,malloc,a,8,\n1,free,a,,\n2,read,a,,0\n"), ":4", "block a is accessed, but it is not allocated");
    refused(trace("0,write,a,,0\n"), ":2", "block a is accessed, but it is not allocated");
    refused(trace("0,malloc,a,8,\n\n1,malloc,a,8,\n"), ":4", "block a is allocated, but it is allocated already");
    refused(trace("0,malloc,a,8,\n1,free,a,,\n1,malloc,a,9,\n"), ":4", "with another size than before");
    refused(trace("5,malloc,a,8,\n4,free,a,,\n"), ":3", "expected a time that is not before that of the row above");
    refused(
        trace("0,alloc,a,8,\n"),
        ":2:3",
        "expected malloc, free, read, write, swap_out or swap_in, found \"alloc\"",
    );
    refused(trace("0,malloc,a,,\n"), ":2:12", "expected a size in bytes");
    refused(trace("0,malloc,a,8,\n0,free,a,8,\n"), ":3:10", "only a malloc has bytes");
}

#[test]
fn operators_that_cannot_be() {
    let folder = Folder::new();
    let file = folder.file("net.csv", trace("0,malloc,a,8,0\n"));
    let ops = folder.file("net.ops.csv", "op,name,phase,inplace,rerun\n0,relu,fwd,1,1\n2,relu,fwd,1,1\n");
    let ran = sublet(&["plan", &file]);
    assert_eq!(ran.status, 2);
    assert!(ran.err.starts_with(&format!("error: {ops}:3:1: expected the op 1")), "{ran:?}");
}

#[test]
fn a_phase_that_is_none() {
    let folder = Folder::new();
    let file = folder.file("t.csv", trace("0,malloc,a,8,0\n0,write,a,,0\n5,read,a,,1\n9,free,a,,\n"));
    for (phase, status) in [("fwd", 0), ("bwd", 0), ("upd", 0), ("", 0), ("xyz", 2)] {
        let operators = folder.file("t.ops.csv", format!("op,name,phase\n0,relu,{phase}\n"));
        let ran = sublet(&["plan", &file]);
        assert_eq!(ran.status, status, "{ran:?}");
        let told = format!("error: {operators}:2:8: expected the phase fwd, bwd or upd");
        assert!(status == 0 || ran.err.starts_with(&told), "{ran:?}");
    }
}

#[test]
fn rmm_logs_that_cannot_be() {
    let row = |action: &str| format!("1,10:00:00.5,{action},0xa0,256,0x0\n");
    refused(
        rmm(&(row("allocate") + &row("allocate"))),
        ":3:23",
        "address 0xa0 is allocated, but it is allocated already",
    );
    refused(rmm(&(row("free") + &row("free"))), ":3:19", "address 0xa0 is freed, but it was freed already");
    refused(rmm(&row("resize")), ":2:14", "expected allocate, free, deallocate or allocate failure");
    refused(rmm("1,noon,allocate,0xa0,256,0\n"), ":2:3", "expected a time such as 14:21:19.998533");
    refused(rmm("1,10:00:00,allocate,a0,256,0\n"), ":2:21", "expected an address such as");
    refused(rmm("1,10:00:00,allocate,0xa0,-1,0\n"), ":2:26", "expected a whole number of bytes");
    refused(rmm("1,10:00:00,allocate failure,(nil),256,0\n"), ":3", "expected an allocation, found none");
}

#[test]
fn a_pickle_that_wants_to_run_code_runs_nothing() {
    let folder = Folder::new();
    let trap = folder.path("ran");
    let touch = pickle::text(&format!("touch {trap}"));
    let by_stack =
        [pickle::text("os"), pickle::text("system"), b"\x93".to_vec(), touch.clone(), b"\x85R".to_vec()].concat();
    let by_line = [b"cos\nsystem\n".to_vec(), touch.clone(), b"\x85R".to_vec()].concat();
    let by_inst = [b"(".to_vec(), touch.clone(), b"ios\nsystem\n".to_vec()].concat();
    for (program, place, wants) in [
        (by_stack, ": byte 14", "import a Python object"),
        (by_line, ": byte 2", "import a Python object"),
        (by_inst, "", "import and call a Python object"),
        (b"K\x01\x85R".to_vec(), ": byte 5", "call a Python object"),
        (b"K\x01K\x02b".to_vec(), ": byte 6", "set the state of a Python object"),
        (b"Pevil\n".to_vec(), ": byte 2", "refer to an object outside itself"),
    ] {
        let file = folder.file("evil", pickle::of(&program));
        let ran = sublet(&["plan", &file]);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.err.starts_with(&format!("error: {file}{place}")), "{ran:?}");
        assert!(ran.err.contains(wants) && ran.err.contains("nothing was run"), "{ran:?}");
    }
    assert_eq!(folder.names(), ["evil"]);
}

#[test]
fn pickles_that_are_no_snapshots() {
    refused(pickle::of(&pickle::list(&[])), "", "expected a memory snapshot: a dict with a list \"device_traces\"");
    refused(b"\x80\x09N.", ": byte 0", "expected a pickle of protocol 2 to 5, found 9");
    refused(b"\x80\x04", ": byte 2", "cut off");
    refused(b"\x80\x04.", ": byte 2", "takes more from its stack than is there");
    // A tuple of two values, both of which lie below the last mark; then a tuple of all values above that mark.
    refused(b"\x80\x04NN(\x86t.", ": byte 5", "takes more from its stack than is there");
    refused(b"\x80\x04h\x00.", ": byte 2", "memo 0 was never written");
    refused(b"\x80\x04Nr\xff\xff\xff\xff.", ": byte 3", "expected memo 0, found 4294967295");
    refused(b"\x80\x04X\xff\xff\xff\xffa.", ": byte 2", "cut off");
    refused(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.", ": byte 2", "cut off");
    refused(b"\x80\x04\xff.", ": byte 2", "found byte 0xff");
    let snapshot = |traces: &[Vec<u8>]| pickle::of(&pickle::dict(&[("device_traces", pickle::list(traces))]));
    let one = pickle::list(&[pickle::event("alloc", 4096, 512, 1)]);
    refused(snapshot(&[pickle::list(&[])]), "", "expected events or segments of a device, found none");
    refused(
        snapshot(&[one.clone(), pickle::list(&[]), one.clone()]),
        "",
        "expected events of one device, found those of [0, 2]",
    );
    refused(snapshot(&[pickle::int(3)]), "", "device 0: expected a list of events");
    refused(snapshot(&[pickle::list(&[pickle::text("alloc")])]), "", "event 0: expected a dict with an \"action\"");
    let nothing = pickle::list(&[pickle::event("alloc", 4096, 0, 1)]);
    refused(snapshot(&[nothing]), "", "expected an allocation, found none");
    let no_size = pickle::dict(&[("action", pickle::text("alloc")), ("addr", pickle::int(1))]);
    refused(snapshot(&[pickle::list(&[no_size])]), "", "event 0: expected a whole number \"size\"");
    let twice = pickle::list(&[pickle::event("alloc", 4096, 8, 1), pickle::event("alloc", 4096, 8, 2)]);
    refused(snapshot(&[twice]), "", "device 0, event 1: address 0x1000 is allocated, but it is allocated already");
}

/// Hostile input in little memory and time.
#[cfg(target_os = "linux")]
mod bounded {
    use super::*;

    const LIMIT: &str = "ulimit -v 131072; ulimit -t 20";

    #[test]
    fn a_line_of_100_mb() {
        let chunks = || (0..100).map(|_| vec![b'7'; 1 << 20]);
        let rows = std::iter::once(INSTANCE.as_bytes().to_vec()).chain(chunks());
        for (line, ran) in
            [(1, sublet_limited(LIMIT, &["plan", "-"], chunks())), (2, sublet_limited(LIMIT, &["plan", "-"], rows))]
        {
            assert_eq!(ran.status, 2, "{ran:?}");
            assert_eq!(ran.err, format!("error: standard input:{line}: expected lines of at most 65536 bytes\n"));
        }
    }

    #[test]
    fn a_pickle_that_doubles_itself() {
        // Each of the 1000 tuples holds the one before it twice.
        let mut program = b"]\x94".to_vec();
        for _ in 0..1000 {
            program.extend(b"h\0h\0\x86q\0");
        }
        let ran = sublet_limited(LIMIT, &["plan", "-"], [pickle::of(&program)]);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.err.contains("expected a memory snapshot"), "{ran:?}");
    }

    #[test]
    fn a_pickle_that_shares_its_events() {
        // 5000 devices with one list, which holds one event 5000 times: 25 million events in 20 kB.
        let event = pickle::event("alloc", 4096, 512, 1);
        let trace = [b"]\x94(".to_vec(), event, b"\x94".to_vec(), b"h\x01".repeat(4999), b"e".to_vec()].concat();
        let traces = [b"](".to_vec(), trace, b"h\x00".repeat(4999), b"e".to_vec()].concat();
        let ran = sublet_limited(LIMIT, &["plan", "-"], [pickle::of(&pickle::dict(&[("device_traces", traces)]))]);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.err.contains("device 1: expected a list of events of its own"), "{ran:?}");
    }

    #[test]
    fn a_pickle_whose_stacks_grow_a_frame_at_a_time() {
        // A list that begins anew and grows to 900 frames, over and over: each length is another stack.
        let frame = pickle::dict(&[("name", pickle::text("f")), ("filename", pickle::text("f.py"))]);
        let list = [b"]".to_vec(), b"h\0a".repeat(900), b"0".to_vec()].concat();
        let program = [frame, b"\x94".to_vec(), list.repeat(200)].concat();
        let ran = sublet_limited(LIMIT, &["plan", "-"], [pickle::of(&program)]);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.err.contains("expected a memory snapshot"), "{ran:?}");
    }

    #[test]
    fn a_pickle_that_only_waits() {
        let ran = sublet_limited(LIMIT, &["plan", "-"], [b"\x80\x04".to_vec(), vec![b'N'; 1 << 23]]);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.err.contains("values wait on the pickle's stack"), "{ran:?}");
    }

    #[test]
    fn a_pickle_that_holds_itself_and_one_that_is_deep() {
        let itself = b"]\x94h\0a".to_vec();
        let deep = [vec![b']'; 200_000], vec![b'a'; 199_999]].concat();
        for program in [itself, deep] {
            let ran = sublet_limited(LIMIT, &["plan", "-"], [pickle::of(&program)]);
            assert_eq!(ran.status, 2, "{ran:?}");
            assert!(ran.err.contains("expected a memory snapshot"), "{ran:?}");
        }
    }
}

#[test]
fn plans_that_cannot_be_read() {
    let folder = Folder::new();
    let problem = folder.file("problem.csv", instance("a,0,2,8\nb,1,3,8\n"));
    for (plan, place, message) in [
        ("", "", "the file is empty"),
        ("id,lower\na,0\n", ":1", "expected a column \"offset\""),
        ("offset\n0\n", ":1", "expected a column \"id\""),
        ("id,offset\na,0.5\n", ":2:3", "expected a whole number of bytes, found \"0.5\""),
        ("id,offset\na\n", ":2", "expected 2 cells"),
        ("id,offset,size\na,0,eight\n", ":2:5", "expected a whole number"),
    ] {
        let plan = folder.file("plan.csv", plan);
        let ran = sublet(&["verify", &problem, &plan]);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.starts_with(&format!("error: {plan}{place}: ")) && ran.err.contains(message), "{ran:?}");
    }
}

#[test]
fn an_output_that_cannot_be_written_leaves_the_old_file_whole() {
    let folder = Folder::new();
    let rows: Vec<String> = (0..1000).map(|i| format!("{i},{i},{},8\n", i + 1)).collect();
    let input = folder.file("in.csv", instance(&rows.concat()));
    let old = folder.file("old.csv", "the old file");
    #[cfg(unix)]
    {
        // Half a KiB fits, the rest does not.
        let ran = sublet_limited("trap '' XFSZ; ulimit -f 1", &["plan", &input, "--output", &old], []);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.starts_with(&format!("error: {old} cannot be written: ")), "{ran:?}");
    }
    let missing = folder.path("no/such/folder.csv");
    for file in [&missing, &folder.path(".")] {
        let ran = sublet(&["plan", &input, "--output", file]);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(ran.err.contains("cannot be written"), "{ran:?}");
    }
    assert_eq!(folder.read("old.csv"), "the old file");
    assert_eq!(folder.names(), ["in.csv", "old.csv"]);
    assert_eq!(sublet(&["plan", &input, "--output", &old]).status, 0);
    assert!(folder.read("old.csv").starts_with("id,lower,upper,size,offset\n0,0,1,8,0\n"));
    assert_eq!(folder.names(), ["in.csv", "old.csv"]);
}

#[test]
fn wrong_usage() {
    for args in [
        &["plan"][..],
        &["plan", "in.csv", "--capacity", "many"],
        &["plan", "in.csv", "--capacity", "-1"],
        &["plan", "in.csv", "--solver", "nobody"],
        &["plan", "in.csv", "--json", "--output", "-"],
        &["convert", "in.csv", "out.txt"],
        &["convert", "in.csv", "out.csv", "--capacity", "1M"],
        &["nothing"],
    ] {
        let ran = sublet(args);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.starts_with("error: ") || ran.err.starts_with("Usage: "), "{ran:?}");
    }
}

#[test]
fn a_trace_that_frees_nothing_is_not_fitted() {
    let folder = Folder::new();
    let file = folder.file("t.csv", trace("0,malloc,a,8,0\n0,write,a,,0\n5,malloc,b,8,1\n5,read,a,,1\n9,write,b,,1\n"));
    for args in [&["fit", &file, "--limit", "8B"][..], &["sweep", &file]] {
        let ran = sublet(args);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.contains("expected rows of the event free"), "{ran:?}");
    }
    assert_eq!(sublet(&["plan", &file]).status, 0);
}
