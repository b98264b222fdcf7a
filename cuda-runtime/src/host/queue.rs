//! Streams and events: queues of work, and which of them may go on.
//!
//! One lock holds all queues. A stream goes on with the work at the front of its queue, unless that work is a wait for
//! an event that has not happened. When a stream is given a wait for an event, the point at which the event was last
//! recorded is kept with the wait: later records do not change it. So a wait is always for work that was given earlier,
//! and some stream can always go on. After a fault all work that is left is skipped, and waiting threads are woken.

use std::collections::VecDeque;
use std::sync::Arc;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::options::Order;
use super::races::{Clock, Races};
use super::sync::{Mutex, lock};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) call: &'static str,
    pub(super) code: u32,
}

pub(super) type Run = Box<dyn FnOnce() -> Result<(), Fault> + Send>;

pub(super) enum Task {
    /// With its simulated time, in ns.
    Work(Run, f64),
    Record(Arc<Point>),
    Wait(Arc<Point>),
}

pub(super) struct Point {
    /// In ns since the device was made; real if each stream is a thread, else simulated.
    pub(super) reached: Mutex<Option<f64>>,
    /// Empty unless [`races`](super::races) are searched for.
    pub(super) clock: Clock,
}

impl Point {
    pub(super) fn reached(&self) -> Option<f64> {
        *lock(&self.reached)
    }
}

pub(super) struct Lane {
    pub(super) tasks: VecDeque<(Task, f64)>,
    /// Simulated, in ns.
    pub(super) clock: f64,
    pub(super) closed: bool,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) lanes: Vec<Lane>,
    pub(super) fault: Option<Fault>,
    pub(super) races: Option<Races>,
    /// Of the latest event that the host has waited for, in ns. Later work begins no earlier.
    pub(super) host_clock: f64,
    /// Calls that still succeed; `None` if the device is not to fail.
    pub(super) until_fault: Option<u64>,
    pub(super) rng: Option<SplitMix64>,
    /// Out of the queue and not done. 0 unless each stream is a thread.
    pub(super) working: usize,
}

pub(super) enum Next {
    Nothing,
    Blocked,
    /// With the simulated time, in ns, before which it does not begin.
    Task(Task, f64),
}

impl State {
    pub(super) fn open(&mut self) -> usize {
        self.lanes.push(Lane { tasks: VecDeque::new(), clock: 0.0, closed: false });
        self.lanes.len() - 1
    }

    pub(super) fn push(&mut self, lane: usize, task: Task) {
        let given = self.host_clock;
        self.lanes[lane].tasks.push_back((task, given));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.working == 0 && self.lanes.iter().all(|lane| lane.tasks.is_empty())
    }

    pub(super) fn is_ready(&self, lane: usize) -> bool {
        match self.lanes[lane].tasks.front() {
            None => false,
            Some((Task::Wait(point), _)) => self.fault.is_some() || point.reached().is_some(),
            Some(_) => true,
        }
    }

    pub(super) fn next(&mut self, lane: usize) -> Next {
        if self.lanes[lane].tasks.is_empty() {
            return Next::Nothing;
        }
        if !self.is_ready(lane) {
            return Next::Blocked;
        }
        match self.lanes[lane].tasks.pop_front() {
            Some((task, given)) => Next::Task(task, given),
            None => Next::Nothing,
        }
    }

    pub(super) fn choose(&mut self, order: Order) -> Option<usize> {
        let mut ready = (0..self.lanes.len()).filter(|&lane| self.is_ready(lane));
        match order {
            Order::Time => ready.min_by(|&a, &b| self.lanes[a].clock.total_cmp(&self.lanes[b].clock)),
            Order::Last(held) => ready.min_by_key(|&lane| lane == held),
            Order::Random(seed) => {
                let lanes: Vec<usize> = ready.by_ref().collect();
                let rng = self.rng.get_or_insert_with(|| SplitMix64::seed_from_u64(seed));
                let draw = usize::try_from(rng.next_u64() >> 32).unwrap_or(0);
                lanes.get(draw.checked_rem(lanes.len())?).copied()
            }
        }
    }

    pub(super) fn fails_now(&mut self) -> bool {
        match &mut self.until_fault {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }
}
