//! The C library as a stranger meets it: installed by `ci.sh install`, then compiled against in C and in C++, with the
//! compiler alone, by pkg-config and by CMake; plain, under the sanitizers, and under valgrind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Where everything that is made here goes.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("c")
}

/// The library under a prefix of its own, installed once.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = folder().join("prefix");
        let _ = std::fs::remove_dir_all(&prefix);
        run(Command::new(format!("{ROOT}/ci.sh")).arg("install").arg(&prefix).env_remove("DESTDIR"));
        prefix
    })
}

/// Runs a command, which must succeed; what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// The first of these programs that is here, or a line about what is skipped without it.
fn tool(names: &[&'static str], skipped: &str) -> Option<&'static str> {
    let there = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = names.iter().find(there).copied();
    if found.is_none() {
        eprintln!("skipped: {skipped}; there is no {}", names.join(" or "));
    }
    found
}

#[derive(Clone, Copy)]
enum Language {
    C,
    Cpp,
}

impl Language {
    /// The compiler and the language's standard.
    fn compiler(self, skipped: &str) -> Option<[&'static str; 2]> {
        match self {
            Self::C => Some([tool(&["cc", "gcc", "clang"], skipped)?, "-std=c11"]),
            Self::Cpp => Some([tool(&["c++", "g++", "clang++"], skipped)?, "-std=c++17"]),
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "cpp",
        }
    }

    /// The test program.
    fn sources(self) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|f| f.extension().is_some_and(|e| e == self.extension())).collect();
        files.sort();
        files
    }
}

fn header() -> String {
    std::fs::read_to_string(format!("{ROOT}/include/sublet.h")).unwrap()
}

/// The functions that the header declares.
fn functions() -> Vec<String> {
    let header = header();
    let declared = header.lines().filter(|line| !line.starts_with([' ', '/', '#', '}', 't']));
    let name = |line: &str| {
        let (before, _) = line.split_once('(')?;
        before.rsplit([' ', '*']).next().filter(|name| name.starts_with("sublet_")).map(str::to_owned)
    };
    let mut names: Vec<_> = declared.filter_map(name).collect();
    names.sort();
    names
}

/// What the test program is told: the version, how many statuses there are, where recorded networks lie.
fn definitions() -> [String; 3] {
    let statuses = header().lines().filter(|l| l.starts_with("  SUBLET_STATUS_")).count();
    [
        format!("-DCARGO_VERSION=\"{}\"", env!("CARGO_PKG_VERSION")),
        format!("-DSTATUSES={statuses}"),
        format!("-DTRACES=\"{ROOT}/traces\""),
    ]
}

/// Compiles the test program of a language; the file it is.
fn program(language: Language, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let [compiler, standard] = language.compiler(&format!("{name} of the C library"))?;
    let to = folder().join(format!("{name}.{}", language.extension()));
    let lib = prefix().join("lib");
    run(Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-O1", "-pthread"])
        .args(flags)
        .args(definitions())
        .arg("-I")
        .arg(prefix().join("include"))
        .args(language.sources())
        .arg("-o")
        .arg(&to)
        .arg("-L")
        .arg(&lib)
        .args(["-lsublet", &format!("-Wl,-rpath,{}", lib.display())]));
    Some(to)
}

fn passes(language: Language, name: &str, flags: &[&str]) {
    if let Some(program) = program(language, name, flags) {
        assert_eq!(run(&mut Command::new(program)), "all checks passed\n");
    }
}

const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

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

fn under_valgrind(language: Language) {
    let Some(valgrind) = tool(&["valgrind"], "reads of memory that nobody wrote, leaks") else { return };
    if let Some(program) = program(language, "checked", &[]) {
        let strict = ["--quiet", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite,possible"];
        assert_eq!(run(Command::new(valgrind).args(strict).arg(program)), "all checks passed\n");
    }
}

#[test]
fn cpp17() {
    passes(Language::Cpp, "plain", &[]);
}

#[test]
fn cpp17_under_the_sanitizers() {
    passes(Language::Cpp, "sanitized", &SANITIZERS);
}

#[test]
fn cpp17_under_valgrind() {
    under_valgrind(Language::Cpp);
}

const EXAMPLE: &str = "6 requests served from a plan of 12 MiB\n";

fn example() -> PathBuf {
    Path::new(ROOT).join("examples/c")
}

/// As a user's makefile would: the compiler and pkg-config, nothing else.
#[test]
fn the_example_builds_by_pkg_config() {
    let Some(cc) = tool(&["cc", "gcc", "clang"], "the example in C") else { return };
    let Some(pkg_config) = tool(&["pkg-config", "pkgconf"], "the example by pkg-config") else { return };
    let lib = prefix().join("lib");
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

/// The first block of this language in the page about C.
fn documented(language: &str) -> String {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/c.md")).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_page_about_c_tells_the_truth() {
    assert_eq!(documented("c"), std::fs::read_to_string(example().join("replay.c")).unwrap());
    let Some([cpp, standard]) = Language::Cpp.compiler("the example in C++") else { return };
    let lib = prefix().join("lib");
    let (source, program) = (folder().join("documented.cpp"), folder().join("documented"));
    std::fs::write(&source, documented("cpp")).unwrap();
    run(Command::new(cpp)
        .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(prefix().join("include"))
        .args([&source, Path::new("-o"), &program, Path::new("-L"), &lib])
        .args(["-lsublet", &format!("-Wl,-rpath,{}", lib.display())]));
    assert_eq!(run(&mut Command::new(program)), "4 requests served from a plan\n");
}

/// Exactly as printed, from the clone to what the program says.
#[test]
fn the_commands_on_the_page_about_c_work() {
    if tool(&["cc"], "the commands of docs/c.md").is_none() || tool(&["pkg-config"], "those of docs/c.md").is_none() {
        return;
    }
    prefix();
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
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    run(Command::new(cmake).arg("--build").arg(&build));
    for program in ["replay", "replay_static"] {
        assert_eq!(run(&mut Command::new(build.join(program))), EXAMPLE);
    }
}

/// A program finds the library by its SONAME; what is installed leads from there to the file.
#[test]
fn the_library_has_its_name() {
    let lib = prefix().join("lib");
    let file = format!("libsublet.so.{}", env!("CARGO_PKG_VERSION"));
    for link in ["libsublet.so", "libsublet.so.0"] {
        assert_eq!(std::fs::canonicalize(lib.join(link)).unwrap().file_name().unwrap(), file.as_str());
    }
    let Some(readelf) = tool(&["readelf", "llvm-readelf"], "the SONAME") else { return };
    let dynamic = run(Command::new(readelf).arg("-d").arg(lib.join("libsublet.so")));
    assert!(dynamic.contains("[libsublet.so.0]"), "{dynamic}");
}

/// Packagers install into a folder that is not the one where it will be.
#[test]
fn destdir_is_in_front_of_the_prefix() {
    prefix();
    let stage = folder().join("stage");
    let _ = std::fs::remove_dir_all(&stage);
    run(Command::new(format!("{ROOT}/ci.sh")).args(["install", "/opt/sublet"]).env("DESTDIR", &stage));
    let pc = std::fs::read_to_string(stage.join("opt/sublet/lib/pkgconfig/sublet.pc")).unwrap();
    assert!(pc.starts_with("prefix=/opt/sublet\n") && !pc.contains('@'), "{pc}");
    for installed in ["include/sublet.h", "include/sublet.hpp", "lib/libsublet.a", "lib/libsublet.so.0"] {
        assert!(stage.join("opt/sublet").join(installed).exists(), "{installed}");
    }
}

/// Without the standard library: the same program but for what needs it, and no symbol but those of a C compiler.
#[test]
fn firmware() {
    let Some([cc, standard]) = Language::C.compiler("the library for firmware") else { return };
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let target = folder().join("firmware");
    run(Command::new(cargo)
        .args(["rustc", "--locked", "--package", "sublet-ffi", "--lib", "--no-default-features"])
        .args(["--profile", "firmware", "--crate-type", "staticlib", "--target-dir"])
        .arg(&target)
        .current_dir(ROOT));
    let program = folder().join("firmware.bin");
    run(Command::new(cc)
        .args([standard, "-O1", "-DFIRMWARE", "-pthread"])
        .args(definitions())
        .arg("-I")
        .arg(Path::new(ROOT).join("include"))
        .args(Language::C.sources())
        .arg(target.join("firmware/libsublet.a"))
        .arg("-o")
        .arg(&program));
    assert_eq!(run(&mut Command::new(program)), "all checks passed\n");
}

#[test]
fn the_library_exports_what_the_header_declares() {
    let declared = functions();
    assert!(declared.len() > 10, "{declared:?}");
    let Some(nm) = tool(&["nm", "llvm-nm"], "the symbols of the shared library") else { return };
    let symbols = run(Command::new(nm).args(["-D", "--defined-only"]).arg(prefix().join("lib/libsublet.so")));
    let mut exported: Vec<_> = symbols.lines().filter_map(|l| l.rsplit(' ').next()).map(str::to_owned).collect();
    exported.sort();
    assert_eq!(exported, declared);
}

#[test]
fn every_function_is_called_in_c() {
    let sources: String = Language::C.sources().iter().map(|f| std::fs::read_to_string(f).unwrap()).collect();
    for function in functions() {
        assert!(sources.contains(&format!("{function}(")), "{function} is not called in tests/c");
    }
}
