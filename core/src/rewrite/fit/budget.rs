//! How much a fit works, counted in blocks placed. While no schedule fits, the work is shared by all orders of the
//! operators; once one fits, each order has work of its own.

/// To place a block takes as long as to look at this many operators and gaps.
pub(super) const LOOKS_PER_BLOCK: u64 = 40;

/// Of placements, for one search of each of which this many come to nothing.
const BLOCKS: u64 = 2_000_000;
const VAIN: u64 = 20;

/// About half a minute.
pub(super) const OF_ORDER: u64 = 100_000_000;
/// Each row lowers [`OF_ORDER`], down to a quarter: for work that is not counted where it is done.
const ROW: u64 = 450;

#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    spent: u64,
    until_found: u64,
    of_order: u64,
}

impl Budget {
    #[cfg(test)]
    pub(super) const SPENT: Self = Self { spent: 1, until_found: 0, of_order: 0 };

    /// `work` counts the operators and gaps that a search for swaps looks at.
    pub(super) const fn new(work: u64) -> Self {
        Self { spent: 0, until_found: VAIN * (BLOCKS + work / LOOKS_PER_BLOCK), of_order: 0 }
    }

    pub(super) const fn spent(&self) -> u64 {
        self.spent
    }

    pub(super) const fn spend(&mut self, blocks: u64) {
        self.spent = self.spent.saturating_add(blocks);
    }

    pub(super) const fn spend_looks(&mut self, looks: u64) {
        self.spend(looks / LOOKS_PER_BLOCK);
    }

    pub(super) fn begin_order(&mut self, rows: usize) {
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        let work = OF_ORDER.saturating_sub(rows.saturating_mul(ROW)).max(OF_ORDER / 4);
        self.of_order = self.spent.saturating_add(work);
    }

    const fn end(&self, found: bool) -> u64 {
        if found { self.of_order } else { self.until_found }
    }

    pub(super) const fn is_spent(&self, found: bool) -> bool {
        self.spent > self.end(found)
    }

    /// What is spent once half of what is left is.
    pub(super) const fn halfway(&self, found: bool) -> u64 {
        self.spent.saturating_add(self.end(found).saturating_sub(self.spent) / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_a_schedule_fits_all_orders_share_the_work() {
        let mut budget = Budget { spent: 0, until_found: 10, of_order: 0 };
        budget.begin_order(0);
        budget.spend(10);
        assert!(!budget.is_spent(false));
        assert_eq!((budget.halfway(false), budget.halfway(true)), (10, 10 + (OF_ORDER - 10) / 2));
        budget.spend(1);
        assert!(budget.is_spent(false) && !budget.is_spent(true));
        budget.spend(OF_ORDER);
        assert!(budget.is_spent(true));
        budget.begin_order(0);
        assert!(budget.is_spent(false) && !budget.is_spent(true));
    }
}
