//! Runs the binary as a user does.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A weight, and a chain of two activations of which the first is read again at the end. Each operator but the first is
/// shorter than a copy of 8 MiB at 12 GB/s: within 17 MiB compute waits until the first activation has left, and again
/// until it is back.
pub(crate) const STALLING: &str = "\
time_ns,event,block,bytes,op
0,malloc,w,4096,
0,malloc,a,8388608,0
0,read,w,,0
1000000,write,a,,0
1000000,malloc,b,7340032,1
1000000,read,a,,1
1300000,write,b,,1
1300000,malloc,c,7340032,2
1300000,read,b,,2
1600000,write,c,,2
1600000,free,b,,
1600000,read,c,,3
1800000,write,w,,3
1800000,free,c,,
1800000,read,a,,4
2300000,write,w,,4
2300000,free,a,,
";

/// A temporary folder, removed when this is dropped.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The name of a file in it.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file, and gives its name.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// What lies in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// What a run of the binary gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            status: output.status.code().expect("the process was killed"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.out.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.out).unwrap()
    }
}

pub(crate) fn sublet(args: &[&str]) -> Ran {
    Ran::of(Command::new(env!("CARGO_BIN_EXE_sublet")).args(args).output().unwrap())
}

/// Runs `sublet` with this standard input, which it need not read to the end.
pub(crate) fn sublet_reading(args: &[&str], stdin: impl IntoIterator<Item = Vec<u8>>) -> Ran {
    feed(Command::new(env!("CARGO_BIN_EXE_sublet")).args(args), stdin)
}

/// As [`sublet_reading`], under the limits that the shell commands `limits` set.
pub(crate) fn sublet_limited(limits: &str, args: &[&str], stdin: impl IntoIterator<Item = Vec<u8>>) -> Ran {
    let script = format!("{limits}; exec \"$0\" \"$@\"");
    feed(Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_sublet")]).args(args), stdin)
}

fn feed(command: &mut Command, stdin: impl IntoIterator<Item = Vec<u8>>) -> Ran {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    for chunk in stdin {
        if pipe.write_all(&chunk).is_err() {
            break;
        }
    }
    drop(pipe);
    Ran::of(child.wait_with_output().unwrap())
}

/// The folder that an environment variable names; without one, prints what is skipped, and returns none.
pub(crate) fn folder_from(variable: &str, skipped: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: {skipped}; {variable} is not set");
    }
    folder
}

/// Python's pickles of protocol 4, as far as snapshots need them.
pub(crate) mod pickle {
    pub(crate) fn of(value: &[u8]) -> Vec<u8> {
        [b"\x80\x04", value, b"."].concat()
    }

    pub(crate) fn int(n: u64) -> Vec<u8> {
        // The ninth byte is the sign.
        [&b"\x8a\x09"[..], &n.to_le_bytes(), b"\0"].concat()
    }

    pub(crate) fn text(s: &str) -> Vec<u8> {
        [&[0x8c, u8::try_from(s.len()).unwrap()], s.as_bytes()].concat()
    }

    pub(crate) fn list(items: &[Vec<u8>]) -> Vec<u8> {
        [b"](", &items.concat()[..], b"e"].concat()
    }

    pub(crate) fn dict(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let pairs: Vec<u8> = pairs.iter().flat_map(|(key, value)| [text(key), value.clone()].concat()).collect();
        [b"}(", &pairs[..], b"u"].concat()
    }

    /// An event of `device_traces`.
    pub(crate) fn event(action: &str, address: u64, bytes: u64, time_us: u64) -> Vec<u8> {
        dict(&[
            ("action", text(action)),
            ("addr", int(address)),
            ("size", int(bytes)),
            ("stream", int(0)),
            ("frames", list(&[])),
            ("time_us", int(time_us)),
        ])
    }
}
