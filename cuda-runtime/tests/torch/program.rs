//! A program that allocates as training does.

use std::collections::BTreeMap;

use sublet_cuda::Error;
use sublet_cuda::torch::{Device, Statistics, Stream};

use crate::fake::Fake;

/// A program that allocates, and what it has.
pub(crate) struct Program {
    pub(crate) device: Device<Fake>,
    pub(crate) live: BTreeMap<u64, u64>,
    pub(crate) errors: Vec<Error>,
}

impl Program {
    pub(crate) fn new(fake: Fake) -> Self {
        Self { device: Device::with_room(fake, 1 << 10, 1 << 8).unwrap(), live: BTreeMap::new(), errors: Vec::new() }
    }

    /// Memory that nobody else has, all of it in one allocation of the driver.
    pub(crate) fn malloc_in(&mut self, bytes: u64, stream: Stream) -> Option<u64> {
        let address = match self.device.malloc(bytes, stream) {
            Ok(address) => address,
            Err(error) => {
                self.errors.push(error);
                return None;
            }
        };
        assert_eq!(address % 512, 0);
        let (before, after) = (self.live.range(..=address).next_back(), self.live.range(address..).next());
        assert!(before.is_none_or(|(a, len)| a + len <= address), "{address:#x} is live");
        assert!(after.is_none_or(|(&a, _)| address + bytes <= a), "{address:#x} reaches into a live block");
        let (start, (len, _)) = self.device.driver().live.range(..=address).next_back().expect("the driver's");
        assert!(address + bytes <= start + len, "{bytes} bytes at {address:#x} are not all the driver's");
        self.live.insert(address, bytes);
        Some(address)
    }

    pub(crate) fn malloc(&mut self, bytes: u64) -> Option<u64> {
        self.malloc_in(bytes, 0)
    }

    pub(crate) fn free_in(&mut self, address: Option<u64>, stream: Stream) {
        let Some(address) = address else { return };
        self.live.remove(&address).unwrap();
        if let Err(error) = self.device.free(address, stream) {
            self.errors.push(error);
        }
    }

    pub(crate) fn free(&mut self, address: Option<u64>) {
        self.free_in(address, 0);
    }

    /// Forward keeps activations, backward frees them in reverse, with a gradient and a workspace at each layer.
    pub(crate) fn iteration(&mut self, batch: u64) {
        let activations = self.forward(batch);
        self.backward(batch, activations);
    }

    /// The activations of a forward pass.
    pub(crate) fn forward(&mut self, batch: u64) -> Vec<Option<u64>> {
        let mut activations = Vec::new();
        for layer in 0..20 {
            let workspace = self.malloc(3 * size(batch, layer));
            activations.push(self.malloc(size(batch, layer)));
            self.free(workspace);
        }
        activations
    }

    pub(crate) fn backward(&mut self, batch: u64, mut activations: Vec<Option<u64>>) {
        let mut gradient = self.malloc(size(batch, 19));
        for layer in (0..20).rev() {
            let workspace = self.malloc(2 * size(batch, layer));
            let next = self.malloc(size(batch, layer));
            self.free(gradient);
            self.free(workspace);
            self.free(activations.pop().unwrap());
            gradient = next;
        }
        self.free(gradient);
    }

    pub(crate) fn statistics(&mut self) -> Statistics {
        self.device.statistics().unwrap()
    }

    /// What is not planned of the next iteration.
    pub(crate) fn unplanned(&mut self, batch: u64) -> u64 {
        let before = self.statistics().unplanned;
        self.iteration(batch);
        self.statistics().unplanned - before
    }
}

/// The bytes of what a layer computes.
const fn size(batch: u64, layer: u64) -> u64 {
    batch * (layer % 5 + 1) * 1000 + layer
}

/// The most bytes of an iteration that are live at once.
pub(crate) fn max_load(batch: u64) -> u64 {
    let mut program = Program::new(Fake::new(1 << 30));
    // Nothing of other streams is planned: each block is an allocation.
    let first = program.malloc_in(1, 1);
    program.free_in(first, 1);
    program.device.driver().peak = 0;
    program.iteration(batch);
    program.device.driver().peak
}
