//! Boards, whose memories are known by name.

use super::bank::NamedBank;

/// Rows of a board and one of its memories, as `--bank` has it.
const TABLE: &str = include_str!("boards.csv");

/// A board by its name.
#[derive(Clone, Debug)]
pub(crate) struct Board(pub(crate) Vec<NamedBank>);

impl Board {
    /// # Errors
    /// No board has this name.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let banks = rows().filter(|(board, _)| *board == name).map(|(_, bank)| NamedBank::parse(bank));
        let banks: Vec<NamedBank> = banks.collect::<Result<_, _>>()?;
        if banks.is_empty() {
            let mut known: Vec<&str> = rows().map(|(board, _)| board).collect();
            known.dedup();
            return Err(format!("no board has this name; there are {}", known.join(", ")));
        }
        Ok(Self(banks))
    }
}

fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.lines().skip(1).filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_memory() {
        for (board, bank) in rows() {
            assert!(NamedBank::parse(bank).is_ok() && Board::named(board).is_ok(), "{board} {bank}");
        }
        assert!(Board::named("toaster").unwrap_err().contains("stm32h747"));
    }
}
