//! Bytes for people: one unit for all the sizes that are read together.

/// A power of 1024 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    name: &'static str,
    bytes: u64,
}

impl Unit {
    /// The largest unit in which `largest`, a number of bytes, is at least 10. So a thousandth of `largest` is still
    /// seen in a number with two decimals.
    pub(crate) fn for_largest(largest: u64) -> Self {
        const NAMES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let power = ((largest / 10).max(1).ilog2() / 10).min(4);
        Self { name: NAMES[power as usize], bytes: 1 << (10 * power) }
    }

    /// The unit's name, such as `MiB`.
    pub(crate) const fn name(self) -> &'static str {
        self.name
    }

    /// A size or a difference of sizes, in bytes, as a number of this unit: two decimals, none for bytes.
    #[expect(clippy::cast_precision_loss, reason = "two decimals, to be read")]
    pub(crate) fn number(self, bytes: i128) -> String {
        if self.bytes == 1 { bytes.to_string() } else { format!("{:.2}", bytes as f64 / self.bytes as f64) }
    }

    /// A size in bytes with the unit, and in bytes where that is another.
    pub(crate) fn both(self, bytes: u64) -> String {
        if self.bytes == 1 { format!("{bytes} bytes") } else { format!("{} ({bytes} bytes)", self.size(bytes)) }
    }

    /// A size in bytes, with the unit.
    pub(crate) fn size(self, bytes: u64) -> String {
        format!("{} {}", self.number(bytes.into()), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_size_decides() {
        for (largest, text) in [
            (0, "0 B"),
            (10_239, "10239 B"),
            (10_240, "10.00 KiB"),
            ((10 << 20) - 1, "10240.00 KiB"),
            (1536 << 20, "1536.00 MiB"),
            (10 << 30, "10.00 GiB"),
            (u64::MAX, "16777216.00 TiB"),
        ] {
            assert_eq!(Unit::for_largest(largest).size(largest), text);
        }
        assert_eq!(Unit::for_largest(10 << 20).number(-(1 << 19)), "-0.50");
    }
}
