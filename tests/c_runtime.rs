//! Runs plans from C and C++, with the library installed with the feature `cuda`: on the host in the place of a device,
//! and on a CUDA driver for tests, whose device memory is the host's.

mod compiled;
mod installed;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, OnceLock};

use compiled::{Language, PASSED, SANITIZERS, WARNINGS, all_called, functions, passes_under_valgrind};
use installed::{ROOT, folder, install, run};

static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| install("prefix_with_cuda", "cuda"));

/// The folder of a CUDA driver for tests, with the ReLU kernels, which is compiled at the first call; `None` if there
/// are no compilers.
fn driver() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let skipped = "the C library on a driver for tests";
        let (c, cpp) = (Language::C.compiler(skipped)?, Language::Cpp.compiler(skipped)?);
        let to = folder().join("driver");
        std::fs::create_dir_all(&to).unwrap();
        let source = Path::new(ROOT).join("cuda-runtime/tests/driver");
        let object = |name: &str| to.join(name).with_extension("o");
        for ([compiler, standard], name) in [(c, "libcuda.c"), (cpp, "kernels.cpp")] {
            run(Command::new(compiler)
                .args([standard, "-O1", "-Wno-unknown-pragmas", "-fPIC", "-c"])
                .args(&WARNINGS[..3])
                .arg("-o")
                .arg(object(name))
                .arg(source.join(name)));
        }
        run(Command::new(cpp[0])
            .args(["-shared", "-o"])
            .arg(to.join("libcuda.so"))
            .args([object("libcuda"), object("kernels")]));
        Some(to)
    });
    folder.as_deref()
}

/// Compiles the test program of a language; returns its file, or `None` if there is no compiler.
fn program(language: Language, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let to = folder().join(format!("runtime.{name}.{}", language.extension()));
    language.compile(&PREFIX, &language.sources("c/runtime"), flags, &to).then_some(to)
}

/// Asserts that the test program passes, on the host and on the driver for tests.
fn passes(language: Language, name: &str, flags: &[&str]) {
    let Some(program) = program(language, name, flags) else { return };
    assert_eq!(run(Command::new(&program).arg("none")), PASSED);
    if let Some(driver) = driver() {
        let mut command = Command::new(&program);
        // The driver for tests never frees its own memory, as real drivers do not: so leaks are not looked for.
        command.arg("gpu").env("LD_LIBRARY_PATH", driver).env("ASAN_OPTIONS", "detect_leaks=0");
        assert_eq!(run(&mut command), PASSED);
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
    if let Some(program) = program(Language::C, "checked", &[]) {
        passes_under_valgrind(&program, &["none"], "definite");
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
fn the_example_trains_by_its_plan() {
    for (name, flags) in [("plain", &[][..]), ("sanitized", &SANITIZERS)] {
        let to = folder().join(format!("run.{name}"));
        if Language::C.compile(&PREFIX, &[Path::new(ROOT).join("examples/c/run.c")], flags, &to) {
            let said = run(&mut Command::new(to));
            assert!(said.starts_with("the same weights") && said.contains("where 3840 are alive"), "{name}: {said}");
        }
    }
}

#[test]
fn every_function_is_called_in_c() {
    let functions = ["sublet_runtime.h", "sublet_relu.h", "sublet_torch.h"].map(functions).concat();
    assert!(functions.len() > 20, "{functions:?}");
    all_called(&functions, &Language::C.sources("c/runtime"));
}
