//! Placement: gives every memory block an offset, so that blocks that are alive at the same step share no address.
//!
//! [`place`] runs the method that a [`Solver`] names; [`Solver::Auto`] is the one to use. Every method takes the blocks,
//! options, a workspace and a slice to which it writes the offsets, and returns a [`Summary`]. No method knows where the
//! blocks come from. No plan is trusted until [`verify`](crate::verify::verify) has accepted it.

mod auto;
pub mod banks;
mod beam;
mod best_fit;
mod bound;
mod by_order;
pub mod chunks;
mod ejection;
mod gap;
mod interval;
mod late_reuse;
mod lifetime_tree;
mod load_tree;
mod methods;
mod multistart;
pub mod overlap;
mod portfolio;
mod search;
mod skyline;
mod small;
mod solver;
mod support;
mod technique;

pub use self::auto::FEW_BLOCKS;
pub use self::bound::{lower_bound, lower_bound_workspace};
pub use self::gap::Fit;
pub use self::interval::{Clique, Sweep};
pub use self::methods::{place, place_watched, workspace_of, workspace_up_to};
pub use self::small::{Span, place_small};
pub use self::solver::{Options, Order, Solver, Summary, Watch};
pub(crate) use self::support::align_up;
pub use self::technique::{Technique, Techniques};

#[cfg(test)]
mod tests;
