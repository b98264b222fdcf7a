//! Proves plans, plans that overlap, and rewritten traces, or names the rule that is broken. The module uses no code of the
//! planners.

mod overlap;
mod plan;
pub(crate) mod schedule;

pub use overlap::{overlap_workspace, verify_overlapping};
pub use plan::{VerifiedPlan, verify, workspace};
pub use schedule::{Room, VerifiedSchedule, schedule, workspace as schedule_workspace};

pub use crate::violation::Violation;
