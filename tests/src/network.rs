//! The mallocs and frees of a trace, as a framework asks for them: the blocks that are allocated once, and the requests
//! of an iteration.

use std::path::{Path, PathBuf};

use crate::recording::trace_named;

/// A request to an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A block with this number is allocated, with so many bytes.
    Malloc(usize, u64),
    /// The block of this number is freed.
    Free(usize),
}

/// One network's requests; blocks are numbered from 0.
#[derive(Clone, Debug)]
pub struct Network {
    /// The file's name without its ending.
    pub name: String,
    /// The sizes of the blocks that are never freed, in bytes.
    pub persistent: Vec<u64>,
    /// An iteration, all of whose blocks are freed.
    pub iteration: Vec<Request>,
    /// How many blocks the iteration has.
    pub blocks: usize,
}

impl Network {
    /// Reads a trace, `time_ns,event,block,bytes,op`.
    ///
    /// # Panics
    /// If the file cannot be read, or is not a trace.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
        let freed: std::collections::HashSet<&str> = rows.iter().filter(|r| r[1] == "free").map(|r| r[2]).collect();
        let mut numbers = std::collections::HashMap::new();
        let (mut persistent, mut iteration) = (Vec::new(), Vec::new());
        for r in &rows {
            match r[1] {
                "malloc" if freed.contains(r[2]) => {
                    numbers.insert(r[2], numbers.len());
                    iteration.push(Request::Malloc(numbers[r[2]], r[3].parse().expect("bytes")));
                }
                "malloc" => persistent.push(r[3].parse().expect("bytes")),
                "free" => iteration.push(Request::Free(numbers[r[2]])),
                _ => {}
            }
        }
        let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
        Self { name, persistent, iteration, blocks: numbers.len() }
    }

    /// The requests of the trace of this name: of the small corpus, or of the larger one where `SUBLET_DATA` names it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        trace_named(name).map(|file| Self::read(&file))
    }

    /// The traces of the small corpus, and those of the larger one where `SUBLET_DATA` names it.
    ///
    /// # Panics
    /// If the small corpus is not there.
    #[must_use]
    pub fn corpus() -> Vec<Self> {
        let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
        let mut files = traces(&small);
        match std::env::var_os("SUBLET_DATA") {
            Some(data) => {
                let known: Vec<_> = files.iter().filter_map(|f| f.file_name().map(ToOwned::to_owned)).collect();
                let larger = traces(&PathBuf::from(data).join("traces"));
                files.extend(
                    larger.into_iter().filter(|f| f.file_name().is_none_or(|n| !known.contains(&n.to_owned()))),
                );
            }
            None => println!("skipped: the larger corpus (SUBLET_DATA is not set)"),
        }
        files.iter().map(|file| Self::read(file)).collect()
    }

    /// The most bytes of the iteration's blocks that are live at once, each size rounded up to `alignment`. Persistent
    /// blocks are not counted.
    #[must_use]
    pub fn max_load(&self, alignment: u64) -> u64 {
        let mut sizes = vec![0; self.blocks];
        let (mut load, mut most) = (0, 0);
        for request in &self.iteration {
            match *request {
                Request::Malloc(block, bytes) => {
                    sizes[block] = bytes.next_multiple_of(alignment);
                    load += sizes[block];
                }
                Request::Free(block) => load -= sizes[block],
            }
            most = most.max(load);
        }
        most
    }

    /// The network with every size divided by `divisor` and rounded up, so that its blocks fit into the memory of this
    /// machine.
    #[must_use]
    pub fn scaled(&self, divisor: u64) -> Self {
        let smaller = |bytes: u64| bytes.div_ceil(divisor);
        let iteration = self.iteration.iter().map(|request| match *request {
            Request::Malloc(block, bytes) => Request::Malloc(block, smaller(bytes)),
            free @ Request::Free(_) => free,
        });
        Self {
            persistent: self.persistent.iter().map(|&b| smaller(b)).collect(),
            iteration: iteration.collect(),
            ..self.clone()
        }
    }
}

fn traces(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder that can be read").path())
        .filter(|path| path.to_string_lossy().ends_with(".csv"))
        .filter(|path| !path.to_string_lossy().ends_with(".ops.csv"))
        .filter(|path| std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("time_ns,")))
        .collect();
    files.sort();
    files
}
