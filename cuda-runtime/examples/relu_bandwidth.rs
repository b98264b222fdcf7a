//! What ReLU with a mask costs on this GPU, beside a copy within its memory: `cargo run --release --example relu_bandwidth`.
//!
//! Each figure is the best of 20 runs, timed by events; what is counted is what has to move: the elements once in, once
//! out, and the mask. Before it is timed, each result is compared with the processor's.

use std::error::Error;

use cudarc::driver::sys::{CUevent_flags, is_culib_present};
use cudarc::driver::{CudaContext, CudaStream, DevicePtr};
use sublet_cuda::relu::gpu::{Kernels, Operands};
use sublet_cuda::relu::{Activation, Format, cpu, mask_words};

const ELEMENTS: usize = 1 << 26;

/// The shortest time of a piece of work, in seconds.
fn seconds(stream: &CudaStream, mut work: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let timed = || stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let begin = timed()?;
        work()?;
        let end = timed()?;
        best = best.min(f64::from(begin.elapsed_ms(&end)?) / 1e3);
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn Error>> {
    // SAFETY: the first use of CUDA here.
    if !unsafe { is_culib_present() } {
        println!("skipped: there is no CUDA driver on this machine");
        return Ok(());
    }
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let kernels = Kernels::load()?;
    println!("{}, {ELEMENTS} elements", context.name()?);

    // Both signs, and no pattern.
    let number = |i: u16| f32::from(i.wrapping_mul(0x9e37).cast_signed()) / 4096.0;
    let values: Vec<f32> = (0..=u16::MAX).cycle().take(ELEMENTS).map(number).collect();
    for activation in [Activation::Relu, Activation::Leaky(0.01)] {
        for format in [Format::F32, Format::F16, Format::Bf16] {
            let bytes = ELEMENTS * format.bytes();
            let host: Vec<u8> = match format {
                Format::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
                Format::F16 => values.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect(),
                Format::Bf16 => values.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect(),
            };
            let from = stream.clone_htod(&host)?;
            let mut to = stream.alloc_zeros::<u8>(bytes)?;
            let mask = stream.alloc_zeros::<u32>(mask_words(ELEMENTS))?;
            let copy = seconds(&stream, || Ok(stream.memcpy_dtod(&from, &mut to)?))?;

            let operands = Operands {
                from: from.device_ptr(&stream).0,
                to: to.device_ptr(&stream).0,
                mask: mask.device_ptr(&stream).0,
                elements: ELEMENTS as u64,
                format,
            };
            // SAFETY: the context is current, and the three allocations live until the stream is synchronised below.
            let forward = || Ok(unsafe { kernels.forward(stream.cu_stream(), activation, operands) }?);
            // SAFETY: as above.
            let backward = || Ok(unsafe { kernels.backward(stream.cu_stream(), activation, operands) }?);
            forward()?;
            if format == Format::F32 {
                let (mut y, mut words) = (values.clone(), vec![0; mask_words(ELEMENTS)]);
                cpu::forward_in_place(activation, &mut y, &mut words)?;
                let expected: Vec<u8> = y.iter().flat_map(|y| y.to_le_bytes()).collect();
                assert!(stream.clone_dtoh(&to)? == expected, "forward differs from the processor's");
                assert!(stream.clone_dtoh(&mask)? == words, "the mask differs from the processor's");
            }
            let (forward, backward) = (seconds(&stream, forward)?, seconds(&stream, backward)?);
            stream.synchronize()?;

            let moved =
                |seconds: f64, bytes: usize| f64::from(u32::try_from(bytes >> 10).unwrap_or(0)) / seconds / 1e6 * 1.024;
            let with_mask = 2 * bytes + 4 * mask_words(ELEMENTS);
            let copied = moved(copy, 2 * bytes);
            let (forward, backward) = (moved(forward, with_mask), moved(backward, with_mask));
            println!(
                "{activation:?} {format:?}: copy {copied:.0} GB/s, forward with mask {forward:.0} GB/s ({:.0} %), \
                 backward {backward:.0} GB/s ({:.0} %)",
                100.0 * forward / copied,
                100.0 * backward / copied,
            );
        }
    }
    Ok(())
}
