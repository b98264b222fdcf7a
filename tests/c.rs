//! The C library as a user gets it: installed by `ci.sh install`, then used from C and C++, with the compiler alone, by
//! pkg-config and by CMake; plain, under the sanitizers, and under valgrind.

mod compiled;
mod installed;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use compiled::{Language, PASSED, SANITIZERS, all_called, functions, passes_under_valgrind};
use installed::{ROOT, folder, install, run, tool};

static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| install("prefix", ""));

/// The macros that the test program is compiled with: the version, how many statuses there are, and the folder of the
/// recorded networks.
fn definitions() -> [String; 3] {
    let header = std::fs::read_to_string(format!("{ROOT}/include/sublet.h")).unwrap();
    let statuses = header.lines().filter(|l| l.starts_with("  SUBLET_STATUS_")).count();
    [
        format!("-DCARGO_VERSION=\"{}\"", env!("CARGO_PKG_VERSION")),
        format!("-DSTATUSES={statuses}"),
        format!("-DTRACES=\"{ROOT}/traces\""),
    ]
}

/// Compiles the test program of a language; returns its file, or `None` if there is no compiler.
fn program(language: Language, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let to = folder().join(format!("{name}.{}", language.extension()));
    let flags = definitions().into_iter().chain(flags.iter().map(|&f| f.to_owned()));
    language.compile(&PREFIX, &language.sources("c"), flags, &to).then_some(to)
}

fn passes(language: Language, name: &str, flags: &[&str]) {
    if let Some(program) = program(language, name, flags) {
        assert_eq!(run(&mut Command::new(program)), PASSED);
    }
}

fn under_valgrind(language: Language) {
    if let Some(program) = program(language, "checked", &[]) {
        passes_under_valgrind(&program, &[], "definite,possible");
    }
}

#[test]
fn c11() {
    passes(Language::C, "plain", &[]);
}

#[test]
fn c11_under_the_sanitizers() {
    passes(Language::C, "sanitized", &SANITIZERS);
}

#[test]
fn c11_under_valgrind() {
    under_valgrind(Language::C);
}

#[test]
fn cpp17() {
    passes(Language::Cpp, "plain", &[]);
}

/// The header for C++ works in an old framework: with the older standard, without exceptions and run-time types, and
/// with macros for malloc and free.
#[test]
fn cpp11() {
    let source = [Path::new(env!("CARGO_MANIFEST_DIR")).join("c/cpp11/main.cpp")];
    for (name, flags) in [("with", &["-std=c++11"][..]), ("without", &["-std=c++11", "-fno-exceptions", "-fno-rtti"])] {
        let to = folder().join(format!("cpp11.{name}"));
        if Language::Cpp.compile(&PREFIX, &source, flags, &to) {
            assert_eq!(run(&mut Command::new(to)), PASSED);
        }
    }
}

#[test]
fn cpp17_under_the_sanitizers() {
    passes(Language::Cpp, "sanitized", &SANITIZERS);
}

#[test]
fn cpp17_under_valgrind() {
    under_valgrind(Language::Cpp);
}

/// The header for C++ compiles in the C++ of the frameworks that are to use it: C++11, without exceptions.
#[test]
fn cpp11_without_exceptions() {
    let skipped = "sublet.hpp in C++11 without exceptions";
    let Some(compiler) = tool(&["c++", "g++", "clang++"], skipped) else { return };
    run(Command::new(compiler)
        .args(["-std=c++11", "-fno-exceptions", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
        .arg(PREFIX.join("include"))
        .arg(Path::new(ROOT).join("tests/frameworks/cpp11.cpp")));
}

const EXAMPLE: &str = "6 requests served from a plan of 12 MiB\n";
const FITTED: &str = "the same weights within 2048 KiB, where 3840 are alive without a plan\n";

fn example() -> PathBuf {
    Path::new(ROOT).join("examples/c")
}

/// Builds the example as a user's makefile does: with the compiler and pkg-config, nothing else.
#[test]
fn the_example_builds_by_pkg_config() {
    let Some(cc) = tool(&["cc", "gcc", "clang"], "the example in C") else { return };
    let Some(pkg_config) = tool(&["pkg-config", "pkgconf"], "the example by pkg-config") else { return };
    let lib = PREFIX.join("lib");
    let ask = |flags: &[&str]| {
        run(Command::new(pkg_config).args(flags).arg("sublet").env("PKG_CONFIG_PATH", lib.join("pkgconfig")))
    };
    assert_eq!(ask(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let to = folder().join("example");
    for (kind, flags) in [("shared", &["--cflags", "--libs"][..]), ("static", &["--cflags", "--libs", "--static"])] {
        let mut flags: Vec<String> = ask(flags).split_whitespace().map(str::to_owned).collect();
        if kind == "static" {
            // Both libraries lie side by side; the linker takes the shared one unless it is told.
            let at = flags.iter().position(|f| f == "-lsublet").unwrap();
            flags.splice(at..=at, ["-Wl,-Bstatic", "-lsublet", "-Wl,-Bdynamic"].map(str::to_owned));
        }
        run(Command::new(cc).arg(example().join("replay.c")).args(&flags).arg("-o").arg(&to));
        let mut program = Command::new(&to);
        if kind == "shared" {
            program.env("LD_LIBRARY_PATH", &lib);
        }
        assert_eq!(run(&mut program), EXAMPLE);
    }
}

#[test]
fn the_example_that_follows_a_rewritten_trace() {
    for (name, flags) in [("fit", &[][..]), ("fit_sanitized", &SANITIZERS[..])] {
        let to = folder().join(name);
        if Language::C.compile(&PREFIX, &[example().join("fit.c")], flags, &to) {
            assert_eq!(run(&mut Command::new(to)), FITTED);
        }
    }
}

/// Whoever reads the header finds each function in use, or on a page that says what it is for.
#[test]
fn every_function_stands_in_an_example_on_a_page_or_in_a_wrapper() {
    fn texts(folder: &Path) -> String {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let text = |path: PathBuf| match path.extension().and_then(std::ffi::OsStr::to_str) {
            _ if path.is_dir() => texts(&path),
            Some("c" | "cpp" | "hpp" | "md" | "py" | "rs") => std::fs::read_to_string(path).unwrap(),
            _ => String::new(),
        };
        entries.map(text).collect()
    }
    let folders = ["docs", "examples", "include", "python/sublet", "python/src"];
    let used: String = folders.iter().map(|folder| texts(&Path::new(ROOT).join(folder))).collect();
    let words: std::collections::HashSet<&str> = used.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let headers = ["sublet.h", "sublet_runtime.h", "sublet_relu.h", "sublet_torch.h"];
    let functions: Vec<String> = headers.into_iter().flat_map(functions).collect();
    let nowhere: Vec<_> = functions.iter().filter(|name| !words.contains(name.as_str())).collect();
    assert!(functions.len() > 100 && nowhere.is_empty(), "{nowhere:?}");
}

/// The first block of code in this language in docs/c.md.
fn documented(language: &str) -> String {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/c.md")).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_page_about_c_tells_the_truth() {
    assert_eq!(documented("c"), std::fs::read_to_string(example().join("replay.c")).unwrap());
    let (source, program) = (folder().join("documented.cpp"), folder().join("documented"));
    std::fs::create_dir_all(folder()).unwrap();
    std::fs::write(&source, documented("cpp")).unwrap();
    if !Language::Cpp.compile(&PREFIX, &[source], [""; 0], &program) {
        return;
    }
    assert_eq!(run(&mut Command::new(program)), "4 requests served from a plan\n");
}

/// The commands in docs/c.md work as they are printed, up to the program's output.
#[test]
fn the_commands_on_the_page_about_c_work() {
    if tool(&["cc"], "the commands of docs/c.md").is_none() || tool(&["pkg-config"], "those of docs/c.md").is_none() {
        return;
    }
    LazyLock::force(&PREFIX);
    let commands = documented("sh");
    let said: Vec<_> =
        commands.lines().map(|line| run(Command::new("bash").args(["-euc", line]).current_dir(ROOT))).collect();
    assert_eq!(said.last().map(String::as_str), Some(EXAMPLE));
}

#[test]
fn the_example_builds_by_cmake() {
    if tool(&["cc", "gcc", "clang"], "the example in C").is_none() {
        return;
    }
    let Some(cmake) = tool(&["cmake"], "the example by CMake") else { return };
    let build = folder().join("cmake");
    let _ = std::fs::remove_dir_all(&build);
    run(Command::new(cmake)
        .arg("-S")
        .arg(example())
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", PREFIX.display())));
    run(Command::new(cmake).arg("--build").arg(&build));
    for (program, said) in [("replay", EXAMPLE), ("replay_static", EXAMPLE), ("fit", FITTED)] {
        assert_eq!(run(&mut Command::new(build.join(program))), said);
    }
}

/// A program finds the library by its SONAME, which is a link to the file.
#[test]
fn the_library_has_its_name() {
    let lib = PREFIX.join("lib");
    let file = format!("libsublet.so.{}", env!("CARGO_PKG_VERSION"));
    let soname = concat!("libsublet.so.", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    for link in ["libsublet.so", soname] {
        assert_eq!(std::fs::canonicalize(lib.join(link)).unwrap().file_name().unwrap(), file.as_str());
    }
    let Some(readelf) = tool(&["readelf", "llvm-readelf"], "the SONAME") else { return };
    let dynamic = run(Command::new(readelf).arg("-d").arg(lib.join("libsublet.so")));
    assert!(dynamic.contains(&format!("[{soname}]")), "{dynamic}");
}

/// Packagers install into another folder than the one where the library will be.
#[test]
fn destdir_is_in_front_of_the_prefix() {
    LazyLock::force(&PREFIX);
    let stage = folder().join("stage");
    let _ = std::fs::remove_dir_all(&stage);
    run(Command::new(format!("{ROOT}/ci.sh")).args(["install", "/opt/sublet"]).env("DESTDIR", &stage));
    let pc = std::fs::read_to_string(stage.join("opt/sublet/lib/pkgconfig/sublet.pc")).unwrap();
    assert!(pc.starts_with("prefix=${pcfiledir}/../..\n") && !pc.contains('@'), "{pc}");
    for installed in
        ["include/sublet.h", "include/sublet.hpp", "include/sublet_fit.hpp", "lib/libsublet.a", "lib/libsublet.so.0.2"]
    {
        assert!(stage.join("opt/sublet").join(installed).exists(), "{installed}");
    }
}

/// The static library without the standard library, for this machine or another.
fn firmware_library(target: Option<&str>) -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let to = folder().join("firmware");
    run(Command::new(cargo)
        .args(["rustc", "--locked", "--package", "sublet-ffi", "--lib", "--no-default-features"])
        .args(["--profile", "firmware", "--crate-type", "staticlib", "--target-dir"])
        .arg(&to)
        .args(target.map(|target| ["--target", target]).iter().flatten())
        .current_dir(ROOT));
    to.join(target.unwrap_or_default()).join("firmware/libsublet.a")
}

#[test]
fn firmware_for_a_microcontroller() {
    let target = "thumbv7em-none-eabihf";
    let library = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    if !library.is_ok_and(|o| Path::new(String::from_utf8_lossy(&o.stdout).trim()).exists()) {
        eprintln!("skipped: the library for a Cortex-M4F; `rustup target add {target}` has not been run");
        return;
    }
    assert!(firmware_library(Some(target)).exists());
}

/// The same test program, but for what needs the standard library, links with a library that was built without it, and
/// passes. That library needs no symbols but those that come with a C compiler.
#[test]
fn firmware() {
    let Some([cc, standard]) = Language::C.compiler("the library for firmware") else { return };
    let library = firmware_library(None);
    let program = folder().join("firmware.bin");
    run(Command::new(cc)
        .args([standard, "-O1", "-DFIRMWARE", "-pthread"])
        .args(definitions())
        .arg("-I")
        .arg(Path::new(ROOT).join("include"))
        .args(Language::C.sources("c"))
        .arg(library)
        .arg("-o")
        .arg(&program));
    assert_eq!(run(&mut Command::new(program)), PASSED);
}

#[test]
fn the_library_exports_what_the_header_declares() {
    let declared = functions("sublet.h");
    assert!(declared.len() > 10, "{declared:?}");
    let Some(nm) = tool(&["nm", "llvm-nm"], "the symbols of the shared library") else { return };
    let symbols = run(Command::new(nm).args(["-D", "--defined-only"]).arg(PREFIX.join("lib/libsublet.so")));
    let mut exported: Vec<_> = symbols.lines().filter_map(|l| l.rsplit(' ').next()).map(str::to_owned).collect();
    exported.sort();
    assert_eq!(exported, declared);
}

#[test]
fn every_function_is_called_in_c() {
    all_called(&functions("sublet.h"), &Language::C.sources("c"));
}
