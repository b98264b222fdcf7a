//! The load of each operator: the bytes alive while it runs. Bytes can be added to the loads of many neighbouring
//! operators quickly.
//!
//! Operators are divided into *runs*, groups of neighbours. There are about as many runs as a run has operators. Bytes
//! that are added to a whole run are kept once, beside the run, and so is the highest load in it. So a change over some
//! of n operators costs O(√n), and so does a search through them for one with a load above a limit.

use crate::workspace::workspace;

const LEAST_RUN: u32 = 32;

workspace! {
    pub(in crate::rewrite) struct Load<'a>(room; operators: u32) {
        tables {
            /// Less the entry of `whole`; added with wrapping, as it may be negative.
            own: u64[room],
            whole: u64[room / LEAST_RUN as usize + 1],
            most: u64[room / LEAST_RUN as usize + 1],
        }
        state {
            operators: u32 = operators,
            /// Log2 of the operators in a run: about the square root of all, at least [`LEAST_RUN`].
            bits: u32 = operators.isqrt().max(LEAST_RUN).ilog2(),
        }
    }
}

impl Load<'_> {
    #[inline]
    pub(in crate::rewrite) fn get(&self, operator: u32) -> u64 {
        self.own[operator].wrapping_add(self.whole[operator >> self.bits])
    }

    const fn runs(&self) -> u32 {
        self.operators.div_ceil(1 << self.bits)
    }

    #[inline]
    const fn ends(&self, run: u32) -> (u32, u32) {
        (run << self.bits, (run + 1) << self.bits)
    }

    pub(in crate::rewrite) fn change(&mut self, mut to: impl FnMut(u32, u64) -> u64) {
        for operator in 0..self.operators {
            self.own[operator] = to(operator, self.get(operator));
        }
        for run in 0..self.runs() {
            self.whole[run] = 0;
            self.look(run);
        }
    }

    /// Wraps: to subtract, pass the negative number.
    pub(in crate::rewrite) fn add(&mut self, from: u32, to: u32, bytes: u64) {
        let mut operator = from;
        while operator < to {
            let run = operator >> self.bits;
            let (begin, end) = self.ends(run);
            if operator == begin && end <= to {
                self.whole[run] = self.whole[run].wrapping_add(bytes);
                self.most[run] = self.most[run].wrapping_add(bytes);
            } else {
                for own in self.own.range_mut(operator, end.min(to)) {
                    *own = own.wrapping_add(bytes);
                }
                self.look(run);
            }
            operator = end;
        }
    }

    fn look(&mut self, run: u32) {
        let (begin, end) = self.ends(run);
        let whole = self.whole[run];
        let loads = self.own.range(begin, end.min(self.operators)).iter();
        self.most[run] = loads.map(|own| own.wrapping_add(whole)).max().unwrap_or(0);
    }

    /// If there is none, `to`, or `from` if that is higher.
    #[inline]
    pub(in crate::rewrite) fn first_above(&self, most: u64, from: u32, to: u32) -> u32 {
        let mut operator = from;
        while operator < to {
            let run = operator >> self.bits;
            let end = self.ends(run).1.min(to);
            if self.most[run] > most {
                let whole = self.whole[run];
                let found = self.own.range(operator, end).iter().position(|own| own.wrapping_add(whole) > most);
                if let Some(i) = found.and_then(|i| u32::try_from(i).ok()) {
                    return operator + i;
                }
            }
            operator = end;
        }
        to.max(from)
    }

    #[inline]
    pub(in crate::rewrite) fn after_last_above(&self, most: u64, from: u32, to: u32) -> u32 {
        let mut end = to;
        while end > from {
            let run = (end - 1) >> self.bits;
            let operator = self.ends(run).0.max(from);
            if self.most[run] > most {
                let whole = self.whole[run];
                let found = self.own.range(operator, end).iter().rposition(|own| own.wrapping_add(whole) > most);
                if let Some(i) = found.and_then(|i| u32::try_from(i).ok()) {
                    return operator + i + 1;
                }
            }
            end = operator;
        }
        from
    }

    pub(in crate::rewrite) fn peak(&self) -> (u64, u32) {
        let most = self.most.first(self.runs()).iter().copied().max().unwrap_or(0);
        let at = most.checked_sub(1).map_or(0, |less| self.first_above(less, 0, self.operators));
        (most, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workspace;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn answers_as_a_scan_does(
            loads in prop::collection::vec(1000u64..1100, 1..5000),
            steps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u64..20), 0..40),
            above in 950u64..1150,
        ) {
            let mut expected = loads;
            let n = expected.len();
            let len = Load::workspace(n + 3);
            let mut words = vec![0; len.words];
            let mut load = Load::lend(n + 3, n as u32, &mut Workspace::new(&mut words, &mut []));
            load.change(|operator, _| expected[operator as usize]);
            for (a, b, bytes) in steps {
                let (a, b) = (a.index(n), b.index(n + 1));
                let (from, to) = (a.min(b), a.max(b));
                let bytes = bytes.wrapping_sub(10);
                load.add(from as u32, to as u32, bytes);
                expected[from..to].iter_mut().for_each(|l| *l = l.wrapping_add(bytes));
                let part = &expected[from..to];
                let first = part.iter().position(|&l| l > above).map_or(to, |i| from + i);
                let after = part.iter().rposition(|&l| l > above).map_or(from, |i| from + i + 1);
                prop_assert_eq!(load.first_above(above, from as u32, to as u32), first as u32);
                prop_assert_eq!(load.after_last_above(above, from as u32, to as u32), after as u32);
                let peak = *expected.iter().max().unwrap();
                let at = expected.iter().position(|&l| l == peak).unwrap();
                prop_assert_eq!(load.peak(), (peak, at as u32));
            }
            load.change(|operator, bytes| bytes + u64::from(operator));
            for (i, &l) in expected.iter().enumerate() {
                prop_assert_eq!(load.get(i as u32), l + i as u64);
            }
        }
    }
}
