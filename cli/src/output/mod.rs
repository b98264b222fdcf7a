//! Writers of files. A file is written completely or not at all.

mod graph;
mod header;
mod instance;
mod lp;
mod onnx;
mod ops;
mod places;
mod plan;
mod tflite;
mod trace;

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub(crate) use graph::{operators as graph, tensors};
pub(crate) use header::{Layout, Memory, prefix, write as header};
pub(crate) use instance::write as instance;
pub(crate) use lp::{ample as ample_capacity, write as lp};
pub(crate) use onnx::reorder;
pub(crate) use ops::{write as ops, write_read as ops_of};
pub(crate) use places::{beside, each_elsewhere, ends_in, is_picture};
pub(crate) use plan::write as plan;
pub(crate) use tflite::splice;
pub(crate) use trace::write as trace;

use serde::Serialize;

use crate::failure::Failure;
use crate::text::voice;

/// What the formats write to.
pub(crate) type Out<'a> = BufWriter<&'a mut dyn Write>;

/// Writes a file of this name, or standard output for `-`, by `content`.
///
/// The text goes to a new file beside the old one, which takes its name when all is written: whatever happens, the
/// name stands for the whole old or the whole new content. What is no regular file, such as a pipe, is written as
/// it is.
///
/// # Errors
/// Why the file cannot be written.
pub(crate) fn write(file: &str, content: impl FnOnce(&mut Out<'_>) -> io::Result<()>) -> Result<(), Failure> {
    voice::detail(|| format!("writing {file}"));
    if file == "-" {
        return write_to(&mut io::stdout().lock(), content).map_err(|e| Failure::printing(&e));
    }
    let folder = Path::new(file).parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir());
    if let Some(folder) = folder {
        return Err(Failure::Usage(format!("{file} cannot be written: there is no folder {}", folder.display())));
    }
    replace(Path::new(file), content).map_err(|e| Failure::Usage(format!("{file} cannot be written: {e}")))
}

/// Writes a value as one JSON object on one line.
///
/// # Errors
/// What writing gives.
pub(crate) fn json(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

/// Prints an outcome, as one JSON object or by `text`. `files` are the other results that were asked for. If one of
/// them goes to standard output (`-`), `text` goes to standard error. Who asked for quiet gets no text.
///
/// # Errors
/// Standard output that cannot be written.
pub(crate) fn print(
    outcome: &impl Serialize,
    json_asked: bool,
    files: &[&Option<String>],
    text: impl FnOnce(&mut Out<'_>) -> io::Result<()>,
) -> Result<(), Failure> {
    match (json_asked, files.iter().any(|file| file.as_deref() == Some("-"))) {
        (true, _) => json(outcome, &mut io::stdout().lock()),
        (false, _) if voice::is_quiet() => Ok(()),
        (false, true) => write_to(&mut io::stderr().lock(), text),
        (false, false) => write_to(&mut io::stdout().lock(), text),
    }
    .map_err(|e| Failure::printing(&e))
}

fn replace(file: &Path, content: impl FnOnce(&mut Out<'_>) -> io::Result<()>) -> io::Result<()> {
    let old = fs::metadata(file).ok();
    if let Some(old) = &old {
        // Fails if the file may not be written: renaming over it could still work then.
        let mut opened = File::options().write(true).open(file)?;
        if !old.is_file() {
            return write_to(&mut opened, content);
        }
    }
    // A link stays a link, to the new content.
    let target = if old.is_some() { fs::canonicalize(file)? } else { file.to_path_buf() };
    let folder =
        target.parent().filter(|p| !p.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let mut beside = tempfile::Builder::new();
    beside.prefix(".sublet-");
    new_file_mode(&mut beside);
    // The error names the new file, which nobody asked for.
    let mut new = beside.tempfile_in(folder).map_err(|e| io::Error::from(e.kind()))?;
    write_to(new.as_file_mut(), content)?;
    if let Some(old) = old {
        new.as_file().set_permissions(old.permissions())?;
    }
    new.persist(target).map_err(|e| e.error)?;
    Ok(())
}

/// Temporary files belong to their owner alone. This one is to stay, with the permissions that the umask leaves.
fn new_file_mode(builder: &mut tempfile::Builder<'_, '_>) {
    #[cfg(unix)]
    builder.permissions(<Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
    #[cfg(not(unix))]
    let _: (&_, Option<Permissions>) = (builder, None);
}

fn write_to(sink: &mut dyn Write, content: impl FnOnce(&mut Out<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, sink);
    content(&mut out)?;
    out.flush()
}
