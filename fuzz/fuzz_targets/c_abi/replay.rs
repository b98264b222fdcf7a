//! The replay of a plan: a request gets memory in which no other block is alive.

use std::ptr;

use sublet::replay::*;
use sublet::status::*;
use sublet_fuzz::naive;

use crate::hostile::{Buffer, Hostile, Told, asked};
use crate::place::{constraints, to_core};

pub(crate) fn replay(h: &mut Hostile<'_, '_>) {
    let mut list = h.blocks();
    let n = list.len;
    let mut constraints = constraints(h);
    let offsets = (0..n).map(|i| if h.seldom(16) { h.number() } else { 64 * i as u64 }).collect();
    let mut offsets = Buffer::of(offsets, 0);
    // SAFETY: nothing is wrong with these.
    let asked = asked(|layout| unsafe { sublet_replay_workspace(n, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut made = Buffer::of(vec![ptr::null_mut::<sublet_replay>()], ptr::null_mut());
    let mut told = Told::new(h);
    let (list_pointer, offsets_pointer) = (h.pointer(&mut list, false), h.pointer(&mut offsets, false));
    let said = h.length(n);
    let constraints_pointer = h.params_pointer(&mut constraints);
    let workspace_pointer = h.pointer(&mut workspace, false);
    let made_pointer = h.pointer(&mut made, false);
    let made_pointer = h.alias(made_pointer, &made, workspace_pointer, &workspace);
    let workspace_pointer = h.alias(workspace_pointer, &workspace, offsets_pointer, &offsets);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let status = unsafe {
        sublet_replay_create(
            list_pointer,
            said,
            offsets_pointer,
            constraints_pointer,
            workspace_pointer.cast(),
            size,
            made_pointer,
            told.pointer(),
        )
    };
    if !told.judge(status, h) {
        assert!(made.memory[0].is_null());
        return;
    }
    let blocks = to_core(&list);
    assert!(naive::accepts(&blocks, &offsets.memory[..n], &sublet_core::Constraints { alignment: 1, capacity: None }));
    // The replay has copied blocks and offsets.
    list.memory.clear();
    let peak = naive::peak(&blocks, &offsets.memory[..n]);
    let replay = made.memory[0];
    let mut live: Vec<(u64, u64)> = Vec::new();
    for _ in 0..h.u.int_in_range(0..=60).unwrap_or(0) {
        h.spoiled = false;
        let mut told = Told::new(h);
        let error = told.pointer();
        let to = h.handle(replay);
        // SAFETY: as above.
        let status = unsafe {
            match h.u.int_in_range(0..=9).unwrap_or(0) {
                0..=4 => {
                    let planned = h.u.choose(&blocks).map_or(1, |b| b.size);
                    let bytes = if h.seldom(4) { h.number() } else { planned };
                    let mut offset = Buffer::of(vec![u64::MAX], 0);
                    let offset_pointer = h.pointer(&mut offset, false);
                    let status = sublet_replay_malloc(to, bytes, offset_pointer, error);
                    let begin = offset.memory[0];
                    if status == sublet_status::Ok {
                        let end = begin.saturating_add(bytes);
                        // Only the begin is compared: sizes may be rounded up to the alignment.
                        assert!(u128::from(begin) < peak.max(1), "{begin}");
                        assert!(bytes == 0 || live.iter().all(|&(o, e)| e <= begin || end <= o), "{begin} {end}");
                        live.push((begin, end.max(begin + 1)));
                    } else {
                        assert_eq!(begin, u64::MAX);
                    }
                    status
                }
                5..=7 if !live.is_empty() => {
                    let which = h.u.choose_index(live.len()).unwrap_or(0);
                    let status = sublet_replay_free(to, live[which].0, error);
                    assert!(status == sublet_status::Ok || h.spoiled, "{status:?}");
                    if status == sublet_status::Ok {
                        live.swap_remove(which);
                    }
                    status
                }
                8 => {
                    let stray = h.number();
                    if live.iter().any(|&(o, _)| o == stray) {
                        return;
                    }
                    h.spoiled = true;
                    sublet_replay_free(to, stray, error)
                }
                _ => {
                    let mut followed = Buffer::of(vec![7i32], 0);
                    let followed_pointer = h.pointer(&mut followed, true);
                    let status = sublet_replay_restart(to, followed_pointer, error);
                    assert!(followed_pointer.is_null() || (followed.memory[0] != 7) == (status == sublet_status::Ok));
                    status
                }
            }
        };
        told.judge(status, h);
    }
}
