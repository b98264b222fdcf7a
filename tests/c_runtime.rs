//! Plans that run, from C and C++: the library with the feature `cuda` as installed, on the host as a device, and on a driver
//! for tests whose device memory is the host's.

mod installed;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use installed::{ROOT, folder, prefix_with_cuda, run, tool};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
const PASSED: &str = "all checks passed\n";

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c/runtime")
}

/// The folder of a driver for tests, with ReLU's kernels; none where there are no compilers.
fn driver() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let cc = tool(&["cc", "gcc", "clang"], "the C library on a driver for tests")?;
        let cpp = tool(&["c++", "g++", "clang++"], "the C library on a driver for tests")?;
        let to = folder().join("driver");
        std::fs::create_dir_all(&to).unwrap();
        let source = Path::new(ROOT).join("cuda-runtime/tests/driver");
        let object = |name: &str| to.join(name).with_extension("o");
        for (compiler, standard, name) in [(cc, "-std=c11", "libcuda.c"), (cpp, "-std=c++17", "kernels.cpp")] {
            run(Command::new(compiler)
                .args([standard, "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fPIC", "-c", "-o"])
                .arg(object(name))
                .arg(source.join(name)));
        }
        run(Command::new(cpp)
            .args(["-shared", "-o"])
            .arg(to.join("libcuda.so"))
            .args([object("libcuda"), object("kernels")]));
        Some(to)
    });
    folder.as_deref()
}

/// Compiles the test program of a language, with the files of this extension.
fn program(compiler: &str, standard: &str, extension: &str, name: &str, flags: &[&str]) -> PathBuf {
    let files = std::fs::read_dir(sources()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|f| f.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    let (to, prefix) = (folder().join(format!("runtime.{name}.{extension}")), prefix_with_cuda());
    let lib = prefix.join("lib");
    run(Command::new(compiler)
        .arg(standard)
        .args(WARNINGS)
        .args(["-g", "-O1", "-pthread"])
        .args(flags)
        .arg("-I")
        .arg(prefix.join("include"))
        .args(files)
        .arg("-o")
        .arg(&to)
        .arg("-L")
        .arg(&lib)
        .args(["-lsublet", "-lm", &format!("-Wl,-rpath,{}", lib.display())]));
    to
}

fn c(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let compiler = tool(&["cc", "gcc", "clang"], "plans that run, from C")?;
    Some(program(compiler, "-std=c11", "c", name, flags))
}

fn cpp(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let compiler = tool(&["c++", "g++", "clang++"], "plans that run, from C++")?;
    Some(program(compiler, "-std=c++17", "cpp", name, flags))
}

/// Runs it on the host, and on the driver for tests.
fn passes(program: Option<PathBuf>) {
    let Some(program) = program else { return };
    assert_eq!(run(Command::new(&program).arg("none")), PASSED);
    if let Some(driver) = driver() {
        let mut command = Command::new(&program);
        // The driver keeps what it has, as drivers do.
        command.arg("gpu").env("LD_LIBRARY_PATH", driver).env("ASAN_OPTIONS", "detect_leaks=0");
        assert_eq!(run(&mut command), PASSED);
    }
}

#[test]
fn c11() {
    passes(c("plain", &[]));
}

#[test]
fn c11_under_the_sanitizers() {
    passes(c("sanitized", &SANITIZERS));
}

#[test]
fn c11_under_valgrind() {
    let Some(valgrind) = tool(&["valgrind"], "plans that run, under valgrind") else { return };
    if let Some(program) = c("checked", &[]) {
        let strict = ["--quiet", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite"];
        assert_eq!(run(Command::new(valgrind).args(strict).arg(program).arg("none")), PASSED);
    }
}

#[test]
fn cpp17() {
    passes(cpp("plain", &[]));
}

#[test]
fn cpp17_under_the_sanitizers() {
    passes(cpp("sanitized", &SANITIZERS));
}

#[test]
fn every_function_is_called_in_c() {
    let files = std::fs::read_dir(sources()).unwrap().map(|entry| entry.unwrap().path());
    let text: String = files.map(|f| std::fs::read_to_string(f).unwrap()).collect();
    let mut count = 0;
    for header in ["sublet_runtime.h", "sublet_relu.h", "sublet_torch.h"] {
        let header = std::fs::read_to_string(format!("{ROOT}/include/{header}")).unwrap();
        let declared = header.lines().filter(|line| !line.starts_with([' ', '/', '#', '}', 't']));
        for line in declared {
            let Some((before, _)) = line.split_once('(') else { continue };
            let Some(name) = before.rsplit([' ', '*']).next().filter(|name| name.starts_with("sublet_")) else {
                continue;
            };
            assert!(text.contains(&format!("{name}(")), "{name} is not called in tests/c/runtime");
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}
