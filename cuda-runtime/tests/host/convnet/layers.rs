//! What the layers compute, over plain slices: batches of images, channels, rows, columns.

/// The sizes of a convolution with 3 × 3 kernels and a border of zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convolution {
    pub(crate) batch: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) side: usize,
}

impl Convolution {
    /// Calls `f` with the indices of each product: of the input, of the weight, of the output.
    fn products(&self, mut f: impl FnMut(usize, usize, usize)) {
        let Self { batch, from, to, side } = *self;
        for n in 0..batch {
            for k in 0..to {
                for c in 0..from {
                    for (dy, dx) in (0..9).map(|i| (i / 3, i % 3)) {
                        let weight = (k * from + c) * 9 + dy * 3 + dx;
                        for y in 1usize.saturating_sub(dy)..side.min(side + 1 - dy) {
                            let (input, output) = ((n * from + c) * side + y + dy - 1, (n * to + k) * side + y);
                            for x in 1usize.saturating_sub(dx)..side.min(side + 1 - dx) {
                                f(input * side + x + dx - 1, weight, output * side + x);
                            }
                        }
                    }
                }
            }
        }
    }

    pub(crate) fn forward(&self, x: &[f32], w: &[f32]) -> Vec<f32> {
        let mut y = vec![0.0; self.batch * self.to * self.side * self.side];
        self.products(|i, k, o| y[o] += x[i] * w[k]);
        y
    }

    pub(crate) fn backward(&self, x: &[f32], w: &[f32], dy: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
        self.products(|i, k, o| {
            dx[i] += dy[o] * w[k];
            dw[k] += dy[o] * x[i];
        });
        (dx, dw)
    }
}

/// The sizes of a batch normalisation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Normalisation {
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    pub(crate) area: usize,
}

/// What a normalisation yields: the output, and mean and inverse deviation of each channel.
pub(crate) struct Normalised {
    pub(crate) y: Vec<f32>,
    pub(crate) mean: Vec<f32>,
    pub(crate) inverse: Vec<f32>,
}

impl Normalisation {
    /// The indices of a channel.
    fn of(self, channel: usize) -> impl Iterator<Item = usize> {
        let Self { batch, channels, area } = self;
        (0..batch).flat_map(move |n| (0..area).map(move |i| (n * channels + channel) * area + i))
    }

    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    fn count(self) -> f32 {
        (self.batch * self.area) as f32
    }

    pub(crate) fn forward(self, x: &[f32], gamma: &[f32], beta: &[f32]) -> Normalised {
        let mut made = Normalised { y: vec![0.0; x.len()], mean: vec![], inverse: vec![] };
        for c in 0..self.channels {
            let mean = self.of(c).map(|i| x[i]).sum::<f32>() / self.count();
            let variance = self.of(c).map(|i| (x[i] - mean).powi(2)).sum::<f32>() / self.count();
            let inverse = 1.0 / (variance + 1e-5).sqrt();
            for i in self.of(c) {
                made.y[i] = (x[i] - mean) * inverse * gamma[c] + beta[c];
            }
            made.mean.push(mean);
            made.inverse.push(inverse);
        }
        made
    }

    /// The gradients of input, scale and shift.
    pub(crate) fn backward(self, x: &[f32], dy: &[f32], gamma: &[f32], mean: &[f32], inverse: &[f32]) -> [Vec<f32>; 3] {
        let mut dx = vec![0.0; x.len()];
        let (mut dgamma, mut dbeta) = (vec![], vec![]);
        for c in 0..self.channels {
            let hat = |i: usize| (x[i] - mean[c]) * inverse[c];
            let scale = self.of(c).map(|i| dy[i] * hat(i)).sum::<f32>();
            let shift = self.of(c).map(|i| dy[i]).sum::<f32>();
            for i in self.of(c) {
                dx[i] = gamma[c] * inverse[c] * (dy[i] - (shift + hat(i) * scale) / self.count());
            }
            dgamma.push(scale);
            dbeta.push(shift);
        }
        [dx, dgamma, dbeta]
    }
}

/// The largest of each 2 × 2, and which it is.
pub(crate) fn pool(x: &[f32], side: usize) -> (Vec<f32>, Vec<f32>) {
    let half = side / 2;
    let images = x.len() / (side * side);
    let (mut y, mut which) = (vec![], vec![]);
    for at in 0..images * half * half {
        let (image, row, column) = (at / (half * half), at / half % half, at % half);
        let corner = (image * side + 2 * row) * side + 2 * column;
        let (best, largest) = [0, 1, side, side + 1].iter().map(|d| x[corner + d]).enumerate().fold(
            (0u16, f32::NEG_INFINITY),
            |best, (i, v)| {
                if v > best.1 { (u16::try_from(i).unwrap_or(0), v) } else { best }
            },
        );
        y.push(largest);
        which.push(f32::from(best));
    }
    (y, which)
}

/// The gradient of [`pool`].
pub(crate) fn unpool(dy: &[f32], which: &[f32], side: usize) -> Vec<f32> {
    let half = side / 2;
    let mut dx = vec![0.0; dy.len() * 4];
    for (at, (&d, &which)) in dy.iter().zip(which).enumerate() {
        let (image, row, column) = (at / (half * half), at / half % half, at % half);
        let corner = (image * side + 2 * row) * side + 2 * column;
        let place = [0.0, 1.0, 2.0, 3.0].iter().position(|&i: &f32| i.to_bits() == which.to_bits()).unwrap_or(0);
        dx[corner + [0, 1, side, side + 1][place]] = d;
    }
    dx
}

/// x · wᵀ + b.
pub(crate) fn linear(x: &[f32], w: &[f32], b: &[f32], features: usize) -> Vec<f32> {
    let row = |x: &[f32]| -> Vec<f32> {
        let dot = |w: &[f32]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
        w.chunks(features).zip(b).map(|(w, b)| dot(w) + b).collect()
    };
    x.chunks(features).flat_map(row).collect()
}

/// The gradients of input, weights and shift.
pub(crate) fn linear_backward(x: &[f32], w: &[f32], dy: &[f32], features: usize) -> [Vec<f32>; 3] {
    let outputs = w.len() / features;
    let (mut dx, mut dw, mut db) = (vec![0.0; x.len()], vec![0.0; w.len()], vec![0.0; outputs]);
    for (n, (x, dy)) in x.chunks(features).zip(dy.chunks(outputs)).enumerate() {
        for (k, d) in dy.iter().enumerate() {
            db[k] += d;
            for i in 0..features {
                dx[n * features + i] += d * w[k * features + i];
                dw[k * features + i] += d * x[i];
            }
        }
    }
    [dx, dw, db]
}

/// The mean cross entropy of soft maxima, and its gradient; labels are numbers of classes.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few")]
pub(crate) fn loss(logits: &[f32], labels: &[f32]) -> (f32, Vec<f32>) {
    let classes = logits.len() / labels.len();
    let (mut total, mut gradient) = (0.0, vec![]);
    for (logits, label) in logits.chunks(classes).zip(labels) {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exps: Vec<f32> = logits.iter().map(|v| (v - most).exp()).collect();
        let sum: f32 = exps.iter().sum();
        total -= (exps[*label as usize] / sum).ln();
        let target = |k: usize| f32::from(u8::from(k == *label as usize));
        gradient.extend(exps.iter().enumerate().map(|(k, e)| (e / sum - target(k)) / labels.len() as f32));
    }
    (total / labels.len() as f32, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a gradient is the change of what is computed, in some direction.
    fn agrees(f: impl Fn(&[f32]) -> f32, x: &[f32], gradient: &[f32]) {
        for i in (0..x.len()).step_by(3) {
            let at = |h: f32| {
                let mut x = x.to_vec();
                x[i] += h;
                f(&x)
            };
            let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((slope - gradient[i]).abs() < 2e-2 * (1.0 + slope.abs()), "{i}: {slope} {}", gradient[i]);
        }
    }

    fn numbers(n: usize, seed: f32) -> Vec<f32> {
        (0u16..).take(n).map(|i| (f32::from(i) * 1.7 + seed).sin()).collect()
    }

    fn weighed(y: &[f32]) -> f32 {
        y.iter().zip(numbers(y.len(), 9.0)).map(|(y, w)| y * w).sum()
    }

    #[test]
    fn gradients_are_those_of_what_is_computed() {
        let conv = Convolution { batch: 2, from: 2, to: 3, side: 4 };
        let (x, w) = (numbers(64, 0.0), numbers(54, 1.0));
        let (dx, dw) = conv.backward(&x, &w, &numbers(96, 9.0));
        agrees(|x| weighed(&conv.forward(x, &w)), &x, &dx);
        agrees(|w| weighed(&conv.forward(&x, w)), &w, &dw);

        let norm = Normalisation { batch: 2, channels: 2, area: 16 };
        let (gamma, beta) = (numbers(2, 2.0), numbers(2, 3.0));
        let made = norm.forward(&x, &gamma, &beta);
        let [dx, dgamma, dbeta] = norm.backward(&x, &numbers(64, 9.0), &gamma, &made.mean, &made.inverse);
        agrees(|x| weighed(&norm.forward(x, &gamma, &beta).y), &x, &dx);
        agrees(|gamma| weighed(&norm.forward(&x, gamma, &beta).y), &gamma, &dgamma);
        agrees(|beta| weighed(&norm.forward(&x, &gamma, beta).y), &beta, &dbeta);

        let (y, which) = pool(&x, 4);
        agrees(|x| weighed(&pool(x, 4).0), &x, &unpool(&numbers(y.len(), 9.0), &which, 4));

        let b = numbers(3, 4.0);
        let w = numbers(24, 1.0);
        let [dx, dw, db] = linear_backward(&x, &w, &numbers(24, 9.0), 8);
        agrees(|x| weighed(&linear(x, &w, &b, 8)), &x, &dx);
        agrees(|w| weighed(&linear(&x, w, &b, 8)), &w, &dw);
        agrees(|b| weighed(&linear(&x, &w, b, 8)), &b, &db);

        let labels = [0.0, 2.0];
        let logits = numbers(6, 5.0);
        agrees(|logits| loss(logits, &labels).0, &logits, &loss(&logits, &labels).1);
    }
}
