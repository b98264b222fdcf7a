//! A network on a GPU by plans that swap: step times and what copies hide, beside the simulation.
//!
//!     cargo run --release -p sublet-cuda --example migration [-- LAYERS KIB]       # a multiple of 8 KiB
//!
//! The network is a chain of layers on real data, forward and backward, whose operators are sublet's own kernels, as many
//! in a row as take about as long as a block's copy. It is recorded without swaps, with times from the GPU; the links are
//! measured; then it is made to fit within 70 and 50 % of its peak, at both paces, and timed. What it computes must be the
//! same to the bit. Without a GPU it says so.

#[path = "../tests/support/fit.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod fit;

use std::collections::HashMap;
use std::error::Error;

use fit::Trace;
use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Op, Row};
use sublet_cuda::backend::Backend;
use sublet_cuda::cuda::CudaBackend;
use sublet_cuda::measure::{CopyTime, Direction, Measured, device_file};
use sublet_cuda::relu::gpu::{Kernels, Operands};
use sublet_cuda::relu::{Activation, Format};
use sublet_cuda::{ALIGNMENT, Launch, Pace, Program, Runtime};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Iterations before one is timed, and how many are timed.
const WARM: u64 = 3;
const TIMED: usize = 9;

/// Blocks: the weight, the bits by which signs change, activations, masks, gradients, and what backward writes besides.
#[derive(Clone, Copy)]
struct Network {
    layers: u32,
    bytes: u64,
    /// Kernels that change signs, in each operator; even, so that they change nothing in the end.
    passes: u32,
}

const WEIGHT: u32 = 0;
const SIGNS: u32 = 1;

impl Network {
    /// What layer `i` puts out.
    const fn activation(i: u32) -> u32 {
        if i == 0 { WEIGHT } else { 1 + i }
    }

    const fn mask(self, i: u32) -> u32 {
        2 + self.layers + i
    }

    const fn gradient(self, i: u32) -> u32 {
        if i == 0 { WEIGHT } else { 2 + 2 * self.layers + i }
    }

    const fn scratch(self, i: u32) -> u32 {
        2 + 3 * self.layers + 1 + i
    }

    fn bytes_of(self, block: u32) -> u64 {
        let is_mask = block == SIGNS || (self.mask(0)..self.mask(self.layers)).contains(&block);
        if is_mask { self.bytes / 32 } else { self.bytes }
    }

    /// The recording, with the time of each operator in ns.
    fn trace(self, ns: impl Fn(u32) -> u64) -> Trace {
        let blocks = self.scratch(self.layers);
        let mut rows = Vec::new();
        let mut now = 0;
        let row = |event, block, op, time_ns| Row {
            time_ns,
            bytes: if event == Event::Malloc { self.bytes_of(block) } else { 0 },
            block,
            op,
            event,
        };
        rows.extend([WEIGHT, SIGNS].map(|block| row(Event::Malloc, block, Op::None, 0)));
        let mut operator = |k: u32, reads: &[u32], writes: &[u32], frees: &[u32]| {
            let op = Op::First(k);
            now = now.max(1);
            let made = writes.iter().filter(|block| **block != WEIGHT && !reads.contains(block));
            rows.extend(made.map(|&block| row(Event::Malloc, block, op, now)));
            rows.extend(reads.iter().map(|&block| row(Event::Read, block, op, now)));
            now += ns(k);
            rows.extend(writes.iter().map(|&block| row(Event::Write, block, op, now)));
            rows.extend(frees.iter().map(|&block| row(Event::Free, block, Op::None, now)));
        };
        for i in 0..self.layers {
            operator(i, &[Self::activation(i), SIGNS], &[Self::activation(i + 1), self.mask(i)], &[]);
        }
        for i in (0..self.layers).rev() {
            let dy = if i + 1 == self.layers { Self::activation(self.layers) } else { self.gradient(i + 1) };
            let reads = [dy, self.mask(i), Self::activation(i), SIGNS];
            let mut frees = vec![self.scratch(i), self.mask(i), dy];
            if i + 1 < self.layers {
                frees.push(Self::activation(i + 1));
            }
            operator(2 * self.layers - 1 - i, &reads, &[self.gradient(i), self.scratch(i), self.mask(i)], &frees);
        }
        Trace { rows, operators: Vec::new(), blocks: blocks as usize }
    }

    /// Launches the kernels of an operator.
    fn launch(self, kernels: &Kernels, next: &Launch<'_, CudaBackend>) -> Outcome<()> {
        let Op::First(k) = next.op else { return Err("nothing runs again here".into()) };
        let at = |block| next.address(block).ok_or("an operand is missing");
        let stream = next.stream.raw();
        let (elements, format) = (self.bytes / 4, Format::F32);
        let mask_bytes = self.bytes / 32;
        let on = |from, to, mask| Operands { from, to, mask, mask_bytes, elements, format };
        // Powers of two: nothing is rounded, and nothing grows or fades from one iteration to the next.
        let (there, back, turned) = (Activation::Leaky(-0.5), Activation::Leaky(-2.0), Activation::Leaky(-1.0));
        let (signs, end) = (
            at(SIGNS)?,
            if k < self.layers {
                let (x, y, mask) = (at(Self::activation(k))?, at(Self::activation(k + 1))?, at(self.mask(k))?);
                // SAFETY: the operands are the runtime's, on its stream.
                unsafe { kernels.forward(stream, there, on(x, y, mask))? };
                y
            } else {
                let i = 2 * self.layers - 1 - k;
                let dy = if i + 1 == self.layers { Self::activation(self.layers) } else { self.gradient(i + 1) };
                let (dx, scratch) = (at(self.gradient(i))?, at(self.scratch(i))?);
                // The gradient, turned where the activation is below 0: all of it is read. Where the first layer's gradient is
                // the weight itself, that is what was read.
                // SAFETY: as above.
                unsafe {
                    kernels.forward(stream, there, on(at(Self::activation(i))?, scratch, at(self.mask(i))?))?;
                    kernels.backward(stream, back, on(at(dy)?, dx, at(self.mask(i))?))?;
                }
                dx
            },
        );
        for _ in 0..=self.passes {
            // SAFETY: as above.
            unsafe { kernels.backward(stream, turned, on(end, end, signs))? };
        }
        Ok(())
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// The links of the device, from copies of several lengths.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn links(gpu: &CudaBackend, most: u64) -> Outcome<Device> {
    let (arena, pinned) = (gpu.reserve(most, most)?, gpu.pin(most)?);
    let (stream, begin, end) = (gpu.stream()?, gpu.event(true)?, gpu.event(true)?);
    let mut copies = Vec::new();
    for shift in [0, 1, 2, 4, 6] {
        for direction in [Direction::Out, Direction::In] {
            let bytes = most >> shift;
            let mut times = Vec::new();
            for _ in 0..TIMED {
                gpu.record(&begin, &stream)?;
                match direction {
                    Direction::Out => gpu.copy_out(&stream, gpu.address(&arena), (&pinned, 0), bytes)?,
                    Direction::In => gpu.copy_in(&stream, (&pinned, 0), gpu.address(&arena), bytes)?,
                }
                gpu.record(&end, &stream)?;
                gpu.synchronize(&end)?;
                times.push(gpu.elapsed_ns(&begin, &end)?);
            }
            copies.push(CopyTime { row: 0, direction, bytes, ns: median(times), simulated_ns: 0.0 });
        }
    }
    let whole = copies.iter().map(|copy| copy.bytes as f64 * 1e9 / copy.ns).fold(0.0, f64::max);
    let measured = Measured { copies, ..Measured::default() };
    Ok(measured.device(&Device::symmetric(whole)).unwrap_or(Device::symmetric(whole)))
}

/// Trains; how long each operator takes, in ns, if that is asked for.
fn train(
    runtime: &mut Runtime<CudaBackend>,
    (network, kernels): (Network, &Kernels),
    iterations: u64,
    with_times: bool,
) -> Outcome<HashMap<u32, f64>> {
    let gpu = runtime.backend().clone();
    let mut marks = Vec::new();
    for _ in 0..iterations {
        runtime.iterate(|next| {
            let launch = || gpu.in_context(|| network.launch(kernels, next));
            let (true, Op::First(k)) = (with_times, next.op) else { return launch()? };
            let (begin, end) = (gpu.event(true)?, gpu.event(true)?);
            gpu.record(&begin, next.stream)?;
            launch()??;
            gpu.record(&end, next.stream)?;
            marks.push((k, begin, end));
            Ok::<(), Box<dyn Error>>(())
        })?;
    }
    runtime.finish()?;
    let mut times: HashMap<u32, Vec<f64>> = HashMap::new();
    for (k, begin, end) in &marks {
        times.entry(*k).or_default().push(gpu.elapsed_ns(begin, end)?);
    }
    Ok(times.into_iter().map(|(k, times)| (k, median(times))).collect())
}

/// What the weight and the signs hold at first.
fn contents(network: Network) -> [Vec<u8>; 2] {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let number = |n: u32| f32::from(u16::try_from(n & 0x7fff).unwrap_or(0)) / 1024.0 - 16.0;
    let weight = (0..network.bytes / 4).flat_map(|_| number(next()).to_le_bytes()).collect();
    let signs = (0..network.bytes / 32).map(|_| next().to_le_bytes()[0]).collect();
    [weight, signs]
}

fn start(runtime: &mut Runtime<CudaBackend>, network: Network) -> Outcome<()> {
    let [weight, signs] = contents(network);
    runtime.write(WEIGHT, &weight)?;
    runtime.write(SIGNS, &signs)?;
    Ok(())
}

fn weight(runtime: &mut Runtime<CudaBackend>, network: Network) -> Outcome<Vec<u8>> {
    let mut content = vec![0; usize::try_from(network.bytes)?];
    runtime.read(WEIGHT, &mut content)?;
    Ok(content)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times and counts")]
fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let layers = arguments.next().map_or(Ok(16), |text| text.parse())?;
    let kib: u64 = arguments.next().map_or(Ok(64 << 10), |text| text.parse())?;
    let gpu = match CudaBackend::new(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    let kernels = gpu.in_context(Kernels::load)??;
    let mut network = Network { layers, bytes: kib << 10, passes: 0 };
    let device = links(&gpu, network.bytes)?;
    print!("{}", device_file(&device));

    let on = |trace: &Trace, limit, pace| -> Outcome<Runtime<CudaBackend>> {
        let made = trace.fit(limit, device, |s| Program::paced(&trace.recorded(), s, ALIGNMENT, pace))??;
        Ok(Runtime::new(gpu.clone(), made)?)
    };
    // As many kernels in an operator as take the time of a block's copy.
    let flat = network.trace(|_| 1000);
    let mut runtime = on(&flat, flat.peak(), Pace::Eager)?;
    start(&mut runtime, network)?;
    let one = train(&mut runtime, (network, &kernels), WARM, true)?.values().copied().fold(f64::INFINITY, f64::min);
    network.passes = (2.0 * device.out_ns(network.bytes) / one).ceil().clamp(0.0, 500.0) as u32 * 2;
    start(&mut runtime, network)?;
    let times = train(&mut runtime, (network, &kernels), WARM + 2, true)?;
    let trace = network.trace(|k| times.get(&k).map_or(1, |ns| ns.round() as u64));
    let total: f64 = times.values().sum();
    println!("{layers} layers of {kib} KiB, {} kernels each, {:.3} ms recorded", network.passes + 2, total / 1e6);
    drop(runtime);

    let iterations = WARM + TIMED as u64;
    let mut expected = None;
    for percent in [100, 70, 50] {
        for pace in [Pace::Simulated, Pace::Eager] {
            let mut runtime = on(&trace, trace.peak() * percent / 100, pace)?;
            start(&mut runtime, network)?;
            train(&mut runtime, (network, &kernels), WARM, false)?;
            let mut found = Vec::new();
            for _ in 0..TIMED {
                runtime.measure()?;
                train(&mut runtime, (network, &kernels), 1, false)?;
                found.push(runtime.measured()?);
            }
            let content = weight(&mut runtime, network)?;
            let same = expected.get_or_insert_with(|| content.clone()) == &content;
            let of = |figure: &dyn Fn(&Measured) -> f64| median(found.iter().map(figure).collect());
            let copies = |m: &Measured| m.copies.iter().map(|copy| copy.ns).sum::<f64>();
            let simulated_copies = of(&|m| m.copies.iter().map(|copy| copy.simulated_ns).sum());
            let hidden = |still: f64, copies: f64| if copies > 0.0 { 100.0 * (1.0 - still / copies) } else { 100.0 };
            println!(
                "{percent} %, {pace:?}: {} KiB, {:.3} ms a step, {:.4} of the simulated; copies {:.3} ms, {:.1} % hidden, \
                 {:.1} % in the simulation; {iterations} iterations, bits {}",
                runtime.program().arena_bytes() >> 10,
                of(&|m| m.time_ns) / 1e6,
                of(&|m| m.time_ns / m.simulated_ns),
                of(&copies) / 1e6,
                hidden(of(&Measured::stalled_ns), of(&copies)),
                hidden(of(&Measured::simulated_stalled_ns), simulated_copies),
                if same { "equal" } else { "DIFFER" },
            );
            if !same {
                return Err("what was computed differs".into());
            }
        }
    }
    Ok(())
}
