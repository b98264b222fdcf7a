//! No two files of a crate import each other, directly or by way of others.
//!
//! The `mod.rs` of a folder and the files in the folder may import each other, and so may `lib.rs` and any file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const ROOTS: [&str; 8] = ["core", "cli", "ffi", "cuda-runtime", "models", "baselines", "tests", "python"];

/// A module by the names that lead to it from the crate's root.
type Module = Vec<String>;
type Edges = BTreeMap<Module, BTreeSet<Module>>;

#[test]
fn no_file_imports_what_imports_it() {
    for root in ROOTS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(root).join("src");
        let mut sources = BTreeMap::new();
        collect(&folder, &[], &mut sources);
        assert!(sources.len() > 2, "{root}: {sources:?}");
        if let Some(circle) = circle(&imports(&sources)) {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            panic!("files of {root} import each other: {}", names.join(" -> "));
        }
    }
}

#[test]
fn a_circle_is_found() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let source = |path: &str, text: &str| (module(path), text.to_owned());
    let by_a_third = [
        source("a", "use crate::{table, b::{self, X as Y}};"),
        source("b", "fn f() { super::other::c::g(); }"),
        source("other::c", "use super::super::a::Z;"),
    ];
    assert!(circle(&imports(&BTreeMap::from(by_a_third.clone()))).is_some());
    for spared in 0..3 {
        let mut without = by_a_third.clone();
        without[spared].1 = "// use crate::a; use crate::b;\nconst A: &str = \"crate::b::X\";".into();
        assert_eq!(circle(&imports(&BTreeMap::from(without))), None);
    }
    let one_room = [source("a", "use crate::a::b::X;"), source("a::b", "use super::Y;")];
    assert_eq!(circle(&imports(&BTreeMap::from(one_room))), None);
}

/// Every file of tests is named by a `mod`: otherwise it is not compiled, and its tests do not run.
#[test]
fn every_file_of_tests_is_in_a_program() {
    for (package, tests) in [("cli", "tests"), ("tests", "."), ("cuda-runtime", "tests/host")] {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package);
        let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a manifest");
        let files = fs::read_dir(package.join(tests)).expect("a folder of tests").map(|entry| entry.unwrap().path());
        let sources: BTreeMap<String, String> = files
            .filter(|path| path.extension().is_some_and(|e| e == "rs"))
            .map(|path| (path.file_stem().unwrap().display().to_string(), fs::read_to_string(&path).unwrap()))
            .collect();
        assert!(sources.len() > 8, "{sources:?}");
        assert_eq!(in_no_program(&sources, &manifest), [""; 0], "in {}", package.join(tests).display());
        let mut more = sources.clone();
        more.insert("forgotten".into(), String::new());
        assert_eq!(in_no_program(&more, &manifest), ["forgotten"]);
    }
}

/// The files that no other file declares as a module, and that the manifest does not name as a program.
fn in_no_program<'a>(sources: &'a BTreeMap<String, String>, manifest: &str) -> Vec<&'a str> {
    let is_in_one = |name: &str| {
        let module = format!("mod {name};");
        manifest.contains(&format!("{name}.rs\""))
            || sources.values().any(|text| text.lines().any(|line| line == module))
    };
    sources.keys().map(String::as_str).filter(|name| *name != "main" && !is_in_one(name)).collect()
}

/// Reads every source file below `folder`, except those named `tests.rs`, into `sources`. `parents` are the names of
/// the modules that lead to `folder`.
fn collect(folder: &Path, parents: &[String], sources: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        let inside = |name: &str| [parents, &[name.to_owned()]].concat();
        if path.is_dir() {
            collect(&path, &inside(&name), sources);
        } else if path.extension().is_some_and(|e| e == "rs") && name != "tests" {
            let module = if ["mod", "lib", "main"].contains(&name.as_str()) { parents.to_vec() } else { inside(&name) };
            sources.insert(module, fs::read_to_string(&path).expect("a source"));
        }
    }
}

/// For each file, the files that it imports.
fn imports(sources: &BTreeMap<Module, String>) -> Edges {
    let one_room = |a: &[String], b: &[String]| a.starts_with(b) || b.starts_with(a);
    let of = |module: &Module, text: &str| -> BTreeSet<Module> {
        let paths = paths(&code(text)).into_iter().filter_map(|path| resolve(module, &path, sources));
        paths.filter(|other| !one_room(module, other)).collect()
    };
    sources.iter().map(|(module, text)| (module.clone(), of(module, text))).collect()
}

/// The source without comments, strings, and the unit tests at its end.
fn code(text: &str) -> String {
    let text = text.split_once("#[cfg(test)]\nmod ").map_or(text, |(code, _)| code);
    let without_comments = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    // Every second part lies between quotes; escaped quotes do not end it.
    let text = without_comments.collect::<Vec<_>>().join("\n").replace("\\\"", "").replace("'\"'", "");
    text.split('"').step_by(2).collect()
}

/// The paths that begin at `crate`, `super` or `self`, with the braces of imports written out.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for begin in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(begin) {
            if !code[..at].ends_with(|c: char| is_word(c) || c == ':' || c == '$') {
                expand(&code[at..], &[], &mut found);
            }
        }
    }
    found
}

/// Reads one path, or several if it ends in braces, and adds them to `found`, each behind `prefix`. Returns the code
/// after them.
fn expand<'a>(mut code: &'a str, prefix: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let mut path = prefix.to_vec();
    loop {
        code = code.trim_start();
        if let Some(mut inside) = code.strip_prefix('{') {
            loop {
                inside = expand(inside, &path, found).trim_start();
                // Skips `as NAME`, up to the next comma or brace.
                let end = inside.find([',', '}', ';']).unwrap_or(inside.len());
                inside = &inside[end..];
                match inside.strip_prefix(',') {
                    Some(rest) if !rest.trim_start().starts_with('}') => inside = rest,
                    Some(rest) => return rest.trim_start().strip_prefix('}').unwrap_or(rest),
                    None => return inside.strip_prefix('}').unwrap_or(inside),
                }
            }
        }
        let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(code.len());
        if end > 0 {
            path.push(code[..end].to_owned());
        }
        code = &code[end..];
        match code.strip_prefix("::") {
            Some(rest) if end > 0 => code = rest,
            _ => {
                found.push(path);
                return code;
            }
        }
    }
}

/// The file that holds what a path names, as seen from `module`.
fn resolve(module: &Module, path: &[String], sources: &BTreeMap<Module, String>) -> Option<Module> {
    let mut at = module.clone();
    for name in path {
        match name.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            "self" => {}
            name => at.push(name.to_owned()),
        }
    }
    while !sources.contains_key(&at) {
        at.pop()?;
    }
    Some(at)
}

/// A path of imports from a file back to itself; `None` if there is none.
fn circle(edges: &Edges) -> Option<Vec<Module>> {
    let mut done = BTreeSet::new();
    edges.keys().find_map(|start| follow(start, edges, &mut Vec::new(), &mut done))
}

/// Follows the imports of a file until they come back to a file in `way`, and returns that circle. `way` are the files
/// by which this one was reached, `done` the files that lead into no circle.
fn follow<'a>(
    module: &'a Module,
    edges: &'a Edges,
    way: &mut Vec<&'a Module>,
    done: &mut BTreeSet<&'a Module>,
) -> Option<Vec<Module>> {
    if let Some(at) = way.iter().position(|&other| other == module) {
        return Some(way[at..].iter().copied().chain([module]).cloned().collect());
    }
    if done.contains(module) {
        return None;
    }
    way.push(module);
    let found = edges.get(module).into_iter().flatten().find_map(|next| follow(next, edges, way, done));
    way.pop();
    done.insert(module);
    found
}
