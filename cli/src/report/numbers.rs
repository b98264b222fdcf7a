//! Numbers as a picture shows them, and the marks of its axes.

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A number of bytes for people: three digits or four, and a binary unit.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn bytes(n: u64) -> String {
    let mut unit = (n.max(1).ilog2() / 10) as usize;
    let scaled = |unit: usize| n as f64 / (1u64 << (10 * unit)) as f64;
    // 1023.9 KiB would be shown as 1024 KiB.
    if unit + 1 < UNITS.len() && scaled(unit) >= 1023.5 {
        unit += 1;
    }
    let value = scaled(unit);
    let digits = if value >= 99.95 { 0 } else { 1 + usize::from(value < 9.995) };
    let text = format!("{value:.digits$}");
    let text = if digits == 0 { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
    format!("{text} {}", UNITS[unit])
}

/// The distance between the marks of an axis of `range` bytes: the least power of two that makes at most `most`
/// distances.
pub(super) fn byte_tick(range: u64, most: u64) -> u64 {
    range.div_ceil(most).checked_next_power_of_two().unwrap_or(1 << 63)
}

/// The distance between the marks of an axis of `range` steps or ns: 1, 2 or 5 times a power of ten, the least that
/// makes at most `most` distances.
pub(super) fn round_tick(range: u64, most: u64) -> u64 {
    let least = range.div_ceil(most).max(1);
    let ten = 10u64.pow(least.ilog10());
    [1, 2, 5, 10].into_iter().filter_map(|m| ten.checked_mul(m)).find(|&tick| tick >= least).unwrap_or(u64::MAX)
}

/// The time `ns` as text, in the unit that suits an axis with marks `mark` ns apart.
#[expect(clippy::cast_precision_loss, reason = "few digits are shown")]
pub(super) fn time(ns: u64, mark: u64) -> String {
    let (unit, scale) = match mark {
        0..1_000 => ("ns", 1.0),
        1_000..1_000_000 => ("µs", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    format!("{} {unit}", ns as f64 / scale)
}

/// A whole number with its thousands set apart.
pub(super) fn whole(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
