//! Device memory of the CUDA graphs that PyTorch captures.
//!
//! Problem: while a stream is captured, its work becomes part of a graph instead of being done. What is allocated
//! meanwhile belongs to the graph. The graph uses the same addresses each time it is launched, until PyTorch destroys
//! the graph, and also after PyTorch has freed the memory at these addresses.
//!
//! Steps. Such memory is never planned. It comes from the driver block by block, and belongs to a pool, as PyTorch
//! calls it: one for each graph, or for several that are never launched at the same time. A freed block is given out
//! again only in the same pool and stream. It goes back to the driver when PyTorch has released the pool as often as it
//! has begun to allocate there, but never while PyTorch allocates in some pool or a stream is captured.
//!
//! If PyTorch has named no pool for a capture, or has named several at once, it is not known which graph the memory
//! belongs to: then it is never given out again, nor given back to the driver.

use std::collections::{BTreeMap, HashMap};

use super::driver::Stream;

/// PyTorch's number of a pool, the memory of one or more CUDA graphs (`MempoolId_t`).
pub type PoolId = (u64, u64);

#[derive(Clone, Copy, Debug)]
struct Live {
    pool: Option<PoolId>,
    bytes: u64,
    stream: Option<Stream>,
}

#[derive(Debug, Default)]
struct Pool {
    /// Begins less releases; at 0 no graph uses the pool.
    users: usize,
    /// Address, bytes, and the only stream that may reuse it; `None` if none may.
    free: Vec<(u64, u64, Option<Stream>)>,
}

#[derive(Debug, Default)]
pub(super) struct Graphs {
    pools: BTreeMap<PoolId, Pool>,
    live: HashMap<u64, Live>,
    /// Listed as often as [`begin`](Graphs::begin) was called, less [`end`](Graphs::end).
    open: Vec<PoolId>,
}

impl Graphs {
    pub(super) fn begin(&mut self, pool: PoolId) {
        self.pools.entry(pool).or_default().users += 1;
        self.open.push(pool);
    }

    pub(super) fn end(&mut self, pool: PoolId) {
        if let Some(last) = self.open.iter().rposition(|open| *open == pool) {
            self.open.remove(last);
        }
    }

    pub(super) fn release(&mut self, pool: PoolId) {
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.users = pool.users.saturating_sub(1);
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// `None` if PyTorch has named none, or several.
    fn current(&self) -> Option<PoolId> {
        if let [pool] = self.open.as_slice() { Some(*pool) } else { None }
    }

    /// The smallest that is large enough, and at most twice as large.
    pub(super) fn take(&mut self, bytes: u64, stream: Stream) -> Option<u64> {
        let id = self.current()?;
        let pool = self.pools.get_mut(&id)?;
        let fits = |(_, (_, len, of)): &(usize, &(u64, u64, Option<Stream>))| {
            *of == Some(stream) && (bytes..=bytes.saturating_mul(2)).contains(len)
        };
        let (best, _) = pool.free.iter().enumerate().filter(fits).min_by_key(|(_, (_, len, _))| *len)?;
        let (address, bytes, stream) = pool.free.swap_remove(best);
        self.live.insert(address, Live { pool: Some(id), bytes, stream });
        Some(address)
    }

    pub(super) fn add(&mut self, address: u64, bytes: u64, stream: Stream) {
        self.live.insert(address, Live { pool: self.current(), bytes, stream: Some(stream) });
    }

    /// Once freed, the memory is not given to another block.
    pub(super) fn share(&mut self, address: u64, stream: Stream) -> bool {
        let Some(live) = self.live.get_mut(&address) else { return false };
        live.stream = live.stream.filter(|&own| own == stream);
        true
    }

    /// Memory of an unknown pool is never given out again.
    pub(super) fn free(&mut self, address: u64) -> bool {
        let Some(Live { pool, bytes, stream }) = self.live.remove(&address) else { return false };
        if let Some(pool) = pool {
            self.pools.entry(pool).or_default().free.push((address, bytes, stream));
        }
        true
    }

    pub(super) fn has_surplus(&self) -> bool {
        self.pools.values().any(|pool| pool.users == 0 && !pool.free.is_empty())
    }

    /// The caller frees them.
    pub(super) fn surplus(&mut self) -> Vec<u64> {
        let mut addresses = Vec::new();
        for pool in self.pools.values_mut().filter(|pool| pool.users == 0) {
            addresses.extend(pool.free.drain(..).map(|(address, ..)| address));
        }
        let live = &self.live;
        self.pools
            .retain(|id, pool| pool.users > 0 || !pool.free.is_empty() || live.values().any(|l| l.pool == Some(*id)));
        addresses
    }
}
