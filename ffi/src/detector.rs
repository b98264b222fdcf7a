//! Finds the iteration that repeats in an endless stream of events: mallocs, frees, reads and writes.

use core::ffi::c_void;

use sublet_core::trace::Detector;
use sublet_core::trace::Event;

use crate::arguments::Arguments;
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::handle::{self, Marked, handles};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::event;
use crate::workspace::{Needed, sublet_layout};

/// Watches a stream of mallocs, frees, reads and writes, and finds the iteration that repeats: its period is how many
/// of these events one iteration has. Only one thread at a time may use a detector.
pub struct sublet_detector(Detector<'static>);

handles!(sublet_detector: b"detector");

fn needed(longest: usize) -> Needed {
    Needed::workspace(Detector::workspace(longest)).and::<Marked<sublet_detector>>(1)
}

/// Tells in `layout` how large a workspace a sublet_detector needs to find iterations of up to `longest` events:
/// mallocs, frees, reads and writes.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_detector_workspace(
    longest: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let longest = arguments.count(longest)?;
        Ok(needed(longest))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Makes a detector that has seen no event yet, and finds iterations of up to `longest` events: mallocs, frees, reads
/// and writes. The detector lives in `workspace`: keep that memory as long as you use the detector. There is nothing to
/// destroy.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_detector_create(
    longest: usize,
    workspace: *mut c_void,
    workspace_size: usize,
    detector: *mut *mut sublet_detector,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        let needed = needed(arguments.count(longest)?);
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (mut room, to) =
            unsafe { (arguments.workspace(workspace, workspace_size, needed)?, arguments.result(detector)?) };
        let place = room.uninit();
        let kept = room.workspace(Detector::workspace(longest));
        handle::put(place, sublet_detector(Detector::new(longest, kept)?), to)
    })
}

/// Tells the detector the next event of the stream: `event`, a sublet_event, of a block of `bytes` bytes. `position`
/// receives the number of this event: 1 for the first event of the stream, and so on; after 2^31 - 1 comes 1 again.
/// `last` is the number that the previous event of the same block received, or 0 if this is the block's first event.
/// O(1).
///
/// `period`, which may be NULL, receives how many events one iteration has, once an iteration is proved to have
/// repeated. Until then it receives 0. It receives 0 again as soon as an event differs from the event one iteration
/// before it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_detector_push(
    detector: *mut sublet_detector,
    event: u32,
    bytes: u64,
    last: u32,
    position: *mut u32,
    period: *mut u32,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a detector that lives, and for pointers that hold what they are to hold.
        let detector = unsafe { arguments.handle(detector)? };
        for _ in 0..3 {
            arguments.skip();
        }
        // SAFETY: as above.
        let (position, period) = unsafe { (arguments.result(position)?, arguments.optional(period)?) };
        let event: Event = self::event(event).ok_or(Failure::new(S::UnknownValue, 1, 0, event.into()))?;
        position.set(detector.0.push(event, bytes, last));
        period.set(detector.0.period().unwrap_or(0));
        Ok(())
    })
}
