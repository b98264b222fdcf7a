//! Plans, verifies, prints and replays the memory of GoogLeNet's inference on a Cortex-M with 64 KiB of RAM.
//!
//! The recorded iteration lies in the flash; everything else is in arrays whose size the compiler knows.
//! What is printed is the plan as `sublet plan` writes it on a desktop, byte for byte.
#![no_std]
#![no_main]

use core::fmt::Write;
use core::panic::PanicInfo;

use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hio};
use heapless::String;
use sublet_core::place::{self, Options, Solver};
use sublet_core::replay::{self, Answer, Replay};
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Event, Op, Row};
use sublet_core::{Block, Error, VerifiedPlan, Workspace, WorkspaceLen, verify};

const ROWS: &[Row] = include!(concat!(env!("OUT_DIR"), "/rows.rs"));
const BLOCKS: usize = mallocs(ROWS);
const SOLVER: Solver = Solver::Portfolio;
const SCRATCH: WorkspaceLen = place::workspace_of(SOLVER, BLOCKS)
    .max(verify::workspace(BLOCKS))
    .max(liveness::workspace(BLOCKS))
    .max(replay::workspace(BLOCKS));
/// Iterations that are served from the plan.
const REPLAYS: usize = 3;

const fn mallocs(rows: &[Row]) -> usize {
    let (mut row, mut count) = (0, 0);
    while row < rows.len() {
        if matches!(rows[row].event, Event::Malloc) {
            count += 1;
        }
        row += 1;
    }
    count
}

#[entry]
fn main() -> ! {
    // All memory that planning takes, but for the stack.
    static mut PLANNED: [Block; BLOCKS] = [Block::new(0, 0, 0); BLOCKS];
    static mut NAMES: [Residency; BLOCKS] = [Residency { block: 0, ordinal: 0 }; BLOCKS];
    static mut OFFSETS: [u64; BLOCKS] = [0; BLOCKS];
    static mut WORDS: [u64; SCRATCH.words] = [0; SCRATCH.words];
    static mut INDICES: [u32; SCRATCH.indices] = [0; SCRATCH.indices];
    debug::exit(match run(PLANNED, NAMES, OFFSETS, Workspace::new(WORDS, INDICES)) {
        Ok(true) => debug::EXIT_SUCCESS,
        _ => debug::EXIT_FAILURE,
    });
    loop {}
}

/// Plans the iteration, prints the plan and replays it. Returns whether every request was served as planned.
fn run(
    blocks: &mut [Block],
    names: &mut [Residency],
    offsets: &mut [u64],
    mut scratch: Workspace<'_>,
) -> Result<bool, Error> {
    liveness::lifetimes(ROWS, BLOCKS, scratch.reborrow(), blocks, names)?;
    let options = Options::default();
    place::place(SOLVER, blocks, &options, scratch.reborrow(), offsets)?;
    let plan = verify::verify(blocks, offsets, &options.constraints, scratch.reborrow())?;
    print("id,lower,upper,size,offset\n");
    for ((name, block), offset) in names.iter().zip(plan.blocks()).zip(plan.offsets()) {
        let mut line = String::<80>::new();
        let Block { start, end, size, .. } = block;
        if writeln!(line, "{},{start},{end},{size},{offset}", name.block).is_ok() {
            print(&line);
        }
    }
    replayed(&plan, names, scratch)
}

/// Replays the plan [`REPLAYS`] times: allocates and frees every block as the network does. Returns whether each block
/// was placed as planned.
fn replayed(plan: &VerifiedPlan<'_>, names: &[Residency], scratch: Workspace<'_>) -> Result<bool, Error> {
    // Planning is done: its workspace is lent to the replay.
    let mut replay = Replay::new(BLOCKS, scratch)?;
    let mut indices = [0; replay::scratch(BLOCKS).indices];
    replay.follow(plan, &[], 1, 0, Workspace::new(&mut [], &mut indices))?;
    let place_of = |block: u32| names.iter().position(|name| name.block == block).map(|i| plan.offsets()[i]);
    for _ in 0..REPLAYS {
        for row in ROWS {
            let planned = place_of(row.block).unwrap_or(0);
            match row.event {
                Event::Malloc if replay.malloc(row.bytes, row.block) != Answer::Placed(planned) => return Ok(false),
                Event::Free if replay.free(planned)? != row.block => return Ok(false),
                _ => {}
            }
        }
        // The blocks that the trace never frees, such as weights, are freed last.
        let kept = |block: u32| !ROWS.iter().any(|row| row.event == Event::Free && row.block == block);
        for row in ROWS.iter().filter(|row| row.event == Event::Malloc && kept(row.block)) {
            replay.free(place_of(row.block).unwrap_or(0))?;
        }
        if !replay.restart() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes to the standard output of the debugger; in an emulator, to that of the emulator.
fn print(text: &str) {
    if let Ok(mut out) = hio::hstdout() {
        let _ = out.write_all(text.as_bytes());
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    debug::exit(debug::EXIT_FAILURE);
    loop {}
}
