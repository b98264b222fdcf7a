//! The C library for packagers and build systems: prefixes with characters that a shell interprets, other folders for
//! libraries, folders that were moved, versions and components of CMake, and uninstalling.

mod installed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use installed::{ROOT, folder, install, install_into, run, tool};

const EXAMPLE: &str = "6 requests served from a plan of 12 MiB\n";

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() && !path.is_symlink() { files(&path) } else { vec![path] }).collect()
}

/// Builds the example by pkg-config as a makefile does, through a shell; returns what it prints.
fn by_pkg_config(pkg_config: &str, cc: &str, libdir: &Path, package: &str) -> String {
    let program = libdir.join("replay");
    let line = format!("{cc} '{ROOT}/examples/c/replay.c' $({pkg_config} --cflags --libs {package}) -o \"$PROGRAM\"");
    // The flags have quotes in them, which the shell has to interpret.
    let line = format!("eval \"{}\"", line.replace('"', "\\\""));
    run(Command::new("bash")
        .args(["-euc", &line])
        .env("PKG_CONFIG_PATH", libdir.join("pkgconfig"))
        .env("PROGRAM", &program));
    if package == "sublet-static" {
        run(Command::new(program).env_remove("LD_LIBRARY_PATH"))
    } else {
        run(Command::new(program).env("LD_LIBRARY_PATH", libdir))
    }
}

/// Builds the example by CMake against the library in the folder `libdir`; returns what its two programs print.
fn by_cmake(cmake: &str, libdir: &Path) -> [String; 2] {
    let build = libdir.join("build");
    let package = libdir.join("cmake/sublet");
    run(Command::new(cmake)
        .arg("-S")
        .arg(Path::new(ROOT).join("examples/c"))
        .arg("-B")
        .arg(&build)
        .arg(format!("-Dsublet_DIR={}", package.display())));
    run(Command::new(cmake).arg("--build").arg(&build));
    ["replay", "replay_static"].map(|name| run(Command::new(build.join(name)).env("LD_LIBRARY_PATH", libdir)))
}

/// Installs under a prefix with characters that a shell and sed interpret, with a folder for libraries deep in it. Then
/// moves all to another such prefix, and uninstalls it there.
#[test]
fn a_strange_prefix_works_is_moved_and_taken_away() {
    let libdir = "lib/of this & that";
    let prefix = install_into("you & me", "", libdir);
    assert!(files(&prefix).len() > 7, "{:?}", files(&prefix));
    let moved = folder().join("moved & gone");
    let _ = fs::remove_dir_all(&moved);
    fs::rename(&prefix, &moved).unwrap();
    let libraries = moved.join(libdir);
    if let (Some(cc), Some(pkg_config)) = (
        tool(&["cc", "gcc", "clang"], "a strange prefix"),
        tool(&["pkg-config", "pkgconf"], "a strange prefix by pkg-config"),
    ) {
        for package in ["sublet", "sublet-static"] {
            assert_eq!(by_pkg_config(pkg_config, cc, &libraries, package), EXAMPLE, "{package}");
        }
    }
    if let Some(cmake) = tool(&["cmake"], "a strange prefix by CMake") {
        assert_eq!(by_cmake(cmake, &libraries), [EXAMPLE, EXAMPLE]);
    }
    // Files of others stay.
    let other =
        files(&moved).into_iter().filter(|file| file.starts_with(libraries.join("build")) || file.ends_with("replay"));
    let mut other: Vec<_> = other.chain([libraries.join("libother.so")]).collect();
    fs::write(&other[other.len() - 1], "").unwrap();
    let script = format!("{ROOT}/ci.sh");
    run(Command::new(script).arg("uninstall").arg(&moved).env_remove("DESTDIR").env("LIBDIR", libdir));
    let mut left = files(&moved);
    left.sort();
    other.sort();
    assert_eq!(left, other);
}

/// Files of pkg-config and CMake would name a wrong prefix.
#[test]
fn a_folder_for_libraries_has_no_dots() {
    let prefix = folder().join("dots");
    let _ = fs::remove_dir_all(&prefix);
    for libdir in ["./lib", "../lib", "lib/..", "/lib/../lib64"] {
        let mut command = Command::new(format!("{ROOT}/ci.sh"));
        command.arg("install").arg(&prefix).env_remove("DESTDIR").env("LIBDIR", libdir);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said, format!("LIBDIR is {libdir}: no part of it may be . or ..\n"));
        assert!(!prefix.exists());
    }
}

/// If the folder for libraries is not in the prefix, pkg-config and CMake are told its absolute path.
#[test]
fn libraries_may_lie_elsewhere() {
    let elsewhere = folder().join("else & where");
    let _ = fs::remove_dir_all(&elsewhere);
    let prefix = install_into("head & ers", "", elsewhere.to_str().unwrap());
    assert!(prefix.join("include/sublet.h").exists() && elsewhere.join("libsublet.a").exists());
    assert!(files(&prefix).iter().all(|file| file.starts_with(prefix.join("include"))));
    let tools =
        (tool(&["cc", "gcc", "clang"], "libraries elsewhere"), tool(&["pkg-config", "pkgconf"], "libraries elsewhere"));
    if let (Some(cc), Some(pkg_config)) = tools {
        assert_eq!(by_pkg_config(pkg_config, cc, &elsewhere, "sublet"), EXAMPLE);
    }
    if let Some(cmake) = tool(&["cmake"], "libraries elsewhere by CMake") {
        assert_eq!(by_cmake(cmake, &elsewhere), [EXAMPLE, EXAMPLE]);
    }
}

/// The versions and components that CMake may ask for, and for each whether this library serves: its version is 0.2.0,
/// and it is built without the component `cuda`.
#[test]
fn cmake_is_told_what_serves() {
    const ASKED: [(&str, bool); 20] = [
        ("", true),
        ("0.2", true),
        ("0.2.0", true),
        ("0.2.0 EXACT", true),
        ("0.2.1", false),
        ("0.1", false),
        ("0.3", false),
        ("0.20", false),
        ("1.0", false),
        ("0.2...0.4", true),
        ("0.1...0.2", true),
        ("0.1...0.2.0", true),
        ("0.1...<0.2", false),
        ("0.2...<0.2.1", true),
        ("0.3...0.4", false),
        ("0.2.1...0.4", false),
        ("0.2 OPTIONAL_COMPONENTS cuda", true),
        ("0.2 COMPONENTS cuda", false),
        ("0.2 COMPONENTS opencl", false),
        ("0.2...0.4 COMPONENTS cuda", false),
    ];
    assert_eq!(env!("CARGO_PKG_VERSION"), "0.2.0", "what is asked goes by the version");
    if tool(&["cc", "gcc", "clang"], "what CMake asks").is_none() {
        return;
    }
    let Some(cmake) = tool(&["cmake"], "what CMake asks") else { return };
    let (project, build) = (folder().join("asking"), folder().join("asking/build"));
    let _ = fs::remove_dir_all(&project);
    fs::create_dir_all(&project).unwrap();
    let mut text = "cmake_minimum_required(VERSION 3.19)\nproject(asking C)\n".to_owned();
    for (asked, _) in ASKED {
        text += "unset(sublet_DIR CACHE)\n";
        text += &format!("find_package(sublet {asked})\nmessage(STATUS \"[{asked}] ${{sublet_FOUND}}\")\n");
    }
    fs::write(project.join("CMakeLists.txt"), text).unwrap();
    let mut command = Command::new(cmake);
    command.arg("-S").arg(&project).arg("-B").arg(&build);
    command.arg(format!("-DCMAKE_PREFIX_PATH={}", install("asked", "").display()));
    let output = command.output().unwrap();
    let (said, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{warned}");
    for (asked, serves) in ASKED {
        let answer = said.lines().find_map(|line| line.strip_prefix(&format!("-- [{asked}] "))).unwrap();
        assert_eq!(["1", "TRUE"].contains(&answer), serves, "{asked}: {answer}\n{warned}");
    }
    let warned = warned.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(warned.contains("this library was built without cuda"), "{warned}");
    assert!(warned.contains("sublet has no component opencl; there is cuda"), "{warned}");
}
