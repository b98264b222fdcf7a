//! Decoders of text: GPT-2 (Radford et al. 2019) and Llama (Touvron et al. 2023).
//!
//! GPT-2's block is layer norm, attention, layer norm and two linear maps with a GELU between them. Llama's has root
//! mean square norms, rotated queries and keys, no biases, and a gated third map. Attention is either one operator (Dao
//! et al. 2022), which keeps one number for each token and head, or three operators, which keep the weight of every
//! pair of tokens for each head.

use crate::builder::{Builder, INDEX, Kernel, Matrix, REAL, Value};
use crate::{Network, Setting, Unbuildable, check, check_batch};

/// The kind of block that a decoder repeats: attention, then linear maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// GPT-2's.
    Gpt,
    /// Llama's.
    Llama,
}

/// A decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transformer {
    /// The kind of the decoder's blocks.
    pub block: Block,
    /// How many blocks there are.
    pub layers: u32,
    /// How many numbers represent a token.
    pub width: u32,
    /// How many heads attention has; they share the width.
    pub heads: u32,
    /// How many tokens an example has.
    pub tokens: u32,
    /// How many tokens a prediction chooses from.
    pub vocabulary: u32,
    /// Whether attention is one operator, which keeps no weights of pairs of tokens. If false, it is three, which keep
    /// them.
    pub flash: bool,
    /// The bytes of a number: 4, or 2 as for bf16.
    pub element: u32,
}

impl Transformer {
    /// Builds the graph of one iteration.
    ///
    /// # Errors
    /// A number that is 0 or too large, a width that the heads cannot share, or an element of other than 2 or 4 bytes.
    /// The batch size may not be 0 or above 65,536 either.
    pub fn build(&self, setting: &Setting) -> Result<Network, Unbuildable> {
        check_batch(setting)?;
        check("the number of layers", self.layers, 4096)?;
        check("the width", self.width, 1 << 16)?;
        check("the number of heads", self.heads, 1 << 10)?;
        check("the number of tokens", self.tokens, 1 << 20)?;
        check("the vocabulary", self.vocabulary, 1 << 20)?;
        if !self.width.is_multiple_of(self.heads) {
            return Err(Unbuildable(format!("{} heads cannot share a width of {}", self.heads, self.width)));
        }
        if ![2, 4].contains(&self.element) {
            return Err(Unbuildable(format!("an element has 2 or 4 bytes, not {}", self.element)));
        }
        let b = Builder::new(setting);
        let count = b.batch() * u64::from(self.tokens);
        let mut decoder = Decoder { b, of: *self, count };
        let scores = decoder.scores();
        Ok(decoder.b.classify(scores, self.element.into()))
    }
}

struct Decoder {
    b: Builder,
    of: Transformer,
    /// How many tokens a batch has.
    count: u64,
}

impl Decoder {
    /// The bytes of `columns` numbers for each token of a batch.
    fn bytes(&self, columns: u64) -> u64 {
        self.count * columns * u64::from(self.of.element)
    }

    fn scores(&mut self) -> Matrix {
        let Transformer { width, tokens, vocabulary, layers, block, .. } = self.of;
        let (width, vocabulary, element) = (u64::from(width), u64::from(vocabulary), self.of.element.into());
        let given = self.b.given(self.count * INDEX);
        let mut x = self.embedded(given, vocabulary);
        if block == Block::Gpt {
            let given = self.b.given(u64::from(tokens) * INDEX);
            let place = self.embedded(given, tokens.into());
            x.value = self.b.add(x.value, place.value);
        }
        for _ in 0..layers {
            let h = self.norm(x);
            let attended = self.attention(h);
            x.value = self.b.add(x.value, attended.value);
            let h = self.norm(x);
            let mapped = if block == Block::Gpt { self.b.feed_forward(h, 4 * width, element) } else { self.gated(h) };
            x.value = self.b.add(x.value, mapped.value);
        }
        let x = self.norm(x);
        debug_assert_eq!(x.columns, width);
        self.linear(x, vocabulary, false)
    }

    fn embedded(&mut self, given: Value, rows: u64) -> Matrix {
        let columns = u64::from(self.of.width);
        let weight = self.b.parameter(rows * columns * u64::from(self.of.element));
        let y = self.b.result(self.bytes(columns));
        // Reading the table moves as many bytes as writing the result.
        let read = Value { bytes: y.bytes, ..weight };
        self.b.emit(Kernel::forward("embedding"), &[read, given], &[y], 0);
        self.b.undone("embedding_dense_backward", y, &[given], &[weight], (0, false));
        Matrix { value: y, columns }
    }

    /// Layer norm, or root mean square norm.
    fn norm(&mut self, x: Matrix) -> Matrix {
        let element = u64::from(self.of.element);
        if self.of.block == Block::Gpt { self.b.layer_norm(x, element) } else { self.b.square_norm(x, element) }
    }

    fn linear(&mut self, x: Matrix, columns: u64, bias: bool) -> Matrix {
        self.b.mapped(x, columns, bias, self.of.element.into())
    }

    fn attention(&mut self, h: Matrix) -> Matrix {
        let width = h.columns;
        let attended = if self.of.block == Block::Gpt {
            // One linear map gives queries, keys and values.
            let all = self.linear(h, 3 * width, true);
            self.attended(&[all.value])
        } else {
            let [queries, keys, values] = [(); 3].map(|()| self.linear(h, width, false).value);
            let (queries, keys) = (self.rotated(queries), self.rotated(keys));
            self.attended(&[queries, keys, values])
        };
        self.linear(Matrix { value: attended, columns: width }, width, self.of.block == Block::Gpt)
    }

    fn rotated(&mut self, x: Value) -> Value {
        let y = self.b.result(x.bytes);
        self.b.emit(Kernel::forward("rotary").in_place(), &[x], &[y], 0);
        self.b.undone("rotary_backward", y, &[], &[x], (0, true));
        y
    }

    /// Attention. `from` has three values, the queries, keys and values, or one value that holds all three.
    fn attended(&mut self, from: &[Value]) -> Value {
        let Transformer { width, heads, tokens, flash, .. } = self.of;
        let pairs = self.count * u64::from(tokens);
        // The flops of one product: that of queries and keys, or that of the weights and values.
        let flops = 2 * pairs * u64::from(width);
        let y = self.b.result(self.bytes(width.into()));
        if flash {
            let sums = self.b.constant(self.count * u64::from(heads) * REAL);
            self.b.emit(Kernel::forward("_flash_attention_forward"), from, &[y, sums], 2 * flops);
            let reads: Vec<Value> = from.iter().copied().chain([y, sums]).collect();
            // The backward pass recomputes the weights.
            self.b.undone("_flash_attention_backward", y, &reads, from, (5 * flops, false));
            return y;
        }
        let bytes = pairs * u64::from(heads) * u64::from(self.of.element);
        // Where one value has all three, both products read it.
        let (inner, values) =
            if let &[.., values] = from { (from.get(..2).unwrap_or(from), values) } else { return y };
        let products = self.b.result(bytes);
        self.b.emit(Kernel::forward("bmm"), inner, &[products], flops);
        self.b.undone("bmm_backward", products, inner, inner, (2 * flops, false));
        let shares = self.b.result(bytes);
        self.b.emit(Kernel::forward("_softmax").in_place(), &[products], &[shares], 0);
        self.b.undone("_softmax_backward_data", shares, &[shares], &[products], (0, true));
        self.b.emit(Kernel::forward("bmm"), &[shares, values], &[y], flops);
        self.b.undone("bmm_backward", y, &[shares, values], &[shares, values], (2 * flops, false));
        y
    }

    /// Three linear maps. Two of them map each row to 8/3 of the width, rounded up to a multiple of 256. The result of
    /// one, after a `silu`, is multiplied into that of the other. The third maps the product back to the width.
    fn gated(&mut self, h: Matrix) -> Matrix {
        let columns = (8 * h.columns / 3).next_multiple_of(256);
        let gate = self.linear(h, columns, false);
        let wide = self.linear(h, columns, false);
        let gate = self.b.bent(gate.value, ["silu", "silu_backward"]);
        let value = self.b.mul(gate, wide.value);
        self.linear(Matrix { value, columns }, h.columns, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roofline;
    use sublet_core::trace::Storage;

    const GPT2: Transformer = Transformer {
        block: Block::Gpt,
        layers: 12,
        width: 768,
        heads: 12,
        tokens: 1024,
        vocabulary: 50_257,
        flash: true,
        element: 4,
    };

    fn build(of: Transformer, training: bool) -> Network {
        of.build(&Setting { batch: 2, training, device: Roofline::GTX1080TI }).unwrap()
    }

    /// How many numbers all parameters have together.
    fn parameters(of: Transformer) -> u64 {
        let network = build(of, false);
        let persistent = network.tensors.iter().filter(|t| t.storage == Storage::Persistent);
        persistent.map(|t| t.bytes / u64::from(of.element)).sum()
    }

    #[test]
    fn it_has_the_parameters_that_were_published() {
        // GPT-2 has 124.4 million parameters. It computes the scores with the table of tokens; here the scores have a
        // table of their own.
        assert_eq!(parameters(GPT2), 124_439_808 + 50_257 * 768);
        // Llama 7B: 6,738,415,616.
        let llama = Transformer {
            block: Block::Llama,
            layers: 32,
            width: 4096,
            heads: 32,
            tokens: 2048,
            vocabulary: 32_000,
            flash: true,
            element: 2,
        };
        assert_eq!(parameters(llama), 6_738_415_616);
    }

    #[test]
    fn attention_in_one_operator_keeps_no_matrix_of_pairs() {
        let pairs = 2 * 12 * 1024 * 1024 * 4;
        let has = |network: &Network| network.tensors.iter().any(|t| t.bytes == pairs);
        let (flash, whole) = (build(GPT2, true), build(Transformer { flash: false, ..GPT2 }, true));
        assert!(!has(&flash) && has(&whole));
        assert!(whole.kept_bytes() >= flash.kept_bytes() + 11 * pairs);
        // With numbers of half the bytes, half as much is kept, but for statistics, whose numbers have 4 bytes all the
        // same.
        let half = build(Transformer { element: 2, ..GPT2 }, true);
        assert!(half.kept_bytes() < flash.kept_bytes() * 11 / 20);
    }

    #[test]
    fn every_parameter_is_updated_and_every_trace_is_one() {
        for block in [Block::Gpt, Block::Llama] {
            for flash in [false, true] {
                let network = build(Transformer { block, flash, layers: 2, tokens: 64, ..GPT2 }, true);
                let count = |name| network.operators.iter().filter(|o| o.name == name).count();
                let persistent = network.tensors.iter().filter(|t| t.storage == Storage::Persistent).count();
                assert_eq!(2 * count("_fused_sgd_"), persistent, "{block:?} {flash}");
                let trace = network.trace().unwrap();
                assert!(trace.rows.len() > 500);
            }
        }
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        let setting = Setting { batch: 1, training: true, device: Roofline::GTX1080TI };
        for wrong in [
            Transformer { heads: 5, ..GPT2 },
            Transformer { element: 3, ..GPT2 },
            Transformer { layers: 0, ..GPT2 },
            Transformer { tokens: 0, ..GPT2 },
        ] {
            assert!(wrong.build(&setting).is_err(), "{wrong:?}");
        }
    }
}
