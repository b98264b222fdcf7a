//! `sublet sweep`: what less memory costs in time, by every means, by all together, or by policies of swapping.
//!
//! Each fit is made by itself, so that several run at once; the curve does not depend on how many, as long as nobody
//! interrupts. The fits of the first curve come first: where the time is up, they are what matters most.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use indicatif::ProgressBar;
use serde::{Serialize, Serializer};
use sublet_core::Error;
use sublet_core::rewrite::fit::{Means, Options, Using};
use sublet_core::rewrite::lower_bound;
use sublet_core::rewrite::means::swap::Policy;

use crate::args::{FittingArgs, SweepArgs};
use crate::commands::buffers::Buffers;
use crate::commands::fit;
use crate::commands::ladder;
use crate::failure::{Failure, InputError};
use crate::interrupt::Until;
use crate::problem::Trace;
use crate::text::unit::Unit;
use crate::text::{progress, table};
use crate::{device, input, output, report};
use sublet_core::owned::Scratch;

/// A curve: of some means or of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    using: Using,
    policy: Policy,
    name: &'static str,
    about: &'static str,
}

impl Line {
    /// The curves of the policies that are asked for, or else of all means together and of each alone.
    fn all(policies: &[Policy], using: Using) -> Vec<Self> {
        if !policies.is_empty() {
            let swap = Using::NONE.with(Means::Swap);
            let line = |&policy: &Policy| Self { using: swap, policy, name: policy.name(), about: policy.about() };
            return policies.iter().map(line).collect();
        }
        let line = |using, name, about| Self { using, policy: Policy::Auto, name, about };
        let single = Means::ALL.iter().copied().filter(|&means| using.has(means));
        let single = single.map(|means| line(Using::NONE.with(means), means.name(), means.about()));
        [line(using, "joint", "all means together")].into_iter().chain(single).collect()
    }
}

/// A point of a curve. Sizes in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
struct Point {
    limit: u64,
    /// The limit for which the schedule was made. It may be below `limit`: a schedule for less memory is one for
    /// `limit` too.
    fitted_to: u64,
    #[serde(rename = "policy", serialize_with = "line_name")]
    line: Line,
    footprint: u64,
    peak_load: u64,
    overhead: f64,
    /// A lower bound on the overhead of these means within the limit.
    overhead_lower_bound: Option<f64>,
    swapped_bytes: u64,
    recomputed_ns: u64,
}

/// The least footprint found whose overhead is at most `within`.
#[derive(Clone, Copy, Debug, Serialize)]
struct Least {
    within: f64,
    #[serde(flatten)]
    point: Point,
}

/// All curves. Sizes in bytes.
#[derive(Debug, Serialize)]
struct Curve<'a> {
    input: &'a str,
    device: &'a str,
    original_peak: u64,
    load_min: u64,
    /// The least limit for which a schedule is known.
    least_limit: u64,
    /// With swapping alone, every schedule without overhead has a peak load of at least this.
    swap_lower_bound: u64,
    /// Whether the work was ended early, by the time limit or Ctrl-C.
    stopped: bool,
    policies: Vec<&'static str>,
    /// What each of `policies` does, for people.
    about: Vec<&'static str>,
    least: Vec<Least>,
    /// The points, by falling limits.
    points: Vec<Point>,
}

/// The overheads, as fractions of the original's time, for which the least footprints are searched.
const WITHIN: [f64; 3] = [0.0, 0.05, 0.15];
/// The search for a least footprint bisects until it is within 1 / `NEAR` of the original peak.
const NEAR: u64 = 2048;
/// After the bisection lower limits are tried, until this many in a row have given nothing.
const TRIES: u64 = 5;
/// The distance between these lower limits, in units of 1 / `NEAR` of the original peak.
const STRIDE: u64 = 4;

/// Fits the trace to all limits, writes and prints.
///
/// # Errors
/// A file that cannot be read or written, an input without times, or a device that cannot swap.
pub(crate) fn run(args: &SweepArgs) -> Result<(), Failure> {
    let report = args.report.as_deref();
    if report.is_some_and(|file| output::ends_in(file, "svg")) {
        return Err(Failure::Usage("a curve is drawn as a page: --report NAME.html".into()));
    }
    let results = [("--json", args.json.then_some("-")), ("--output", args.output.as_deref()), ("--report", report)];
    output::each_elsewhere(&args.common.input, &results)?;
    let device = device::named(&args.common.device)?;
    let problem = input::read(&args.common.input)?;
    let trace = fit::recorded(&problem)?;
    if trace.time_ns() == 0 {
        return Err(InputError::file(&args.common.input, fit::UNTIMED).into());
    }
    let swaps: &[Means] = if args.policy.is_empty() { &args.common.using } else { &[Means::Swap] };
    let asked = fit::means(&args.common, &device, swaps, &problem)?;
    asked.say();
    let lines = Line::all(&args.policy, asked.using);
    let refuse = |e: Error| InputError::file(&args.common.input, problem.explain(&e));
    let until = Until::after(args.time_limit);
    let curve = progress::during("sweeping", |bar| {
        let FittingArgs { alignment, keep_persistent, .. } = args.common;
        let usual = Options { alignment, keep_persistent, ..Options::new(u64::MAX, device) };
        Sweep { trace, usual, threads: threads(args), until, bar }.curve(args, &lines)
    })
    .map_err(refuse)?;
    if curve.stopped {
        // It does not matter if standard error is closed.
        let _ = writeln!(io::stderr(), "note: stopped early; the curve holds what was found so far");
    }
    if let Some(file) = &args.output {
        output::write(file, |out| curve.csv(out))?;
    }
    if let Some(file) = &args.report {
        output::write(file, |out| report::curve(problem.title(), &curve, out))?;
    }
    output::print(&curve, args.json, &[&args.output, &args.report], |out| curve.text(problem.title(), &lines, out))
}

/// How many fits run at once.
fn threads(args: &SweepArgs) -> usize {
    args.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// What all fits of a sweep have in common.
struct Sweep<'a> {
    trace: &'a Trace,
    usual: Options,
    threads: usize,
    until: Until,
    bar: &'a ProgressBar,
}

impl Sweep<'_> {
    fn curve<'a>(&self, args: &'a SweepArgs, lines: &[Line]) -> Result<Curve<'a>, Error> {
        let (trace, points) = (self.trace, args.points);
        let mut buffers = Buffers::of(trace);
        // A limit of 0 fails, and the error names the least limit that works. That is the same for all policies; `Doa`
        // finds it fast.
        let all = Options { using: lines[0].using, ..self.usual };
        let nothing = Options { policy: Policy::Doa, limit: 0, ..all };
        let least_limit = match buffers.fit(trace, &nothing) {
            Err(Error::OverLimit { least, .. }) => least,
            Err(e) => return Err(e),
            Ok(_) => 0,
        };
        let unlimited = buffers.fit(trace, &all)?;
        let (original_peak, load_min) = (unlimited.original_peak, unlimited.load_min);
        let mut scratch = Scratch::of(lower_bound::workspace(trace.rows.len(), trace.names.len()));
        let swap_lower_bound =
            lower_bound::least_load(&trace.rows, trace.names.len(), &self.usual.device, 0, scratch.lend())?;

        let limits = (0..points).map(|i| {
            let below = u128::from(original_peak.saturating_sub(least_limit)) * u128::from(i) / u128::from(points - 1);
            original_peak.max(least_limit) - u64::try_from(below).unwrap_or(0)
        });
        let grid: Vec<_> = lines.iter().flat_map(|&line| limits.clone().map(move |limit| (limit, line))).collect();
        progress::count(self.bar, grid.len() as u64);
        let fits = self.each(&grid, |buffers, &(limit, line)| {
            self.bar.set_message(format!("limit {limit}, {}", line.name));
            let point = self.fit(buffers, limit, line);
            self.bar.inc(1);
            point
        })?;
        let mut found: Vec<Point> = fits.into_iter().flatten().collect();

        let swaps_alone = lines[0].using == Using::NONE.with(Means::Swap);
        self.bar.set_message("least footprints");
        let searched = self.each(&WITHIN, |buffers, &within| {
            let floor = if within > 0.0 || !swaps_alone { 0 } else { swap_lower_bound };
            let mut known: Vec<_> = found.iter().filter(|p| p.line == lines[0]).copied().collect();
            let point = self.least(buffers, &mut known, within, floor, (original_peak / NEAR).max(1))?;
            Ok((point.map(|point| Least { within, point }), known))
        })?;
        let (least, known): (Vec<_>, Vec<_>) = searched.into_iter().unzip();
        found.extend(known.into_iter().flatten());

        // The points are chosen last, when all schedules are known: one may be the fastest for several limits.
        let all = limits.flat_map(|limit| lines.iter().map(move |&line| (limit, line)));
        let quickest: Vec<_> = all.filter_map(|(limit, line)| quickest(&found, limit, line)).collect();
        Ok(Curve {
            input: &args.common.input,
            device: &args.common.device,
            original_peak,
            load_min,
            least_limit,
            swap_lower_bound,
            stopped: self.until.is_over(),
            policies: lines.iter().map(|line| line.name).collect(),
            about: lines.iter().map(|line| line.about).collect(),
            least: least.into_iter().flatten().collect(),
            points: self.each(&quickest, |_, &point| self.bounded(point))?,
        })
    }

    /// Does `work` for each of `items`, which the threads take in turn. The results are in the order of `items`.
    fn each<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&mut Buffers, &T) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
        thread::scope(|scope| {
            for _ in 0..self.threads.min(items.len()) {
                scope.spawn(|| {
                    let mut buffers = Buffers::of(self.trace);
                    while let index = next.fetch_add(1, Ordering::Relaxed)
                        && let Some(item) = items.get(index)
                    {
                        let result = work(&mut buffers, item);
                        done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|&(index, _)| index);
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// Fits to a limit; none if no schedule within the limit is found, or the time is up before one is.
    fn fit(&self, buffers: &mut Buffers, limit: u64, line: Line) -> Result<Option<Point>, Error> {
        let options = Options { limit, policy: line.policy, using: line.using, ..self.usual };
        let fitted = match buffers.fit_watched(self.trace, &options, &mut |_| self.until.flow()) {
            Ok(fitted) => fitted,
            Err(Error::OverLimit { .. } | Error::Stopped) => return Ok(None),
            Err(e) => return Err(e),
        };
        let run = fitted.schedule.run();
        Ok(Some(Point {
            limit,
            fitted_to: limit,
            line,
            footprint: fitted.schedule.plan().peak(),
            peak_load: run.peak_load,
            overhead: run.overhead(),
            overhead_lower_bound: None,
            swapped_bytes: run.swapped_bytes,
            recomputed_ns: run.recomputed_ns,
        }))
    }

    /// Adds the lower bound to a point.
    fn bounded(&self, point: Point) -> Result<Point, Error> {
        let options = Options { limit: point.limit, using: point.line.using, ..self.usual };
        Ok(Point { overhead_lower_bound: ladder::lower_bound(self.trace, &options)?, ..point })
    }

    /// The least footprint found on a curve with an overhead of at most `within`. `known` holds points of the curve;
    /// those that are found are added. Bisects between the least footprint that is known and the highest limit below it
    /// that is known to cost more, until they are at most `near` bytes apart. Then some lower limits are tried too,
    /// since a heuristic that fails at one limit may succeed at a lower one. No footprint is below `floor`, in bytes.
    fn least(
        &self,
        buffers: &mut Buffers,
        known: &mut Vec<Point>,
        within: f64,
        floor: u64,
        near: u64,
    ) -> Result<Option<Point>, Error> {
        let (good, bad): (Vec<&Point>, Vec<&Point>) = known.iter().partition(|p| p.overhead <= within);
        let Some(mut best) = good.into_iter().min_by_key(|p| (p.footprint, p.limit)).copied() else { return Ok(None) };
        let below = bad.iter().map(|p| p.limit).filter(|&limit| limit < best.footprint).max();
        let mut low = below.unwrap_or(0).max(floor.saturating_sub(1));
        let line = best.line;
        let mut fit = |limit: u64| {
            let point = self.fit(buffers, limit, line)?;
            known.extend(point);
            Ok(point.filter(|point| point.overhead <= within))
        };
        while best.footprint.saturating_sub(low) > near {
            let limit = low + (best.footprint - low) / 2;
            match fit(limit)? {
                Some(point) => best = point,
                None => low = limit,
            }
        }
        let mut tries = 0;
        while tries < TRIES {
            tries += 1;
            let limit = best.footprint.saturating_sub(tries * STRIDE * near);
            if limit < floor {
                break;
            }
            if let Some(point) = fit(limit)? {
                (best, tries) = (point, 0);
            }
        }
        Ok(Some(best))
    }
}

/// The fastest schedule of a curve that is within a limit. If the heuristic found a faster one for a lower limit, it is
/// that one: so less memory is never shown to take less time.
fn quickest(found: &[Point], limit: u64, line: Line) -> Option<Point> {
    let within = found.iter().filter(|p| p.line == line && p.footprint <= limit);
    let quickest = within.min_by(|a, b| {
        let foreign = |p: &Point| (p.fitted_to != limit, p.fitted_to.abs_diff(limit));
        a.overhead.total_cmp(&b.overhead).then_with(|| foreign(a).cmp(&foreign(b)))
    });
    quickest.map(|&point| Point { limit, ..point })
}

impl Curve<'_> {
    fn csv(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "limit,fitted_to,policy,footprint,peak_load,overhead,lower_bound,swapped_bytes,recomputed_ns")?;
        for p in &self.points {
            let Point { limit, fitted_to, line, footprint, peak_load, overhead, swapped_bytes, recomputed_ns, .. } = p;
            let line = line.name;
            let bound = p.overhead_lower_bound.map_or(String::new(), |bound| format!("{bound:.6}"));
            writeln!(
                out,
                "{limit},{fitted_to},{line},{footprint},{peak_load},{overhead:.6},{bound},{swapped_bytes},{recomputed_ns}"
            )?;
        }
        Ok(())
    }

    fn text(&self, title: &str, lines: &[Line], out: &mut impl Write) -> io::Result<()> {
        let unit = Unit::for_largest(self.original_peak);
        let size = |bytes: u64| [unit.number(bytes.into()), format!("{:.1}", self.percent(bytes))];
        writeln!(out, "{title} on {}, overhead in %\n", self.device)?;
        let limit = format!("limit {}", unit.name());
        let header =
            [limit.as_str(), "% of peak"].into_iter().chain(lines.iter().map(|line| line.name)).chain(["bound"]);
        let mut by_limit = table::aligned(header, 0..3 + lines.len());
        for same in self.points.chunk_by(|a, b| a.limit == b.limit) {
            let cell = |line: &Line| {
                let point = same.iter().find(|p| p.line == *line);
                point.map_or("-".into(), |p| format!("{:.2}", 100.0 * p.overhead))
            };
            let bound = same.iter().find(|p| p.line == lines[0]).and_then(|p| p.overhead_lower_bound);
            let bound = bound.map_or("-".into(), |bound| format!("{:.2}", 100.0 * bound));
            by_limit.add_row(size(same[0].limit).into_iter().chain(lines.iter().map(cell)).chain([bound]));
        }
        writeln!(out, "{}\n", by_limit.trim_fmt())?;
        writeln!(
            out,
            "bound: no schedule by the means of the first curve has less overhead; -: no schedule was found\n"
        )?;
        let footprint = format!("footprint {}", unit.name());
        let mut least = table::aligned(["overhead", &footprint, "% of peak", "with --limit"], 1..4);
        for Least { within, point } in &self.least {
            let name = if *within > 0.0 { format!("at most {} %", 100.0 * within) } else { "none".into() };
            least.add_row([name].into_iter().chain(size(point.footprint)).chain([point.limit.to_string()]));
        }
        writeln!(out, "{}\n", least.trim_fmt())?;
        writeln!(
            out,
            "by swaps alone, every schedule without overhead takes at least {} ({:.1} % of the peak)",
            unit.size(self.swap_lower_bound),
            self.percent(self.swap_lower_bound)
        )
    }

    #[expect(clippy::cast_precision_loss, reason = "a share to be read")]
    fn percent(&self, bytes: u64) -> f64 {
        if self.original_peak == 0 { 0.0 } else { 100.0 * (bytes as f64 / self.original_peak as f64) }
    }
}

fn line_name<S: Serializer>(line: &Line, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(line.name)
}
