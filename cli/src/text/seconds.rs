//! Times as people write them.

use std::time::Duration;

/// A number of seconds, with or without a fraction.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "expected seconds, not negative and not endless".to_owned())
}
