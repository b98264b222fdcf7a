//! The pool of addresses.

use std::ptr;

use sublet::pool::*;
use sublet::status::*;

use crate::hostile::{Buffer, Hostile, Told, asked};

pub(crate) fn pool(h: &mut Hostile<'_, '_>) {
    let (capacity, most) = (h.number(), h.u.int_in_range(0..=16).unwrap_or(0));
    let alignment = if h.seldom(8) { h.number() } else { 1 << h.u.int_in_range(0..=6).unwrap_or(0) };
    // SAFETY: nothing is wrong with these.
    let asked = asked(|layout| unsafe { sublet_pool_workspace(most, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    h.spoiled |= !alignment.is_power_of_two();
    let mut made = Buffer::of(vec![ptr::null_mut::<sublet_pool>()], ptr::null_mut());
    let mut told = Told::new(h);
    let workspace_pointer = h.pointer(&mut workspace, false);
    let made_pointer = h.pointer(&mut made, false);
    let made_pointer = h.alias(made_pointer, &made, workspace_pointer, &workspace);
    let said = h.length(most);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let status = unsafe {
        sublet_pool_create(capacity, alignment, said, workspace_pointer.cast(), size, made_pointer, told.pointer())
    };
    if !told.judge(status, h) {
        return;
    }
    let pool = made.memory[0];
    let mut live: Vec<(u64, u64)> = Vec::new();
    for _ in 0..h.u.int_in_range(0..=60).unwrap_or(0) {
        h.spoiled = false;
        let mut told = Told::new(h);
        let error = told.pointer();
        let to = h.handle(pool);
        // SAFETY: as above.
        let status = unsafe {
            match h.u.int_in_range(0..=9).unwrap_or(0) {
                0..=4 => {
                    let bytes = h.number();
                    let mut address = Buffer::of(vec![u64::MAX], 0);
                    let address_pointer = h.pointer(&mut address, false);
                    let status = sublet_pool_malloc(to, bytes, address_pointer, error);
                    let begin = address.memory[0];
                    if status == sublet_status::Ok {
                        let end = begin + bytes;
                        assert!(end <= capacity && begin % alignment == 0);
                        assert!(live.iter().all(|&(o, e)| e <= begin || end <= o), "{begin} {end}");
                        live.push((begin, end));
                    } else {
                        assert_eq!(begin, u64::MAX);
                    }
                    status
                }
                5..=7 if !live.is_empty() => {
                    let which = h.u.choose_index(live.len()).unwrap_or(0);
                    let status = sublet_pool_free(to, live[which].0, error);
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
                    sublet_pool_free(to, stray, error)
                }
                _ => {
                    let struct_size = size_of::<sublet_pool_usage>() as u32;
                    let nothing = sublet_pool_usage { struct_size, blocks: 7, live: 7, peak: 7, footprint: 7 };
                    let mut usage = Buffer::of(vec![nothing], nothing);
                    let usage_pointer = h.pointer(&mut usage, false);
                    let status = sublet_pool_stats(to, usage_pointer, error);
                    let sublet_pool_usage { live: bytes, peak, footprint, .. } = usage.memory[0];
                    if status == sublet_status::Ok {
                        let least: u64 = live.iter().map(|(o, e)| e - o).sum();
                        assert!(least <= bytes && bytes <= peak && peak <= footprint && footprint <= capacity);
                    }
                    status
                }
            }
        };
        told.judge(status, h);
    }
}
