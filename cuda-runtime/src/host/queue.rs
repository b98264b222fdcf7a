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

/// Why a device is lost: the call that failed, and a CUDA error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) call: &'static str,
    pub(super) code: u32,
}

pub(super) type Run = Box<dyn FnOnce() -> Result<(), Fault> + Send>;

/// A piece of a stream's work.
pub(super) enum Task {
    /// A kernel, a copy or a host call: the function that does it, and the simulated time that it takes, in ns.
    Work(Run, f64),
    /// Notes that the stream has reached this point, at which an event was recorded: the event has happened.
    Record(Arc<Point>),
    /// Waits for an event: until another stream has reached the point at which the event was recorded.
    Wait(Arc<Point>),
}

/// A point in a stream's work, at which an event was recorded.
pub(super) struct Point {
    /// The time at which the stream reached the point, in ns since the device was made; `None` if it has not. The time
    /// is real if each stream is a thread, and simulated otherwise.
    pub(super) reached: Mutex<Option<f64>>,
    /// For each stream, how many pieces of its work are sure to be done when this point is reached. Empty unless
    /// [`races`](super::races) are searched for.
    pub(super) clock: Clock,
}

impl Point {
    pub(super) fn reached(&self) -> Option<f64> {
        *lock(&self.reached)
    }
}

/// The queue of one stream.
pub(super) struct Lane {
    pub(super) tasks: VecDeque<(Task, f64)>,
    /// The simulated time up to which the stream has worked, in ns.
    pub(super) clock: f64,
    /// Whether the stream was dropped: it is given no more work.
    pub(super) closed: bool,
}

/// All streams of a device, and what they share.
#[derive(Default)]
pub(super) struct State {
    pub(super) lanes: Vec<Lane>,
    pub(super) fault: Option<Fault>,
    pub(super) races: Option<Races>,
    /// The time of the latest event that the host has waited for, in ns since the device was made. The time is real if
    /// each stream is a thread, and simulated otherwise. Work that a stream is given after the host has waited does not
    /// begin before this time.
    pub(super) host_clock: f64,
    /// How many more kernels, copies and host calls succeed before the device is made to fail, as a test; `None` if it
    /// is not to fail.
    pub(super) until_fault: Option<u64>,
    pub(super) rng: Option<SplitMix64>,
    /// How many streams are doing a piece of work at the moment. Such a piece is no longer in the stream's queue.
    /// Counted only if each stream is a thread; otherwise 0.
    pub(super) working: usize,
}

/// What a stream is to do next.
pub(super) enum Next {
    /// Nothing: the stream has no work left.
    Nothing,
    /// Nothing yet: the stream waits for an event that has not happened.
    Blocked,
    /// The stream is to do this piece of work. The number is the simulated time before which the work does not begin,
    /// in ns.
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

    /// Whether the streams have done all work that they were given.
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

    /// Takes the next piece of work of a stream off its queue, and returns it. Returns [`Next::Blocked`] instead if the
    /// stream has to wait for an event first.
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

    /// The number of the stream that does its next piece of work now; `None` if no stream can go on. Where several can,
    /// `order` says which: the one with the least simulated time, a random one, or all others before a given one.
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

    /// Whether the device is to fail at the kernel, copy or host call that begins now. If not, counts it as one of
    /// those that succeed.
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
