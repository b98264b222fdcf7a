//! The detector of periods: an event is accepted even if the position of the block's previous event is one that no call
//! has returned.

use std::ptr;

use sublet::detector::*;

use crate::hostile::{Buffer, Hostile, Told, asked};

pub(crate) fn detector(h: &mut Hostile<'_, '_>) {
    let longest = h.u.int_in_range(0..=24).unwrap_or(0);
    // SAFETY: nothing is wrong with these.
    let asked = asked(|layout| unsafe { sublet_detector_workspace(longest, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut made = Buffer::of(vec![ptr::null_mut::<sublet_detector>()], ptr::null_mut());
    let mut told = Told::new(h);
    let workspace_pointer = h.pointer(&mut workspace, false);
    let made_pointer = h.pointer(&mut made, false);
    let made_pointer = h.alias(made_pointer, &made, workspace_pointer, &workspace);
    let said = h.length(longest);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let status = unsafe { sublet_detector_create(said, workspace_pointer.cast(), size, made_pointer, told.pointer()) };
    if !told.judge(status, h) {
        return;
    }
    let detector = made.memory[0];
    let mut positions = vec![0];
    for _ in 0..h.u.int_in_range(0..=120).unwrap_or(0) {
        h.spoiled = false;
        let event = h.value(6);
        h.spoiled |= event > 5;
        let bytes = h.u.int_in_range(1..=3).unwrap_or(1) << h.u.int_in_range(0..=62).unwrap_or(0);
        let last = if h.seldom(8) { h.u.arbitrary().unwrap_or(0) } else { *h.u.choose(&positions).unwrap_or(&0) };
        let (mut position, mut period) = (Buffer::of(vec![0u32], 0), Buffer::of(vec![u32::MAX], 0));
        let mut told = Told::new(h);
        let to = h.handle(detector);
        let (position_pointer, period_pointer) = (h.pointer(&mut position, false), h.pointer(&mut period, true));
        let period_pointer = h.alias(period_pointer, &period, position_pointer, &position);
        // SAFETY: as above.
        let status =
            unsafe { sublet_detector_push(to, event, bytes, last, position_pointer, period_pointer, told.pointer()) };
        if told.judge(status, h) {
            assert_ne!(position.memory[0], 0);
            assert!(period_pointer.is_null() || period.memory[0] as usize <= longest);
            positions.push(position.memory[0]);
        } else {
            assert_eq!((position.memory[0], period.memory[0]), (0, u32::MAX));
        }
    }
}
