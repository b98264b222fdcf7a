//! A convolutional network that trains: convolutions, batch normalisation, rectifiers, pooling, a linear layer; forward,
//! backward, and stochastic gradient descent with momentum.
//!
//! Every operator is a function of what it reads, so that it can run anywhere, and again.

mod layers;

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::sync::{Arc, Mutex};

use sublet_core::trace::{Event, Kind, Op, Operator, Row};
use sublet_cuda::backend::Backend;
use sublet_cuda::host::{HostBackend, Slice};
use sublet_cuda::relu::{Activation, cpu, mask_words};
use sublet_cuda::{Error, Launch, Part, Runtime};

use crate::support::fit::Trace;
use crate::support::pattern::{OnHost, slices};
use layers::{Convolution, Normalisation};

const BATCH: usize = 4;
const SIDE: usize = 8;
const CLASSES: usize = 4;
const RATE: f32 = 0.05;
const MOMENTUM: f32 = 0.9;

/// What an operator computes: from what it reads, what it writes.
type Kernel = Arc<dyn Fn(&[Vec<f32>]) -> Vec<Vec<f32>> + Send + Sync>;

#[derive(Clone)]
struct Operation {
    reads: Vec<u32>,
    writes: Vec<u32>,
    ns: u64,
    about: Operator,
    kernel: Kernel,
}

/// A network and its training data.
pub(crate) struct ConvNet {
    /// Numbers in each block.
    elements: Vec<usize>,
    /// What the persistent blocks hold at first; they are the first blocks.
    initial: Vec<Vec<f32>>,
    operations: Vec<Operation>,
    input: u32,
    labels: u32,
    loss: u32,
}

/// Numbers from −1 to 1 that are the same everywhere.
fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f32::from(u16::try_from(state >> 48).unwrap_or(0)) / 32767.5 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// A parameter: its value, its gradient.
type Parameter = (u32, u32);

#[derive(Default)]
struct Builder {
    elements: Vec<usize>,
    initial: Vec<Vec<f32>>,
    operations: Vec<Operation>,
}

impl Builder {
    fn persistent(&mut self, values: Vec<f32>) -> u32 {
        assert_eq!(self.elements.len(), self.initial.len(), "persistent blocks come first");
        self.elements.push(values.len());
        self.initial.push(values);
        u32::try_from(self.elements.len() - 1).unwrap()
    }

    fn block(&mut self, elements: usize) -> u32 {
        self.elements.push(elements);
        u32::try_from(self.elements.len() - 1).unwrap()
    }

    fn run(
        &mut self,
        about: Operator,
        us: u64,
        reads: &[u32],
        writes: &[u32],
        kernel: impl Fn(&[Vec<f32>]) -> Vec<Vec<f32>> + Send + Sync + 'static,
    ) {
        let kernel = Arc::new(kernel);
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        self.operations.push(Operation { reads, writes, ns: us * 1000, about, kernel });
    }
}

/// A convolution with normalisation and rectifier.
struct Layer {
    conv: Convolution,
    norm: Normalisation,
    pooled: bool,
    /// Persistent: weight, scale, shift, their momenta, and running mean and variance.
    weight: u32,
    gamma: u32,
    beta: u32,
    running: [u32; 2],
}

const PLAIN: Operator = Operator { in_place: false, rerun: true, ordered: true, kind: Kind::Other, element: 4 };
const ONCE: Operator = Operator { rerun: false, ..PLAIN };

impl ConvNet {
    /// Convolutions of so many channels each; a pooling after each of the layers in `pooled`.
    pub(crate) fn new(channels: &[usize], pooled: &[usize]) -> Self {
        let mut b = Builder::default();
        let mut side = SIDE;
        let mut from = 1;
        let mut layers = Vec::new();
        for (i, &to) in channels.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "few")]
            let scale = (2.0 / (from * 9) as f32).sqrt();
            let weight = noise(i as u64 + 1, to * from * 9).iter().map(|v| v * scale).collect();
            let layer = Layer {
                conv: Convolution { batch: BATCH, from, to, side },
                norm: Normalisation { batch: BATCH, channels: to, area: side * side },
                pooled: pooled.contains(&i),
                weight: b.persistent(weight),
                gamma: b.persistent(vec![1.0; to]),
                beta: b.persistent(vec![0.0; to]),
                running: [b.persistent(vec![0.0; to]), b.persistent(vec![1.0; to])],
            };
            side /= if layer.pooled { 2 } else { 1 };
            from = to;
            layers.push(layer);
        }
        let features = from * side * side;
        let weight = b.persistent(noise(99, CLASSES * features).iter().map(|v| v * 0.1).collect());
        let shift = b.persistent(vec![0.0; CLASSES]);
        let learned: Vec<u32> =
            layers.iter().flat_map(|l| [l.weight, l.gamma, l.beta]).chain([weight, shift]).collect();
        let momenta: Vec<u32> = learned.iter().map(|&p| b.persistent(vec![0.0; b.elements[p as usize]])).collect();
        let input = b.block(BATCH * SIDE * SIDE);
        let labels = b.block(BATCH);

        // What the gradients need, layer by layer.
        let mut saved = Vec::new();
        let mut x = input;
        for layer in &layers {
            let (made, out) = layer.forward(&mut b, x);
            saved.push((x, made));
            x = out;
        }
        let logits = b.block(BATCH * CLASSES);
        b.run(PLAIN, 10, &[x, weight, shift], &[logits], move |r| vec![layers::linear(&r[0], &r[1], &r[2], features)]);
        let (dlogits, loss) = (b.block(BATCH * CLASSES), b.block(1));
        b.run(ONCE, 5, &[logits, labels], &[dlogits, loss], |r| {
            let (loss, gradient) = layers::loss(&r[0], &r[1]);
            vec![gradient, vec![loss]]
        });
        let [mut dy, dweight, dshift] = [features * BATCH, CLASSES * features, CLASSES].map(|n| b.block(n));
        b.run(ONCE, 20, &[x, weight, dlogits], &[dy, dweight, dshift], move |r| {
            layers::linear_backward(&r[0], &r[1], &r[2], features).into()
        });
        let mut gradients = vec![(weight, dweight), (shift, dshift)];
        for (layer, (x, made)) in layers.iter().zip(&saved).rev() {
            dy = layer.backward(&mut b, *x, made, dy, &mut gradients);
        }
        for (parameter, gradient) in gradients {
            let momentum = momenta[learned.iter().position(|&p| p == parameter).unwrap()];
            b.run(ONCE, 2, &[parameter, momentum, gradient], &[parameter, momentum], |r| {
                let v: Vec<f32> = r[1].iter().zip(&r[2]).map(|(v, g)| MOMENTUM * v + g).collect();
                vec![r[0].iter().zip(&v).map(|(w, v)| w - RATE * v).collect(), v]
            });
        }
        let Builder { elements, initial, operations } = b;
        Self { elements, initial, operations, input, labels, loss }
    }

    /// The trace of one iteration.
    pub(crate) fn trace(&self) -> Trace {
        let bytes = |b: u32| 4 * self.elements[b as usize] as u64;
        let row = |time_ns, event, block, op| Row {
            time_ns,
            bytes: if event == Event::Malloc { bytes(block) } else { 0 },
            block,
            op,
            event,
        };
        let persistent = u32::try_from(self.initial.len()).unwrap();
        let mut rows: Vec<Row> = (0..persistent).map(|b| row(0, Event::Malloc, b, Op::None)).collect();
        let mut now = 1;
        for b in [self.input, self.labels] {
            rows.push(row(now, Event::Malloc, b, Op::None));
            rows.push(row(now, Event::Write, b, Op::None));
        }
        for (k, operation) in (0u32..).zip(&self.operations) {
            let op = Op::First(k);
            let fresh = |b: &&u32| **b >= persistent;
            rows.extend(operation.writes.iter().filter(fresh).map(|&b| row(now, Event::Malloc, b, op)));
            rows.extend(operation.reads.iter().map(|&b| row(now, Event::Read, b, op)));
            now += operation.ns;
            rows.extend(operation.writes.iter().map(|&b| row(now, Event::Write, b, op)));
            let later = &self.operations[k as usize + 1..];
            let mut done: Vec<u32> = operation.reads.iter().chain(&operation.writes).copied().collect();
            done.retain(|b| *b >= persistent && !later.iter().any(|o| o.reads.contains(b) || o.writes.contains(b)));
            rows.extend(done.into_iter().map(|b| row(now, Event::Free, b, Op::None)));
        }
        let operators = self.operations.iter().map(|o| o.about).collect();
        Trace { rows, operators, blocks: self.elements.len() }
    }

    /// What is trained with in an iteration: stripes of a direction, with noise, and which direction.
    fn sample(&self, block: u32, iteration: u64) -> Vec<f32> {
        let label = |n: usize| (n + usize::try_from(iteration).unwrap()) % CLASSES;
        #[expect(clippy::cast_precision_loss, reason = "few")]
        if block == self.labels {
            return (0..BATCH).map(|n| label(n) as f32).collect();
        }
        let noise = noise(1000 + iteration, BATCH * SIDE * SIDE);
        let pixel = |i: usize| {
            let (n, y, x) = (i / (SIDE * SIDE), i / SIDE % SIDE, i % SIDE);
            let stripe = [x, y, x + y, x + SIDE - y][label(n)] / 2 % 2;
            f32::from(u8::from(stripe == 0)) + 0.3 * noise[i]
        };
        (0..BATCH * SIDE * SIDE).map(pixel).collect()
    }

    /// Trains without a plan, every block in memory of its own.
    pub(crate) fn train(&self, iterations: u64) -> Unplanned {
        let mut values: Vec<Vec<f32>> = self.elements.iter().map(|&n| vec![0.0; n]).collect();
        values[..self.initial.len()].clone_from_slice(&self.initial);
        let (mut seen, mut losses) = (Vec::new(), Vec::new());
        for iteration in 0..iterations {
            for b in [self.input, self.labels] {
                values[b as usize] = self.sample(b, iteration);
            }
            let mut of_iteration = Vec::new();
            for operation in &self.operations {
                let reads: Vec<Vec<f32>> = operation.reads.iter().map(|&b| values[b as usize].clone()).collect();
                of_iteration.push(reads.iter().map(|r| digest(r)).collect());
                for (&b, made) in operation.writes.iter().zip((operation.kernel)(&reads)) {
                    assert_eq!(made.len(), self.elements[b as usize]);
                    values[b as usize] = made;
                }
            }
            seen.push(of_iteration);
            losses.push(values[self.loss as usize][0]);
        }
        values.truncate(self.initial.len());
        Unplanned { seen, losses, weights: values }
    }

    /// Trains by a plan, and looks at every byte that is read; what was wrong, and the weights.
    pub(crate) fn train_on<B: OnHost>(
        &self,
        runtime: &mut Runtime<B>,
        unplanned: &Unplanned,
    ) -> Result<(Vec<String>, Vec<Vec<f32>>), Error> {
        for (b, initial) in (0..).zip(&self.initial) {
            runtime.write(b, &self.bytes(b, initial))?;
        }
        let host = runtime.backend().host().clone();
        let faults = Arc::new(Mutex::new(Vec::new()));
        for iteration in 0..unplanned.seen.len() {
            runtime.iterate(|next| self.launch(&host, next, iteration, unplanned, &faults))?;
        }
        let mut weights = Vec::new();
        for (b, initial) in (0..).zip(&self.initial) {
            let mut bytes = self.bytes(b, initial);
            runtime.read(b, &mut bytes)?;
            weights.push(numbers(&bytes, initial.len()));
        }
        let faults = std::mem::take(&mut *faults.lock().unwrap());
        Ok((faults, weights))
    }

    fn bytes(&self, block: u32, values: &[f32]) -> Vec<u8> {
        let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes.resize(4 * self.elements[block as usize], 0);
        bytes
    }

    fn launch<B: Backend<Stream = sublet_cuda::host::Stream>>(
        &self,
        host: &HostBackend,
        next: &Launch<'_, B>,
        iteration: usize,
        unplanned: &Unplanned,
        faults: &Arc<Mutex<Vec<String>>>,
    ) -> Result<(), Error> {
        let operands = next.operands().to_vec();
        let (merged, slice_of) = slices(&operands, |o| next.address_of(o));
        let (Op::First(k) | Op::Rerun(k)) = next.op else {
            let sample = self.sample(operands[0].block, iteration as u64);
            return host.launch(next.stream, 0.0, &merged, move |slices| put(slices[0].bytes_mut(), &sample));
        };
        let Operation { reads, writes, kernel, ns, .. } = self.operations[k as usize].clone();
        let elements: Vec<usize> = reads.iter().map(|&b| self.elements[b as usize]).collect();
        let seen = unplanned.seen[iteration][k as usize].clone();
        let (faults, recomputes, part) = (faults.clone(), next.recomputes(), next.part);
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        host.launch(next.stream, ns as f64, &merged, move |slices: &mut [Slice<'_>]| {
            let slice = |b: u32, mask: bool| {
                let which = operands.iter().position(|o| (o.block, o.mask) == (b, mask));
                which.map(|o| slice_of[o])
            };
            if part == Part::Mask {
                let (from, to) = (slice_of[0], slice_of[1]);
                let values = numbers(slices[from].bytes(), slices[from].bytes().len() / 4);
                return put_bits(slices[to].bytes_mut(), &values);
            }
            let mut values = Vec::new();
            for ((&b, &n), &digest_then) in reads.iter().zip(&elements).zip(&seen) {
                let value = match (slice(b, false), slice(b, true)) {
                    (Some(s), _) => numbers(slices[s].bytes(), n),
                    // A mask in the place of the block: where it was above 0.
                    (None, Some(s)) => bits(slices[s].bytes(), n),
                    // What a rerun leaves out.
                    (None, None) => vec![0.0; n],
                };
                let is_whole = slice(b, false).is_some();
                if is_whole && digest(&value) != digest_then {
                    faults
                        .lock()
                        .unwrap()
                        .push(format!("iteration {iteration}, operator {k} ({recomputes}): block {b}"));
                }
                values.push(value);
            }
            let made = kernel(&values);
            for (&b, made) in writes.iter().zip(&made) {
                if let Some(s) = slice(b, false) {
                    put(slices[s].bytes_mut(), made);
                }
                if let Some(s) = slice(b, true) {
                    put_bits(slices[s].bytes_mut(), made);
                }
            }
            for (&b, value) in reads.iter().zip(&values) {
                if let Some(s) = slice(b, true) {
                    put_bits(slices[s].bytes_mut(), value);
                }
            }
        })
    }
}

/// A training without a plan.
pub(crate) struct Unplanned {
    /// By iteration and operator: digests of what it read.
    seen: Vec<Vec<Vec<u64>>>,
    pub(crate) losses: Vec<f32>,
    pub(crate) weights: Vec<Vec<f32>>,
}

fn digest(values: &[f32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for v in values {
        hasher.write_u32(v.to_bits());
    }
    hasher.finish()
}

fn numbers(bytes: &[u8], n: usize) -> Vec<f32> {
    bytes.as_chunks().0.iter().take(n).map(|&b| f32::from_le_bytes(b)).collect()
}

fn put(bytes: &mut [u8], values: &[f32]) {
    for (to, v) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *to = v.to_le_bytes();
    }
}

/// What a rectifier makes of these, and its mask.
fn rectified_of(values: &[f32]) -> (Vec<f32>, Vec<u32>) {
    let (mut y, mut mask) = (values.to_vec(), vec![0; mask_words(values.len())]);
    cpu::forward_in_place(Activation::Relu, &mut y, &mut mask).unwrap();
    (y, mask)
}

/// The mask of these numbers, as much of it as there is room for.
fn put_bits(bytes: &mut [u8], values: &[f32]) {
    let mask = rectified_of(values).1;
    for (to, byte) in bytes.iter_mut().zip(mask.iter().flat_map(|word| word.to_le_bytes())) {
        *to = byte;
    }
}

fn bits(bytes: &[u8], n: usize) -> Vec<f32> {
    (0..n).map(|i| f32::from(bytes[i / 8] >> (i % 8) & 1)).collect()
}

/// What a layer keeps for its gradient.
struct Made {
    convolved: u32,
    mean: u32,
    inverse: u32,
    rectified: u32,
    which: Option<u32>,
}

impl Layer {
    /// What it keeps, and what it puts out.
    fn forward(&self, b: &mut Builder, x: u32) -> (Made, u32) {
        let Self { conv, norm, .. } = *self;
        let area = conv.side * conv.side;
        let [convolved, normed, rectified] = [0; 3].map(|_| b.block(BATCH * conv.to * area));
        let [mean, inverse] = [0; 2].map(|_| b.block(conv.to));
        b.run(PLAIN, 40, &[x, self.weight], &[convolved], move |r| vec![conv.forward(&r[0], &r[1])]);
        let [running_mean, running_variance] = self.running;
        b.run(
            PLAIN,
            10,
            &[convolved, self.gamma, self.beta, running_mean, running_variance],
            &[normed, mean, inverse, running_mean, running_variance],
            move |r| {
                let made = norm.forward(&r[0], &r[1], &r[2]);
                let running = |old: &[f32], new: &[f32]| old.iter().zip(new).map(|(o, n)| 0.9 * o + 0.1 * n).collect();
                let mean = running(&r[3], &made.mean);
                let variances: Vec<f32> = made.inverse.iter().map(|i| 1.0 / (i * i)).collect();
                let variance = running(&r[4], &variances);
                vec![made.y, made.mean, made.inverse, mean, variance]
            },
        );
        let relu = Operator { in_place: true, kind: Kind::Relu, ..PLAIN };
        b.run(relu, 5, &[normed], &[rectified], |r| vec![rectified_of(&r[0]).0]);
        let mut made = Made { convolved, mean, inverse, rectified, which: None };
        if !self.pooled {
            return (made, rectified);
        }
        let [pooled, which] = [0; 2].map(|_| b.block(BATCH * conv.to * area / 4));
        made.which = Some(which);
        b.run(PLAIN, 5, &[rectified], &[pooled, which], move |r| {
            let (y, which) = layers::pool(&r[0], conv.side);
            vec![y, which]
        });
        (made, pooled)
    }

    /// The gradient of its input.
    fn backward(&self, b: &mut Builder, x: u32, made: &Made, dy: u32, gradients: &mut Vec<Parameter>) -> u32 {
        let Self { conv, norm, .. } = *self;
        let area = conv.side * conv.side;
        let mut dy = dy;
        if let Some(which) = made.which {
            let dx = b.block(BATCH * conv.to * area);
            b.run(ONCE, 5, &[dy, which], &[dx], move |r| vec![layers::unpool(&r[0], &r[1], conv.side)]);
            dy = dx;
        }
        let [drectified, dnormed] = [0; 2].map(|_| b.block(BATCH * conv.to * area));
        let gradient = Operator { in_place: true, kind: Kind::ReluBackward, ..ONCE };
        b.run(gradient, 5, &[dy, made.rectified], &[drectified], |r| {
            let mut dx = r[0].clone();
            cpu::backward_in_place(Activation::Relu, &mut dx, &rectified_of(&r[1]).1).unwrap();
            vec![dx]
        });
        let [dgamma, dbeta] = [0; 2].map(|_| b.block(conv.to));
        let reads = [made.convolved, drectified, self.gamma, made.mean, made.inverse];
        b.run(ONCE, 20, &reads, &[dnormed, dgamma, dbeta], move |r| {
            norm.backward(&r[0], &r[1], &r[2], &r[3], &r[4]).into()
        });
        let [dx, dweight] = [BATCH * conv.from * area, conv.to * conv.from * 9].map(|n| b.block(n));
        b.run(ONCE, 80, &[x, self.weight, dnormed], &[dx, dweight], move |r| {
            let (dx, dweight) = conv.backward(&r[0], &r[1], &r[2]);
            vec![dx, dweight]
        });
        gradients.extend([(self.weight, dweight), (self.gamma, dgamma), (self.beta, dbeta)]);
        dx
    }
}
