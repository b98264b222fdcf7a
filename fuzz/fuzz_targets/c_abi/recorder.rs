//! The recorder, and its hand-over to a larger one.

use std::ffi::c_void;
use std::ptr;

use sublet::recorder::*;
use sublet::status::*;
use sublet::trace::*;

use crate::hostile::{Buffer, Hostile, Told, asked};

/// Makes a recorder, or, with `before`, one that takes over the rows of that recorder. Returns the recorder, its
/// memory, and how many rows it has room for; `None` if the call failed.
fn make(
    h: &mut Hostile<'_, '_>,
    before: Option<(*mut sublet_recorder, usize)>,
) -> Option<(*mut sublet_recorder, Buffer<u64>, usize)> {
    let rows = h.u.int_in_range(0..=40).unwrap_or(0);
    h.spoiled = before.is_some_and(|(_, recorded)| rows <= recorded);
    // SAFETY: nothing is wrong with these.
    let asked = asked(|layout| unsafe { sublet_recorder_workspace(rows, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut made = Buffer::of(vec![ptr::null_mut::<sublet_recorder>()], ptr::null_mut());
    let mut told = Told::new(h);
    let workspace_pointer = h.pointer(&mut workspace, false);
    let made_pointer = h.pointer(&mut made, false);
    let made_pointer = h.alias(made_pointer, &made, workspace_pointer, &workspace);
    let workspace_pointer = workspace_pointer.cast::<c_void>();
    let said = h.length(rows);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let status = unsafe {
        match before {
            None => sublet_recorder_create(said, workspace_pointer, size, made_pointer, told.pointer()),
            Some((old, _)) => {
                // Sometimes the memory of the old recorder is lent to the new one: that has to fail.
                let into_itself = size > 0 && h.seldom(16);
                h.spoiled |= into_itself;
                let room = if into_itself { old.cast() } else { workspace_pointer };
                let old = h.handle(old);
                sublet_recorder_hand_over(old, said, room, size, made_pointer, told.pointer())
            }
        }
    };
    if told.judge(status, h) { Some((made.memory[0], workspace, rows)) } else { None }
}

pub(crate) fn recorder(h: &mut Hostile<'_, '_>) {
    let Some((mut recorder, mut memory, mut capacity)) = make(h, None) else { return };
    let (mut blocks, mut recorded, mut time, mut interruptions) = (0u32, 0usize, 0u64, 0u32);
    for _ in 0..h.u.int_in_range(0..=60).unwrap_or(0) {
        h.spoiled = false;
        let asked = h.u.int_in_range(0..=9).unwrap_or(0);
        if asked == 9 {
            if let Some((larger, own, rows)) = make(h, Some((recorder, recorded))) {
                (recorder, capacity) = (larger, rows);
                // The memory of the old recorder is the caller's again, and may be overwritten.
                memory.memory.fill(!0);
                memory = own;
            }
            continue;
        }
        let mut told = Told::new(h);
        let error = told.pointer();
        let to = h.handle(recorder);
        let late = h.seldom(12);
        let now = if late { h.number() } else { time.saturating_add(1) };
        let block = if h.seldom(8) { h.number() as u32 } else { h.u.int_in_range(0..=blocks).unwrap_or(0) };
        // SAFETY: what the pointers point to is there, or they are what has to be refused.
        let status = unsafe {
            match asked {
                0..=2 => {
                    let bytes = h.number();
                    let mut out = Buffer::of(vec![7u32], 0);
                    let out_pointer = h.pointer(&mut out, false);
                    let status = sublet_recorder_malloc(to, now, bytes, out_pointer, error);
                    if status == sublet_status::Ok {
                        assert_eq!(out.memory[0], if interruptions > 0 { SUBLET_OUTSIDE } else { blocks });
                        if interruptions == 0 {
                            (blocks, recorded, time) = (blocks + 1, recorded + 1, now);
                        }
                    }
                    status
                }
                3..=5 => {
                    let call = [sublet_recorder_free, sublet_recorder_read, sublet_recorder_write][asked - 3];
                    let status = call(to, now, block, error);
                    if status == sublet_status::Ok && block != SUBLET_OUTSIDE {
                        assert!(block < blocks && recorded < capacity && now >= time);
                        (recorded, time) = (recorded + 1, now);
                    }
                    status
                }
                6 => sublet_recorder_begin_op(to, error),
                7 => {
                    let wanted = h.u.ratio(1, 2).unwrap_or(false);
                    let call = if wanted { sublet_recorder_interrupt } else { sublet_recorder_resume };
                    let status = call(to, error);
                    if status == sublet_status::Ok {
                        interruptions = if wanted { interruptions + 1 } else { interruptions.saturating_sub(1) };
                    }
                    status
                }
                _ => {
                    let filler = sublet_row { time_ns: 7, bytes: 7, block: 7, event: 7, op: 7, op_kind: 7 };
                    let room = h.u.int_in_range(0..=recorded + 2).unwrap_or(0);
                    h.spoiled |= room > 0 && room < recorded;
                    let (mut rows, mut count) =
                        (Buffer::of(vec![filler; room], filler), Buffer::of(vec![usize::MAX], 0));
                    let (rows_pointer, count_pointer) = (h.pointer(&mut rows, false), h.pointer(&mut count, true));
                    let count_pointer = h.alias(count_pointer, &count, rows_pointer, &rows);
                    let status = sublet_recorder_rows(to, rows_pointer, room, count_pointer, ptr::null_mut(), error);
                    if status == sublet_status::Ok {
                        assert!(count_pointer.is_null() || count.memory[0] == recorded);
                        let copied = if room == 0 { 0 } else { recorded };
                        assert!(rows.memory.iter().enumerate().all(|(i, row)| (row.event < 4) == (i < copied)));
                        assert!(rows.memory[..copied].is_sorted_by_key(|row| row.time_ns));
                    }
                    status
                }
            }
        };
        told.judge(status, h);
    }
    // SAFETY: nothing is wrong with these.
    let ended = unsafe { sublet_recorder_end_op(recorder, ptr::null_mut()) };
    assert_eq!(ended, sublet_status::Ok);
}
