//! In which order kernels that move elements about read and write them, and how far the writes run ahead of the reads.
//!
//! A kernel is listed as the steps that TFLM's reference kernel takes: each reads a row of an operand and writes it to a
//! row of a result, or fills a row. From the list comes how far below the operand the result has to begin so that
//! nothing is written over before it is read (Blacker et al. 2020). Cost: O(steps).

use super::{Element, Model, Operator, Options, Tensor};

/// The most steps that are listed: far more than a microcontroller takes.
const MOST_STEPS: usize = 1 << 20;

/// How a row is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Element by element, upwards.
    Each,
    /// As by `memcpy`: a row and its copy may not overlap.
    AtOnce,
}

/// A row of `len` elements. Operands and results are counted as the operator lists them, elements from their begin.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The operand, and the row's first element; none where the row is filled.
    from: Option<(usize, u64)>,
    /// The result, and the row's first element.
    to: (usize, u64),
    len: u64,
}

/// How far below an operand a result of the operator has to begin, in bytes; none where nothing is known of the kernel.
/// `rows` says how the kernel copies rows where the reference kernel does as told.
pub(crate) fn distance(
    model: &Model,
    operator: &Operator,
    (operand, result): (usize, usize),
    rows: impl Fn(Rows) -> Option<Rows>,
) -> Option<u64> {
    let own = operator.operands.get(operand).copied().flatten()?;
    if operator.operands.iter().filter(|&&other| other == Some(own)).count() > 1 {
        return None;
    }
    let (steps, usual) = steps(model, operator)?;
    let ahead = ahead(&steps, (operand, result), rows(usual)?)?;
    let read = model.tensor(own)?;
    ahead.checked_mul(read.bytes.checked_div(read.elements()?)?)
}

/// The most elements by which writes to a result run ahead of what is still to be read of an operand.
fn ahead(steps: &[Step], (operand, result): (usize, usize), rows: Rows) -> Option<u64> {
    // The first element of the operand that later steps read.
    let mut unread = i64::MAX;
    let mut most = 0;
    for step in steps.iter().rev() {
        let [begin, len] = [step.to.1, step.len].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        let end = begin.checked_add(len)?;
        let row = step.from.filter(|&(from, _)| from == operand);
        let row = row.map(|(_, row)| i64::try_from(row)).transpose().ok()?;
        let mut write = |end: i64, unread: i64| {
            if step.to.0 == result {
                most = most.max(end.saturating_sub(unread));
            }
        };
        match (row, rows) {
            (None, _) => write(end, unread),
            (Some(row), Rows::AtOnce) => {
                unread = unread.min(row);
                write(end, unread);
            }
            (Some(row), Rows::Each) => {
                write(end, unread);
                if len > 1 {
                    write(end - 1, unread.min(row + len - 1));
                }
                unread = unread.min(row);
            }
        }
    }
    u64::try_from(most).ok()
}

/// Where the parts of a tensor begin in it, in bytes, and which operand or result each is: where an operator puts parts
/// together or takes a tensor apart, and each part is one row.
pub(crate) fn parts(model: &Model, operator: &Operator) -> Option<(u32, Vec<(u32, u64)>)> {
    let cut = Cut::of(model, operator).filter(|cut| cut.outer == 1)?;
    let element = cut.whole.1.bytes.checked_div(cut.whole.1.elements()?)?;
    let begins = cut.rows.iter().scan(0u64, |begin, &row| {
        let own = *begin;
        *begin = own.saturating_add(row.saturating_mul(element));
        Some(own)
    });
    Some((cut.whole.0, cut.parts.iter().copied().zip(begins).collect()))
}

/// Whether an operator puts tensors together or takes one apart.
pub(crate) fn has_parts(model: &Model, operator: &Operator) -> bool {
    Cut::of(model, operator).is_some()
}

/// A tensor that an operator makes of parts, or takes apart, along an axis.
struct Cut<'a> {
    whole: (u32, &'a Tensor),
    parts: Vec<u32>,
    /// How many rows each part has.
    outer: u64,
    /// The elements of each part's rows.
    rows: Vec<u64>,
    joins: bool,
    /// The place of the first part, or of the whole, among the operands.
    first: usize,
}

impl<'a> Cut<'a> {
    fn of(model: &'a Model, operator: &Operator) -> Option<Self> {
        let operand = |place: usize| operator.operands.get(place).copied().flatten();
        let axis = |place: usize| model.tensor(operand(place)?)?.constant.as_ref()?.first().copied();
        let (joins, first, axis) = match (operator.kind.as_str(), &operator.options) {
            ("CONCATENATION" | "PACK", &Options::Axis(axis)) => (true, 0, axis),
            ("UNPACK", &Options::Axis(axis)) => (false, 0, axis),
            ("SPLIT", _) => (false, 1, axis(0)?),
            ("SPLIT_V", _) => (false, 0, axis(2)?),
            _ => return None,
        };
        let whole = if joins { *operator.outputs.first()? } else { operand(first)? };
        let parts = if joins {
            operator.operands.iter().copied().collect::<Option<Vec<_>>>()?
        } else {
            operator.outputs.clone()
        };
        let tensor = model.tensor(whole)?;
        let axis = if axis < 0 { axis.checked_add_unsigned(tensor.shape.len() as u64)? } else { axis };
        let outer = tensor.shape.get(..usize::try_from(axis).ok()?)?.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
        let rows =
            parts.iter().map(|&part| model.tensor(part)?.elements()?.checked_div(outer)).collect::<Option<Vec<_>>>()?;
        let sum = rows.iter().try_fold(0u64, |sum, &row| sum.checked_add(row))?;
        (sum.checked_mul(outer)? == tensor.elements()?).then_some(())?;
        Some(Self { whole: (whole, tensor), parts, outer, rows, joins, first })
    }
}

/// Steps up to a limit.
#[derive(Default)]
struct Steps(Vec<Step>);

impl Steps {
    fn add(&mut self, from: Option<(usize, u64)>, to: (usize, u64), len: u64) -> Option<()> {
        if len > 0 {
            self.0.push(Step { from, to, len });
        }
        (self.0.len() <= MOST_STEPS).then_some(())
    }

    /// Adds a row of the only operand that is read to the only result, or fills one.
    fn copy(&mut self, from: Option<u64>, to: u64, len: u64) -> Option<()> {
        self.add(from.map(|row| (0, row)), (0, to), len)
    }

    /// Writes a result of this shape from its begin on, with elements that lie `moves` apart along each axis.
    fn gather(&mut self, shape: &[u64], moves: &[i64], first: i64) -> Option<()> {
        let row = if moves.last() == Some(&1) { *shape.last()? } else { 1 };
        let all = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
        for to in (0..all).step_by(usize::try_from(row.max(1)).ok()?) {
            let (mut rest, mut from) = (to, first);
            for (&size, &by) in shape.iter().zip(moves).rev() {
                from = from.checked_add(by.checked_mul(i64::try_from(rest % size).ok()?)?)?;
                rest /= size;
            }
            self.copy(Some(u64::try_from(from).ok()?), to, row)?;
        }
        Some(())
    }
}

/// The steps of an operator's reference kernel, and how it copies rows; none where it is not known.
fn steps(model: &Model, operator: &Operator) -> Option<(Vec<Step>, Rows)> {
    let tensor = |place: usize| model.tensor(operator.operands.get(place).copied().flatten()?);
    let numbers = |place: usize| tensor(place)?.constant.as_deref();
    let result = model.tensor(*operator.outputs.first()?)?;
    let mut steps = Steps::default();
    let rows = match (operator.kind.as_str(), &operator.options) {
        ("PAD" | "PADV2", _) => pad(&mut steps, (tensor(0)?, result), numbers(1)?)?,
        ("CONCATENATION" | "PACK" | "SPLIT" | "SPLIT_V" | "UNPACK", _) => {
            cut(&mut steps, &Cut::of(model, operator)?, operator.kind.ends_with("PACK"))?;
            if operator.kind == "CONCATENATION" { Rows::AtOnce } else { Rows::Each }
        }
        ("SLICE", _) => {
            let moves = strides(tensor(0)?)?;
            let begins = numbers(1)?.iter().zip(&moves).map(|(&begin, &by)| begin.checked_mul(by));
            let first = begins.sum::<Option<i64>>()?;
            steps.gather(&result.shape, &moves, first)?;
            Rows::Each
        }
        ("STRIDED_SLICE", Options::Slice(masks)) => {
            strided(&mut steps, tensor(0)?, [numbers(1)?, numbers(2)?, numbers(3)?], masks)?
        }
        ("TRANSPOSE", _) => {
            let by_axis = strides(tensor(0)?)?;
            let moves = numbers(1)?.iter().map(|&axis| by_axis.get(usize::try_from(axis).ok()?).copied());
            steps.gather(&result.shape, &moves.collect::<Option<Vec<_>>>()?, 0)?;
            Rows::Each
        }
        ("RESIZE_NEAREST_NEIGHBOR", &Options::Resize { align_corners, half_pixel_centers }) => {
            resize(&mut steps, (tensor(0)?, result), |at, [from, to]| {
                nearest(at, [from, to], align_corners, half_pixel_centers)
            })?;
            Rows::AtOnce
        }
        ("RESIZE_BILINEAR", &Options::Resize { align_corners, half_pixel_centers }) => {
            let lower = if result.element == Element::Float32 { lower_float } else { lower_fixed };
            resize(&mut steps, (tensor(0)?, result), |at, [from, to]| {
                lower(at, [from, to], align_corners, half_pixel_centers)
            })?;
            Rows::Each
        }
        ("SPACE_TO_BATCH_ND", _) => {
            let image = images(tensor(0)?, result)?;
            blocks(&mut steps, image, [numbers(1)?, numbers(2)?], Blocks::ToBatch)?;
            Rows::AtOnce
        }
        ("BATCH_TO_SPACE_ND", _) => {
            let image = images(tensor(0)?, result)?;
            blocks(&mut steps, image, [numbers(1)?, numbers(2)?], Blocks::ToSpace)?;
            Rows::AtOnce
        }
        ("DEPTH_TO_SPACE" | "SPACE_TO_DEPTH", &Options::Block(block)) => {
            depth(&mut steps, images(tensor(0)?, result)?, block, operator.kind == "SPACE_TO_DEPTH")?;
            Rows::Each
        }
        _ => return None,
    };
    Some((steps.0, rows))
}

/// By axis: how many elements lie from one index to the next.
fn strides(tensor: &Tensor) -> Option<Vec<i64>> {
    let mut strides = vec![1i64; tensor.shape.len()];
    for axis in (1..strides.len()).rev() {
        strides[axis - 1] = strides[axis].checked_mul(i64::try_from(tensor.shape[axis]).ok()?)?;
    }
    Some(strides)
}

/// `paddings` are those before and behind each axis. A row goes over all of the last axes that are not padded.
fn pad(steps: &mut Steps, (from, to): (&Tensor, &Tensor), paddings: &[i64]) -> Option<Rows> {
    let mut before = paddings.chunks_exact(2).map(|p| u64::try_from(p[0]).ok()).collect::<Option<Vec<_>>>()?;
    let (mut inner, mut outer) = (from.shape.clone(), to.shape.clone());
    let fits = before.iter().zip(&inner).zip(&outer).all(|((b, f), t)| b.saturating_add(*f) <= *t);
    (before.len() == outer.len() && inner.len() == outer.len() && fits).then_some(())?;
    while let ([.., wide, inner_depth], [.., tall, outer_depth]) = (&mut inner[..], &mut outer[..])
        && inner_depth == outer_depth
    {
        let edge = before.iter_mut().rev().nth(1)?;
        (*wide, *tall, *edge) =
            (wide.checked_mul(*inner_depth)?, tall.checked_mul(*outer_depth)?, edge.checked_mul(*inner_depth)?);
        inner.pop();
        outer.pop();
        before.pop();
    }
    let (depth, wide, edge) = (inner.pop()?, outer.pop()?, before.pop()?);
    let all = outer.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
    let mut read = 0;
    for row in 0..all {
        let (mut rest, mut is_inside) = (row, true);
        for ((&size, &own), &edge) in outer.iter().zip(&inner).zip(&before).rev() {
            is_inside &= (edge..edge + own).contains(&(rest % size));
            rest /= size;
        }
        let begin = row * wide;
        if !is_inside {
            steps.copy(None, begin, wide)?;
            continue;
        }
        steps.copy(None, begin, edge)?;
        steps.copy(Some(read), begin + edge, depth)?;
        steps.copy(None, begin + edge + depth, wide - edge - depth)?;
        read += depth;
    }
    Some(Rows::Each)
}

/// Goes row by row through all parts, or part by part.
fn cut(steps: &mut Steps, cut: &Cut<'_>, by_part: bool) -> Option<()> {
    let (parts, sum) = (cut.rows.len() as u64, cut.rows.iter().sum::<u64>());
    let mut begins = vec![0; cut.rows.len()];
    for part in 1..begins.len() {
        begins[part] = begins[part - 1] + cut.rows[part - 1];
    }
    for i in 0..parts.checked_mul(cut.outer)? {
        let (k, part) = if by_part { (i % cut.outer, i / cut.outer) } else { (i / parts, i % parts) };
        let part = usize::try_from(part).ok()?;
        let (whole, own) = (k * sum + begins[part], k * cut.rows[part]);
        if cut.joins {
            steps.add(Some((part, own)), (0, whole), cut.rows[part])?;
        } else {
            steps.add(Some((cut.first, whole)), (part, own), cut.rows[part])?;
        }
    }
    Some(())
}

/// TFLM takes neither new axes nor ellipses.
fn strided(steps: &mut Steps, from: &Tensor, [begins, ends, by]: [&[i64]; 3], masks: &[u32; 3]) -> Option<Rows> {
    let by_axis = strides(from)?;
    (begins.len() == by_axis.len() && ends.len() == by_axis.len() && by.len() == by_axis.len()).then_some(())?;
    let (mut shape, mut moves, mut first) = (Vec::new(), Vec::new(), 0i64);
    for axis in 0..by_axis.len() {
        let (size, step) = (i64::try_from(from.shape[axis]).ok()?, by[axis]);
        let [whole_begin, whole_end, dropped] = masks.map(|mask| axis < 32 && mask >> axis & 1 > 0);
        let (least, most) = if step > 0 { (0, size) } else { (-1, size - 1) };
        let within = |index: i64| if index < 0 { index.saturating_add(size) } else { index }.clamp(least, most);
        let begin = if whole_begin { if step > 0 { 0 } else { size - 1 } } else { within(begins[axis]) };
        let end = if whole_end { if step > 0 { size } else { -1 } } else { within(ends[axis]) };
        let count = if dropped {
            1
        } else {
            (end - begin)
                .checked_mul(step.signum())?
                .max(0)
                .checked_add(step.checked_abs()?.max(1) - 1)?
                .checked_div(step.abs())?
        };
        (begin >= 0).then_some(())?;
        shape.push(u64::try_from(count).ok()?);
        moves.push(by_axis[axis].checked_mul(step)?);
        first = first.checked_add(begin.checked_mul(by_axis[axis])?)?;
    }
    steps.gather(&shape, &moves, first)?;
    Some(if by.last() == Some(&1) { Rows::AtOnce } else { Rows::Each })
}

/// Two tensors of batch, height, width and depth.
fn images(from: &Tensor, to: &Tensor) -> Option<[[u64; 4]; 2]> {
    let four = |tensor: &Tensor| <[u64; 4]>::try_from(tensor.shape.as_slice()).ok();
    Some([four(from)?, four(to)?])
}

/// The first element of a pixel.
fn pixel([_, height, width, depth]: [u64; 4], [batch, y, x]: [u64; 3]) -> u64 {
    ((batch * height + y) * width + x) * depth
}

/// `source` is the lower of the rows or columns that make one of the output, of an axis of these sizes.
fn resize(
    steps: &mut Steps,
    (from, to): (&Tensor, &Tensor),
    source: impl Fn(u64, [u64; 2]) -> Option<u64>,
) -> Option<()> {
    let [from, to] = images(from, to)?;
    for batch in 0..to[0] {
        for y in 0..to[1] {
            let above = source(y, [from[1], to[1]])?;
            for x in 0..to[2] {
                let left = source(x, [from[2], to[2]])?;
                steps.copy(Some(pixel(from, [batch, above, left])), pixel(to, [batch, y, x]), to[3])?;
            }
        }
    }
    Some(())
}

#[expect(clippy::cast_precision_loss, reason = "as TFLM does")]
fn scale([from, to]: [u64; 2], align_corners: bool) -> f32 {
    if align_corners && to > 1 { (from - 1) as f32 / (to - 1) as f32 } else { from as f32 / to as f32 }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as TFLM does"
)]
fn nearest(at: u64, sizes: [u64; 2], align_corners: bool, half_pixel_centers: bool) -> Option<u64> {
    let scale = scale(sizes, align_corners);
    let place = (at as f32 + if half_pixel_centers { 0.5 } else { 0.0 }) * scale;
    let place = if align_corners { place.round() } else { place.floor() };
    Some((place.max(0.0) as u64).min(sizes[0].checked_sub(1)?))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as TFLM does"
)]
fn lower_float(at: u64, sizes: [u64; 2], align_corners: bool, half_pixel_centers: bool) -> Option<u64> {
    let scale = scale(sizes, align_corners);
    let place = if half_pixel_centers { (at as f32 + 0.5) * scale - 0.5 } else { at as f32 * scale };
    Some((place.floor().max(0.0) as u64).min(sizes[0].checked_sub(1)?))
}

/// In fixed point with 10 bits behind the point.
fn lower_fixed(at: u64, [from, to]: [u64; 2], align_corners: bool, half_pixel_centers: bool) -> Option<u64> {
    let cut = u64::from(align_corners && to > 1);
    let (from, to) = (from.checked_sub(cut)?, to.checked_sub(cut)?);
    let scale = (from.checked_mul(1 << 10)?.checked_add(to / 2)?).checked_div(to)?;
    let place = at.checked_mul(scale)?;
    let place = if half_pixel_centers { (place + scale / 2).saturating_sub(1 << 9) } else { place };
    Some((place >> 10).min((from + cut).checked_sub(1)?))
}

/// Which way blocks of pixels go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blocks {
    ToBatch,
    ToSpace,
}

/// Pixels between batches and blocks of an image. The kernel goes through the larger batch, pixel by pixel. `edges` are
/// the paddings, or what is cut off, above and left.
fn blocks(steps: &mut Steps, [from, to]: [[u64; 4]; 2], [block, edges]: [&[i64]; 2], way: Blocks) -> Option<()> {
    let whole = |n: Option<&i64>| u64::try_from(*n?).ok();
    let [tall, wide] = [whole(block.first())?, whole(block.get(1))?];
    let [above, left] = [whole(edges.first())?, whole(edges.get(2))?];
    let (cut, image) = if way == Blocks::ToBatch { (to, from) } else { (from, to) };
    for batch in 0..cut[0] {
        let (own, shift) = (batch.checked_rem(image[0])?, batch / image[0]);
        let [down, right] = [shift.checked_div(wide)?, shift % wide];
        for y in 0..cut[1] {
            for x in 0..cut[2] {
                let row = (y.checked_mul(tall)? + down).checked_sub(above).filter(|&row| row < image[1]);
                let column = (x.checked_mul(wide)? + right).checked_sub(left).filter(|&column| column < image[2]);
                let inside = row.zip(column).map(|(row, column)| pixel(image, [own, row, column]));
                let cut = pixel(cut, [batch, y, x]);
                match (way, inside) {
                    (Blocks::ToBatch, inside) => steps.copy(inside, cut, from[3])?,
                    (Blocks::ToSpace, Some(inside)) => steps.copy(Some(cut), inside, from[3])?,
                    (Blocks::ToSpace, None) => {}
                }
            }
        }
    }
    Some(())
}

/// The kernel goes through the image with the shallow pixels, in both directions.
fn depth(steps: &mut Steps, [from, to]: [[u64; 4]; 2], block: u64, to_depth: bool) -> Option<()> {
    let (shallow, deep) = if to_depth { (from, to) } else { (to, from) };
    for batch in 0..shallow[0] {
        for y in 0..shallow[1] {
            for x in 0..shallow[2] {
                let own = pixel(shallow, [batch, y, x]);
                let inner = (y.checked_rem(block)? * block + x % block) * shallow[3];
                let other = pixel(deep, [batch, y / block, x / block]) + inner;
                let (read, written) = if to_depth { (own, other) } else { (other, own) };
                steps.copy(Some(read), written, shallow[3])?;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a result holds after all steps, where it begins `below` elements below the operand, or apart from it.
    fn run(steps: &[Step], below: Option<usize>, rows: Rows) -> Vec<Option<u32>> {
        let size = 64;
        let mut memory: Vec<u32> = vec![u32::MAX; 3 * size];
        let (to, from) = below.map_or((0, 2 * size), |below| (size - below, size));
        for (i, cell) in (0..).zip(&mut memory[from..from + size]) {
            *cell = i;
        }
        let mut written = Vec::new();
        for step in steps {
            let (begin, len) = (to + usize::try_from(step.to.1).unwrap(), usize::try_from(step.len).unwrap());
            let source = step.from.map(|(_, row)| from + usize::try_from(row).unwrap());
            // A copy at once may take any order: the one that is worst.
            let order: Vec<usize> = if rows == Rows::AtOnce { (0..len).rev().collect() } else { (0..len).collect() };
            for order in [order, (0..len).collect()] {
                for i in order {
                    memory[begin + i] = source.map_or(u32::MAX - 1, |source| memory[source + i]);
                }
                if rows == Rows::Each {
                    break;
                }
            }
            written.extend(begin - to..begin - to + len);
        }
        (0..size).map(|i| written.contains(&i).then(|| memory[to + i])).collect()
    }

    proptest! {
        /// At the distance, and below it, the result is what it is apart from the operand.
        #[test]
        fn nothing_is_written_over_before_it_is_read(
            rows in prop::collection::vec((prop::option::of(0u64..40), 0u64..40, 1u64..6), 1..9),
            at_once: bool,
            more in 0usize..4,
        ) {
            let steps: Vec<Step> =
                rows.iter().map(|&(from, to, len)| Step { from: from.map(|row| (0, row)), to: (0, to), len }).collect();
            let rows = if at_once { Rows::AtOnce } else { Rows::Each };
            let distance = usize::try_from(ahead(&steps, (0, 0), rows).unwrap()).unwrap() + more;
            if distance <= 64 {
                prop_assert_eq!(run(&steps, Some(distance), rows), run(&steps, None, rows));
            }
        }
    }

    /// One element less, and the result is another one.
    #[test]
    fn the_distance_is_the_least() {
        let tensor =
            |shape: &[u64]| Tensor { bytes: shape.iter().product(), shape: shape.to_vec(), ..Tensor::default() };
        let mut padded = Steps::default();
        pad(&mut padded, (&tensor(&[3, 2]), &tensor(&[5, 4])), &[1, 1, 1, 1]).unwrap();
        let mut turned = Steps::default();
        turned.gather(&[3, 2], &[1, 3], 0).unwrap();
        for (steps, expected) in [(padded.0, 9), (turned.0, 2)] {
            let distance = usize::try_from(ahead(&steps, (0, 0), Rows::Each).unwrap()).unwrap();
            assert_eq!(distance, expected);
            assert_eq!(run(&steps, Some(distance), Rows::Each), run(&steps, None, Rows::Each));
            assert_ne!(run(&steps, Some(distance - 1), Rows::Each), run(&steps, None, Rows::Each));
        }
    }
}
