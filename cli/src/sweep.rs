//! `sublet sweep`: what less memory costs in time, by every policy.

use std::io::{self, Write};

use sublet_core::Error;
use sublet_core::rewrite::fit::Options;
use sublet_core::rewrite::swap::{Policy, bound};
use sublet_core::simulate::Device;

use crate::args::SweepArgs;
use crate::failure::{Failure, InputError};
use crate::fit::{self, Buffers};
use crate::problem::{Problem, Trace};
use crate::scratch::Scratch;
use crate::unit::Unit;
use crate::{input, output, progress, table};

/// What one policy makes of one limit. Sizes in bytes.
#[derive(Clone, Copy, Debug)]
struct Point {
    limit: u64,
    policy: Policy,
    footprint: u64,
    peak_load: u64,
    overhead: f64,
    swapped_bytes: u64,
}

/// The whole curve.
#[derive(Debug)]
struct Curve<'a> {
    problem: &'a Problem,
    device: &'a str,
    original_peak: u64,
    /// No schedule without overhead is below this load.
    bound: u64,
    points: Vec<Point>,
}

/// Fits again and again, writes and prints.
///
/// # Errors
/// A file that cannot be read or written, or a device that cannot swap.
pub(crate) fn run(args: &SweepArgs) -> Result<(), Failure> {
    let device = fit::swappable(&args.device)?;
    let problem = input::read(&args.input)?;
    let trace = fit::recorded(&problem)?;
    let swept = progress::during("sweeping", |bar| {
        sweep(trace, device, args.points, |limit| bar.set_message(format!("limit {limit}")))
    });
    let (original_peak, points) = swept.map_err(|e| InputError::file(&args.input, problem.explain(&e)))?;
    let mut scratch = Scratch::of(bound::workspace(trace.rows.len(), trace.names.len()));
    let bound = bound::load_without_overhead(&trace.rows, trace.names.len(), &device, scratch.lend())
        .map_err(|e| InputError::file(&args.input, problem.explain(&e)))?;
    let curve = Curve { problem: &problem, device: &args.device, original_peak, bound, points };
    if let Some(file) = &args.output {
        output::write(file, |out| curve.csv(out))?;
    }
    if let Some(file) = &args.report {
        output::write(file, |out| curve.html(out))?;
    }
    if args.output.as_deref() == Some("-") {
        return Ok(());
    }
    curve.text(&mut io::stdout().lock()).map_err(|e| Failure::printing(&e))
}

/// The peak of the original, and what every policy makes of every limit.
fn sweep(trace: &Trace, device: Device, points: u32, mut tell: impl FnMut(u64)) -> Result<(u64, Vec<Point>), Error> {
    let mut buffers = Buffers::of(trace);
    // A limit of 0 tells the least that works.
    let least = match buffers.fit(trace, &Options::new(0, device)) {
        Err(Error::OverLimit { least, .. }) => least,
        Err(e) => return Err(e),
        Ok(_) => 0,
    };
    let peak = buffers.fit(trace, &Options::new(u64::MAX, device))?.original_peak;
    let mut found = Vec::new();
    for i in 0..points {
        let below = u128::from(peak.saturating_sub(least)) * u128::from(i) / u128::from(points - 1);
        let limit = peak.max(least) - u64::try_from(below).unwrap_or(0);
        tell(limit);
        for policy in Policy::ALL {
            let fitted = match buffers.fit(trace, &Options { policy, ..Options::new(limit, device) }) {
                Ok(fitted) => fitted,
                Err(Error::OverLimit { .. }) => continue,
                Err(e) => return Err(e),
            };
            let run = fitted.schedule.run();
            found.push(Point {
                limit,
                policy,
                footprint: fitted.schedule.plan().peak(),
                peak_load: run.peak_load,
                overhead: run.overhead(),
                swapped_bytes: run.swapped_bytes,
            });
        }
    }
    Ok((peak, found))
}

impl Curve<'_> {
    fn csv(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "limit,policy,footprint,peak_load,overhead,swapped_bytes")?;
        for p in &self.points {
            let Point { limit, footprint, peak_load, overhead, swapped_bytes, .. } = p;
            let policy = p.policy.name();
            writeln!(out, "{limit},{policy},{footprint},{peak_load},{overhead:.6},{swapped_bytes}")?;
        }
        Ok(())
    }

    fn limits(&self) -> Vec<u64> {
        let mut limits: Vec<u64> = self.points.iter().map(|p| p.limit).collect();
        limits.dedup();
        limits
    }

    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let unit = Unit::for_largest(self.original_peak);
        writeln!(out, "{} on {}, overhead in %\n", self.problem.title(), self.device)?;
        let limit = format!("limit {}", unit.name());
        let [auto, doa, aoa, wdoa, swdoa, bayes, layer] = Policy::ALL.map(Policy::name);
        let header = [&limit, "% of peak", auto, doa, aoa, wdoa, swdoa, bayes, layer];
        let mut table = table::aligned(header, 0..header.len());
        for limit in self.limits() {
            let cell = |policy: Policy| {
                let point = self.points.iter().find(|p| p.limit == limit && p.policy == policy);
                point.map_or("-".into(), |p| format!("{:.2}", 100.0 * p.overhead))
            };
            let limits = [unit.number(limit.into()), format!("{:.1}", self.percent(limit))];
            table.add_row(limits.into_iter().chain(Policy::ALL.map(cell)));
        }
        writeln!(out, "{}\n", table.trim_fmt())?;
        let bound = unit.size(self.bound);
        writeln!(
            out,
            "no schedule without overhead can go below {bound} ({:.1} % of the peak)",
            self.percent(self.bound)
        )
    }

    #[expect(clippy::cast_precision_loss, reason = "a share to be read")]
    fn percent(&self, bytes: u64) -> f64 {
        if self.original_peak == 0 { 0.0 } else { 100.0 * (bytes as f64 / self.original_peak as f64) }
    }

    /// One page with one chart: the limit in percent of the peak to the right, the overhead upwards.
    fn html(&self, out: &mut impl Write) -> io::Result<()> {
        const COLORS: [&str; Policy::ALL.len()] =
            ["#d1495b", "#5c93e4", "#e7b551", "#4dc0b5", "#a584dc", "#63bb73", "#9ea5b0"];
        const W: f64 = 860.0;
        const H: f64 = 460.0;
        const LEFT: f64 = 60.0;
        const BOTTOM: f64 = 50.0;
        let highest = self.points.iter().filter(|p| p.policy == Policy::Auto).map(|p| p.overhead).fold(0.01, f64::max);
        let x = |percent: f64| LEFT + (W - LEFT - 20.0) * (100.0 - percent) / 100.0;
        let y = |overhead: f64| H - BOTTOM - (H - BOTTOM - 20.0) * (overhead / (1.5 * highest)).min(1.0);
        let title = crate::report::markup(self.problem.title());
        writeln!(
            out,
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}: overhead by limit</title>\n\
             <style>body{{font:14px system-ui,sans-serif;margin:2em;max-width:60em}}text{{font:12px system-ui,sans-serif}}</style>\n\
             <h1>{title}</h1>\n<p>What less memory costs in time on {}, by every policy. No schedule without overhead can \
             go below {} bytes, the dashed line.</p>\n\
             <svg viewBox=\"0 0 {W} {H}\" role=\"img\" aria-label=\"overhead against limit\">",
            crate::report::markup(self.device),
            self.bound
        )?;
        for tick in 0..=10 {
            let (percent, part) = (f64::from(tick) * 10.0, f64::from(tick) / 10.0);
            let (right, up) = (x(percent), y(part * 1.5 * highest));
            writeln!(out, "<text x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{percent} %</text>", H - 30.0)?;
            writeln!(out, "<path d=\"M{LEFT} {up:.1}H{}\" stroke=\"#ddd\"/>", W - 20.0)?;
            let overhead = 150.0 * part * highest;
            writeln!(
                out,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{overhead:.1} %</text>",
                LEFT - 6.0,
                up + 4.0
            )?;
        }
        let bound = x(self.percent(self.bound));
        writeln!(out, "<path d=\"M{bound:.1} 20V{}\" stroke=\"#333\" stroke-dasharray=\"5 4\"/>", H - BOTTOM)?;
        writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">limit in % of the original peak of {} bytes; overhead upwards</text>",
            W / 2.0,
            H - 8.0,
            self.original_peak
        )?;
        for (i, (policy, color)) in (0..).zip(Policy::ALL.into_iter().zip(COLORS)) {
            let points: Vec<String> = self
                .points
                .iter()
                .filter(|p| p.policy == policy)
                .map(|p| format!("{:.1},{:.1}", x(self.percent(p.limit)), y(p.overhead)))
                .collect();
            let width = if policy == Policy::Auto { 3 } else { 1 };
            let points = points.join(" ");
            writeln!(out, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>")?;
            let down = 32.0 + 18.0 * f64::from(i);
            writeln!(out, "<text x=\"{}\" y=\"{down}\" fill=\"{color}\">{}</text>", LEFT + 12.0, policy.name())?;
        }
        writeln!(out, "</svg>\n</html>")
    }
}
