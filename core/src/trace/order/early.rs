//! The order as it is given, but that an operator runs as soon as it can after which less is alive.
//!
//! After each operator, those that are ready are looked at, the one that was listed first before the others: one that leaves less
//! alive than there is, and needs no more than the worst operator of the given order, runs. O(operators · ready), with
//! the tensors that each touches.

use super::model::{Model, Walk};
use crate::Workspace;
use crate::table::Table;

/// Changes `order`, which is one of the model; takes the walk from the workspace.
pub(crate) fn early(model: &Model<'_>, order: &mut Table<'_, u32>, scratch: &mut Workspace<'_>) {
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
            next = steps.filter(|&(_, (peak, load))| peak <= most && load < walk.load).min_by_key(|step| step.0);
        }
    }
}
