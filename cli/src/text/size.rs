//! Sizes as people write them: `512MiB`, `8G`, `1.5GiB`, `4096`.
//!
//! `K`, `M`, `G`, `T` and `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024, as memory is sold and as CUDA counts it;
//! `kB`, `MB`, `GB`, `TB` are powers of 1000. Case does not matter. A size with a unit is
//! rounded down to whole bytes. One without a unit has to be whole: `0.6` is more likely meant as a share.

/// What is said when a size cannot be read.
const EXPECTED: &str = "expected a size such as 4096, 512MiB, 8G or 1.5GiB";

/// The bytes that `text` says, rounded down.
///
/// # Errors
/// What was expected instead.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    read(text).map(|(bytes, _)| bytes)
}

/// The bytes that `text` says, rounded down, and whether they are exact, with nothing rounded off.
fn read(text: &str) -> Result<(u64, bool), String> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let bytes_per_unit = bytes_per(unit.trim()).ok_or_else(|| format!("{EXPECTED}, found \"{text}\""))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
        return Err(format!("{EXPECTED}, found \"{text}\""));
    }
    let too_large = || format!("\"{text}\" is more than the {} bytes that 64 bits hold", u64::MAX);
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let whole = whole.checked_mul(bytes_per_unit).ok_or_else(too_large)?;
    // From the last digit to the first. Each division by ten rounds down, and the result is still exact: for a whole n,
    // (n + x) / 10 rounded down is the same as with x rounded down first.
    let (mut part, mut exact) = (0, true);
    for digit in fraction.bytes().rev() {
        let tenths = u64::from(digit - b'0') * bytes_per_unit + part;
        part = tenths / 10;
        exact &= tenths % 10 == 0;
    }
    if bytes_per_unit == 1 && !exact {
        return Err(format!("{EXPECTED}, found \"{text}\""));
    }
    Ok((whole.checked_add(part).ok_or_else(too_large)?, exact))
}

/// The bytes that `text` says, where they have to be a power of two.
///
/// # Errors
/// What was expected instead.
pub(crate) fn parse_alignment(text: &str) -> Result<u64, String> {
    let (bytes, exact) = read(text)?;
    if exact && bytes.is_power_of_two() { Ok(bytes) } else { Err(format!("expected a power of two, found {text}")) }
}

/// The most memory that something may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    Bytes(u64),
    /// In percent of the peak as it was recorded.
    Percent(f64),
}

impl Limit {
    /// A size, or a part of the peak: `62.5%`.
    ///
    /// # Errors
    /// What was expected instead.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some(percent) = text.trim().strip_suffix('%') else {
            if text.trim().parse().is_ok_and(|number: u8| (1..=100).contains(&number)) {
                let text = text.trim();
                return Err(format!("expected a unit: {text}% is of the peak, {text}B are bytes"));
            }
            return parse(text).map(Self::Bytes).map_err(|e| e.replace(EXPECTED, &format!("{EXPECTED}, or 80%")));
        };
        let percent: f64 = percent.trim().parse().unwrap_or(f64::NAN);
        if percent > 0.0 && percent <= 100.0 {
            Ok(Self::Percent(percent))
        } else {
            Err(format!("expected more than 0 and at most 100 % of the peak, found \"{text}\""))
        }
    }

    /// The limit in bytes; `peak` is that of the trace, in bytes.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part")]
    pub(crate) fn of(self, peak: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (peak as f64 * (percent / 100.0)) as u64,
        }
    }
}

fn bytes_per(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("12 B", 12),
            ("512MiB", 512 << 20),
            ("8G", 8 << 30),
            ("8g", 8 << 30),
            ("1.5GiB", 3 << 29),
            ("2.50k", 2560),
            ("1kB", 1000),
            ("0.001MB", 1000),
            ("18446744073709551615", u64::MAX),
            ("16777215.5T", 0xffff_ff80_0000_0000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "G", "-1", "+1", "1.", ".5", "1.2.3", "1e9", "5 GiBs", "0x10", "½", "1 000", "1.5", "0.6 B"] {
            assert!(parse(text).unwrap_err().starts_with(EXPECTED), "{text}");
        }
        for text in ["18446744073709551616", "16777216T", "99999999999999999999999T"] {
            assert!(parse(text).unwrap_err().contains("64 bits"), "{text}");
        }
    }

    #[test]
    fn a_size_that_is_not_whole_is_rounded_down() {
        for (text, bytes) in [
            ("1.0", 1),
            ("0.3K", 307),
            ("0.9G", 966_367_641),
            ("2.4G", 2_576_980_377),
            ("0.0000000000000000001T", 0),
            // The whole byte is in the 40th digit.
            ("0.0000000000009094947017729282379150390625T", 1),
            ("0.0000000000009094947017729282379150390624T", 0),
            ("16777215.99999999999999999999T", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_limit_is_a_size_or_a_part() {
        assert_eq!(Limit::parse("2M"), Ok(Limit::Bytes(2 << 20)));
        assert_eq!(Limit::parse(" 62.5 %"), Ok(Limit::Percent(62.5)));
        assert_eq!(
            (Limit::Bytes(7).of(1000), Limit::Percent(62.5).of(1000), Limit::Percent(100.0).of(1000)),
            (7, 625, 1000)
        );
        for text in ["0%", "-1%", "100.1%", "%", "a%", "nan%", "inf%"] {
            assert!(Limit::parse(text).unwrap_err().contains("of the peak"), "{text}");
        }
        for text in ["1", "50", " 100 "] {
            assert!(Limit::parse(text).unwrap_err().contains("expected a unit"), "{text}");
        }
        assert_eq!(
            [Limit::parse("0"), Limit::parse("50B"), Limit::parse("101")],
            [0, 50, 101].map(|n| Ok(Limit::Bytes(n)))
        );
        for text in ["1x", "0.6"] {
            assert!(Limit::parse(text).unwrap_err().contains("or 80%"), "{text}");
        }
    }

    #[test]
    fn an_alignment_is_a_power_of_two() {
        assert_eq!(parse_alignment("256"), Ok(256));
        assert_eq!(parse_alignment("2M"), Ok(2 << 20));
        assert_eq!(parse_alignment("0.250K"), Ok(256));
        for text in ["0", "3", "1kB", "1.0001K"] {
            assert!(parse_alignment(text).unwrap_err().contains("power of two"), "{text}");
        }
    }
}
