//! A recorded iteration from a file, as rows with the operators beside it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sublet_core::trace::{Event, Op, Row};

/// One iteration of a network.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The file's name without its ending.
    pub name: String,
    /// What happened; blocks are numbered from 0 in the order of their mallocs.
    pub rows: Vec<Row>,
    /// How many blocks there are.
    pub blocks: usize,
    /// The lines of the file of operators, without their numbers: name, phase, inplace, rerun.
    pub operators: Vec<String>,
}

impl Recording {
    /// Reads a trace, `time_ns,event,block,bytes,op`, and `NAME.ops.csv` beside it.
    ///
    /// # Panics
    /// If a file is not there or is none.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut numbers = HashMap::new();
        let mut rows = Vec::new();
        for line in text(path).lines().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let event = match cells[1] {
                "malloc" => Event::Malloc,
                "free" => Event::Free,
                "read" => Event::Read,
                "write" => Event::Write,
                other => panic!("{}: {other} in a recording", path.display()),
            };
            let next = u32::try_from(numbers.len()).expect("fewer blocks");
            let block = *numbers.entry(cells[2].to_owned()).or_insert(next);
            let op = if cells[4].is_empty() { Op::None } else { Op::First(cells[4].parse().expect("an op")) };
            let time_ns = cells[0].parse().expect("a time");
            rows.push(Row { time_ns, event, block, bytes: cells[3].parse().unwrap_or(0), op });
        }
        let operators = text(&path.with_extension("ops.csv"));
        let operators = operators.lines().skip(1).map(|l| l.split_once(',').expect("cells").1.to_owned()).collect();
        let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
        Self { name, rows, blocks: numbers.len(), operators }
    }

    /// The recording of this name: of the small corpus, or of the larger one where `SUBLET_DATA` names it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
        let larger = std::env::var_os("SUBLET_DATA").map(|data| PathBuf::from(data).join("traces"));
        let file = |folder: PathBuf| folder.join(format!("{name}.csv"));
        [Some(small), larger].into_iter().flatten().map(file).find(|f| f.is_file()).map(|f| Self::read(&f))
    }

    /// The most bytes that are live at once.
    #[must_use]
    pub fn max_load(&self) -> u64 {
        max_load(&self.rows)
    }
}

/// The most bytes of a trace that are live at once.
#[must_use]
pub fn max_load(rows: &[Row]) -> u64 {
    let mut sizes = HashMap::new();
    let (mut load, mut most) = (0, 0);
    for row in rows {
        match row.event {
            Event::Malloc => {
                sizes.insert(row.block, row.bytes);
                load += row.bytes;
            }
            Event::Free => load -= sizes[&row.block],
            _ => {}
        }
        most = most.max(load);
    }
    most
}
