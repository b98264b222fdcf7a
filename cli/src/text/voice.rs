//! How much is said beside results: errors alone (`--quiet`), notes too, or also what is read and written (`--verbose`).

use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};

/// 0 quiet, 1 as usual, 2 verbose; one process runs one command.
static VOICE: AtomicU8 = AtomicU8::new(1);

pub(crate) fn set(quiet: bool, verbose: bool) {
    VOICE.store(if quiet { 0 } else { 1 + u8::from(verbose) }, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    VOICE.load(Ordering::Relaxed) == 0
}

/// What a user ought to know, on standard error.
pub(crate) fn note(text: impl AsRef<str>) {
    say(1, text.as_ref());
}

/// What is done meanwhile, for those who ask.
pub(crate) fn detail(text: impl FnOnce() -> String) {
    if VOICE.load(Ordering::Relaxed) > 1 {
        say(2, &text());
    }
}

fn say(least: u8, text: &str) {
    if VOICE.load(Ordering::Relaxed) >= least {
        // If standard error is closed, nobody wants to read it.
        let _ = writeln!(io::stderr(), "note: {text}");
    }
}
