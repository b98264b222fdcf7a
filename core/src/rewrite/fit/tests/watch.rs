//! What a fit tells its caller, and how it ends when the caller stops it.

use super::*;

fn recorded() -> (Vec<Row>, usize, Vec<Operator>) {
    let forward = (0..12u32).map(|k| (6, if k == 0 { vec![] } else { vec![k - 1] }, false, 20));
    let back = (0..12u32).map(|k| (6, vec![11 - k, 11 + k], false, 40));
    let (rows, blocks) = trace(0, &forward.chain(back).collect::<Vec<_>>());
    let operators = (0..24).map(|k| Operator { rerun: k < 12, ..Operator::default() }).collect();
    (rows, blocks, operators)
}

fn options(rows: &[Row], blocks: usize, bytes_per_s: f64) -> Options {
    let (peak, _, _) = run(rows, blocks, &swapping(u64::MAX, Device::symmetric(12e9))).unwrap();
    let using = SWAP.with(Means::Recompute);
    Options { using, work: 500, ..Options::new(peak * 2 / 5, Device::symmetric(bytes_per_s)) }
}

/// Too small for what has to leave, which no bound knows.
fn small_host(options: &Options) -> Options {
    let device = Device { host_capacity: Some(8 * MIB), ..options.device };
    Options { using: SWAP, device, ..*options }
}

#[test]
fn the_best_that_is_told_is_the_result() {
    let (rows, blocks, operators) = recorded();
    let recorded = Recorded { rows: &rows, operators: &operators, blocks };
    let mut strategies = std::collections::HashSet::new();
    let both = [1e9, 4e9, 8e9, 64e9].map(|bytes_per_s| options(&rows, blocks, bytes_per_s));
    let alone = Options { using: SWAP, ..both[2] };
    for options in both.into_iter().chain([alone]) {
        let mut best = f64::INFINITY;
        let fitted = run_watched(&recorded, &options, &mut |progress| {
            if let Progress::Tried(tried) = progress {
                assert_eq!(tried.limit, options.limit);
                strategies.insert(tried.strategy);
                if tried.footprint <= tried.limit {
                    best = best.min(tried.overhead_ns);
                }
            }
            ControlFlow::Continue(())
        });
        let (_, _, overhead) = fitted.unwrap();
        let time = std::time::Duration::from_nanos(rows.last().unwrap().time_ns).as_secs_f64() * 1e9;
        let best = best / time;
        assert!((best - overhead).abs() <= 1e-3 * overhead, "{best} {overhead}");
    }
    assert!(strategies.len() > 2, "{strategies:?}");
}

#[test]
fn the_schedule_of_least_load_is_told() {
    let (rows, blocks, operators) = recorded();
    let recorded = Recorded { rows: &rows, operators: &operators, blocks };
    let options = small_host(&options(&rows, blocks, 8e9));
    let needed = run_recorded(&recorded, &Options { limit: 1, ..options });
    let Err(Error::Impossible { needed, .. }) = needed else { panic!("1 byte is too little") };
    let options = Options { limit: needed, ..options };
    let mut told = Vec::new();
    let refused = run_watched(&recorded, &options, &mut |progress| {
        if let Progress::Tried(tried) = progress {
            told.push(tried.footprint);
        }
        ControlFlow::Continue(())
    });
    let Err(Error::OverLimit { least, .. }) = refused else { panic!("{refused:?}") };
    assert!(told.contains(&least), "{least} {told:?}");
}

#[test]
fn what_is_stopped_gives_the_best_so_far() {
    let (rows, blocks, operators) = recorded();
    let (recorded, options) = (Recorded { rows: &rows, operators: &operators, blocks }, options(&rows, blocks, 8e9));
    let mut calls = 0u32;
    let whole = run_watched(&recorded, &options, &mut |_| {
        calls += 1;
        ControlFlow::Continue(())
    });
    let (_, _, whole) = whole.unwrap();
    let (mut stopped, mut worse) = (0, 0);
    for at in std::iter::successors(Some(1), |at| Some(at + 1 + at / 6)).take_while(|&at| at < calls) {
        let mut called = 0;
        let mut best = f64::INFINITY;
        let end = run_watched(&recorded, &options, &mut |progress| {
            called += 1;
            if let Progress::Tried(tried) = progress
                && tried.footprint <= tried.limit
            {
                best = best.min(tried.overhead_ns);
            }
            if called == at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(called, at, "it is not told anything after it has ended the work");
        match end {
            Ok((_, footprint, overhead)) => {
                assert!(footprint <= options.limit && overhead >= whole - 1e-9);
                worse += u32::from(overhead > whole + 1e-9);
            }
            Err(e) => {
                assert_eq!((e, best), (Error::Stopped, f64::INFINITY));
                stopped += 1;
            }
        }
    }
    assert!(stopped > 0 && worse > 0, "{stopped} ended with nothing, {worse} with less than the best");
}

#[test]
fn whoever_stops_at_the_first_schedule_that_fits_has_it() {
    let (rows, blocks, operators) = recorded();
    let recorded = Recorded { rows: &rows, operators: &operators, blocks };
    for bytes_per_s in [1e9, 8e9, 64e9] {
        let options = options(&rows, blocks, bytes_per_s);
        let (mut tried, mut found) = (0, f64::NAN);
        let kept = run_watched(&recorded, &options, &mut |progress| match progress {
            Progress::Tried(tried) if tried.footprint <= tried.limit => {
                found = tried.overhead_ns;
                ControlFlow::Break(())
            }
            Progress::Tried(_) => {
                tried += 1;
                ControlFlow::Continue(())
            }
            Progress::Working => ControlFlow::Continue(()),
        });
        let (_, footprint, overhead) = kept.unwrap();
        assert!(footprint <= options.limit && found.is_finite() && overhead.is_finite());
        assert!(
            tried < 2 * crate::rewrite::fit::Strategy::ALL.len(),
            "{tried} schedules came before the plainest that fits"
        );
    }
}

#[test]
fn a_refusal_without_work_names_a_limit_that_works() {
    let (rows, blocks, operators) = recorded();
    let recorded = Recorded { rows: &rows, operators: &operators, blocks };
    let options = small_host(&options(&rows, blocks, 8e9));
    let mut tried = 0;
    let mut fit = |limit| {
        let mut watch = |progress: &Progress| {
            tried += u32::from(matches!(progress, Progress::Tried(_)));
            ControlFlow::Continue(())
        };
        run_within(&recorded, &Options { limit, ..options }, &mut watch, Budget::SPENT)
    };
    let Err(Error::Impossible { needed, .. }) = fit(1) else { panic!("it fits") };
    let Err(Error::OverLimit { least, .. }) = fit(needed) else { panic!("it fits") };
    let (_, footprint, _) = fit(least).unwrap();
    assert!(footprint <= least && tried < 100, "{tried}");
}
