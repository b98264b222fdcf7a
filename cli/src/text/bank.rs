//! A bank, as the command line gives it.

use super::size;

/// A bank as the command line gives it: `NAME=SIZE`. Each of `:COST`, `:align=BYTES` and `:dma` may follow once, in any
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedBank {
    pub(crate) name: String,
    /// The size of the bank, in bytes.
    pub(crate) capacity: u64,
    /// The cost of a byte that is read or written.
    pub(crate) cost: u64,
    /// The alignment of every offset in it, in bytes.
    pub(crate) alignment: u64,
    /// Only a DMA engine reaches it: it holds the blocks that name it, and no others.
    pub(crate) dma: bool,
}

impl NamedBank {
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) =
            text.split_once('=').ok_or("expected NAME=SIZE, and behind it :COST, :align=BYTES or :dma")?;
        let plain = !name.is_empty() && !name.contains(|c: char| c.is_control() || ",\"".contains(c));
        let name = plain.then(|| name.to_owned()).ok_or("a bank has a name without commas and quotes")?;
        let mut parts = rest.split(':');
        let capacity = size::parse(parts.next().unwrap_or_default())?;
        let (mut cost, mut alignment, mut dma) = (None, None, false);
        for part in parts {
            let twice = if part == "dma" {
                std::mem::replace(&mut dma, true)
            } else if let Some(bytes) = part.strip_prefix("align=") {
                alignment.replace(size::parse_alignment(bytes)?).is_some()
            } else {
                let number = part.parse::<u32>();
                cost.replace(number.map_err(|_| "expected a cost, a whole number, align=BYTES or dma behind a colon")?)
                    .is_some()
            };
            if twice {
                return Err(format!("\"{part}\" is told twice"));
            }
        }
        Ok(Self { name, capacity, cost: cost.unwrap_or(1).into(), alignment: alignment.unwrap_or(1), dma })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banks_are_read_with_and_without_what_may_follow() {
        let bank = |name: &str, capacity, cost, alignment, dma| {
            Ok(NamedBank { name: name.into(), capacity, cost, alignment, dma })
        };
        assert_eq!(NamedBank::parse("fast=512KiB"), bank("fast", 512 << 10, 1, 1, false));
        assert_eq!(NamedBank::parse("slow=8MiB:4"), bank("slow", 8 << 20, 4, 1, false));
        assert_eq!(NamedBank::parse("x=1KiB:align=64:2:dma"), bank("x", 1024, 2, 64, true));
        let wrong = [
            "fast",
            "=1",
            "a,b=1",
            "fast=1:x",
            "fast=:1",
            "a=1:1:1",
            "a=1:dma:dma",
            "a=1:align=3",
            "a=1:align=4:align=4",
        ];
        for wrong in wrong {
            assert!(NamedBank::parse(wrong).is_err(), "{wrong}");
        }
    }
}
