//! Swapping by rules.
//!
//! Problem: which gaps to swap so that the load stays within a limit. A *gap* is a time in which no operator accesses a
//! block, so that the block may be on the host.
//!
//! Papers: Zhang et al. 2019, "Efficient Memory Management for GPU-based Deep Learning Systems", section 4, for the
//! scores; Jin et al. 2018, Layrub, for [`Policy::Layer`].
//!
//! Steps: of the gaps in which the operator with the max load lies, the one with the highest score is used, and so on,
//! until the max load is within the limit. The paper takes only the gaps at the original's max load; here, once the max
//! load has moved to another operator, the gaps there count, so that lower limits can be kept. A mixture is the weighted
//! sum of all four scores, each divided by its standard deviation over the gaps; Bayesian optimisation finds the weights.
//!
//! Positions: values are copied out as soon as they are idle, in the order in which their memory is needed. Where the
//! load would be above the limit, and no earlier, blocks are freed, those first whose gaps begin first. Copies in begin
//! as late as the link allows without delay, and later where memory is not free so early. Each schedule is placed; where
//! the placement is above the limit, the load is held further below it. Persistent blocks are on the device at both ends
//! of the iteration. Cost: O(gaps chosen · (operators + gaps)) for each schedule; [`Policy::Bayes`] makes 30.

use sublet_core::place::{self, Solver};
use sublet_core::rewrite::fit::Options;
use sublet_core::simulate::{self, Device, Timing};
use sublet_core::trace::{Event, Op, Recorded, Row};
use sublet_core::{Constraints, Error, owned};

use crate::bayes::{self, Weights};
use crate::network::Network;

/// The rule that decides which blocks are swapped to the host, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The longest duration of absence first: the idle time less the time of the copies (Zhang et al. 2019).
    Doa,
    /// The largest area of absence first: the duration of absence times the block's bytes (Zhang et al. 2019).
    Aoa,
    /// The highest weighted duration of absence first: the area under the load curve (bytes alive over time) during the
    /// idle time (Zhang et al. 2019).
    Wdoa,
    /// As [`Policy::Wdoa`], where the load is that which is left by the swaps already chosen (Zhang et al. 2019).
    Swdoa,
    /// The highest weighted sum of the four scores first, with weights by Bayesian optimisation (Zhang et al. 2019).
    Bayes,
    /// Blocks that are idle while the operator with the max load runs are copied out as soon as they are idle, and back
    /// one operator before their next reader (Jin et al. 2018). No limit changes it.
    Layer,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 6] = [Self::Doa, Self::Aoa, Self::Wdoa, Self::Swdoa, Self::Bayes, Self::Layer];

    /// The name of the policy, for people and on the command line.
    ///
    /// ```
    /// use sublet_baselines::zhang::Policy;
    /// assert!(Policy::ALL.iter().all(|&p| Policy::named(p.name()) == Some(p)));
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Doa => "doa",
            Self::Aoa => "aoa",
            Self::Wdoa => "wdoa",
            Self::Swdoa => "swdoa",
            Self::Bayes => "bayes",
            Self::Layer => "layer",
        }
    }

    /// How the policy decides what is swapped, in one line for people.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Doa => "duration of absence",
            Self::Aoa => "area of absence",
            Self::Wdoa => "weighted duration of absence",
            Self::Swdoa => "submodular weighted duration of absence",
            Self::Bayes => "a weighted sum of the four scores, found by Bayesian optimisation",
            Self::Layer => "out after the last forward reader, back one operator ahead (Layrub)",
        }
    }

    /// The policy with this name; none if no policy has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// A schedule and its placement, for the verifier to judge.
#[derive(Clone, Debug)]
pub struct Swapped {
    /// The rows of the rewritten trace.
    pub rows: Vec<Row>,
    /// The offset of each live range of a block on the device, in the order of the mallocs, in bytes.
    pub offsets: Vec<u64>,
}

/// How often a schedule is placed anew with the load held further below the limit.
const PLACED: u32 = 12;

/// Swaps by a policy, within the limit of the options; none where it finds no schedule. Of the options it heeds the
/// limit, the device, the alignment, `least_bytes`, `keep_persistent` and the seed.
///
/// # Errors
/// [`Error::Row`] for a trace that is no recording; [`Error::Device`] if the device is not sound; whatever placing says.
pub fn swap(recorded: &Recorded<'_>, policy: Policy, options: &Options) -> Result<Option<Swapped>, Error> {
    if !options.device.is_sound() {
        return Err(Error::Device);
    }
    let network = Network::of(recorded)?;
    let mut swaps = Swaps::of(&network, options);
    let constraints = Constraints { alignment: options.alignment, capacity: None };
    let mut limit = options.limit;
    for _ in 0..PLACED {
        let found = match policy {
            Policy::Doa => swaps.by_score(limit, Weights::DOA),
            Policy::Aoa => swaps.by_score(limit, Weights::AOA),
            Policy::Wdoa => swaps.by_score(limit, Weights::WDOA),
            Policy::Swdoa => swaps.by_score(limit, Weights::SWDOA),
            Policy::Bayes => {
                let weights = bayes::search(options.seed, |weights| {
                    swaps.by_score(limit, weights).then(|| swaps.overhead()).flatten()
                });
                swaps.by_score(limit, weights)
            }
            Policy::Layer => {
                swaps.by_layers();
                true
            }
        };
        if !found {
            break;
        }
        let rows = swaps.rows();
        let (blocks, _) = owned::lifetimes(&rows, recorded.blocks)?;
        let placing = place::Options { constraints, ..place::Options::default() };
        let placed = owned::plan(&blocks, Solver::Multistart, &placing)?;
        if placed.peak <= options.limit {
            return Ok(Some(Swapped { rows, offsets: placed.offsets }));
        }
        if policy == Policy::Layer {
            break;
        }
        let excess = (placed.peak - options.limit).max(options.limit / 512).max(1);
        let Some(lower) = limit.checked_sub(excess) else { break };
        limit = lower;
    }
    Ok(None)
}

pub(crate) fn by_layers(network: &Network<'_>, least_bytes: u64) -> Vec<Row> {
    let device = Device::symmetric(1.0);
    let options = Options { least_bytes, alignment: 1, ..Options::new(u64::MAX, device) };
    let mut swaps = Swaps::of(network, &options);
    swaps.by_layers();
    swaps.rows()
}

struct Gap {
    block: usize,
    /// The operators in which the block is idle.
    begin: usize,
    end: usize,
    /// The access that ends it is a read: the value is copied out, and back.
    reads: bool,
    /// The operator that wrote the value; none where it is older than the iteration.
    writer: Option<usize>,
    /// When the value has to be on the host and when it is next needed; none while the block stays on the device.
    away: Option<[usize; 2]>,
}

struct Swaps<'n> {
    network: &'n Network<'n>,
    options: &'n Options,
    gaps: Vec<Gap>,
    /// The bytes of each block, rounded up to the alignment.
    size: Vec<u64>,
    original: Vec<u64>,
    load: Vec<u64>,
}

impl<'n> Swaps<'n> {
    fn of(network: &'n Network<'n>, options: &'n Options) -> Self {
        let round = |size: u64| size.checked_next_multiple_of(options.alignment.max(1)).unwrap_or(u64::MAX);
        let size: Vec<u64> = network.size.iter().map(|&size| round(size)).collect();
        let original = network.loads();
        let mut swaps = Self { network, options, gaps: Vec::new(), size, load: original.clone(), original };
        let mut last = vec![None; network.size.len()];
        let mut writer = vec![None; network.size.len()];
        for o in 0..network.accessing {
            for r in network.accesses(o) {
                let block = r.block as usize;
                let stays = options.keep_persistent && network.persistent[block];
                let reads = r.event == Event::Read;
                if let Some(begin) = last[block].map(|last: usize| last + 1)
                    && begin < o
                    && !stays
                    && network.size[block] >= options.least_bytes
                    && (!reads || network.persistent[block] || writer[block].is_some())
                {
                    swaps.gaps.push(Gap { block, begin, end: o, reads, writer: writer[block], away: None });
                }
                last[block] = Some(o);
                writer[block] = if reads { writer[block] } else { Some(o) };
            }
        }
        swaps
    }

    fn copies_ns(&self, block: usize) -> [f64; 2] {
        let (device, size) = (&self.options.device, self.network.size[block]);
        [device.out_ns(size), device.in_ns(size)]
    }

    fn clear(&mut self) {
        self.gaps.iter_mut().for_each(|gap| gap.away = None);
        self.load.clone_from(&self.original);
    }

    fn set(&mut self, gap: usize, away: Option<[usize; 2]>) {
        let Gap { block, away: old, .. } = self.gaps[gap];
        for load in old.into_iter().flat_map(|[from, to]| from..to) {
            self.load[load] += self.size[block];
        }
        for load in away.into_iter().flat_map(|[from, to]| from..to) {
            self.load[load] = self.load[load].saturating_sub(self.size[block]);
        }
        self.gaps[gap].away = away;
    }

    fn peak(&self) -> (u64, usize) {
        let highest = self.load.iter().enumerate().max_by_key(|&(o, &load)| (load, usize::MAX - o));
        highest.map_or((0, 0), |(o, &load)| (load, o))
    }

    fn fits_the_host(&self, gap: &Gap) -> bool {
        let Some(capacity) = self.options.device.host_capacity.filter(|_| gap.reads) else { return true };
        let mut blocks: Vec<usize> =
            self.gaps.iter().filter(|g| g.away.is_some() && g.reads).map(|g| g.block).collect();
        blocks.push(gap.block);
        blocks.sort_unstable();
        blocks.dedup();
        blocks.iter().map(|&block| self.network.size[block]).fold(0, u64::saturating_add) <= capacity
    }

    fn by_layers(&mut self) {
        self.clear();
        let (_, peak) = self.peak();
        for gap in 0..self.gaps.len() {
            let g = &self.gaps[gap];
            if g.reads && g.begin <= peak && peak < g.end && g.begin + 1 < g.end && self.fits_the_host(g) {
                self.set(gap, Some([g.begin, g.end - 1]));
            }
        }
    }

    fn by_score(&mut self, limit: u64, weights: Weights) -> bool {
        self.clear();
        let fixed = self.areas();
        let scale = self.scale(weights, &fixed);
        loop {
            let (peak, operator) = self.peak();
            if peak <= limit {
                break;
            }
            let left = if scale[3] == 0.0 { fixed.clone() } else { self.areas() };
            let at = |g: &Gap| g.away.is_none() && g.begin <= operator && operator < g.end;
            let score = |g: &Gap| -> f64 { self.scores(g, &fixed, &left).iter().zip(scale).map(|(s, w)| s * w).sum() };
            let open = self.gaps.iter().enumerate().filter(|(_, g)| at(g) && self.fits_the_host(g));
            let best = open.map(|(i, g)| (score(g), i)).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            let Some((_, gap)) = best else { return false };
            let Gap { begin, end, .. } = self.gaps[gap];
            self.set(gap, Some([begin, end]));
        }
        self.position(limit);
        true
    }

    /// Under the load up to each boundary, in byte nanoseconds.
    #[expect(clippy::cast_precision_loss, reason = "scores")]
    fn areas(&self) -> Vec<f64> {
        let mut sum = 0.0;
        let area = |o: usize| {
            let before = sum;
            let lasts = self.network.time(o + 1) - self.network.time(o);
            sum += self.load[o] as f64 * lasts as f64;
            before
        };
        (0..self.load.len()).map(area).collect()
    }

    /// The first is in ns, the others in byte nanoseconds; a negative area of absence is in ns per byte.
    #[expect(clippy::cast_precision_loss, reason = "scores")]
    fn scores(&self, gap: &Gap, area: &[f64], left: &[f64]) -> [f64; 4] {
        let size = self.network.size[gap.block] as f64;
        let idle = self.network.operators[gap.end].begin.saturating_sub(self.network.time(gap.begin)) as f64;
        let doa = idle - self.copies_ns(gap.block).iter().sum::<f64>();
        let aoa = if doa < 0.0 { doa / size } else { doa * size };
        [doa, aoa, area[gap.end] - area[gap.begin], left[gap.end] - left[gap.begin]]
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of gaps")]
    fn scale(&self, Weights(mut weights): Weights, area: &[f64]) -> [f64; 4] {
        let n = self.gaps.len().max(1) as f64;
        let scores: Vec<[f64; 4]> = self.gaps.iter().map(|gap| self.scores(gap, area, area)).collect();
        for (i, weight) in weights.iter_mut().enumerate() {
            let mean = scores.iter().map(|s| s[i]).sum::<f64>() / n;
            let variance = scores.iter().map(|s| (s[i] - mean) * (s[i] - mean)).sum::<f64>() / n;
            *weight /= if variance > 0.0 { variance.sqrt() } else { 1.0 };
        }
        weights
    }

    fn position(&mut self, limit: u64) {
        let mut chosen: Vec<usize> = (0..self.gaps.len()).filter(|&gap| self.gaps[gap].away.is_some()).collect();
        for &gap in &chosen {
            self.set(gap, None);
        }
        chosen.sort_by_key(|&gap| self.gaps[gap].begin);
        let mut waiting = chosen.iter().copied().peekable();
        for o in 0..self.load.len() {
            while self.load[o] > limit
                && let Some(gap) = waiting.next_if(|&gap| self.gaps[gap].begin <= o)
            {
                if o < self.gaps[gap].end {
                    self.set(gap, Some([o, self.gaps[gap].end]));
                }
            }
        }
        self.take_early(chosen, limit);
    }

    #[expect(clippy::cast_precision_loss, reason = "times")]
    fn take_early(&mut self, mut chosen: Vec<usize>, limit: u64) {
        let mut link = f64::INFINITY;
        chosen.sort_by_key(|&gap| self.gaps[gap].end);
        for gap in chosen.into_iter().rev() {
            let Gap { block, end, reads: true, away: Some([give, mut take]), .. } = self.gaps[gap] else { continue };
            let begin = link.min(self.network.operators[end].begin as f64) - self.copies_ns(block)[1];
            while take > give + 1
                && self.network.time(take) as f64 > begin
                && self.load[take - 1].saturating_add(self.size[block]) <= limit
            {
                take -= 1;
            }
            self.set(gap, Some([give, take]));
            link = begin;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn overhead(&self) -> Option<f64> {
        let (recorded, rows) = (&self.network.recorded, self.rows());
        let mut scratch = owned::Scratch::of(simulate::workspace(recorded.rows.len(), recorded.blocks));
        let mut timings = vec![Timing::default(); rows.len()];
        let run = simulate::simulate(recorded, &rows, &self.options.device, scratch.lend(), &mut timings).ok()?;
        Some(run.time_ns - run.original_ns as f64)
    }

    fn rows(&self) -> Vec<Row> {
        let n = self.network.operators.len();
        let mut outs: Vec<Vec<(usize, usize)>> = vec![Vec::new(); n + 1];
        let mut frees: Vec<Vec<usize>> = vec![Vec::new(); n + 1];
        let mut ins: Vec<Vec<(usize, bool)>> = vec![Vec::new(); n + 1];
        // One copy out serves all gaps of a value, until the next write.
        let mut on_host = vec![None; self.network.size.len()];
        for gap in &self.gaps {
            let Some([give, take]) = gap.away else { continue };
            let value = Some(gap.writer);
            if gap.reads && on_host[gap.block] != value {
                on_host[gap.block] = value;
                outs[gap.begin].push((give, gap.block));
            }
            frees[give].push(gap.block);
            ins[take].push((gap.block, gap.reads));
        }
        let mut rows: Vec<Row> = Vec::new();
        let mut time_ns = 0;
        for (o, operator) in self.network.operators.iter().enumerate() {
            let added = |event, block: usize| Row {
                time_ns,
                bytes: if event == Event::Malloc { self.network.size[block] } else { 0 },
                block: u32::try_from(block).unwrap_or(u32::MAX),
                op: Op::None,
                event,
            };
            outs[o].sort_unstable();
            rows.extend(outs[o].iter().map(|&(_, block)| added(Event::SwapOut, block)));
            rows.extend(frees[o].iter().map(|&block| added(Event::Free, block)));
            for &(block, reads) in &ins[o] {
                rows.push(added(Event::Malloc, block));
                rows.extend(reads.then(|| added(Event::SwapIn, block)));
            }
            rows.extend(&self.network.recorded.rows[operator.rows.clone()]);
            time_ns = rows.last().map_or(0, |r| r.time_ns);
        }
        rows
    }
}
