//! Asks `check_schedule.py`, in the folder `SUBLET_JUDGES`, about rewritten traces.

use std::collections::HashMap;
use std::env;

use serde_json::{Value, json};
use sublet_core::trace::{Event, Kind, Op, Recorded, Row};

use crate::oracle;

/// The judge's answer to each case, `None` where it refuses the case. If `SUBLET_JUDGES` is not set, or Python is
/// missing, returns `None` and prints what is `skipped`.
pub(crate) fn ask(skipped: &str, cases: &[Value]) -> Option<Vec<Option<Value>>> {
    if env::var_os("SUBLET_JUDGES").is_none() {
        eprintln!("skipped: {skipped}; SUBLET_JUDGES is not set");
        return None;
    }
    oracle::ask("schedule_oracle.py", "argparse", skipped, cases)
}

/// A rewritten trace with a plan for its residencies, in the JSON that the judge reads.
pub(crate) fn case(recorded: &Recorded<'_>, rewritten: &[Row], offsets: &[u64], cyclic: bool) -> Value {
    let blocks = u32::try_from(recorded.blocks).unwrap();
    let name = |b: u32| if b < blocks { b.to_string() } else { format!("{}~", b - blocks) };
    let rows = |rows: &[Row]| -> Vec<Value> {
        rows.iter().map(|r| json!([r.time_ns, event(r.event), name(r.block), r.bytes, op(r.op)])).collect()
    };
    let flags: HashMap<String, Value> = (0u32..)
        .zip(recorded.operators)
        .map(|(k, o)| {
            let kind = match o.kind {
                Kind::Other => "convolution",
                Kind::Relu => "relu",
                Kind::ReluBackward => "threshold_backward",
            };
            (k.to_string(), json!([kind, o.in_place, o.rerun]))
        })
        .collect();
    let mut ordinals = HashMap::new();
    let mallocs = rewritten.iter().filter(|r| r.event == Event::Malloc);
    let ids = mallocs.map(|r| match *ordinals.entry(r.block).and_modify(|k| *k += 1).or_insert(0) {
        0 => name(r.block),
        k => format!("{}#{k}", name(r.block)),
    });
    let offsets: HashMap<String, u64> = ids.zip(offsets.iter().copied()).collect();
    json!({
        "recorded": rows(recorded.rows),
        "rewritten": rows(rewritten),
        "flags": flags,
        "offsets": offsets,
        "cyclic": cyclic,
    })
}

const fn event(event: Event) -> &'static str {
    match event {
        Event::Malloc => "malloc",
        Event::Free => "free",
        Event::Read => "read",
        Event::Write => "write",
        Event::SwapOut => "swap_out",
        Event::SwapIn => "swap_in",
    }
}

fn op(op: Op) -> String {
    match op {
        Op::None => String::new(),
        Op::First(k) => k.to_string(),
        Op::Rerun(k) => format!("{k}'"),
    }
}
