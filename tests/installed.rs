//! Installs the C library as `ci.sh install` does, and runs commands beside it.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The folder for everything that these tests make.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("c")
}

/// Installs the library, built with these features, under a prefix of this name; returns the prefix.
pub(crate) fn install(name: &str, features: &str) -> PathBuf {
    install_into(name, features, "lib")
}

/// As [`install`], but the libraries go to the folder `libdir`: below the prefix, or anywhere if the path is absolute.
pub(crate) fn install_into(name: &str, features: &str, libdir: &str) -> PathBuf {
    let prefix = folder().join(name);
    let _ = std::fs::remove_dir_all(&prefix);
    let mut command = Command::new(format!("{ROOT}/ci.sh"));
    command.arg("install").arg(&prefix).env_remove("DESTDIR").env("SUBLET_FEATURES", features).env("LIBDIR", libdir);
    // Speed is not tested.
    run(command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"));
    prefix
}

/// Runs a command, which must succeed; returns what it printed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// The first of these programs that exists; otherwise prints what is skipped.
pub(crate) fn tool(names: &[&'static str], skipped: &str) -> Option<&'static str> {
    let there = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = names.iter().find(there).copied();
    if found.is_none() {
        eprintln!("skipped: {skipped}; there is no {}", names.join(" or "));
    }
    found
}
