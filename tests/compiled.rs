//! Compiles test programs in C and C++ against the installed library, and runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::installed::{ROOT, run, tool};

pub(crate) const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];
pub(crate) const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
/// The last line that a test program prints.
pub(crate) const PASSED: &str = "all checks passed\n";

#[derive(Clone, Copy)]
pub(crate) enum Language {
    C,
    Cpp,
}

impl Language {
    /// The compiler and the language's standard.
    pub(crate) fn compiler(self, skipped: &str) -> Option<[&'static str; 2]> {
        match self {
            Self::C => Some([tool(&["cc", "gcc", "clang"], skipped)?, "-std=c11"]),
            Self::Cpp => Some([tool(&["c++", "g++", "clang++"], skipped)?, "-std=c++17"]),
        }
    }

    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "cpp",
        }
    }

    /// The files of this language in a folder beside this file, such as `c`.
    pub(crate) fn sources(self, folder: &str) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|f| f.extension().is_some_and(|e| e == self.extension())).collect();
        files.sort();
        files
    }

    /// Compiles a program against the library that is installed under `prefix`, and writes it to `to`. Returns whether
    /// there is a compiler.
    pub(crate) fn compile<F>(self, prefix: &Path, sources: &[PathBuf], flags: F, to: &Path) -> bool
    where
        F: IntoIterator<Item: AsRef<std::ffi::OsStr>>,
    {
        let Some([compiler, standard]) = self.compiler(&to.display().to_string()) else { return false };
        let lib = prefix.join("lib");
        run(Command::new(compiler)
            .arg(standard)
            .args(WARNINGS)
            .args(["-g", "-O1", "-pthread"])
            .args(flags)
            .arg("-I")
            .arg(prefix.join("include"))
            .args(sources)
            .arg("-o")
            .arg(to)
            .arg("-L")
            .arg(&lib)
            .args(["-lsublet", "-lm", &format!("-Wl,-rpath,{}", lib.display())]));
        true
    }
}

/// The names of the functions that a header of `include` declares, sorted.
pub(crate) fn functions(header: &str) -> Vec<String> {
    let header = std::fs::read_to_string(Path::new(ROOT).join("include").join(header)).unwrap();
    let declared = header.lines().filter(|line| !line.starts_with([' ', '/', '#', '}', 't']));
    let name = |line: &str| {
        let (before, _) = line.split_once('(')?;
        before.rsplit([' ', '*']).next().filter(|name| name.starts_with("sublet_")).map(str::to_owned)
    };
    let mut names: Vec<_> = declared.filter_map(name).collect();
    names.sort();
    names
}

/// Asserts that each of these functions is called in one of these files.
pub(crate) fn all_called(functions: &[String], sources: &[PathBuf]) {
    let sources: String = sources.iter().map(|f| std::fs::read_to_string(f).unwrap()).collect();
    for function in functions {
        assert!(sources.contains(&format!("{function}(")), "nothing calls {function}");
    }
}

/// Runs a test program under valgrind, if there is one, and asserts that it passes without errors and without leaks of
/// the kinds `leaks`.
pub(crate) fn passes_under_valgrind(program: &Path, arguments: &[&str], leaks: &str) {
    let Some(valgrind) = tool(&["valgrind"], "reads of memory that nobody wrote, leaks") else { return };
    let mut command = Command::new(valgrind);
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full", &format!("--show-leak-kinds={leaks}")]);
    assert_eq!(run(command.arg(program).args(arguments)), PASSED);
}
