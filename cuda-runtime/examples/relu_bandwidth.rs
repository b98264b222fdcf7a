//! What ReLU with a mask costs beside a copy, on the processor and on the GPU if there is one:
//! `cargo run --release -p sublet-cuda --example relu_bandwidth`.
//!
//! Each figure is the best of 20 runs, on the GPU timed by events; what is counted is what has to move: the elements once in,
//! once out, and the mask. Before it is timed, the GPU's result is compared with the processor's.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use cudarc::driver::sys::{CUevent_flags, is_culib_present};
use cudarc::driver::{CudaContext, CudaStream, DevicePtr};
use sublet_cuda::relu::gpu::{Kernels, Operands};
use sublet_cuda::relu::{Activation, Format, cpu, mask_words};

const ELEMENTS: usize = 1 << 26;
/// On the processor: more than its caches hold.
const ELEMENTS_OF_PROCESSOR: usize = 1 << 24;

/// GB/s of so many bytes in so many seconds.
fn rate(bytes: usize, seconds: f64) -> f64 {
    f64::from(u32::try_from(bytes >> 10).unwrap_or(0)) * 1.024e-6 / seconds
}

fn print(what: &str, copy: f64, forward: f64, backward: f64) {
    let (there, back) = (100.0 * forward / copy, 100.0 * backward / copy);
    println!(
        "{what}: copy {copy:.1} GB/s, forward {forward:.1} GB/s ({there:.0} %), backward {backward:.1} GB/s ({back:.0} %)"
    );
}

/// The processor's share.
fn processor<E: cpu::Element>(name: &str, number: impl Fn(f32) -> E) -> Result<(), Box<dyn Error>> {
    let x: Vec<E> = numbers(ELEMENTS_OF_PROCESSOR).map(number).collect();
    let (mut y, mut mask) = (x.clone(), vec![0; mask_words(x.len())]);
    let best = |mut work: Box<dyn FnMut() -> Result<(), Box<dyn Error>> + '_>| {
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            let begin = Instant::now();
            work()?;
            best = best.min(begin.elapsed().as_secs_f64());
        }
        Ok::<f64, Box<dyn Error>>(best)
    };
    let elements = 2 * size_of_val(x.as_slice());
    let all = elements + size_of_val(mask.as_slice());
    let copied = best(Box::new(|| {
        y.copy_from_slice(black_box(&x));
        Ok(())
    }))?;
    let copy = rate(elements, copied);
    for activation in [Activation::Relu, Activation::Leaky(0.01)] {
        let forward = best(Box::new(|| Ok(cpu::forward(activation, &x, &mut y, &mut mask)?)))?;
        let backward = best(Box::new(|| Ok(cpu::backward(activation, &x, &mask, &mut y)?)))?;
        print(&format!("processor, {activation:?}, {name}"), copy, rate(all, forward), rate(all, backward));
    }
    Ok(())
}

/// Both signs, and no pattern.
fn numbers(count: usize) -> impl Iterator<Item = f32> {
    let number = |i: u16| f32::from(i.wrapping_mul(0x9e37).cast_signed()) / 4096.0;
    (0..=u16::MAX).cycle().take(count).map(number)
}

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
    processor("f32", |x| x)?;
    processor("f16", half::f16::from_f32)?;
    processor("bf16", half::bf16::from_f32)?;
    // SAFETY: the first use of CUDA here.
    if !unsafe { is_culib_present() } {
        println!("skipped: the GPU; there is no CUDA driver on this machine");
        return Ok(());
    }
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let kernels = Kernels::load()?;
    println!("{}, {ELEMENTS} elements", context.name()?);

    let values: Vec<f32> = numbers(ELEMENTS).collect();
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

            let with_mask = 2 * bytes + 4 * mask_words(ELEMENTS);
            let (forward, backward) = (rate(with_mask, forward), rate(with_mask, backward));
            print(&format!("GPU, {activation:?}, {format:?}"), rate(2 * bytes, copy), forward, backward);
        }
    }
    Ok(())
}
