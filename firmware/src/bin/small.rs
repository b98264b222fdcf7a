//! The small planner on a Cortex-M: it plans and checks GoogLeNet's inference in 24 bytes of RAM a block.
#![no_std]
#![no_main]

use core::fmt::Write;
use core::panic::PanicInfo;

use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hio};
use heapless::String;
use sublet_core::place::{Span, place_small};
use sublet_core::trace::{Event, Op, Row};

const ROWS: &[Row] = include!(concat!(env!("OUT_DIR"), "/rows.rs"));
const BLOCKS: usize = mallocs();

const fn mallocs() -> usize {
    let (mut row, mut count) = (0, 0);
    while row < ROWS.len() {
        if matches!(ROWS[row].event, Event::Malloc) {
            count += 1;
        }
        row += 1;
    }
    count
}

#[entry]
fn main() -> ! {
    static mut SPANS: [Span; BLOCKS] = [Span { start: 0, end: 0, size: 0 }; BLOCKS];
    static mut OFFSETS: [u32; BLOCKS] = [0; BLOCKS];
    static mut ORDER: [u32; 2 * BLOCKS] = [0; 2 * BLOCKS];
    lives(SPANS);
    let placed = place_small(SPANS, 4, OFFSETS, ORDER);
    if let (Ok(peak), Ok(mut out)) = (placed, hio::hstdout()) {
        let mut line = String::<80>::new();
        let _ = writeln!(line, "{BLOCKS} blocks, peak {peak} bytes");
        let _ = out.write_all(line.as_bytes());
        debug::exit(debug::EXIT_SUCCESS);
    }
    debug::exit(debug::EXIT_FAILURE);
    loop {}
}

/// From the row of its malloc to that of its free, or to the end.
fn lives(spans: &mut [Span]) {
    let mallocs = (0u32..).zip(ROWS).filter(|(_, row)| row.event == Event::Malloc);
    for ((start, row), span) in mallocs.zip(spans) {
        let later = (0u32..).zip(ROWS).skip(start as usize + 1);
        let freed = later.filter(|(_, other)| other.event == Event::Free && other.block == row.block);
        let end = freed.map(|(time, _)| time).next().unwrap_or(u32::MAX);
        *span = Span { start, end, size: u32::try_from(row.bytes).unwrap_or(u32::MAX) };
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    debug::exit(debug::EXIT_FAILURE);
    loop {}
}
