//! Tensors that lie in one block of memory: an output over the input that it is written over, the parts of a
//! concatenation where they end up, the parts of a split where they lie.

use std::collections::HashMap;

use super::kernels::{self, Inside};
use super::schedule::Schedule;
use super::{Model, Operator};

/// Which tensors lie in one block, and where in it.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    places: Vec<Place>,
    /// By block: its tensors, if there are several.
    members: HashMap<u32, Vec<u32>>,
    /// By block: the address that it has to have.
    pins: HashMap<u32, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// The block, called by one of its tensors.
    block: u32,
    /// Bytes from the block's begin.
    at: u64,
}

impl Sharing {
    /// Every tensor has a block of its own.
    pub(crate) fn none(model: &Model) -> Self {
        let places = (0..).zip(&model.tensors).map(|(block, _)| Place { block, at: 0 }).collect();
        Self { places, members: HashMap::new(), pins: HashMap::new() }
    }

    /// Operands share a block wherever their kernel lets them, their lifetimes do, and `allowed` is true. An output that
    /// may be written over several inputs takes the first.
    pub(crate) fn where_allowed(
        mut self,
        model: &Model,
        schedule: &Schedule,
        allowed: impl Fn(Inside) -> bool,
    ) -> Self {
        for (&number, time) in schedule.steps.iter().zip(1u32..) {
            let operator = &model.operators[number as usize];
            let mut over = kernels::in_place(model, operator).into_iter().filter(|&inside| allowed(inside));
            let _ = over.any(|inside| self.join(model, schedule, (operator, time), inside));
            for inside in kernels::parts(model, operator).into_iter().filter(|&inside| allowed(inside)) {
                self.join(model, schedule, (operator, time), inside);
            }
        }
        self
    }

    /// Puts the blocks of two operands together, unless something else than these two would lie in the same bytes at
    /// the same time. Of the two, an input has to die with the operator, and an output to begin there.
    fn join(&mut self, model: &Model, schedule: &Schedule, (operator, time): (&Operator, u32), inside: Inside) -> bool {
        let Inside { outer, inner, at } = inside;
        let (host, guest) = (self.places[outer as usize], self.places[inner as usize]);
        let Some(shift) = (host.at + at).checked_sub(guest.at).filter(|_| host.block != guest.block) else {
            return false;
        };
        let lives = |tensor: u32| Some((schedule.lives[tensor as usize]?[0], schedule.until(tensor)));
        let (hosts, guests) = (self.members(host.block), self.members(guest.block));
        let apart = |a: u32, b: u32| {
            let [from, to] = self.extent(model, a, 0);
            let [begin, end] = self.extent(model, b, shift);
            let (Some((first, last)), Some((start, until))) = (lives(a), lives(b)) else { return false };
            let hands_over = |input: u32, last: u32, first: u32| {
                (a, b) == (outer, inner) && last == time && first == time && operator.inputs.contains(&input)
            };
            to <= begin
                || end <= from
                || last < start
                || until < first
                || hands_over(a, last, start)
                || hands_over(b, until, first)
        };
        if !hosts.iter().all(|&a| guests.iter().all(|&b| apart(a, b))) {
            return false;
        }
        let [own, carried] = [host.block, guest.block].map(|block| self.pins.get(&block).copied());
        let carried = carried.map(|address| address.checked_sub(shift));
        if carried == Some(None) || own.is_some() && carried.flatten().is_some_and(|address| Some(address) != own) {
            return false;
        }
        if let Some(address) = carried.flatten() {
            self.pins.insert(host.block, address);
        }
        for &tensor in &guests {
            let place = &mut self.places[tensor as usize];
            *place = Place { block: host.block, at: place.at + shift };
        }
        self.members.remove(&guest.block);
        self.members.insert(host.block, [hosts, guests].concat());
        true
    }

    /// Ties tensors to their addresses: those whose bytes overlap make one block.
    pub(crate) fn tie(&mut self, model: &Model, tensors: &[(u32, u64)]) {
        let mut sorted = tensors.to_vec();
        sorted.sort_unstable_by_key(|&(tensor, address)| (address, tensor));
        let (mut end, mut begin, mut block) = (0, 0, None);
        for (tensor, address) in sorted {
            let own = *block.filter(|_| address < end).get_or_insert(tensor);
            if block != Some(own) {
                (block, begin, end) = (Some(own), address, address);
                self.pins.insert(own, address);
            }
            end = end.max(address + model.bytes(tensor));
            self.places[tensor as usize] = Place { block: own, at: address - begin };
            self.members.entry(own).or_default().push(tensor);
        }
    }

    /// Where a tensor begins and ends in a block that is moved up by `shift` bytes.
    fn extent(&self, model: &Model, tensor: u32, shift: u64) -> [u64; 2] {
        let begin = self.at(tensor) + shift;
        [begin, begin + model.bytes(tensor)]
    }

    /// The block of a tensor, called by one of its tensors.
    pub(crate) fn block(&self, tensor: u32) -> u32 {
        self.places[tensor as usize].block
    }

    /// Bytes from the begin of the block to that of the tensor.
    pub(crate) fn at(&self, tensor: u32) -> u64 {
        self.places[tensor as usize].at
    }

    /// The tensors of a block.
    pub(crate) fn members(&self, block: u32) -> Vec<u32> {
        self.members.get(&block).cloned().unwrap_or_else(|| vec![block])
    }

    /// The bytes of a block.
    pub(crate) fn bytes(&self, model: &Model, block: u32) -> u64 {
        self.members(block).iter().map(|&tensor| self.extent(model, tensor, 0)[1]).max().unwrap_or(0)
    }

    /// The address that a block has to have.
    pub(crate) fn pin(&self, block: u32) -> Option<u64> {
        self.pins.get(&block).copied()
    }
}
