//! `sublet sweep`: what less memory costs in time, by every means, by all together, or by policies of swapping.
//!
//! Each fit is made by itself, so that several run at once; the curve does not depend on how many, as long as nobody
//! interrupts. The fits of the first curve come first: where the time is up, they are what matters most.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use indicatif::ProgressBar;
use serde::{Serialize, Serializer};
use sublet_baselines::zhang;
use sublet_core::Error;
use sublet_core::rewrite;
use sublet_core::rewrite::fit::{Fitted, Means, Options, Using};

use crate::args::{FittingArgs, SwapsBy, SweepArgs};
use crate::commands::buffers::{Aside, Buffers};
use crate::commands::fit;
use crate::commands::ladder;
use crate::failure::{Failure, InputError};
use crate::interrupt::Until;
use crate::problem::Trace;
use crate::text::unit::Unit;
use crate::text::{progress, table, voice};
use crate::{device, input, output, report};
use sublet_core::owned::Scratch;

/// A curve: of some means or of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    using: Using,
    by: SwapsBy,
    name: &'static str,
    about: &'static str,
}

impl Line {
    /// The curves of the policies that are asked for, or else of all means together and of each alone.
    fn all(policies: &[SwapsBy], using: Using) -> Vec<Self> {
        if !policies.is_empty() {
            let using = Using::NONE.with(Means::Swap);
            let line = |&by: &SwapsBy| match by {
                SwapsBy::Search => Self { using, by, name: "auto", about: "the search for swaps of sublet fit" },
                SwapsBy::Policy(policy) => Self { using, by, name: policy.name(), about: policy.about() },
            };
            return policies.iter().map(line).collect();
        }
        let line = |using, name, about| Self { using, by: SwapsBy::Search, name, about };
        let single = Means::ALL.iter().copied().filter(|&means| using.has(means));
        let single = single.map(|means| line(Using::NONE.with(means), means.name(), means.about()));
        [line(using, "joint", "all means together")].into_iter().chain(single).collect()
    }

    /// Whether a schedule of this curve is one of the other too: it has no more means.
    fn is_within(&self, other: &Self) -> bool {
        self == other || self.by == SwapsBy::Search && other.by == SwapsBy::Search && other.using.contains(self.using)
    }
}

impl Point {
    fn of(limit: u64, line: Line, fitted: &Fitted<'_>) -> Self {
        let run = fitted.schedule.run();
        Self {
            limit,
            fitted_to: limit,
            line,
            footprint: fitted.schedule.plan().peak(),
            peak_load: run.peak_load,
            overhead: run.overhead(),
            overhead_lower_bound: None,
            swapped_bytes: run.swapped_bytes,
            recomputed_ns: run.recomputed_ns,
        }
    }
}

/// What is known of a curve at a limit.
#[derive(Clone, Copy, Debug)]
enum Tried {
    Found(Point),
    /// No schedule was found.
    Nothing,
    /// The time was up before.
    Untried,
}

/// A limit of a curve for which there was no time.
#[derive(Clone, Copy, Debug, Serialize)]
struct Untried {
    limit: u64,
    #[serde(rename = "policy", serialize_with = "line_name")]
    line: Line,
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
    /// Where nothing is known, as the time was up before.
    untried: Vec<Untried>,
    /// Whether there was no time for a part of the search for the least footprints: there may be lower ones.
    least_untried: bool,
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
        voice::note("stopped early; the curve holds what was found so far");
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
        // Below what has to be on the device at once nothing fits; at that limit something does, or the error names the
        // least limit that works. That takes no search for speed.
        let all = Options { using: lines[0].using, ..self.usual };
        let quick = Options { work: 0, ..all };
        let needed = match buffers.fit(trace, &Options { limit: 0, ..quick }) {
            Err(Error::Impossible { needed, .. } | Error::OverLimit { least: needed, .. }) => needed,
            Err(e) => return Err(e),
            Ok(_) => 0,
        };
        let least_limit = match buffers.fit(trace, &Options { limit: needed, ..quick }) {
            Err(Error::OverLimit { least, .. }) => least,
            Err(e) => return Err(e),
            Ok(fitted) => fitted.schedule.plan().peak(),
        };
        let unlimited = buffers.fit(trace, &all)?;
        let (original_peak, load_min) = (unlimited.original_peak, unlimited.load_min);
        let unlimited = Point::of(original_peak, lines[0], &unlimited);
        let mut scratch = Scratch::of(rewrite::least_load_workspace(trace.rows.len(), trace.names.len()));
        let swap_lower_bound =
            rewrite::least_load(&trace.rows, trace.names.len(), &self.usual.device, 0, scratch.lend())?;

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
        let untried: Vec<(u64, Line)> =
            grid.iter().zip(&fits).filter(|(_, tried)| matches!(tried, Tried::Untried)).map(|(&at, _)| at).collect();
        let point = |tried| if let Tried::Found(point) = tried { Some(point) } else { None };
        let mut found: Vec<Point> = fits.into_iter().filter_map(point).collect();
        if found.iter().all(|p| (p.limit, p.line) != (unlimited.limit, unlimited.line)) {
            found.push(unlimited);
        }

        let swaps_alone = lines[0].using == Using::NONE.with(Means::Swap);
        self.bar.set_message("least footprints");
        let searched = self.each(&WITHIN, |buffers, &within| {
            let floor = if within > 0.0 || !swaps_alone { 0 } else { swap_lower_bound };
            let mut known: Vec<_> = found.iter().filter(|p| p.line.is_within(&lines[0])).copied().collect();
            self.least(buffers, &mut known, lines[0], within, (floor, (original_peak / NEAR).max(1)))?;
            Ok(known)
        })?;
        found.extend(searched.into_iter().flatten());
        // A schedule that one search has found may be the least for another overhead.
        let least = WITHIN.into_iter().filter_map(|within| {
            let enough = found.iter().filter(|p| p.line.is_within(&lines[0]) && p.overhead <= within);
            let point = *enough.min_by_key(|p| (p.footprint, p.limit))?;
            Some(Least { within, point: Point { line: lines[0], ..point } })
        });

        // The points are chosen last, when all schedules are known: one may be the fastest for several limits.
        let all = limits.flat_map(|limit| lines.iter().map(move |&line| (limit, line)));
        let quickest: Vec<_> = all.filter_map(|(limit, line)| quickest(&found, limit, line)).collect();
        let known = |limit, line| quickest.iter().any(|p: &Point| (p.limit, p.line) == (limit, line));
        let untried = untried.into_iter().filter(|&(limit, line)| !known(limit, line));
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
            least: least.collect(),
            least_untried: self.until.is_over(),
            untried: untried.map(|(limit, line)| Untried { limit, line }).collect(),
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

    /// Fits to a limit.
    fn fit(&self, buffers: &mut Buffers, limit: u64, line: Line) -> Result<Tried, Error> {
        if self.until.is_over() {
            return Ok(Tried::Untried);
        }
        let options = Options { limit, using: line.using, ..self.usual };
        let fitted = match line.by {
            SwapsBy::Search => buffers.fit_watched(self.trace, &options, &mut |_| self.until.flow()),
            SwapsBy::Policy(policy) => self.swap(buffers, policy, &options),
        };
        let fitted = match fitted {
            Ok(fitted) => fitted,
            Err(Error::Stopped) => return Ok(Tried::Untried),
            Err(Error::OverLimit { .. } | Error::Impossible { .. }) => return Ok(Tried::Nothing),
            Err(e) => return Err(e),
        };
        Ok(Tried::Found(Point::of(limit, line, &fitted)))
    }

    /// Swaps by a published policy.
    fn swap<'b>(
        &self,
        buffers: &'b mut Buffers,
        policy: zhang::Policy,
        options: &Options,
    ) -> Result<Fitted<'b>, Error> {
        let refused = Error::OverLimit { least: u64::MAX, limit: options.limit };
        let swapped = zhang::swap(&self.trace.recorded(), policy, options)?.ok_or(refused)?;
        buffers.prove(self.trace, options, Aside::of_rows(swapped.rows, swapped.offsets))
    }

    /// Adds the lower bound to a point.
    fn bounded(&self, point: Point) -> Result<Point, Error> {
        let options = Options { limit: point.limit, using: point.line.using, ..self.usual };
        Ok(Point { overhead_lower_bound: ladder::lower_bound(self.trace, &options)?, ..point })
    }

    /// Searches for the least footprint of a curve with an overhead of at most `within`. `known` holds points of the
    /// curve; those that are found are added. Bisects between the least footprint that is known and the highest limit below it
    /// that is known to cost more, until they are at most `near` bytes apart. Then some lower limits are tried too,
    /// since a heuristic that fails at one limit may succeed at a lower one. No footprint is below `floor`, in bytes.
    fn least(
        &self,
        buffers: &mut Buffers,
        known: &mut Vec<Point>,
        line: Line,
        within: f64,
        (floor, near): (u64, u64),
    ) -> Result<(), Error> {
        let good = known.iter().filter(|p| p.overhead <= within);
        let Some(mut best) = good.min_by_key(|p| (p.footprint, p.limit)).copied() else { return Ok(()) };
        let bad = known.iter().filter(|p| p.line == line && p.overhead > within && p.limit < best.footprint);
        let mut low = bad.map(|p| p.limit).max().unwrap_or(0).max(floor.saturating_sub(1));
        let mut fit = |limit: u64| {
            let Tried::Found(point) = self.fit(buffers, limit, line)? else { return Ok(None) };
            known.push(point);
            Ok(Some(point).filter(|point| point.overhead <= within))
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
        Ok(())
    }
}

/// The fastest schedule of a curve that is within a limit. If the heuristic found a faster one for a lower limit, it is
/// that one: so less memory is never shown to take less time.
fn quickest(found: &[Point], limit: u64, line: Line) -> Option<Point> {
    let within = found.iter().filter(|p| p.line.is_within(&line) && p.footprint <= limit);
    let quickest = within.min_by(|a, b| {
        let foreign = |p: &Point| (p.line != line, p.fitted_to != limit, p.fitted_to.abs_diff(limit));
        a.overhead.total_cmp(&b.overhead).then_with(|| foreign(a).cmp(&foreign(b)))
    });
    quickest.map(|&point| Point { limit, line, ..point })
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
        let limits = self.points.iter().map(|p| p.limit).chain(self.untried.iter().map(|u| u.limit));
        for limit in limits.collect::<BTreeSet<_>>().into_iter().rev() {
            let same: Vec<&Point> = self.points.iter().filter(|p| p.limit == limit).collect();
            let cell = |line: &Line| {
                let point = same.iter().find(|p| p.line == *line);
                let untried = self.untried.iter().any(|u| (u.limit, u.line) == (limit, *line));
                let nothing = if untried { "?" } else { "-" };
                point.map_or(nothing.into(), |p| format!("{:.2}", 100.0 * p.overhead))
            };
            let bound = same.iter().find(|p| p.line == lines[0]).and_then(|p| p.overhead_lower_bound);
            let bound = bound.map_or("-".into(), |bound| format!("{:.2}", 100.0 * bound));
            by_limit.add_row(size(limit).into_iter().chain(lines.iter().map(cell)).chain([bound]));
        }
        writeln!(out, "{}\n", by_limit.trim_fmt())?;
        writeln!(
            out,
            "bound: no schedule by the means of the first curve has less overhead; -: no schedule was found{}\n",
            if self.untried.is_empty() { "" } else { "; ?: not tried, the time was up" }
        )?;
        let footprint = format!("footprint {}", unit.name());
        let mut least = table::aligned(["overhead", &footprint, "% of peak", "with --limit"], 1..4);
        for Least { within, point } in &self.least {
            let name = if *within > 0.0 { format!("at most {} %", 100.0 * within) } else { "none".into() };
            least.add_row([name].into_iter().chain(size(point.footprint)).chain([point.limit.to_string()]));
        }
        writeln!(out, "{}", least.trim_fmt())?;
        writeln!(out, "{}", if self.least_untried { "lower ones may exist: the time was up\n" } else { "" })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_for_less_memory_or_by_fewer_means_counts() {
        let swap = Using::NONE.with(Means::Swap);
        let line = |using, by| Line { using, by, name: "", about: "" };
        let alone = line(swap, SwapsBy::Search);
        let joint = line(swap.with(Means::Recompute), SwapsBy::Search);
        let by_policy = line(swap, SwapsBy::Policy(zhang::Policy::Doa));
        let point = |line, limit, overhead| Point {
            limit,
            fitted_to: limit,
            line,
            footprint: limit - 1,
            peak_load: 0,
            overhead,
            overhead_lower_bound: None,
            swapped_bytes: 0,
            recomputed_ns: 0,
        };
        let found = [point(joint, 100, 0.5), point(alone, 80, 0.2), point(by_policy, 60, 0.1), point(joint, 50, 0.9)];
        let overhead = |limit, line| quickest(&found, limit, line).map(|p| (p.overhead, p.fitted_to, p.line == line));
        assert_eq!(overhead(100, joint), Some((0.2, 80, true)));
        assert_eq!(overhead(78, joint), Some((0.9, 50, true)));
        assert_eq!(overhead(100, alone), Some((0.2, 80, true)));
        assert_eq!(overhead(78, alone), None);
        assert_eq!(overhead(100, by_policy), Some((0.1, 60, true)));
    }
}
