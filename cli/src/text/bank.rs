//! One of several memories, as it is told.

use super::size;

/// A bank as the command line names it: `NAME=SIZE` or `NAME=SIZE:COST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedBank {
    pub(crate) name: String,
    /// Bytes.
    pub(crate) capacity: u64,
    /// Of a byte that is read or written.
    pub(crate) cost: u64,
}

impl NamedBank {
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once('=').ok_or("expected NAME=SIZE or NAME=SIZE:COST")?;
        let (capacity, cost) = rest.split_once(':').unwrap_or((rest, "1"));
        let plain = !name.is_empty() && !name.contains(|c: char| c.is_control() || ",\"".contains(c));
        let name = plain.then(|| name.to_owned()).ok_or("a bank has a name without commas and quotes")?;
        let cost = cost.parse::<u32>().map_err(|_| "expected a cost, a whole number, behind the colon")?;
        Ok(Self { name, capacity: size::parse(capacity)?, cost: cost.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banks_are_read_with_and_without_a_cost() {
        let bank = |name: &str, capacity, cost| Ok(NamedBank { name: name.into(), capacity, cost });
        assert_eq!(NamedBank::parse("fast=512KiB"), bank("fast", 512 << 10, 1));
        assert_eq!(NamedBank::parse("slow=8MiB:4"), bank("slow", 8 << 20, 4));
        for wrong in ["fast", "=1", "a,b=1", "fast=1:x", "fast=:1"] {
            assert!(NamedBank::parse(wrong).is_err(), "{wrong}");
        }
    }
}
