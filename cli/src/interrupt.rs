//! Ends long work early: at a deadline, or at Ctrl-C.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// When work is to end. The first Ctrl-C ends it with the best so far, the second one ends the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    deadline: Option<Instant>,
}

impl Until {
    /// Ends after this time from now; without a limit, only at Ctrl-C.
    pub(crate) fn after(limit: Option<Duration>) -> Self {
        // Where no handler can be set, Ctrl-C ends the program.
        let _ = ctrlc::set_handler(|| {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        });
        Self { deadline: limit.and_then(|limit| Instant::now().checked_add(limit)) }
    }

    /// Whether the time is up, or Ctrl-C was pressed.
    pub(crate) fn is_over(self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed) || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Tells work whether to go on.
    pub(crate) fn flow(self) -> ControlFlow<()> {
        if self.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
