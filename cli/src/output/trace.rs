//! Traces: `time_ns,event,block,bytes,op`.
//!
//! An instance becomes the mallocs and frees that give its lifetimes, with its times as nanoseconds: at each time
//! first the frees, then the mallocs, so that the same blocks are alive together as before.

use std::io::{self, Write};

use sublet_core::trace::{Event, Op};

use crate::problem::{Problem, Trace};

/// Writes the problem's trace, or one that has the problem's blocks.
pub(crate) fn write(problem: &Problem, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "time_ns,event,block,bytes,op")?;
    match &problem.trace {
        Some(trace) => recorded(trace, out),
        None => made_up(problem, out),
    }
}

fn recorded(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    for row in &trace.rows {
        let event = match row.event {
            Event::Malloc => "malloc",
            Event::Free => "free",
            Event::Read => "read",
            Event::Write => "write",
            Event::SwapOut => "swap_out",
            Event::SwapIn => "swap_in",
        };
        write!(out, "{},{event},{},", row.time_ns, trace.names[row.block as usize])?;
        if row.event == Event::Malloc {
            write!(out, "{}", row.bytes)?;
        }
        match row.op {
            Op::None => writeln!(out, ",")?,
            Op::First(k) => writeln!(out, ",{k}")?,
            Op::Rerun(k) => writeln!(out, ",{k}'")?,
        }
    }
    Ok(())
}

fn made_up(problem: &Problem, out: &mut impl Write) -> io::Result<()> {
    let frees = problem.blocks.iter().zip(&problem.ids).map(|(b, id)| (b.end, None, id));
    let mallocs = problem.blocks.iter().zip(&problem.ids).map(|(b, id)| (b.start, Some(b.size), id));
    let mut events: Vec<_> = frees.chain(mallocs).collect();
    events.sort_by_key(|&(step, size, _)| (step, size.is_some()));
    for (step, size, id) in events {
        let time = problem.time(step);
        match size {
            Some(size) => writeln!(out, "{time},malloc,{id},{size},")?,
            None => writeln!(out, "{time},free,{id},,")?,
        }
    }
    Ok(())
}
