//! Records the requests of an allocator as a trace, which the command-line program `sublet` can read.
//!
//! This is possible only with the standard library, which has the memory and the clock for it.

#[cfg(any(feature = "std", test))]
mod kind {
    use std::collections::HashMap;
    use std::fmt::Write;
    use std::time::Instant;

    use crate::error::Text;

    enum Event {
        Malloc { bytes: u64 },
        Free,
    }

    struct Row {
        time_ns: u64,
        block: u32,
        event: Event,
    }

    #[derive(Default)]
    pub(crate) struct Profile {
        since: Option<Instant>,
        rows: Vec<Row>,
        /// By address: the number of a block that was allocated since the recording began.
        live: HashMap<u64, u32>,
        blocks: u32,
    }

    impl Profile {
        pub(crate) const IS_AVAILABLE: bool = true;

        #[inline]
        pub(crate) const fn is_on(&self) -> bool {
            self.since.is_some()
        }

        pub(crate) fn begin(&mut self) {
            *self = Self { since: Some(Instant::now()), ..Self::default() };
        }

        pub(crate) const fn end(&mut self) {
            self.since = None;
        }

        #[inline]
        pub(crate) fn malloc(&mut self, address: u64, bytes: u64) {
            if self.since.is_some() {
                self.live.insert(address, self.blocks);
                self.push(self.blocks, Event::Malloc { bytes });
                self.blocks += 1;
            }
        }

        #[inline]
        pub(crate) fn free(&mut self, address: u64) {
            // Blocks that were allocated before the recording began are no part of it.
            if self.since.is_some()
                && let Some(block) = self.live.remove(&address)
            {
                self.push(block, Event::Free);
            }
        }

        #[cold]
        fn push(&mut self, block: u32, event: Event) {
            let ns = self.since.map_or(0, |since| since.elapsed().as_nanos());
            self.rows.push(Row { time_ns: u64::try_from(ns).unwrap_or(u64::MAX), block, event });
        }

        pub(crate) fn write(&self, text: &mut Text<'_>) {
            // Writing to a `Text` does not fail.
            let _ = writeln!(text, "time_ns,event,block,bytes,op");
            for Row { time_ns, block, event } in &self.rows {
                let _ = match event {
                    Event::Malloc { bytes } => writeln!(text, "{time_ns},malloc,{block},{bytes},"),
                    Event::Free => writeln!(text, "{time_ns},free,{block},,"),
                };
            }
        }
    }
}

#[cfg(not(any(feature = "std", test)))]
mod kind {
    use crate::error::Text;

    /// Nothing is recorded without memory and a clock.
    #[derive(Default)]
    pub(crate) struct Profile {}

    #[expect(clippy::unused_self, reason = "as where there is something")]
    impl Profile {
        pub(crate) const IS_AVAILABLE: bool = false;

        pub(crate) const fn is_on(&self) -> bool {
            false
        }

        pub(crate) const fn begin(&mut self) {}

        pub(crate) const fn end(&mut self) {}

        pub(crate) const fn malloc(&mut self, _: u64, _: u64) {}

        pub(crate) const fn free(&mut self, _: u64) {}

        pub(crate) const fn write(&self, _: &mut Text<'_>) {}
    }
}

pub(crate) use kind::Profile;
