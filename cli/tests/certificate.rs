//! Certificates: the binary and a program in Python check the same ones, and must agree.

use std::process::{Command, Stdio};

use crate::support::{Folder, Ran, sublet};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Whether the checker in Python accepts a certificate; none where there is no Python.
fn foreign(files: [&str; 3]) -> Option<bool> {
    let python = std::env::var("SUBLET_PYTHON").unwrap_or_else(|_| "python3".into());
    let checker = format!("{ROOT}/tests/check_certificate.py");
    let status = Command::new(python).arg(checker).args(files).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let Ok(status) = status else {
        eprintln!("skipped: the checker of certificates in Python; there is no python3");
        return None;
    };
    Some(status.success())
}

/// Whether `sublet check` accepts a certificate, and its run. The checker in Python must say the same.
fn accepted(files: [&str; 3]) -> (bool, Ran) {
    let ran = sublet(&[&["check"][..], &files].concat());
    assert!([0, 1].contains(&ran.status), "{ran:?}");
    if let Some(foreign) = foreign(files) {
        assert_eq!(foreign, ran.status == 0, "{ran:?}");
    }
    (ran.status == 0, ran)
}

fn planned(folder: &Folder, input: &str, more: &[&str]) -> [String; 2] {
    let [plan, certificate] = ["plan.csv", "c.json"].map(|name| folder.path(name));
    let ran = sublet(&[&["plan", input, "--output", &plan, "--certificate", &certificate][..], more].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    [plan, certificate]
}

#[test]
fn what_is_optimal_is_shown_by_a_step() {
    let folder = Folder::new();
    let inputs = ["traces/hard.csv", "traces/chainer_googlenet_infer.csv"].map(|name| format!("{ROOT}/{name}"));
    let instance = folder
        .file("in.csv", "id,lower,upper,size,alignment,offset\na,5,70,96,32,\nb,60,90,64,1,128\nc,80,95,100,64,\n");
    for (input, more) in [(&inputs[0], &[][..]), (&inputs[1], &["--alignment", "256"]), (&instance, &[])] {
        let [plan, certificate] = planned(&folder, input, more);
        let (is_accepted, ran) = accepted([input, &plan, &certificate]);
        assert!(is_accepted, "{ran:?}");
        assert_eq!(ran.out.contains("optimal   yes"), !input.ends_with("in.csv"), "{ran:?}");
    }
}

#[test]
fn what_is_not_so_is_refused() {
    let folder = Folder::new();
    let input = folder.file("in.csv", "id,lower,end,size\na,0,1,8\nb,1,3,4\nc,2,3,8\n");
    let [plan, certificate] = planned(&folder, &input, &["--alignment", "4"]);
    let (told, right) = (folder.read("c.json"), folder.read("plan.csv"));
    assert!(accepted([&input, &plan, &certificate]).0);
    let spoiled = |from: &str, to: &str| {
        assert!(told.contains(from), "{told}");
        let spoiled = folder.file("spoiled.json", told.replace(from, to));
        let (is_accepted, ran) = accepted([&input, &plan, &spoiled]);
        assert!(!is_accepted, "{from} {to}: {ran:?}");
    };
    spoiled("\"blocks\":3", "\"blocks\":2");
    spoiled("\"alignment\":4", "\"alignment\":16");
    spoiled("\"peak\":12", "\"peak\":11");
    spoiled("\"peak\":12", "\"peak\":13");
    spoiled("\"lower_bound\":12", "\"lower_bound\":11");
    spoiled("\"witness_step\":1", "\"witness_step\":0");
    spoiled("\"witness_step\":1", "\"witness_step\":4");
    spoiled("\"witness_step\":1", "\"witness_step\":null");
    spoiled("\"optimal\":true", "\"optimal\":false");
    for line in right.lines().skip(1) {
        let offset: u64 = line.rsplit(',').next().unwrap().parse().unwrap();
        let moved = format!("{},{}", line.rsplit_once(',').unwrap().0, if offset == 0 { 4 } else { offset - 4 });
        let spoiled = folder.file("moved.csv", right.replace(line, &moved));
        assert!(!accepted([&input, &spoiled, &certificate]).0, "{moved}");
    }
}

/// A plan above the load is valid, and nothing shows that it is the best.
#[test]
fn what_a_search_claims_is_told_as_a_claim() {
    let folder = Folder::new();
    let input = folder.file("in.csv", "id,lower,upper,size,alignment\na,0,2,4,4\nb,0,2,1,4\nc,0,2,1,4\n");
    let [plan, certificate] = planned(&folder, &input, &[]);
    let (is_accepted, ran) = accepted([&input, &plan, &certificate]);
    assert!(is_accepted && ran.out.contains("optimal   not shown"), "{ran:?}");
    let claimed = folder.file("claimed.json", folder.read("c.json").replace("\"optimal\":false", "\"optimal\":true"));
    assert!(!accepted([&input, &plan, &claimed]).0);
}

#[test]
fn what_is_no_certificate_is_refused() {
    let folder = Folder::new();
    let input = folder.file("in.csv", "id,lower,upper,size\na,0,1,8\n");
    let plan = folder.file("plan.csv", "id,offset\na,0\n");
    for content in ["", "{}", "[1]", "{\"blocks\":1}"] {
        let certificate = folder.file("c.json", content);
        let ran = sublet(&["check", &input, &plan, &certificate]);
        assert!(ran.status == 2 && ran.err.contains("c.json: not a certificate: "), "{ran:?}");
    }
    let of_three = "{\"blocks\":1,\"alignment\":3,\"peak\":8,\"lower_bound\":8,\"witness_step\":0,\"optimal\":true}";
    let certificate = folder.file("c.json", of_three);
    assert!(sublet(&["check", &input, &plan, &certificate]).err.contains("the alignment 3 is not a power of two"));
}
