//! A progress line on standard error for long work.

use std::io::{self, IsTerminal};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::voice;

/// Work shorter than this shows nothing.
const LONG: Duration = Duration::from_millis(500);

/// Does the work, and shows how long it has taken when it is long and standard error is a terminal. The work may set
/// the bar's message.
pub(crate) fn during<T>(what: &'static str, work: impl FnOnce(&ProgressBar) -> T) -> T {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    if voice::is_quiet() || !io::stderr().is_terminal() {
        return work(&bar);
    }
    bar.set_prefix(what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {msg}") {
        bar.set_style(style);
    }
    let result = thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        let bar = &bar;
        scope.spawn(move || {
            if is_done.recv_timeout(LONG) == Err(mpsc::RecvTimeoutError::Timeout) {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(Duration::from_millis(100));
            }
        });
        let result = work(bar);
        drop(done);
        result
    });
    bar.finish_and_clear();
    result
}

/// Turns the progress line into a bar of `total` equal parts; `bar.inc(1)` counts one of them as done.
pub(crate) fn count(bar: &ProgressBar, total: u64) {
    bar.set_length(total);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {bar:30} {pos}/{len} {wide_msg}") {
        bar.set_style(style);
    }
}
