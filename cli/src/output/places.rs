//! Where results go: each to a place of its own, and none over a file that is read.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The name of a file beside another: of `net.csv`, with the extension `ops.csv`, it is `net.ops.csv`.
pub(crate) fn beside(file: &str, extension: &str) -> String {
    Path::new(file).with_extension(extension).to_string_lossy().into_owned()
}

/// Whether the name of a file has this extension, in letters of any case.
pub(crate) fn ends_in(file: &str, extension: &str) -> bool {
    Path::new(file).extension().is_some_and(|e| e.eq_ignore_ascii_case(extension))
}

/// Whether a file is a picture, by its name: a page (.html) or .svg.
///
/// # Errors
/// The name of a picture of another kind, or of a document.
pub(crate) fn is_picture(file: &str) -> Result<bool, String> {
    let others = ["png", "jpg", "jpeg", "gif", "webp", "pdf"];
    if others.iter().any(|other| ends_in(file, other)) {
        return Err(format!("{file}: a picture is a page (.html) or .svg; a browser prints these as others"));
    }
    Ok(["html", "svg"].iter().any(|end| ends_in(file, end)))
}

/// Refuses two results in one place, and a result in the place of `input` or of a file that is read beside it.
/// `results` are the options that ask for them, each with its file; `-` is standard input or output. What is no regular
/// file, such as a pipe, takes any number.
///
/// # Errors
/// The option whose file is read, or is the place of another result.
pub(crate) fn each_elsewhere(input: &str, results: &[(&str, Option<&str>)]) -> Result<(), Failure> {
    let read = [input.to_owned(), beside(input, "ops.csv"), beside(input, "tensors.csv")];
    let read: Vec<_> = read.iter().filter(|_| input != "-").map(|file| (file, place(file))).collect();
    let mut taken: Vec<(&str, PathBuf)> = Vec::new();
    for &(option, file) in results {
        let Some(file) = file else { continue };
        let Some(place) = place(file) else { continue };
        if let Some((read, _)) = read.iter().find(|(_, other)| other.as_ref() == Some(&place)) {
            return Err(Failure::Usage(format!("{option} would overwrite {read}, which is read")));
        }
        if let Some((first, _)) = taken.iter().find(|(_, other)| *other == place) {
            let (place, dash) = if file == "-" { ("standard output", " -") } else { (file, "") };
            let dash = if option == "--json" { "" } else { dash };
            return Err(Failure::Usage(format!("{first} and {option}{dash} both want {place}")));
        }
        taken.push((option, place));
    }
    Ok(())
}

/// A name that all spellings of a file share; none for what exists and is no regular file.
fn place(file: &str) -> Option<PathBuf> {
    let path = Path::new(file);
    if file == "-" {
        return Some(path.into());
    }
    if let Ok(known) = fs::metadata(path) {
        return known.is_file().then(|| fs::canonicalize(path).unwrap_or_else(|_| path.into()));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.into());
    Some(path.file_name().map_or_else(|| path.into(), |name| folder.join(name)))
}
