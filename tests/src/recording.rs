//! Recorded iterations with the descriptions of their operators, and rewritten traces with a verified plan.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use sublet_core::place::{self, Options, Solver};
use sublet_core::simulate::{Device, Run, Timing};
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Event, Kind, Op, Operator, Recorded, Row};
use sublet_core::verify::{self, Room};
use sublet_core::{Block, Constraints, Error, Workspace};

/// The trace of this name: of the small corpus, or of the larger one where `SUBLET_DATA` names it.
pub(crate) fn trace_named(name: &str) -> Option<PathBuf> {
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces");
    let larger = std::env::var_os("SUBLET_DATA").map(|data| PathBuf::from(data).join("traces"));
    let file = |folder: PathBuf| folder.join(format!("{name}.csv"));
    [Some(small), larger].into_iter().flatten().map(file).find(|f| f.is_file())
}

/// An iteration as it was recorded.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The file's name without its ending.
    pub name: String,
    /// The rows of the recording.
    pub rows: Vec<Row>,
    /// The descriptions of the operators.
    pub operators: Vec<Operator>,
    /// The lines of the file of operators, without their numbers: name, phase, inplace, rerun.
    pub lines: Vec<String>,
    /// How many block numbers there are.
    pub blocks: usize,
}

impl Recording {
    /// Reads a trace, `time_ns,event,block,bytes,op`, and the operators beside it.
    ///
    /// # Panics
    /// If one of the files cannot be read, or is not as expected.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut numbers = HashMap::new();
        let trace = text(path);
        let rows = trace.lines().skip(1).map(|line| {
            let [time, event, block, bytes, op] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let next = u32::try_from(numbers.len()).expect("few blocks");
            Row {
                time_ns: time.parse().expect("a time"),
                bytes: if bytes.is_empty() { 0 } else { bytes.parse().expect("bytes") },
                block: *numbers.entry(block.to_owned()).or_insert(next),
                op: if op.is_empty() { Op::None } else { Op::First(op.parse().expect("an op")) },
                event: match event {
                    "malloc" => Event::Malloc,
                    "free" => Event::Free,
                    "read" => Event::Read,
                    "write" => Event::Write,
                    _ => panic!("{line}"),
                },
            }
        });
        let rows = rows.collect();
        let (mut operators, mut lines) = (Vec::new(), Vec::new());
        for line in text(&path.with_extension("ops.csv")).lines().skip(1) {
            let (_, line) = line.split_once(',').expect("cells");
            let [name, _, in_place, again] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let kind = match name {
                "relu" | "relu_" => Kind::Relu,
                "threshold_backward" => Kind::ReluBackward,
                _ => Kind::Other,
            };
            operators.push(Operator { in_place: in_place == "1", rerun: again == "1", kind, ..Operator::default() });
            lines.push(line.to_owned());
        }
        let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
        Self { name, rows, operators, lines, blocks: numbers.len() }
    }

    /// The training traces of the larger corpus if `SUBLET_DATA` names its folder, otherwise those of the small one.
    ///
    /// # Panics
    /// If the folder of traces, or one of the files, cannot be read.
    #[must_use]
    pub fn training() -> Vec<Self> {
        let folder = if let Some(data) = std::env::var_os("SUBLET_DATA") {
            PathBuf::from(data).join("traces")
        } else {
            println!("skipped: the training traces of the larger corpus (SUBLET_DATA is not set)");
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces")
        };
        let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
            .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
            .map(|entry| entry.expect("a folder that can be read").path())
            .filter(|path| path.to_string_lossy().contains("_train_"))
            .filter(|path| {
                path.extension().is_some_and(|e| e == "csv") && !path.to_string_lossy().ends_with(".ops.csv")
            })
            .collect();
        files.sort();
        files.iter().map(|file| Self::read(file)).collect()
    }

    /// The recording of this name: of the small corpus, or of the larger one where `SUBLET_DATA` names it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        trace_named(name).map(|file| Self::read(&file))
    }

    /// The recording in the form that the core takes.
    #[must_use]
    pub fn recorded(&self) -> Recorded<'_> {
        Recorded { rows: &self.rows, operators: &self.operators, blocks: self.blocks }
    }

    /// The most bytes that are live at once.
    #[must_use]
    pub fn max_load(&self) -> u64 {
        max_load(&self.rows)
    }
}

/// The most bytes that are live at once in these rows.
#[must_use]
pub fn max_load(rows: &[Row]) -> u64 {
    peak_of(rows, |_| true)
}

/// `bytes` as a part of `peak`, in percent.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "to be read")]
pub fn percent(bytes: u64, peak: u64) -> f64 {
    100.0 * bytes as f64 / peak as f64
}

/// The most bytes that are live at once of blocks that come and go within the iteration: those that the recording
/// frees, but for gradients of parameters. `update` says whether the operator of a number updates parameters; the
/// blocks that it reads are their gradients.
#[must_use]
pub fn peak_of_passing(recorded: &Recorded<'_>, rows: &[Row], update: impl Fn(u32) -> bool) -> u64 {
    let passing = passing(recorded, update);
    peak_of(rows, |block| passing.contains(&block))
}

/// The most bytes that are live at once of the blocks that [`peak_of_passing`] leaves out: parameters, their momentum
/// and their gradients.
#[must_use]
pub fn peak_of_lasting(recorded: &Recorded<'_>, rows: &[Row], update: impl Fn(u32) -> bool) -> u64 {
    let passing = passing(recorded, update);
    peak_of(rows, |block| !passing.contains(&block))
}

fn passing(recorded: &Recorded<'_>, update: impl Fn(u32) -> bool) -> HashSet<u32> {
    let of = |event: Event| recorded.rows.iter().filter(move |r| r.event == event);
    let mut passing: HashSet<u32> = of(Event::Free).map(|r| r.block).collect();
    for r in of(Event::Read).filter(|r| matches!(r.op, Op::First(k) if update(k))) {
        passing.remove(&r.block);
    }
    passing
}

fn peak_of(rows: &[Row], counts: impl Fn(u32) -> bool) -> u64 {
    let mut size = HashMap::new();
    let (mut load, mut most) = (0, 0);
    for r in rows.iter().filter(|r| counts(r.block)) {
        match r.event {
            Event::Malloc => {
                size.insert(r.block, r.bytes);
                load += r.bytes;
                most = most.max(load);
            }
            Event::Free => load -= size[&r.block],
            _ => {}
        }
    }
    most
}

/// A rewritten trace that the verifier has accepted.
#[derive(Clone, Debug)]
pub struct Proved {
    /// The figures of its simulated run.
    pub run: Run,
    /// The highest end of a block in its placement, in bytes.
    pub footprint: u64,
    /// The offset of each residency, in bytes.
    pub offsets: Vec<u64>,
}

/// Gives the residencies of a rewritten trace offsets, and has the verifier judge the trace with this plan. A residency
/// that takes over another's memory in place gets the offset of that one. `cyclic` says whether iterations repeat.
///
/// # Errors
/// As the verifier.
pub fn prove(
    recorded: &Recorded<'_>,
    rows: &[Row],
    solver: Solver,
    device: &Device,
    cyclic: bool,
) -> Result<Proved, Error> {
    let numbers = 2 * recorded.blocks;
    let residencies = liveness::residencies(rows);
    let len = liveness::workspace(numbers)
        .max(liveness::merge_workspace(numbers))
        .max(place::workspace_of(solver, residencies))
        .max(verify::schedule_workspace(recorded.rows.len(), recorded.blocks, residencies));
    let (mut words, mut indices) = (vec![9; len.words], vec![9; len.indices]);
    let mut scratch = Workspace::new(&mut words, &mut indices);
    let (mut blocks, mut names) = (vec![Block::default(); residencies], vec![Residency::default(); residencies]);
    liveness::lifetimes(rows, numbers, scratch.reborrow(), &mut blocks, &mut names)?;
    let mut part_of = vec![0; residencies];
    let merged = liveness::merge(rows, numbers, scratch.reborrow(), &mut blocks, &mut part_of)?;
    let mut offsets = vec![0; residencies];
    place::place(solver, &blocks[..merged], &Options::default(), scratch.reborrow(), &mut offsets[..merged])?;
    liveness::spread(&part_of, &mut offsets);
    let mut timings = vec![Timing::default(); rows.len()];
    let room = Room { timings: &mut timings, blocks: &mut blocks, names: &mut names };
    let proved = verify::schedule(recorded, rows, &offsets, (device, cyclic), &Constraints::NONE, scratch, room)?;
    let (run, footprint) = (*proved.run(), proved.plan().peak());
    Ok(Proved { run, footprint, offsets })
}
