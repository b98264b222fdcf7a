//! The picture as an image: the memory map, the load curve below it, for a fitted trace the lanes of compute and copies
//! below that, and the meaning of the colours.
//!
//! In a plan of thousands of blocks most are smaller than a dot. Above [`EXACT`] blocks their edges are therefore
//! rounded to half a pixel, and a block without area is left out. So the image has no seams, and the file grows with
//! the picture and not with the plan.

use std::fmt::Display;
use std::io::{self, Write};

use super::coloring::Coloring;
use super::markup;
use super::numbers::{byte_tick, bytes, round_tick, time, whole};
use super::run::{Copies, Operators, Run};
use super::scene::Scene;

/// Up to this many blocks each is drawn, however small.
const EXACT: usize = 4000;
/// The grid of the rounded edges: how many of its lines there are to a pixel.
const GRID: f64 = 2.0;
/// The most labels inside blocks: more are hard to read.
const LABELS: usize = 150;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 1176.0;
const MAP: [f64; 2] = [84.0, 524.0];
const LOAD: [f64; 2] = [556.0, 636.0];
/// The upper and the lower end of the first lane of a fitted trace, in pixels.
const LANE: [f64; 2] = [648.0, 664.0];
const LANES: [&str; 3] = ["compute", "out", "in"];
/// How far each lane is below the one before, in pixels.
const LANE_PITCH: f64 = 20.0;
/// The pixels from the lower end of the time axis to the legend.
const LEGEND_GAP: f64 = 56.0;
const LEGEND_COLUMNS: usize = 4;
const LEGEND_ROW: f64 = 22.0;

/// The colours for light pages are written into the elements, for readers that know no style sheets; those for dark
/// pages are a style.
const STYLE: &str = "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:11px}\
@media(prefers-color-scheme:dark){.paper{fill:#14161a}.ink{fill:#e8eaed}.soft{fill:#9aa1ab}.grid{stroke:#2a2e35}\
.frame{stroke:#3a3f48}.bound{stroke:#e8eaed}.halo{stroke:#14161a}.load{fill:#33415c;stroke:#7ea6e8}.lane{fill:#1d2126}.before{stroke:#9aa1ab}}";
/// The colour of stalls.
const STALL: &str = "#d4202e";
/// The colour of the limit of a fitted trace.
const LIMIT: &str = "#b3261e";
/// The colour of operators that allocate nothing.
const PLAIN: &str = "#9ea5b0";

/// A part of the picture over the time axis.
struct Part {
    top: f64,
    bottom: f64,
    /// The bytes that its full height stands for.
    bytes: f64,
}

#[expect(clippy::cast_precision_loss, reason = "pixels")]
impl Part {
    /// A part that is high enough for a little more than `most` bytes.
    fn new([top, bottom]: [f64; 2], most: u64) -> Self {
        Self { top, bottom, bytes: most.max(1) as f64 * 1.07 }
    }

    fn y(&self, address: u64) -> f64 {
        self.bottom - (self.bottom - self.top) * address as f64 / self.bytes
    }
}

/// Turns steps or times, addresses and loads into pixels.
struct Scale {
    first: f64,
    span: f64,
    map: Part,
    load: Part,
}

impl Scale {
    fn new(scene: &Scene<'_>) -> Self {
        let [first, last] = scene.span();
        let (map, load) = (Part::new(MAP, scene.top()), Part::new(LOAD, scene.most_load()));
        Self { first, span: last - first, map, load }
    }

    fn x(&self, moment: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (moment - self.first) / self.span
    }
}

#[expect(clippy::cast_precision_loss, reason = "pixels")]
pub(super) fn write(scene: &Scene<'_>, out: &mut impl Write) -> io::Result<()> {
    let rows = scene.coloring().groups.len().div_ceil(LEGEND_COLUMNS);
    let axis = scene.run.as_ref().map_or(LOAD[1], |_| LANE[1] + LANE_PITCH * (LANES.len() - 1) as f64);
    let legend_top = axis + LEGEND_GAP;
    let height = legend_top + LEGEND_ROW * rows as f64 + 8.0;
    let scale = Scale::new(scene);
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">"#
    )?;
    writeln!(out, "<title>Memory map of {}</title><style>{STYLE}</style>", markup(scene.name))?;
    writeln!(out, r##"<rect class="paper" width="100%" height="100%" fill="#ffffff"/>"##)?;
    head(scene, out)?;
    axes(scene, &scale, axis, out)?;
    map(scene, &scale, out)?;
    load(scene, &scale, out)?;
    bounds(scene, &scale, out)?;
    if let Some(run) = &scene.run {
        lanes(scene, run, &scale, out)?;
    }
    legend(scene, legend_top, out)?;
    writeln!(out, "</svg>")
}

fn head(scene: &Scene<'_>, out: &mut impl Write) -> io::Result<()> {
    text(out, "ink", (LEFT, 34.0), r#"font-weight="600" style="font-size:18px""#, &shorten(scene.name, 90))?;
    let (blocks, ratio) = (whole(scene.blocks()), scene.ratio);
    let overhead = scene.run.as_ref().and_then(|run| run.overhead);
    let overhead = overhead.map_or_else(String::new, |part| format!("overhead {:.2} % · ", 100.0 * part));
    let line = match &scene.run {
        Some(run) => format!(
            "footprint {} within {} · before {} · {overhead}{} copied · {blocks} blocks · on {}",
            bytes(scene.peak),
            bytes(run.limit),
            bytes(run.original_peak),
            bytes(run.swapped_bytes),
            run.device
        ),
        None => format!(
            "ratio {ratio:.6}{} · peak {} · max load {} · {blocks} blocks · solver {}",
            if scene.optimal { " (optimal)" } else { "" },
            bytes(scene.peak),
            bytes(scene.max_load),
            scene.solver
        ),
    };
    text(out, "soft", (LEFT, 58.0), r#"style="font-size:13px""#, &line)
}

/// Marks at round addresses, loads and moments, and the names of the axes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "whole steps or nanoseconds, and pixels"
)]
fn axes(scene: &Scene<'_>, scale: &Scale, bottom: f64, out: &mut impl Write) -> io::Result<()> {
    for (part, name, highest, most) in
        [(&scale.map, "address", scene.top(), 8), (&scale.load, "load", scene.most_load(), 2)]
    {
        let mark = byte_tick(highest, most);
        for at in (0..=highest / mark).map(|i| i * mark) {
            let y = part.y(at);
            line(out, "grid", "#e6e8eb", (LEFT, y), (RIGHT, y), "")?;
            text(out, "soft", (LEFT - 8.0, y + 4.0), r#"text-anchor="end""#, &bytes(at))?;
        }
        text(out, "soft", (LEFT - 8.0, part.top - 6.0), r#"text-anchor="end""#, name)?;
    }
    let [first, last] = scene.span();
    let mark = round_tick((last - first) as u64, 10);
    for at in ((first as u64).div_ceil(mark)..=last as u64 / mark).map(|i| i * mark) {
        let x = scale.x(at as f64);
        for [top, bottom] in [MAP, LOAD] {
            line(out, "grid", "#e6e8eb", (x, top), (x, bottom), "")?;
        }
        let label = if scene.run.is_some() { time(at, mark) } else { whole(at as usize) };
        text(out, "soft", (x, bottom + 16.0), r#"text-anchor="middle""#, &label)?;
    }
    let name = if scene.run.is_some() { "time" } else { "step" };
    text(out, "soft", (LEFT - 28.0, bottom + 16.0), r#"text-anchor="end""#, name)
}

/// A block as it is drawn.
struct Drawn {
    block: usize,
    x: f64,
    y: f64,
    w: f64,
    h: f64,
}

fn map(scene: &Scene<'_>, scale: &Scale, out: &mut impl Write) -> io::Result<()> {
    let rounded = scene.id.len() > EXACT;
    let snap = |at: f64| if rounded { (at * GRID).round() / GRID } else { at };
    let mut drawn: Vec<_> = (0..scene.id.len())
        .map(|block| {
            let (x, y) = (
                snap(scale.x(scene.moment(scene.start[block]))),
                snap(scale.map.y(scene.offset[block] + scene.size[block])),
            );
            let w = snap(scale.x(scene.moment(scene.end[block]))) - x;
            let h = snap(scale.map.y(scene.offset[block])) - y;
            // A thin line of background separates neighbours that are large enough.
            let hair = match (w > 3.0 && h > 3.0, rounded) {
                (false, _) => 0.0,
                (true, false) => 0.5,
                (true, true) => 1.0,
            };
            Drawn { block, x, y: y + hair, w: w - hair, h: h - hair }
        })
        .filter(|d| !rounded || (d.w > 0.0 && d.h > 0.0))
        .collect();
    let coloring = scene.coloring();
    drawn.sort_by_key(|d| coloring.group[d.block]);
    for same in drawn.chunk_by(|a, b| coloring.group[a.block] == coloring.group[b.block]) {
        // Pixels that are half covered would show as stripes.
        let crisp = if rounded { r#" shape-rendering="crispEdges""# } else { "" };
        writeln!(out, r#"<g class="blocks" fill="{}"{crisp}>"#, coloring.groups[coloring.group[same[0].block]].color)?;
        for d in same {
            let (x, y, w, h) = (Pixels(d.x), Pixels(d.y), Pixels(d.w), Pixels(d.h));
            writeln!(out, r#"<rect x="{x}" y="{y}" width="{w}" height="{h}"/>"#)?;
        }
        writeln!(out, "</g>")?;
    }
    labels(scene, drawn, out)
}

/// The names of the largest blocks, where they fit: the op's, or the block's where there are no ops.
#[expect(clippy::cast_precision_loss, reason = "pixels")]
fn labels(scene: &Scene<'_>, mut drawn: Vec<Drawn>, out: &mut impl Write) -> io::Result<()> {
    drawn.retain(|d| d.w > 30.0 && d.h > 12.0);
    drawn.sort_by(|a, b| (b.w * b.h).total_cmp(&(a.w * a.h)).then(a.block.cmp(&b.block)));
    writeln!(out, r##"<g fill="#10131a" fill-opacity=".78" text-anchor="middle">"##)?;
    for d in drawn.iter().take(LABELS) {
        let id = &scene.id[d.block];
        let label = match scene.op.get(d.block) {
            Some(&Some(op)) => &scene.ops[op],
            _ => id,
        };
        // The average width of a character of this font.
        if label.chars().count() as f64 * 6.3 + 6.0 <= d.w {
            let (x, y) = (Pixels(d.x + d.w / 2.0), Pixels(d.y + d.h / 2.0 + 4.0));
            writeln!(out, r#"<text x="{x}" y="{y}">{}</text>"#, markup(label))?;
        }
    }
    writeln!(out, "</g>")
}

/// The load curve, and for a fitted trace also the load that it would have without copies.
fn load(scene: &Scene<'_>, scale: &Scale, out: &mut impl Write) -> io::Result<()> {
    let bottom = LOAD[1];
    write!(out, r##"<path class="load" fill="#dfe8f7" stroke="#3f6fc0" d="M{LEFT} {bottom}"##)?;
    staircase(scene, scale, &scene.curve_step, &scene.curve_load, out)?;
    writeln!(out, r#"V{bottom}"/>"#)?;
    if let Some(run) = &scene.run {
        write!(out, r##"<path class="before" fill="none" stroke="#5f6772" d="M{LEFT} {bottom}"##)?;
        staircase(scene, scale, &run.before_step, &run.before_load, out)?;
        writeln!(out, r#""/>"#)?;
    }
    Ok(())
}

/// A load curve as a path; of all loads within a pixel the highest is drawn.
fn staircase(scene: &Scene<'_>, scale: &Scale, steps: &[u32], loads: &[u64], out: &mut impl Write) -> io::Result<()> {
    let mut columns: Vec<(f64, u64)> = Vec::new();
    for (&step, &load) in steps.iter().zip(loads) {
        let x = (scale.x(scene.moment(step)) * GRID).round() / GRID;
        match columns.last_mut() {
            Some((at, highest)) if x <= *at => *highest = load.max(*highest),
            _ => columns.push((x, load)),
        }
    }
    for (x, load) in columns {
        write!(out, "H{}V{}", Pixels(x), Pixels(scale.load.y(load)))?;
    }
    Ok(())
}

/// Peak and max load across both parts, and the step of the max load.
fn bounds(scene: &Scene<'_>, scale: &Scale, out: &mut impl Write) -> io::Result<()> {
    if scene.id.is_empty() {
        let middle = (f64::midpoint(LEFT, RIGHT), f64::midpoint(MAP[0], MAP[1]));
        return text(
            out,
            "soft",
            middle,
            r#"text-anchor="middle" style="font-size:13px""#,
            "No blocks: nothing to place.",
        );
    }
    for part in [&scale.map, &scale.load] {
        let (peak, most) = (part.y(scene.peak), part.y(scene.max_load));
        line(out, "bound", "#14161a", (LEFT, peak), (RIGHT, peak), "")?;
        if scene.peak > scene.max_load {
            line(out, "bound", "#14161a", (LEFT, most), (RIGHT, most), r#"stroke-dasharray="5 4""#)?;
        }
        let x = scale.x(scene.moment(scene.peak_step));
        line(out, "bound", "#14161a", (x, part.top), (x, part.bottom), r#"stroke-dasharray="1 3""#)?;
        if let Some(limit) = scene.limit_in_view() {
            let y = part.y(limit);
            line(out, "limit", LIMIT, (LEFT, y), (RIGHT, y), r#"stroke-width="1.5""#)?;
        }
    }
    let above = r##"stroke="#ffffff" stroke-width="3" stroke-linejoin="round" paint-order="stroke""##;
    if let Some(limit) = scene.limit_in_view() {
        let place = (LEFT + 6.0, scale.map.y(limit) - 6.0);
        text(out, "ink halo", place, above, &format!("limit {}", bytes(limit)))?;
    }
    let halo = &format!(r#"text-anchor="end" {above}"#);
    let peak = (RIGHT - 6.0, scale.map.y(scene.peak) - 6.0);
    if scene.peak == scene.max_load {
        return text(out, "ink halo", peak, halo, &format!("peak = max load {}", bytes(scene.peak)));
    }
    text(out, "ink halo", peak, halo, &format!("peak {}", bytes(scene.peak)))?;
    let most = (RIGHT - 6.0, scale.map.y(scene.max_load) + 14.0);
    text(out, "ink halo", most, halo, &format!("max load {}", bytes(scene.max_load)))
}

/// Draws what is computed, where compute waits, and what is copied, on the time axis of the map.
#[expect(clippy::cast_precision_loss, reason = "pixels")]
fn lanes(scene: &Scene<'_>, run: &Run<'_>, scale: &Scale, out: &mut impl Write) -> io::Result<()> {
    let coloring = scene.coloring();
    for (name, lane) in LANES.into_iter().zip(0..) {
        let top = LANE[0] + LANE_PITCH * f64::from(lane);
        let (width, height) = (RIGHT - LEFT, LANE[1] - LANE[0]);
        writeln!(
            out,
            r##"<rect class="lane" x="{LEFT}" y="{top}" width="{width}" height="{height}" fill="#f0f1f3"/>"##
        )?;
        text(out, "soft", (LEFT - 8.0, top + 12.0), r#"text-anchor="end""#, name)?;
        let color = |group: Option<usize>| group.map_or(PLAIN, |group| coloring.groups[group].color);
        let bars: Vec<_> = if lane == 0 {
            let Operators { begin, end, .. } = &run.operators;
            (0..begin.len()).map(|i| (begin[i], end[i], color(coloring.operator[i]))).collect()
        } else {
            let Copies { begin, end, out, residency, .. } = &run.copies;
            let here = (0..begin.len()).filter(|&i| out[i] == (lane == 1));
            here.map(|i| (begin[i], end[i], color(coloring.group.get(residency[i]).copied()))).collect()
        };
        let x = |ns: u64| scale.x(ns as f64);
        rects(name, bars.into_iter().map(|(begin, end, color)| (x(begin), x(end), color)), top, out)?;
        if lane == 0 {
            let stalls = run.stalls.begin.iter().zip(&run.stalls.end);
            rects("stalls", stalls.map(|(&begin, &end)| (x(begin), x(end), STALL)), top, out)?;
        }
    }
    Ok(())
}

/// Draws bars from left to right; those too small to be seen beside the one before are left out.
fn rects(
    class: &str,
    bars: impl Iterator<Item = (f64, f64, &'static str)>,
    top: f64,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, r#"<g class="{class}">"#)?;
    let mut drawn = LEFT;
    for (left, right, color) in bars {
        let right = right.max(left + 1.0 / GRID);
        if right - drawn < 0.5 / GRID {
            continue;
        }
        drawn = right;
        let (x, w, h) = (Pixels(left), Pixels(right - left), LANE[1] - LANE[0]);
        writeln!(out, r#"<rect x="{x}" y="{top}" width="{w}" height="{h}" fill="{color}"/>"#)?;
    }
    writeln!(out, "</g>")
}

#[expect(clippy::cast_precision_loss, reason = "pixels")]
fn legend(scene: &Scene<'_>, top: f64, out: &mut impl Write) -> io::Result<()> {
    let Coloring { by, groups, .. } = scene.coloring();
    let mut told = format!("Colour: {by}. Dotted: the step of the max load.");
    if scene.run.is_some() {
        told += " Grey line: the load before. Red: compute waits for a copy.";
    }
    text(out, "soft", (LEFT, top - 16.0), "", &told)?;
    let rows = groups.len().div_ceil(LEGEND_COLUMNS);
    let column = (RIGHT - LEFT) / LEGEND_COLUMNS as f64;
    for (i, g) in groups.iter().enumerate() {
        let (x, y) = (LEFT + column * (i / rows) as f64, top + LEGEND_ROW * (i % rows) as f64);
        writeln!(out, r#"<path d="M{} {}h11v11h-11z" fill="{}"/>"#, Pixels(x), Pixels(y), g.color)?;
        text(out, "ink", (x + 18.0, y + 10.0), "", &shorten(&g.label, 38))?;
    }
    Ok(())
}

fn text(out: &mut impl Write, class: &str, (x, y): (f64, f64), attributes: &str, content: &str) -> io::Result<()> {
    let fill = if class == "soft" { "#5f6772" } else { "#14161a" };
    let (x, y, content) = (Pixels(x), Pixels(y), markup(content));
    writeln!(out, r#"<text class="{class}" x="{x}" y="{y}" fill="{fill}" {attributes}>{content}</text>"#)
}

fn line(
    out: &mut impl Write,
    class: &str,
    stroke: &str,
    from: (f64, f64),
    to: (f64, f64),
    attributes: &str,
) -> io::Result<()> {
    let (from, to) = ((Pixels(from.0), Pixels(from.1)), (Pixels(to.0), Pixels(to.1)));
    writeln!(
        out,
        r#"<line class="{class}" x1="{}" y1="{}" x2="{}" y2="{}" stroke="{stroke}" {attributes}/>"#,
        from.0, from.1, to.0, to.1
    )
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.into() } else { text.chars().take(most - 1).chain(['…']).collect() }
}

/// A coordinate, to a hundredth and without trailing zeros.
struct Pixels(f64);

impl Display for Pixels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.2}", self.0);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}
