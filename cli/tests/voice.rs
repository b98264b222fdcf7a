//! How much is said beside results, and JSON by every command.

use crate::support::{Folder, STALLING, sublet};
use serde_json::json;

#[test]
fn quiet_says_nothing_but_errors_and_verbose_says_what_it_does() {
    let folder = Folder::new();
    let file = folder.file("net.csv", "id,lower,upper,size,colour\na,0,2,8,red\nb,1,3,8,red\n");
    let plan = folder.path("net.plan.csv");
    let usual = sublet(&["plan", &file, "--output", &plan]);
    assert!(usual.out.contains("peak") && usual.err.contains("note: ") && !usual.err.contains("read "), "{usual:?}");
    for args in [["-q", "plan"], ["plan", "--quiet"]] {
        let quiet = sublet(&[&args[..], &[&file, "--output", &plan]].concat());
        assert_eq!((quiet.status, quiet.out.as_str(), quiet.err.as_str()), (0, "", ""));
        assert_eq!(folder.read("net.plan.csv").lines().count(), 3);
    }
    for command in ["stats", "compare"] {
        assert_eq!(sublet(&[command, &file, "-q"]).out, "", "{command}");
    }
    assert_eq!(sublet(&["plan", &file, "-q", "--json"]).json()["peak"], 16);
    let wrong = sublet(&["plan", &file, "-q", "--capacity", "15B"]);
    assert!(wrong.status == 1 && wrong.err.starts_with("error: "), "{wrong:?}");
    let verbose = sublet(&["-v", "plan", &file, "--output", &plan]);
    assert_eq!(verbose.out.lines().count(), usual.out.lines().count());
    for said in [format!("read {file}: 2 blocks, 0 rows"), format!("writing {plan}")] {
        assert!(verbose.err.contains(&said), "{verbose:?}");
    }
    assert_eq!(sublet(&["plan", &file, "-q", "-v"]).status, 2);
}

#[test]
fn check_and_convert_have_json_too() {
    let folder = Folder::new();
    let file = folder.file("net.csv", "id,lower,upper,size\na,0,2,8\nb,1,3,8\n");
    let [plan, certificate, lp] = ["net.plan.csv", "certificate.json", "net.lp"].map(|name| folder.path(name));
    assert_eq!(sublet(&["plan", &file, "--output", &plan, "--certificate", &certificate]).status, 0);
    let told = sublet(&["check", &file, &plan, &certificate, "--json"]).json();
    assert_eq!((&told["peak"], &told["optimal"]), (&json!(16), &json!(true)));
    let told = sublet(&["convert", &file, &lp, "--json"]).json();
    assert_eq!(told, json!({ "input": file, "output": lp, "format": "lp", "blocks": 2 }));
    let both = sublet(&["convert", &file, "-", "--to", "lp", "--json"]);
    assert!(both.status == 2 && both.err.contains("both want standard output"), "{both:?}");
}

/// 50 may be bytes or a share, and a limit above what is needed changes nothing: both are said.
#[test]
fn a_limit_says_what_it_means() {
    let folder = Folder::new();
    let file = folder.file("net.csv", STALLING);
    let bare = sublet(&["fit", &file, "--limit", "50"]);
    assert!(bare.status == 2 && bare.err.contains("expected a unit: 50% is of the peak, 50B are bytes"), "{bare:?}");
    let note = "nothing was rewritten";
    let high = sublet(&["fit", &file, "--limit", "900G", "--json"]);
    assert!(high.err.contains(note) && high.json()["notes"].to_string().contains(note), "{high:?}");
    // Also where memory is reused in place at any limit.
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/alexnet_train_b32.csv");
    let reused = sublet(&["fit", trace, "--limit", "900G", "--json"]);
    assert!(reused.json()["in_place"].as_u64() > Some(0), "{reused:?}");
    let but = "nothing was rewritten but for masks and reuse in place";
    assert!(reused.err.contains(but) && reused.json()["notes"].to_string().contains(but), "{reused:?}");
    let limited = sublet(&["fit", trace, "--limit", "90%", "--json"]);
    assert!(limited.status == 0 && !limited.err.contains(note), "{limited:?}");
    let low = sublet(&["fit", &file, "--limit", "17M", "--json"]);
    assert!(low.status == 0 && !low.err.contains(note), "{low:?}");
}
