//! The picture of a plan: which block lies where, and when; for a fitted trace also what is computed and copied
//! meanwhile.
//!
//! A [`scene::Scene`] is common to both forms: the colours of the blocks, the load curve, the step of the max load.
//! [`html()`] writes it as a page that loads nothing, to be explored; [`svg()`] as an image, to be printed. The time
//! axis counts steps; for a fitted trace simulated time. [`curve()`] is the page of a sweep.

mod coloring;
mod json;
mod numbers;
mod ops;
mod run;
mod scene;
mod svg;

use std::io;

use serde::Serialize;
use sublet_core::{VerifiedPlan, VerifiedSchedule};

use crate::gaps::Gap;
use crate::marks::{Fate, Marks};
use crate::problem::{Problem, Trace};
use scene::Scene;

/// The content of a report.
#[derive(Debug)]
pub(crate) struct Picture<'a> {
    /// The blocks' names, and the trace that they come from.
    pub(crate) problem: &'a Problem,
    /// The plan of the blocks.
    pub(crate) plan: &'a VerifiedPlan<'a>,
    /// The solver; for a fit the policy of swapping, empty where nothing is swapped.
    pub(crate) solver: &'a str,
    /// Whether no plan has a lower peak; of a model whose operators were reordered, no plan of any order.
    pub(crate) optimal: bool,
    /// The results of all solvers; not shown if there are none.
    pub(crate) rows: Vec<SolverRow>,
    /// For a fitted trace: how it runs.
    pub(crate) run: Option<FittedRun<'a>>,
}

/// How a fitted trace runs. Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FittedRun<'a> {
    /// The rows of the picture's trace, and when they happen.
    pub(crate) schedule: &'a VerifiedSchedule<'a>,
    /// The device whose links were simulated.
    pub(crate) device: &'a str,
    /// The limit that was asked for.
    pub(crate) limit: u64,
    /// The most bytes on the device in the original.
    pub(crate) original_peak: u64,
    /// The max load that is left if every block that can be off the device while the operator with the original's max
    /// load runs is swapped out for that time: `load_min` of Zhang et al. 2019.
    pub(crate) load_min: u64,
    /// A lower bound on the overhead within the limit, as a fraction of the original's time.
    pub(crate) lower_bound: Option<f64>,
    /// The trace before it was fitted.
    pub(crate) recorded: &'a Trace,
    /// By residency: whether its value is recomputed, whether it is a mask, and whether it reuses memory in place.
    pub(crate) marks: &'a Marks,
    /// By residency: what becomes of its block.
    pub(crate) fates: &'a [Fate],
    /// What was done between the uses of the blocks.
    pub(crate) gaps: &'a [Gap],
}

/// The result of one solver.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SolverRow {
    /// The solver's name.
    pub(crate) solver: String,
    /// The peak of its plan, in bytes.
    pub(crate) peak: u64,
    /// The highest lower bound on the peak that the solver has proved, in bytes.
    pub(crate) lower_bound: u64,
    /// Whether it proved that no plan has a lower peak.
    pub(crate) optimal: bool,
    /// Nodes of its search tree; 0 for a heuristic.
    pub(crate) nodes: u64,
    /// The time that it took, in seconds.
    pub(crate) seconds: f64,
}

const SHELL: &str = include_str!("shell.html");

/// A kind of page: what its title says after the name of what it shows, the element that holds its data, its body and its scripts.
struct Kind {
    about: &'static str,
    id: &'static str,
    body: &'static str,
    scripts: &'static [&'static str],
}

const AXIS: &str = include_str!("axis.js");
const ELEMENTS: &str = include_str!("elements.js");
const MAP: Kind = Kind {
    about: "memory map",
    id: "plan",
    body: include_str!("template.html"),
    scripts: &[AXIS, ELEMENTS, include_str!("lanes.js"), include_str!("views.js"), include_str!("page.js")],
};
const CURVE: Kind = Kind {
    about: "overhead by limit",
    id: "data",
    body: include_str!("curve.html"),
    scripts: &[AXIS, ELEMENTS, include_str!("curve.js")],
};
const COMPARISON: Kind = Kind {
    about: "solvers and allocators",
    id: "data",
    body: include_str!("compare.html"),
    scripts: &[AXIS, ELEMENTS, include_str!("compare.js")],
};
const DIAGNOSIS: Kind = Kind {
    about: "who holds the memory",
    id: "data",
    body: include_str!("doctor.html"),
    scripts: &[AXIS, ELEMENTS, include_str!("doctor.js")],
};
const STYLE: &[u8] = include_bytes!("style.css");
const BANKS_TEMPLATE: &str = include_str!("banks.html");

/// Writes the form that the file's name asks for: an image if it ends in .svg, else a page.
pub(crate) fn write(file: &str, picture: &Picture<'_>, out: &mut impl io::Write) -> io::Result<()> {
    if crate::output::ends_in(file, "svg") { svg(picture, out) } else { html(picture, out) }
}

/// Writes the picture as one HTML file that needs no network.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn html(picture: &Picture<'_>, out: &mut impl io::Write) -> io::Result<()> {
    page(&MAP, picture.problem.title(), &Scene::new(picture), out)
}

/// Writes what less memory costs in time as one HTML file that needs no network.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn curve(title: &str, curve: &impl Serialize, out: &mut impl io::Write) -> io::Result<()> {
    page(&CURVE, title, curve, out)
}

/// Writes what solvers and allocators take as one HTML file that needs no network.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn comparison(title: &str, comparison: &impl Serialize, out: &mut impl io::Write) -> io::Result<()> {
    page(&COMPARISON, title, comparison, out)
}

/// Writes a diagnosis as one HTML file that needs no network.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn doctor(title: &str, diagnosis: &impl Serialize, out: &mut impl io::Write) -> io::Result<()> {
    page(&DIAGNOSIS, title, diagnosis, out)
}

/// Writes the maps of several banks as one HTML file that needs no network. `maps` has the name and the page of each.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn banks(title: &str, maps: &[(String, Vec<u8>)], out: &mut impl io::Write) -> io::Result<()> {
    fill(BANKS_TEMPLATE, out, &mut |name, out| match name {
        "title" => out.write_all(markup(title).as_bytes()),
        "style" => out.write_all(STYLE),
        "maps" => maps.iter().try_for_each(|(bank, map)| {
            let map = String::from_utf8_lossy(map).replace('&', "&amp;").replace('"', "&quot;");
            let bank = markup(bank);
            writeln!(out, "<h2>{bank}</h2>\n<iframe title=\"{bank}\" srcdoc=\"{map}\"></iframe>")
        }),
        _ => Err(unknown(name)),
    })
}

/// Writes a page of this kind.
fn page(kind: &Kind, title: &str, data: &impl Serialize, out: &mut impl io::Write) -> io::Result<()> {
    fill(SHELL, out, &mut |name, out| match name {
        "title" => out.write_all(markup(title).as_bytes()),
        "about" => out.write_all(kind.about.as_bytes()),
        "id" => out.write_all(kind.id.as_bytes()),
        "body" => out.write_all(kind.body.as_bytes()),
        "data" => json::write(data, out),
        "style" => out.write_all(STYLE),
        "scripts" => kind.scripts.iter().try_for_each(|script| writeln!(out, "{script}")),
        _ => Err(unknown(name)),
    })
}

fn unknown(name: &str) -> io::Error {
    io::Error::other(format!("the report's template has an unknown slot {name:?}"))
}

/// Writes a template, whose slots `slot` fills.
fn fill<W: io::Write>(
    template: &str,
    out: &mut W,
    slot: &mut dyn FnMut(&str, &mut W) -> io::Result<()>,
) -> io::Result<()> {
    let mut rest = template;
    while let Some((before, (name, after))) = rest.split_once("{{").and_then(|(b, r)| Some((b, r.split_once("}}")?))) {
        out.write_all(before.as_bytes())?;
        slot(name, out)?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// Writes the picture as one SVG image.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn svg(picture: &Picture<'_>, out: &mut impl io::Write) -> io::Result<()> {
    svg::write(&Scene::new(picture), out)
}

/// `text` as it may stand in HTML and XML, between tags or in an attribute. Characters that XML cannot hold
/// become U+FFFD.
pub(crate) fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
