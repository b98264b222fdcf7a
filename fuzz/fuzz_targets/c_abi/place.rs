//! Placement of blocks, lower bounds, and verification of plans.

use std::ffi::c_void;
use std::ptr;

use sublet::block::*;
use sublet::bound::*;
use sublet::place::*;
use sublet::verify::*;
use sublet_fuzz::naive;

use crate::hostile::{Buffer, CERTIFICATE, Hostile, Params, Told, asked};

pub(crate) fn place(h: &mut Hostile<'_, '_>) {
    let mut list = h.blocks();
    let n = list.len;
    let solver = h.solver();
    let alignment = if h.seldom(4) { h.number() } else { 0 };
    let capacity = if h.seldom(4) { h.number() } else { 0 };
    let (seed, work, nodes) = (h.number(), h.effort(), h.effort());
    let mut params = h.params::<sublet_place_params>(solver, &[alignment, capacity, seed, work, nodes]);
    let params_pointer = h.params_pointer::<sublet_place_params>(&mut params);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_place_workspace(n, params_pointer, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut offsets = Buffer::of(vec![!0u64; n], 0);
    let struct_size = size_of::<sublet_placement>() as u32;
    let untouched = sublet_placement { struct_size, peak: 7, lower_bound: 7, nodes: 7, solver: 77 };
    let mut placement = Buffer::of(vec![untouched], untouched);
    let mut told = Told::new(h);
    let blocks_pointer = h.pointer(&mut list, false);
    let workspace_pointer = h.pointer(&mut workspace, false).cast::<c_void>();
    let (offsets_pointer, placement_pointer) = (h.pointer(&mut offsets, false), h.pointer(&mut placement, true));
    let placement_pointer = h.alias(placement_pointer, &placement, offsets_pointer, &offsets);
    let offsets_pointer = h.alias(offsets_pointer, &offsets, blocks_pointer, &list);
    let said = h.length(n);
    // SAFETY: as above.
    let status = unsafe {
        sublet_place(
            blocks_pointer,
            said,
            params_pointer,
            workspace_pointer,
            size,
            offsets_pointer,
            placement_pointer,
            told.pointer(),
        )
    };
    if told.judge(status, h) {
        let blocks = to_core(&list);
        let constraints = sublet_core::Constraints { alignment: 1, capacity: None };
        assert!(naive::accepts(&blocks, &offsets.memory[..n], &constraints));
        if !placement_pointer.is_null() {
            assert_eq!(u128::from(placement.memory[0].peak), naive::peak(&blocks, &offsets.memory[..n]));
        }
    } else {
        assert_eq!(placement.memory[0].solver, 77, "a scalar was written without success");
    }
}

/// The names of solvers: from a name to the number, and back.
pub(crate) fn solver_named(h: &mut Hostile<'_, '_>) {
    let names: Vec<&str> = sublet_core::place::Solver::all().map(|solver| solver.name()).collect();
    let (text, known) = h.name(&names);
    h.spoiled |= !known;
    let mut number = Buffer::of(vec![7u32], 0);
    let mut told = Told::new(h);
    let number_pointer = h.pointer(&mut number, false);
    // SAFETY: the text ends; what the pointers point to is there, or they are what has to be refused.
    let status = unsafe { sublet_solver_named(text.as_ptr().cast(), number_pointer, told.pointer()) };
    if told.judge(status, h) {
        // SAFETY: it lives as long as the program.
        let name = unsafe { std::ffi::CStr::from_ptr(sublet_solver_name(number.memory[0])) };
        assert_eq!(name.to_bytes_with_nul(), text);
    } else {
        assert_eq!(number.memory[0], 7);
    }
}

pub(crate) fn to_core(list: &Buffer<sublet_block>) -> Vec<sublet_core::Block> {
    let block = |b: &sublet_block| sublet_core::Block {
        start: b.start,
        end: b.end,
        size: b.size,
        alignment: b.alignment.max(1),
        pin: (b.flags & 1 == 1).then_some(b.pin),
    };
    list.memory[..list.len].iter().map(block).collect()
}

pub(crate) fn constraints(h: &mut Hostile<'_, '_>) -> Params {
    let alignment = if h.seldom(4) { h.number() } else { 1 << h.u.int_in_range(0..=4).unwrap_or(0) };
    let capacity = if h.seldom(4) { h.number() } else { 0 };
    h.params::<sublet_constraints>(0, &[alignment, capacity])
}

pub(crate) fn bound(h: &mut Hostile<'_, '_>) {
    let mut list = h.blocks();
    let n = list.len;
    let mut constraints = constraints(h);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_lower_bound_workspace(n, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut bound = Buffer::of(vec![7u64], 0);
    let mut told = Told::new(h);
    let pointer = h.pointer(&mut list, false);
    let said = h.length(n);
    let constraints_pointer = h.params_pointer(&mut constraints);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let bound_pointer = h.pointer(&mut bound, false);
    let bound_pointer = h.alias(bound_pointer, &bound, pointer, &list);
    // SAFETY: as above.
    let status = unsafe {
        sublet_lower_bound(pointer, said, constraints_pointer, workspace_pointer, size, bound_pointer, told.pointer())
    };
    if told.judge(status, h) {
        assert!(naive::max_load(&to_core(&list)) <= bound.memory[0].into());
    } else {
        assert_eq!(bound.memory[0], 7);
    }
}

pub(crate) fn verify(h: &mut Hostile<'_, '_>) {
    let mut list = h.blocks();
    let n = list.len;
    let mut constraints = constraints(h);
    let offsets = (0..n).map(|i| if h.seldom(12) { h.number() } else { 48 * i as u64 }).collect();
    let mut offsets = Buffer::of(offsets, 0);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_verify_workspace(n, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut certificate = Buffer::of(vec![CERTIFICATE], CERTIFICATE);
    let mut told = Told::new(h);
    let pointer = h.pointer(&mut list, false);
    let said = h.length(n);
    let offsets_pointer = h.pointer(&mut offsets, false);
    let constraints_pointer = h.params_pointer(&mut constraints);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let certificate_pointer = h.pointer(&mut certificate, true);
    let certificate_pointer = h.alias(certificate_pointer, &certificate, offsets_pointer, &offsets);
    // SAFETY: as above.
    let status = unsafe {
        sublet_verify(
            pointer,
            said,
            offsets_pointer,
            constraints_pointer,
            workspace_pointer,
            size,
            certificate_pointer,
            told.pointer(),
        )
    };
    if told.judge(status, h) {
        let none = sublet_core::Constraints { alignment: 1, capacity: None };
        assert!(naive::accepts(&to_core(&list), &offsets.memory[..n], &none));
    } else {
        assert_eq!(certificate.memory[0].peak, 7);
    }
}
