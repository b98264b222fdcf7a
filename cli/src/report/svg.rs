//! The picture as an image: the memory map, the load curve below it, and what the colours mean.
//!
//! Of a plan of thousands of blocks most are smaller than a dot. Above [`EXACT`] blocks the edges are therefore
//! rounded to half a pixel, and a block between two such edges is left out: what is drawn tiles without seams, and the
//! file grows with the picture, not with the plan.

use std::fmt::Display;
use std::io::{self, Write};

use super::markup;
use super::scene::{Scene, byte_tick, bytes, step_tick, whole};

/// Up to this many blocks each is drawn, however small.
const EXACT: usize = 4000;
/// Grid of the rounded edges, in parts of a pixel.
const GRID: f64 = 2.0;
/// The most labels inside blocks: more are noise.
const LABELS: usize = 150;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 1176.0;
const MAP: Range = Range { top: 84.0, bottom: 524.0 };
const LOAD: Range = Range { top: 556.0, bottom: 636.0 };
const LEGEND_TOP: f64 = 692.0;
const LEGEND_COLUMNS: usize = 4;
const LEGEND_ROW: f64 = 22.0;

/// Light is written into the elements, for readers that know no style sheets; dark is a style.
const STYLE: &str = "text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:11px}\
@media(prefers-color-scheme:dark){.paper{fill:#14161a}.ink{fill:#e8eaed}.soft{fill:#9aa1ab}.grid{stroke:#2a2e35}\
.frame{stroke:#3a3f48}.bound{stroke:#e8eaed}.halo{stroke:#14161a}.load{fill:#33415c;stroke:#7ea6e8}}";

/// Where a part of the picture begins and ends, from the top.
struct Range {
    top: f64,
    bottom: f64,
}

/// Data to pixels.
struct Scale {
    first: u32,
    steps: f64,
    /// What the full height of a part stands for: a little more than the peak.
    bytes: f64,
}

#[expect(clippy::cast_precision_loss, reason = "pixels")]
impl Scale {
    fn x(&self, step: u32) -> f64 {
        LEFT + (RIGHT - LEFT) * f64::from(step - self.first) / self.steps
    }

    fn y(&self, range: &Range, address: u64) -> f64 {
        range.bottom - (range.bottom - range.top) * address as f64 / self.bytes
    }
}

#[expect(clippy::cast_precision_loss, reason = "pixels")]
pub(super) fn write(scene: &Scene<'_>, out: &mut impl Write) -> io::Result<()> {
    let rows = scene.groups.len().div_ceil(LEGEND_COLUMNS);
    let height = LEGEND_TOP + LEGEND_ROW * rows as f64 + 8.0;
    let [first, last] = scene.steps;
    let scale = Scale { first, steps: f64::from(last - first), bytes: scene.peak.max(1) as f64 * 1.07 };
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">"#
    )?;
    writeln!(out, "<title>Memory map of {}</title><style>{STYLE}</style>", markup(scene.name))?;
    writeln!(out, r##"<rect class="paper" width="100%" height="100%" fill="#ffffff"/>"##)?;
    head(scene, out)?;
    axes(scene, &scale, out)?;
    map(scene, &scale, out)?;
    load(scene, &scale, out)?;
    bounds(scene, &scale, out)?;
    legend(scene, out)?;
    writeln!(out, "</svg>")
}

fn head(scene: &Scene<'_>, out: &mut impl Write) -> io::Result<()> {
    text(out, "ink", (LEFT, 34.0), r#"font-weight="600" style="font-size:18px""#, &shorten(scene.name, 90))?;
    let line = format!(
        "ratio {:.6}{} · peak {} · max load {} · {} blocks · solver {}",
        scene.ratio,
        if scene.optimal { " (optimal)" } else { "" },
        bytes(scene.peak),
        bytes(scene.max_load),
        whole(scene.id.len()),
        scene.solver
    );
    text(out, "soft", (LEFT, 58.0), r#"style="font-size:13px""#, &line)
}

/// Marks at round addresses, loads and steps, and the names of the axes.
fn axes(scene: &Scene<'_>, scale: &Scale, out: &mut impl Write) -> io::Result<()> {
    for (range, name, most) in [(&MAP, "address", 8), (&LOAD, "load", 2)] {
        let mark = byte_tick(scene.peak, most);
        for at in (0..=scene.peak / mark).map(|i| i * mark) {
            let y = scale.y(range, at);
            line(out, "grid", "#e6e8eb", (LEFT, y), (RIGHT, y), "")?;
            text(out, "soft", (LEFT - 8.0, y + 4.0), r#"text-anchor="end""#, &bytes(at))?;
        }
        text(out, "soft", (LEFT - 8.0, range.top - 6.0), r#"text-anchor="end""#, name)?;
    }
    let [first, last] = scene.steps;
    let mark = step_tick(last - first, 10);
    for at in (first.div_ceil(mark)..=last / mark).map(|i| i * mark) {
        let x = scale.x(at);
        line(out, "grid", "#e6e8eb", (x, MAP.top), (x, MAP.bottom), "")?;
        line(out, "grid", "#e6e8eb", (x, LOAD.top), (x, LOAD.bottom), "")?;
        text(out, "soft", (x, LOAD.bottom + 16.0), r#"text-anchor="middle""#, &whole(at as usize))?;
    }
    text(out, "soft", (LEFT - 16.0, LOAD.bottom + 16.0), r#"text-anchor="end""#, "step")
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
            let (x, y) =
                (snap(scale.x(scene.start[block])), snap(scale.y(&MAP, scene.offset[block] + scene.size[block])));
            let w = snap(scale.x(scene.end[block])) - x;
            let h = snap(scale.y(&MAP, scene.offset[block])) - y;
            // A hair of paper parts neighbours, where they are large enough to spare it.
            let hair = match (w > 3.0 && h > 3.0, rounded) {
                (false, _) => 0.0,
                (true, false) => 0.5,
                (true, true) => 1.0,
            };
            Drawn { block, x, y: y + hair, w: w - hair, h: h - hair }
        })
        .filter(|d| !rounded || (d.w > 0.0 && d.h > 0.0))
        .collect();
    drawn.sort_by_key(|d| scene.group[d.block]);
    for same in drawn.chunk_by(|a, b| scene.group[a.block] == scene.group[b.block]) {
        // Half covered pixels would show as stripes where blocks tile.
        let crisp = if rounded { r#" shape-rendering="crispEdges""# } else { "" };
        writeln!(out, r#"<g class="blocks" fill="{}"{crisp}>"#, scene.groups[scene.group[same[0].block]].color)?;
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
        // What a character of this font takes on average.
        if label.chars().count() as f64 * 6.3 + 6.0 <= d.w {
            let (x, y) = (Pixels(d.x + d.w / 2.0), Pixels(d.y + d.h / 2.0 + 4.0));
            writeln!(out, r#"<text x="{x}" y="{y}">{}</text>"#, markup(label))?;
        }
    }
    writeln!(out, "</g>")
}

/// The load curve; of all loads within a pixel the highest.
fn load(scene: &Scene<'_>, scale: &Scale, out: &mut impl Write) -> io::Result<()> {
    let mut columns: Vec<(f64, u64)> = Vec::new();
    for (&step, &load) in scene.curve_step.iter().zip(&scene.curve_load) {
        let x = (scale.x(step) * GRID).round() / GRID;
        match columns.last_mut() {
            Some((at, highest)) if x <= *at => *highest = load.max(*highest),
            _ => columns.push((x, load)),
        }
    }
    write!(out, r##"<path class="load" fill="#dfe8f7" stroke="#3f6fc0" d="M{LEFT} {}"##, LOAD.bottom)?;
    for (x, load) in columns {
        write!(out, "H{}V{}", Pixels(x), Pixels(scale.y(&LOAD, load)))?;
    }
    writeln!(out, r#"V{}"/>"#, LOAD.bottom)
}

/// Peak and max load across both parts, and the step of the max load.
fn bounds(scene: &Scene<'_>, scale: &Scale, out: &mut impl Write) -> io::Result<()> {
    if scene.id.is_empty() {
        let middle = (f64::midpoint(LEFT, RIGHT), f64::midpoint(MAP.top, MAP.bottom));
        return text(
            out,
            "soft",
            middle,
            r#"text-anchor="middle" style="font-size:13px""#,
            "No blocks: nothing to place.",
        );
    }
    for range in [&MAP, &LOAD] {
        let (peak, most) = (scale.y(range, scene.peak), scale.y(range, scene.max_load));
        line(out, "bound", "#14161a", (LEFT, peak), (RIGHT, peak), "")?;
        if !scene.optimal {
            line(out, "bound", "#14161a", (LEFT, most), (RIGHT, most), r#"stroke-dasharray="5 4""#)?;
        }
        let x = scale.x(scene.peak_step);
        line(out, "bound", "#14161a", (x, range.top), (x, range.bottom), r#"stroke-dasharray="1 3""#)?;
    }
    let halo = r##"text-anchor="end" stroke="#ffffff" stroke-width="3" stroke-linejoin="round" paint-order="stroke""##;
    let peak = (RIGHT - 6.0, scale.y(&MAP, scene.peak) - 6.0);
    if scene.optimal {
        return text(out, "ink halo", peak, halo, &format!("peak = max load {}", bytes(scene.peak)));
    }
    text(out, "ink halo", peak, halo, &format!("peak {}", bytes(scene.peak)))?;
    let most = (RIGHT - 6.0, scale.y(&MAP, scene.max_load) + 14.0);
    text(out, "ink halo", most, halo, &format!("max load {}", bytes(scene.max_load)))
}

#[expect(clippy::cast_precision_loss, reason = "pixels")]
fn legend(scene: &Scene<'_>, out: &mut impl Write) -> io::Result<()> {
    text(
        out,
        "soft",
        (LEFT, LEGEND_TOP - 16.0),
        "",
        &format!("Colour: {}. Dotted: the step of the max load.", scene.colored_by),
    )?;
    let rows = scene.groups.len().div_ceil(LEGEND_COLUMNS);
    let column = (RIGHT - LEFT) / LEGEND_COLUMNS as f64;
    for (i, g) in scene.groups.iter().enumerate() {
        let (x, y) = (LEFT + column * (i / rows) as f64, LEGEND_TOP + LEGEND_ROW * (i % rows) as f64);
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

/// A coordinate, to a hundredth and without idle zeros.
struct Pixels(f64);

impl Display for Pixels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.2}", self.0);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}
