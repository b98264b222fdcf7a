//! Calls the C library with hostile arguments: pointers that are NULL or misaligned, lengths that no memory has, sizes
//! of structs and values of enums that do not exist, buffers that are too short. A call with such an argument must fail
//! before it touches memory; what a successful call returns must be right.
//!
//! A pointer that is given here can be read and written as far as its length says, unless that length cannot be
//! addressed or counted: this is all that C can ask of its callers.
#![cfg_attr(fuzzing, no_main)]

mod allocator;
mod detector;
mod hostile;
mod place;
mod pool;
mod recorder;
mod replay;
mod trace;

use arbitrary::{Result, Unstructured};

use hostile::Hostile;

sublet_fuzz::target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let _ = call(&mut u);
});

fn call(u: &mut Unstructured<'_>) -> Result<()> {
    let which = u.int_in_range(0..=15)?;
    let h = &mut Hostile { u, spoiled: false };
    match which {
        0 => place::place(h),
        1 => place::bound(h),
        2 => place::verify(h),
        3 => trace::lifetimes(h),
        4 => trace::simulate(h),
        5 => trace::schedule(h),
        6 => trace::fit(h),
        7 => trace::load_without_overhead(h),
        8 => recorder::recorder(h),
        9 => detector::detector(h),
        10 => replay::replay(h),
        11 => pool::pool(h),
        12 => trace::device_named(h),
        13 => place::solver_named(h),
        _ => allocator::allocator(h),
    }
    Ok(())
}
