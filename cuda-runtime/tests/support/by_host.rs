//! Operators that the host computes in the stream's order: on any backend, with nothing but its functions.

use sublet_cuda::backend::{Backend, PinnedBytes};
use sublet_cuda::{Error, Launch, Runtime};

use super::fit::Trace;
use super::pattern::{Launches, Reference, fill, number, outputs};

/// Runs iterations and compares all that persists; what was wrong.
pub(crate) fn run<B: Backend + Clone>(
    runtime: &mut Runtime<B>,
    trace: &Trace,
    iterations: u64,
) -> Result<Vec<String>, Error> {
    let mut reference = Reference::new(trace);
    reference.write(runtime)?;
    go_on(runtime, &mut reference, 0..iterations)
}

/// Runs these iterations with what persists as it is, and compares it then; what was wrong.
pub(crate) fn go_on<B: Backend + Clone>(
    runtime: &mut Runtime<B>,
    reference: &mut Reference<'_>,
    iterations: std::ops::Range<u64>,
) -> Result<Vec<String>, Error> {
    // One launch runs after the other, so that they can share it.
    let scratch = runtime.backend().pin(runtime.program().arena_bytes())?;
    let launches = issue(runtime, reference, &scratch, iterations);
    // What is under way still uses the scratch memory.
    let finished = runtime.finish();
    let launches = launches.and_then(|launches| finished.map(|()| launches))?;
    let mut found = reference.compare(runtime)?;
    found.append(&mut launches.faults.lock().unwrap());
    Ok(found)
}

/// Gives the streams these iterations and waits for nothing; the scratch memory must outlive them. What was wrong is found
/// in what this returns, when they are done.
pub(crate) fn issue<B: Backend + Clone>(
    runtime: &mut Runtime<B>,
    reference: &mut Reference<'_>,
    scratch: &B::Pinned,
    mut iterations: std::ops::Range<u64>,
) -> Result<Launches, Error> {
    let backend = runtime.backend().clone();
    let mut launches = reference.launches();
    iterations.try_for_each(|iteration| {
        launches.iteration = iteration;
        launches.seen = reference.iterate(iteration);
        runtime.iterate(|next| launch(&backend, next, scratch, &launches))
    })?;
    Ok(launches)
}

fn launch<B: Backend>(
    backend: &B,
    next: &Launch<'_, B>,
    scratch: &B::Pinned,
    launches: &Launches,
) -> Result<(), Error> {
    for o in next.operands().iter().filter(|o| o.read) {
        backend.copy_out(next.stream, next.address_of(o), (scratch, o.offset), o.bytes)?;
    }
    let bytes: PinnedBytes = backend.pinned(scratch);
    let (operands, about) = (next.operands().to_vec(), launches.about(next));
    backend.call(
        next.stream,
        Box::new(move || {
            // SAFETY: the copies before are done, those after have not begun, and slices are used one after the other.
            let slice = |i: usize| unsafe { bytes.slice(operands[i].offset, operands[i].bytes) }.unwrap();
            let read = |i: usize| if operands[i].read { number(slice(i)) } else { None };
            let numbers: Vec<_> = (0..operands.len()).map(read).collect();
            for (i, seed) in outputs(&about, &operands, &numbers).into_iter().enumerate() {
                if let Some(seed) = seed {
                    fill(seed, slice(i));
                }
            }
        }),
    )?;
    for o in next.operands().iter().filter(|o| o.write) {
        backend.copy_in(next.stream, (scratch, o.offset), next.address_of(o), o.bytes)?;
    }
    Ok(())
}
