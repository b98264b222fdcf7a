//! Models: they are read, planned, and written with their plans; files that are no models are refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Folder, sublet};
use serde_json::Value;

const SEEDS: &str = "../fuzz/seeds/model/";

fn seed(name: &str) -> PathBuf {
    Path::new(SEEDS).join(name)
}

fn plan(model: &str, more: &[&str]) -> Value {
    let ran = sublet(&[&["plan", model, "--json"], more].concat());
    assert_eq!(ran.status, 0, "{}", ran.err);
    ran.json()
}

fn fails(arguments: &[&str], status: i32) -> String {
    let ran = sublet(arguments);
    assert_eq!(ran.status, status, "{arguments:?}: {}", ran.err);
    ran.err
}

#[test]
fn each_means_needs_no_more_than_without_and_what_is_written_verifies() {
    let folder = Folder::new();
    let model = seed("small.tflite");
    let model = model.to_str().unwrap();
    let plain = plan(model, &[])["peak"].as_u64().unwrap();
    assert_eq!(plain, 864);
    let out = folder.path("planned.tflite");
    for (options, peak) in [
        (&["--in-place"][..], 864),
        (&["--reorder", "--in-place"], 576),
        (&["--reorder", "--in-place", "--overlap", "reference"], 576),
    ] {
        let planned = plan(model, &[options, &["--output", &out]].concat());
        assert_eq!(planned["peak"], peak, "{options:?}");
        assert_eq!(planned["tflm_greedy"], plain);
        let overlap = if options.contains(&"--overlap") { &["--overlap", "reference"][..] } else { &[] };
        let verified = sublet(&[&["verify", &out, "--json"], overlap].concat());
        assert_eq!(verified.status, 0, "{}", verified.err);
        // If a model that holds a plan is planned again, that plan stays, or is replaced where this is asked for.
        let again = folder.path("again.tflite");
        assert_eq!(plan(&out, &["--output", &again])["peak"], peak);
        let long = |file: &str| fs::read(file).unwrap().len();
        assert_eq!(long(&again), long(&out));
        assert_eq!(plan(&out, &["--replace-plan", "--output", &again])["kept"], false);
        assert!(long(&again) > long(&out) && plan(&again, &[])["peak"].as_u64().unwrap() <= plain);
    }
}

#[test]
fn a_hostile_plan_is_named_and_a_model_without_one_is_told() {
    let folder = Folder::new();
    let (model, out) = (seed("small.tflite"), folder.path("planned.tflite"));
    let model = model.to_str().unwrap();
    assert!(fails(&["verify", model], 2).contains("there is no plan in the file"));
    plan(model, &["--output", &out]);
    let mut bytes = fs::read(&out).unwrap();
    let name = bytes.windows(8).position(|w| w == b"OfflineM").unwrap();
    // Behind version 1 and the number of graphs, 1, comes the number of offsets, then the offsets: all are set to 0.
    let begins = |at: usize| bytes[at..at + 8] == [1, 0, 0, 0, 1, 0, 0, 0];
    let at = (name..bytes.len() - 12).step_by(4).find(|&at| begins(at) && bytes[at + 8] > 0).unwrap() + 12;
    let count = usize::from(bytes[at - 4]);
    for offset in bytes[at..at + 4 * count].as_chunks_mut::<4>().0 {
        if i32::from_le_bytes(*offset) > 0 {
            *offset = [0; 4];
        }
    }
    fs::write(&out, bytes).unwrap();
    assert!(fails(&["verify", &out], 1).contains("are both alive at"));
}

#[test]
fn a_header_and_what_kernels_ask_for() {
    let folder = Folder::new();
    let model = seed("small.tflite");
    let model = model.to_str().unwrap();
    let (header, asked) = (folder.path("plan.h"), folder.path("asked.csv"));
    fs::write(&asked, "op,bytes\n0,1000\n").unwrap();
    let with = plan(model, &["--header", &header, "--workspace", &asked]);
    // Image and first value are 288 bytes each; 1,000 are rounded up to 16.
    assert_eq!(with["peak"], 2 * 288 + 1008);
    let text = fs::read_to_string(&header).unwrap();
    assert!(text.contains("#define SUBLET_ARENA_BYTES 1584u") && text.contains(":image */"), "{text}");
    // The larger of the runtime's alignment and the one of the option.
    for (option, alignment) in [("8", 16), ("64", 64)] {
        plan(model, &["--header", &header, "--alignment", option]);
        let text = fs::read_to_string(&header).unwrap();
        assert!(text.contains(&format!("#define SUBLET_ARENA_ALIGNMENT {alignment}u\n")), "{text}");
    }
    fs::write(&asked, "op,bytes\n5,1000\n").unwrap();
    assert!(fails(&["plan", model, "--workspace", &asked], 2).contains("the model has 5 operators"));
    let log = folder.path("boot.txt");
    fs::write(&log, "0 (id=0): size=288, offset=0, first_used=0 last_used=1\n").unwrap();
    assert!(fails(&["plan", model, "--tflm-log", &log], 2).contains("found 1"));
}

#[test]
fn onnx_is_planned_and_only_a_model_for_tflm_holds_a_plan() {
    let model = seed("small.onnx");
    let model = model.to_str().unwrap();
    // The image has 768 bytes, each other value 1,024.
    assert_eq!(plan(model, &[])["peak"], 3072);
    assert_eq!(plan(model, &["--in-place"])["peak"], 2816);
    assert!(fails(&["plan", model, "--output", "x.tflite"], 2).contains("only a .tflite holds a plan"));
    assert!(fails(&["plan", model, "--overlap", "reference"], 2).contains("only a .tflite holds a plan"));
    let mut bytes = fs::read(model).unwrap();
    let at = bytes.windows(4).rposition(|w| w == [0x0a, 1, b'c', 0x12]).unwrap();
    bytes[at + 2] = b'd';
    let message = sublet_cli::read("net.onnx", bytes.as_slice()).unwrap_err();
    assert!(message.contains("the shape of tensor c is not known"), "{message}");
}

/// A thousand files that are nearly a model: each gives an error with the file's name, or blocks that can be planned.
#[test]
fn spoiled_models_are_errors() {
    for name in ["small.tflite", "small.onnx"] {
        let whole = fs::read(seed(name)).unwrap();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let mut errors = 0;
        let mut tried = 0;
        while errors < 1000 {
            tried += 1;
            assert!(tried < 20_000, "{name}: only {errors} of {tried} are errors");
            let mut bytes = whole.clone();
            if random(4) == 0 {
                bytes.truncate(random(whole.len()));
            }
            for _ in 0..=random(8) {
                let at = random(bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = [0, 0xff, 0x7f, 0x80, u8::try_from(random(256)).unwrap()][random(5)];
                }
            }
            match sublet_cli::read(name, bytes.as_slice()) {
                Ok(problem) => assert!(!problem.blocks().is_empty()),
                Err(message) => {
                    assert!(message.contains(name) || message.contains("empty"), "{message}");
                    errors += 1;
                }
            }
        }
    }
}

/// Files of models that are in `SUBLET_DATA`, or only the small one.
fn models() -> Vec<PathBuf> {
    let mut found = vec![seed("small.tflite")];
    match std::env::var("SUBLET_DATA").map(|data| fs::read_dir(Path::new(&data).join("edge"))) {
        Ok(Ok(files)) => {
            found.extend(files.map(|f| f.unwrap().path()).filter(|f| f.extension().is_some_and(|e| e == "tflite")));
        }
        _ => eprintln!("skipped: models of others; SUBLET_DATA is not set, or has no folder edge"),
    }
    found
}

/// The cost is at most that of ExecuTorch's `banked_greedy`, on every model and for every size of the fast bank.
#[test]
fn banks_are_used_no_worse_than_by_executorch() {
    for model in models() {
        for fast in ["512B", "16KiB", "64KiB", "256KiB", "1MiB"] {
            let fast = format!("fast={fast}");
            let arguments = ["compare", model.to_str().unwrap(), "--bank", &fast, "--bank", "slow=64MiB:4", "--json"];
            let ran = sublet(&arguments);
            assert_eq!(ran.status, 0, "{}", ran.err);
            let cost = |k: usize| ran.json()["planners"][k]["cost"].as_u64().unwrap();
            assert!(ran.json()["lower_bound"].as_u64().unwrap() <= cost(0), "{arguments:?}");
            assert!(cost(0) <= cost(1), "{arguments:?}: {} and {}", cost(0), cost(1));
        }
    }
    let model = seed("small.tflite");
    let said = sublet(&["compare", model.to_str().unwrap(), "--bank", "fast=512B", "--bank", "slow=64KiB:4"]).out;
    assert!(said.contains("executorch-banked-greedy") && said.contains("lower bound"), "{said}");
}

/// A bank with an alignment of its own, blocks that name their bank, and a bank for such blocks alone. The plan that is
/// written can be read again.
#[test]
fn banks_have_alignments_blocks_of_their_own_and_engines() {
    let folder = Folder::new();
    let (file, plan) = (folder.path("own.csv"), folder.path("plan.csv"));
    fs::write(&file, "id,lower,upper,size,offset,bank\na,0,4,8,,\nb,0,4,8,,\nc,0,4,4,,dma\nd,0,4,4,32,slow\n").unwrap();
    let banks = ["--bank", "fast=24:1:align=16", "--bank", "slow=64:4", "--bank", "dma=8:dma"];
    let ran = sublet(&[&["plan", &file, "--output", &plan], &banks[..]].concat());
    assert_eq!(ran.status, 0, "{}", ran.err);
    let written = fs::read_to_string(&plan).unwrap();
    // a and b fit in the bank "fast", at 0 and at 16. c and d lie in the banks that they name.
    let expected = "id,lower,upper,size,offset,bank\na,0,4,8,0,fast\nb,0,4,8,16,fast\nc,0,4,4,0,dma\nd,0,4,4,32,slow\n";
    assert_eq!(written, expected);
    // The plan, read as an instance, has a pin for each block.
    let pinned = sublet(&[&["plan", &plan, "--output", "-"], &banks[..]].concat());
    assert_eq!((pinned.status, pinned.out.starts_with(expected)), (0, true), "{} {}", pinned.err, pinned.out);
    let fails = |arguments: &[&str], says: &str| {
        let ran = sublet(arguments);
        assert!(ran.status != 0 && ran.err.contains(says), "{arguments:?}: {}", ran.err);
    };
    fails(&["plan", &file], "is for several memories");
    fails(&["stats", &file], "is for several memories");
    fails(&["plan", &file, "--bank", "slow=64", "--bank", "fast=64"], "lies in the bank dma, which no --bank names");
    fails(&["plan", &file, "--bank", "slow=64", "--bank", "slow=64"], "two banks are called slow");
    fails(&["plan", &file, "--bank", "slow=64", "--bank", "dma=3:dma"], "that is proved");
    fails(&["compare", &file, "--bank", "slow=64", "--bank", "dma=8:dma"], "");
    let models = seed("small.tflite");
    fails(&["compare", models.to_str().unwrap(), "--bank", "slow=1MiB", "--bank", "dma=8:dma"], "only a DMA engine");
    fails(&["plan", models.to_str().unwrap(), "--bank", "dma=1MiB:dma"], "that is proved");
    // Options of plans for one memory.
    for (option, value) in [("capacity", "64"), ("certificate", "c.json"), ("proof", "p")] {
        let ran = sublet(&[&["plan", &file, &format!("--{option}"), value], &banks[..]].concat());
        assert!(ran.status == 2 && ran.err.contains("cannot be used with"), "{option}: {ran:?}");
    }
    let planned = folder.path("planned.tflite");
    assert_eq!(sublet(&["plan", models.to_str().unwrap(), "--output", &planned]).status, 0);
    let ran = sublet(&["verify", &planned, "--bank", "tiny=16B"]);
    assert!(ran.status == 2 && ran.err.contains("--bank: a model holds a plan for one memory"), "{ran:?}");
    fails(&["verify", &file, &plan, "--bank", "slow=64", "--capacity", "64"], "cannot be used with");
}

#[test]
fn a_refusal_tells_the_least_bound_of_all_that_was_tried() {
    let model = seed("small.onnx");
    // In place 2,816 bytes are enough; with a block for each tensor 3,072 are needed.
    let ran = sublet(&["plan", model.to_str().unwrap(), "--in-place", "--capacity", "2000", "--json"]);
    let json = ran.json();
    assert_eq!(
        (ran.status, json["lower_bound"].as_u64(), json["peak"].as_u64()),
        (1, Some(2816), Some(2816)),
        "{ran:?}"
    );
    assert!(ran.err.contains("every plan takes at least 2816 bytes;"), "{ran:?}");
}

/// A map for each bank, with the blocks of that bank by name, and the layers that wrote them.
#[test]
fn the_page_of_banks_has_a_map_for_each() {
    let folder = Folder::new();
    let (model, page, plan) = (seed("small.tflite"), folder.path("banks.html"), folder.path("plan.csv"));
    let banks = ["--bank", "fast=512B", "--bank", "slow=64KiB:4", "--output", &plan];
    let arguments = [&["plan", model.to_str().unwrap(), "--report", &page], &banks[..]].concat();
    assert_eq!(sublet(&arguments).status, 0);
    let (page, plan) = (fs::read_to_string(&page).unwrap(), fs::read_to_string(&plan).unwrap());
    let maps: Vec<&str> = page.split("srcdoc=\"").skip(1).map(|map| map.split_once('"').unwrap().0).collect();
    assert_eq!(maps.len(), 2);
    for (map, bank) in maps.iter().zip(["fast", "slow"]) {
        let data = map.split_once("id=&quot;plan&quot;>").unwrap().1.split_once("</script>").unwrap().0;
        let data: Value = serde_json::from_str(&data.replace("&quot;", "\"").replace("&amp;", "&")).unwrap();
        let shown: Vec<&str> = data["id"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
        let of_bank = plan.lines().filter(|row| row.ends_with(&format!(",{bank}")));
        let planned: Vec<&str> = of_bank.map(|row| row.split_once(',').unwrap().0).collect();
        assert_eq!(shown, planned, "{bank}");
        assert!(!planned.is_empty() && data["ops"].as_array().is_some_and(|ops| !ops.is_empty()));
    }
    let drawn = folder.path("banks.svg");
    let arguments = [&["plan", model.to_str().unwrap(), "--report", &drawn], &banks[..]].concat();
    assert!(fails(&arguments, 2).contains("a map for each"));
}

/// More means never cost memory: where they do not help, the plan is one without them. No peak is below the lower bound
/// for every order.
#[test]
fn no_means_costs_memory() {
    let mut bounds = 0;
    for model in models() {
        let planned = |options: &[&str]| plan(model.to_str().unwrap(), options);
        let peak = |planned: &Value| planned["peak"].as_u64().unwrap();
        let (plain, in_place) = (peak(&planned(&[])), peak(&planned(&["--in-place"])));
        let by_all = planned(&["--reorder", "--in-place", "--overlap", "reference"]);
        let all = peak(&by_all);
        let bound = by_all["order"]["lower_bound"].as_u64();
        assert!(bound.is_none_or(|bound| bound <= all), "{}: {bound:?} {all}", model.display());
        bounds += usize::from(bound.is_some());
        assert!(in_place <= plain && all <= in_place, "{}: {plain} {in_place} {all}", model.display());
        for fewer in by_all["means"].as_array().unwrap() {
            assert!(all <= peak(fewer), "{}: {all} {fewer}", model.display());
        }
    }
    assert!(bounds > 0);
}

const SOLVE: &str = "
import highspy, sys
h = highspy.Highs()
h.setOptionValue('output_flag', False)
h.readModel(sys.argv[1])
h.run()
assert h.getModelStatus() == highspy.HighsModelStatus.kOptimal
print(round(h.getInfo().objective_function_value))
";

/// The optimum of the mixed integer program is the peak of the plan, with overlaps and without.
#[test]
fn the_mip_knows_overlaps() {
    let folder = Folder::new();
    let python = std::env::var_os("SUBLET_PYTHON").unwrap_or_else(|| "python3".into());
    let solver = Command::new(&python).args(["-c", "import highspy"]).output();
    if !solver.is_ok_and(|ran| ran.status.success()) {
        eprintln!("skipped: overlaps are not held against a MIP solver; there is no highspy");
        return;
    }
    let small = ["small", "mlperf_resnet8_int8", "mlperf_kws_int8"];
    for model in models().iter().filter(|m| small.iter().any(|name| m.file_stem().is_some_and(|stem| stem == *name))) {
        for overlap in [&[][..], &["--overlap", "reference"]] {
            let lp = folder.path("model.lp");
            let model = model.to_str().unwrap();
            assert_eq!(sublet(&[&["convert", model, &lp], overlap].concat()).status, 0);
            let ran = Command::new(&python).args(["-c", SOLVE, &lp]).output().unwrap();
            // HiGHS from 1.16 on prints its name first.
            let least: u64 = String::from_utf8(ran.stdout).unwrap().lines().last().unwrap().parse().unwrap();
            assert_eq!(plan(model, overlap)["peak"], least, "{model} {overlap:?}");
        }
    }
    let instance = folder.file("in.csv", "id,lower,upper,size\na,0,2,8\n");
    let lp = folder.path("in.lp");
    assert!(fails(&["convert", &instance, &lp, "--overlap", "reference"], 2).contains("for a model as LP text"));
}

/// The first lines that a build of TFLM has printed for the model of person detection.
const PRINTED: &str = "\
0 (id=0): size=256, offset=2304, first_used=28 last_used=29
1 (id=1): size=16, offset=0, first_used=29 last_used=30
2 (id=2): size=16, offset=16, first_used=30 last_used=31
3 (id=3): size=18432, offset=0, first_used=1 last_used=2
4 (id=4): size=4608, offset=4608, first_used=20 last_used=21
";

#[test]
fn the_log_of_a_device_is_understood() {
    let folder = Folder::new();
    let Some(model) = models().into_iter().find(|m| m.file_stem().is_some_and(|stem| stem == "person_detect")) else {
        eprintln!("skipped: person_detect.tflite is not in SUBLET_DATA/edge");
        return;
    };
    let model = model.to_str().unwrap();
    let cut = folder.file("boot.txt", PRINTED);
    assert!(fails(&["plan", model, "--tflm-log", &cut], 2).contains("for each of 32 tensors, found 5"));
    let other = folder.file("other.txt", PRINTED.replace("4608,", "4624,"));
    assert!(fails(&["plan", model, "--tflm-log", &other], 2).contains("expected the model's tensor of 4608 bytes"));
}

/// Two plans of one model for several memories, by all means, each with a header whose names are its own.
#[test]
fn headers_for_several_memories_have_names_of_their_own() {
    let folder = Folder::new();
    let (model, header) = (seed("small.tflite"), folder.path("plan.h"));
    let model = model.to_str().unwrap();
    let banks = ["--bank", "fast=300", "--bank", "slow=64KiB:4", "--header", &header];
    for (prefix, means, least) in [("vww", &[][..], 576), ("Kws_2", &["--reorder", "--in-place", "--overlap"], 288)] {
        let json = plan(model, &[&banks[..], &["--prefix", prefix], means].concat());
        assert_eq!(json["verified"], true);
        // The blocks of each memory are packed: of the values of 288 bytes the fast memory has one.
        let peak = |bank: usize| json["banks"][bank]["peak"].as_u64().unwrap();
        assert_eq!((peak(0), peak(1)), (288, least), "{json}");
        let (text, upper) = (fs::read_to_string(&header).unwrap(), prefix.to_ascii_uppercase());
        for has in [format!("#ifndef {upper}_PLAN_H"), format!("#define {upper}_SLOW_BYTES {least}u")] {
            assert!(text.contains(&has), "{has}: {text}");
        }
        let lower = prefix.to_ascii_lowercase();
        for has in ["tensors", "memories", "inputs", "outputs", "operators", "kinds", "spans", "operands"] {
            assert!(text.contains(&format!("{lower}_{has}[")), "{has}: {text}");
        }
        assert!(!text.contains("sublet_"), "{text}");
    }
    assert!(fails(&["plan", model, "--header", &header, "--prefix", "2x"], 2).contains("as C has them"));
    assert!(fails(&["plan", model, "--prefix", "x"], 2).contains("--header"));
    let into = folder.path("banked.tflite");
    assert!(fails(&["plan", model, "--board", "esp32s3", "--output", &into], 2).contains("offsets of one memory"));
    assert!(fails(&["plan", model, "--board", "toaster"], 2).contains("stm32h747"));
    assert_eq!(plan(model, &["--board", "stm32h747"])["banks"][0]["bank"], "dtcm");
}
