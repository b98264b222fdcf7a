//! What ReLU with a mask costs beside a copy, on the processor and on the GPU if there is one:
//!
//!     cargo run --release -p sublet-cuda --example relu_bandwidth [-- ELEMENTS]
//!
//! Each figure is the best of 20 runs, on the GPU timed by events; what is counted is what has to move: the elements once in,
//! once out, and the mask. The GPU's results are compared with the processor's, to the bit.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use sublet_cuda::backend::Backend;
use sublet_cuda::cuda::{CudaBackend, Stream};
use sublet_cuda::relu::gpu::{Kernels, Operands};
use sublet_cuda::relu::{Activation, bf16, cpu, f16, mask_words};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ELEMENTS: usize = 1 << 26;
/// On the processor: more than its caches hold.
const ELEMENTS_OF_PROCESSOR: usize = 1 << 24;
const RUNS: usize = 20;
const ACTIVATIONS: [Activation; 2] = [Activation::Relu, Activation::Leaky(0.01)];

/// GB/s of so many bytes in so many seconds.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn rate(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / 1e9 / seconds
}

fn print(what: &str, copy: f64, forward: f64, backward: f64) {
    let (there, back) = (100.0 * forward / copy, 100.0 * backward / copy);
    println!(
        "{what}: copy {copy:.1} GB/s, forward {forward:.1} GB/s ({there:.0} %), backward {backward:.1} GB/s ({back:.0} %)"
    );
}

/// Both signs, and no pattern.
fn numbers(count: usize) -> impl Iterator<Item = f32> {
    let number = |i: u16| f32::from(i.wrapping_mul(0x9e37).cast_signed()) / 4096.0;
    (0..=u16::MAX).cycle().take(count).map(number)
}

/// The shortest time of a piece of work, in seconds, as `run` tells it.
fn best(mut run: impl FnMut() -> Outcome<f64>) -> Outcome<f64> {
    (0..RUNS).try_fold(f64::INFINITY, |best, _| Ok(run()?.min(best)))
}

/// The processor's share.
fn processor<E: cpu::Element>(name: &str, count: usize, number: impl Fn(f32) -> E) -> Outcome<()> {
    let x: Vec<E> = numbers(count).map(number).collect();
    let (mut y, mut mask) = (x.clone(), vec![0; mask_words(x.len())]);
    let elements = 2 * size_of_val(x.as_slice());
    let all = elements + size_of_val(mask.as_slice());
    let copied = best(|| {
        let begin = Instant::now();
        y.copy_from_slice(black_box(&x));
        Ok(begin.elapsed().as_secs_f64())
    })?;
    for activation in ACTIVATIONS {
        let forward = best(|| {
            let begin = Instant::now();
            cpu::forward(activation, &x, &mut y, &mut mask)?;
            Ok(begin.elapsed().as_secs_f64())
        })?;
        let backward = best(|| {
            let begin = Instant::now();
            cpu::backward(activation, &x, &mask, &mut y)?;
            Ok(begin.elapsed().as_secs_f64())
        })?;
        let name = format!("processor, {activation:?}, {name}");
        print(&name, rate(elements, copied), rate(all, forward), rate(all, backward));
    }
    Ok(())
}

/// A GPU, a stream of it, and what is timed.
struct Bench<'a> {
    gpu: &'a CudaBackend,
    kernels: &'a Kernels,
    stream: Stream,
    count: usize,
}

impl Bench<'_> {
    /// The shortest time of what `work` gives the stream.
    fn seconds(&self, work: impl Fn() -> Outcome<()>) -> Outcome<f64> {
        let (begin, end) = (self.gpu.event(true)?, self.gpu.event(true)?);
        best(|| {
            self.gpu.record(&begin, &self.stream)?;
            work()?;
            self.gpu.record(&end, &self.stream)?;
            self.gpu.synchronize(&end)?;
            Ok(self.gpu.elapsed_ns(&begin, &end)? / 1e9)
        })
    }

    /// Waits for the stream.
    fn finish(&self) -> Outcome<()> {
        let end = self.gpu.event(false)?;
        self.gpu.record(&end, &self.stream)?;
        Ok(self.gpu.synchronize(&end)?)
    }

    /// Elements of one format, their bits by `bytes`.
    fn format<E: cpu::Element>(
        &self,
        name: &str,
        number: impl Fn(f32) -> E,
        bytes: impl Fn(&E) -> Vec<u8>,
    ) -> Outcome<()> {
        let x: Vec<E> = numbers(self.count).map(number).collect();
        let flat = |elements: &[E]| elements.iter().flat_map(&bytes).collect::<Vec<u8>>();
        let size = size_of_val(x.as_slice());
        let (whole, words) = (size as u64, mask_words(self.count));
        let arena = self.gpu.reserve(3 * whole, 3 * whole)?;
        let pinned = self.gpu.pin(whole.max(4))?;
        let from = self.gpu.address(&arena);
        let (to, mask) = (from + whole, from + 2 * whole);
        // SAFETY: here, and where it is read, the stream is done; the pinned memory is this function's alone.
        let host = unsafe { self.gpu.pinned(&pinned).slice(0, whole) }.ok_or("pinned memory is short")?;
        host.copy_from_slice(&flat(&x));
        self.gpu.copy_in(&self.stream, (&pinned, 0), from, whole)?;
        let copy = rate(2 * size, self.seconds(|| Ok(self.gpu.copy_within(&self.stream, from, to, whole)?))?);

        let (elements, mask_bytes) = (self.count as u64, 4 * words as u64);
        let operands = Operands { from, to, mask, mask_bytes, elements, format: E::FORMAT };
        for activation in ACTIVATIONS {
            let launch = |is_forward: bool| {
                let raw = self.stream.raw();
                // SAFETY: the arena lives until the stream is done.
                let launch = || unsafe {
                    if is_forward {
                        self.kernels.forward(raw, activation, operands)
                    } else {
                        self.kernels.backward(raw, activation, operands)
                    }
                };
                Ok(self.gpu.in_context(launch)??)
            };
            let read = |at: u64, bytes: u64| -> Outcome<Vec<u8>> {
                self.gpu.copy_out(&self.stream, at, (&pinned, 0), bytes)?;
                self.finish()?;
                // SAFETY: as above.
                Ok(unsafe { self.gpu.pinned(&pinned).slice(0, bytes) }.ok_or("pinned memory is short")?.to_vec())
            };
            let (mut y, mut bits) = (x.clone(), vec![0; words]);
            cpu::forward_in_place(activation, &mut y, &mut bits)?;
            launch(true)?;
            let expected: Vec<u8> = bits.iter().flat_map(|word| word.to_le_bytes()).collect();
            if read(to, whole)? != flat(&y) || read(mask, 4 * words as u64)? != expected {
                return Err(format!("{activation:?} forward, {name}: differs from the processor's").into());
            }
            let mut dx = x.clone();
            cpu::backward_in_place(activation, &mut dx, &bits)?;
            launch(false)?;
            if read(to, whole)? != flat(&dx) {
                return Err(format!("{activation:?} backward, {name}: differs from the processor's").into());
            }
            let all = 2 * size + 4 * words;
            let forward = rate(all, self.seconds(|| launch(true))?);
            print(&format!("GPU, {activation:?}, {name}"), copy, forward, rate(all, self.seconds(|| launch(false))?));
        }
        self.finish()
    }
}

fn main() -> Outcome<()> {
    let count = std::env::args().nth(1).map_or(Ok(ELEMENTS), |text| text.parse())?;
    let few = ELEMENTS_OF_PROCESSOR.min(count);
    processor("f32", few, |x| x)?;
    processor("f16", few, f16::from_f32)?;
    processor("bf16", few, bf16::from_f32)?;
    let gpu = match CudaBackend::new(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("skipped: the GPU; {error}");
            return Ok(());
        }
    };
    let kernels = gpu.in_context(Kernels::load)??;
    println!("GPU: {count} elements");
    let bench = Bench { gpu: &gpu, kernels: &kernels, stream: gpu.stream()?, count };
    bench.format("f32", |x| x, |x| x.to_le_bytes().to_vec())?;
    bench.format("f16", f16::from_f32, |x| x.to_le_bytes().to_vec())?;
    bench.format("bf16", bf16::from_f32, |x| x.to_le_bytes().to_vec())?;
    gpu.in_context(|| drop(kernels))?;
    Ok(())
}
