//! Improves a given order of the operators: an operator runs as soon as it is ready if that lowers the load, which is
//! the bytes that are alive.
//!
//! After each operator, the operators that are ready are looked at. One that lowers the load (or, if so asked, does not
//! raise it) and needs no more than the max load of the given order runs next; of several, the one with the lowest
//! number. When there is none, the next operator of the given order runs. Cost: O(operators · operators that are ready), times the tensors that each
//! touches.

use super::model::{Model, Walk};
use crate::Workspace;
use crate::table::Table;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    Lowers,
    DoesNotRaise,
}

pub(crate) fn early(model: &Model<'_>, which: Early, order: &mut Table<'_, u32>, scratch: &mut Workspace<'_>) {
    let mut walk = Walk::new(model, scratch);
    let mut given = scratch.indices(order.len());
    given.copy_from(order);
    let most = walk.max_load(given.first(model.operators));
    walk.begin();
    let mut place = 0;
    for i in 0..model.operators {
        if walk.has_run(given[i]) {
            continue;
        }
        let mut next = Some((given[i], walk.step(given[i])));
        while let Some((operator, step)) = next {
            walk.run(operator, step);
            order[place] = operator;
            place += 1;
            let steps = walk.ready().iter().map(|&operator| (operator, walk.step(operator)));
            let below = walk.load.saturating_add(u64::from(which == Early::DoesNotRaise));
            next = steps.filter(|&(_, (peak, load))| peak <= most && load < below).min_by_key(|step| step.0);
        }
    }
}
