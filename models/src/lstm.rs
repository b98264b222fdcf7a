//! A long short-term memory (Hochreiter and Schmidhuber 1997) in layers, unrolled over the steps of a sequence, with a
//! prediction at every step: the language models of Chen et al. 2016.

use crate::builder::{Builder, INDEX, Matrix, REAL, Value, Weights};
use crate::{Network, Setting, Unbuildable, check, check_batch};

/// An unrolled LSTM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lstm {
    /// How many layers there are, one above the other.
    pub layers: u32,
    /// How many cells a layer has.
    pub hidden: u32,
    /// How many steps the sequence has.
    pub steps: u32,
    /// How many numbers the input at a step has.
    pub inputs: u32,
    /// How many classes a prediction chooses from.
    pub classes: u32,
}

impl Default for Lstm {
    fn default() -> Self {
        Self { layers: 4, hidden: 1024, steps: 64, inputs: 50, classes: 5000 }
    }
}

/// The parameters of one layer.
struct Layer {
    input: Weights,
    recurrent: Weights,
}

impl Lstm {
    /// Builds the graph of one iteration over the sequence.
    ///
    /// # Errors
    /// A number that is 0 or too large, the batch size included.
    pub fn build(&self, setting: &Setting) -> Result<Network, Unbuildable> {
        check_batch(setting)?;
        check("the number of layers", self.layers, 4096)?;
        check("the size of a layer", self.hidden, 1 << 16)?;
        check("the number of steps", self.steps, 1 << 20)?;
        check("the size of an input", self.inputs, 1 << 20)?;
        check("the number of classes", self.classes, 1 << 20)?;
        let hidden = u64::from(self.hidden);
        let mut b = Builder::new(setting);
        let mut layers = Vec::new();
        for layer in 0..self.layers {
            let inputs = if layer == 0 { self.inputs.into() } else { hidden };
            let input = b.weights(inputs, 4 * hidden, true);
            layers.push(Layer { input, recurrent: b.weights(hidden, 4 * hidden, false) });
        }
        let output = b.weights(hidden, self.classes.into(), true);
        let step_bytes = b.batch() * u64::from(self.inputs) * REAL;
        let sequence = b.given(step_bytes * u64::from(self.steps));
        let labels = setting.training.then(|| b.given(b.batch() * u64::from(self.steps) * INDEX));

        let state = b.batch() * hidden * REAL;
        // By layer: its states h and c.
        let mut states: Vec<[Value; 2]> = layers.iter().map(|_| [(); 2].map(|()| b.zeros(state))).collect();
        let mut loss = None;
        for _ in 0..self.steps {
            let now = Value { bytes: step_bytes, ..sequence };
            let mut x = Matrix { value: now, columns: self.inputs.into() };
            for (layer, state) in layers.iter().zip(&mut states) {
                *state = cell(&mut b, layer, x, *state, hidden);
                x = Matrix { value: state[0], columns: hidden };
            }
            let scores = b.affine(x, output);
            match labels {
                Some(labels) => {
                    let now = Value { bytes: b.batch() * INDEX, ..labels };
                    let new = b.loss(scores, now);
                    loss = Some(loss.map_or(new, |sum| b.add(sum, new)));
                }
                None => b.keep(scores.value),
            }
        }
        Ok(match loss {
            Some(loss) => b.finish(loss),
            None => b.network,
        })
    }
}

/// Adds a layer at one step of the sequence. It reads `x` and the states h and c from the step before. Returns the
/// states h and c after the step; h is the layer's output.
fn cell(b: &mut Builder, layer: &Layer, x: Matrix, [h, c]: [Value; 2], hidden: u64) -> [Value; 2] {
    let from_input = b.affine(x, layer.input);
    let from_state = b.affine(Matrix { value: h, columns: hidden }, layer.recurrent);
    let gates = b.add(from_input.value, from_state.value);
    let [input, forget, candidate, output] = b.chunk(gates);
    let forget = b.sigmoid(forget);
    let kept = b.mul(forget, c);
    let input = b.sigmoid(input);
    let candidate = b.tanh(candidate);
    let new = b.mul(input, candidate);
    let c = b.add(kept, new);
    let output = b.sigmoid(output);
    let shown = b.tanh(c);
    [b.mul(output, shown), c]
}
