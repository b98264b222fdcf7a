//! Fits: a schedule with its pages and files, and why it is as it is.

use sublet_core::rewrite::fit::{self, Fitted, Means, Options, Progress, Using};
use sublet_core::{Error, owned};

use crate::commands::buffers::{Aside, Buffers};
use crate::commands::explain::{self, Explained, Way};
use crate::commands::fit::{Shown, allowed};
use crate::commands::ladder;
use crate::gaps::{self, Gap};
use crate::marks::Marks;
use crate::output;
use crate::problem::{Problem, Trace};
use crate::report::{self, Picture};

/// A verified schedule of a problem within a limit, and how it was found.
#[derive(Debug)]
pub struct Fit {
    /// The rewritten trace, its plan and its times.
    pub schedule: owned::Fit,
    /// No schedule within the limit has a lower overhead, a fraction of the original's time; none where no bound is known.
    pub lower_bound: Option<f64>,
    /// The same for schedules that keep the recorded order.
    pub lower_bound_in_order: Option<f64>,
    options: Options,
    device: String,
    load_min: u64,
    ways: Vec<Way>,
}

impl Problem {
    /// The means that `sublet fit` uses where none are named: those of which some operator makes use. An operator is
    /// recomputed only where it is said which give the same result.
    #[must_use]
    pub fn usual_means(&self) -> Using {
        self.trace.as_ref().map_or(Using::NONE, allowed)
    }

    /// Rewrites the trace so that it is within the limit of `options`. Pages call the device `device`; `watch` is told of
    /// progress, and may end the search.
    ///
    /// # Errors
    /// As [`fit::fit_watched`]; [`Error::Impossible`] also where the lower bound shows it.
    pub fn fit(&self, options: &Options, device: &str, watch: fit::Watch<'_>) -> Result<Fit, Error> {
        let none = Trace::default();
        let trace = self.trace.as_ref().unwrap_or(&none);
        let in_order = Options { using: options.using.without(Means::Order), ..*options };
        let lower_bound = ladder::lower_bound(trace, options)?;
        let lower_bound_in_order = ladder::lower_bound(trace, &in_order).ok().flatten();
        let timed = |bound: Option<f64>| bound.filter(|bound| trace.time_ns() > 0 && bound.is_finite());
        let mut buffers = Buffers::of(trace);
        let mut explained = Explained::new();
        let fitted = buffers.fit_watched(trace, options, &mut |progress| {
            if let Progress::Tried(tried) = progress {
                explained.add(tried, options.limit);
            }
            watch(progress)
        })?;
        Ok(Fit {
            schedule: owned::Fit::from(&fitted),
            lower_bound: timed(lower_bound),
            lower_bound_in_order: timed(lower_bound_in_order),
            options: *options,
            device: device.into(),
            load_min: fitted.load_min,
            ways: explained.into_ways(),
        })
    }
}

impl Fit {
    /// The ways to combine the means that were tried, as a JSON array: what `sublet fit --explain --json` calls `tried`.
    ///
    /// # Errors
    /// None that is known.
    pub fn tried(&self) -> Result<String, String> {
        serde_json::to_string(&self.ways).map_err(|e| e.to_string())
    }

    /// The gaps between the uses of a block, as a JSON array: what `sublet fit --explain=BLOCK --json` calls `gaps`.
    ///
    /// # Errors
    /// No block of this name.
    pub fn gaps(&self, problem: &Problem, block: &str) -> Result<String, String> {
        self.proved(problem, |trace, fitted| {
            let number = trace.names.iter().position(|name| name == block);
            let number = number.ok_or_else(|| format!("the trace has no block {block}"))?;
            let [number, mask] = [number, number + trace.names.len()].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
            let gaps = gaps::of(&fitted.schedule, trace, &self.options.device);
            let told = explain::gaps_of(number, mask, &gaps, &trace.op_names);
            serde_json::to_string(&told).map_err(|e| e.to_string())
        })
    }

    /// The memory map of the rewritten trace, and what runs and is copied when, as a page of HTML.
    ///
    /// # Errors
    /// A problem that this is no schedule of.
    pub fn page(&self, problem: &Problem) -> Result<String, String> {
        let mut page = Vec::new();
        self.proved(problem, |trace, fitted| {
            self.picture(problem, trace, fitted, |picture| report::html(picture, &mut page).map_err(|e| e.to_string()))
        })?;
        String::from_utf8(page).map_err(|e| e.to_string())
    }

    /// Writes the schedule: `.html` and `.svg` are pictures of it, other names folders, as `sublet fit --output` writes
    /// them.
    ///
    /// # Errors
    /// A problem that this is no schedule of, or why the file cannot be written.
    pub fn save(&self, problem: &Problem, file: &str) -> Result<(), String> {
        self.proved(problem, |trace, fitted| {
            if output::is_picture(file)? {
                let write = |picture: &Picture<'_>| output::write(file, |out| report::write(file, picture, out));
                self.picture(problem, trace, fitted, |picture| write(picture).map_err(|e| e.to_string()))
            } else {
                let shown = Shown::of(problem, trace, fitted).map_err(|e| e.to_string())?;
                shown.write_folder(file).map_err(|e| e.to_string())
            }
        })
    }

    fn picture<T>(
        &self,
        problem: &Problem,
        trace: &Trace,
        fitted: &Fitted<'_>,
        then: impl FnOnce(&Picture<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let marks = Marks::of(&fitted.schedule, trace);
        let gaps: Vec<Gap> = gaps::of(&fitted.schedule, trace, &self.options.device);
        let shown = Shown::of(problem, trace, fitted).map_err(|e| e.to_string())?;
        shown.picture((&self.device, self.options.limit, self.lower_bound), (&marks, &gaps), then)
    }

    fn proved<T>(
        &self,
        problem: &Problem,
        then: impl FnOnce(&Trace, &Fitted<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let trace = problem.trace.as_ref().ok_or("lifetimes alone have no schedule")?;
        let mut buffers = Buffers::of(trace);
        let aside = Aside::of_copy(&self.schedule, self.load_min);
        let fitted = buffers.prove(trace, &self.options, aside).map_err(|e| problem.explain(&e))?;
        then(trace, &fitted)
    }
}
