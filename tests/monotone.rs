//! The overhead of fits by limit: of thirty limits for each trace, none has a higher overhead than a lower limit.

use core::ops::ControlFlow;

use sublet_core::owned;
use sublet_core::rewrite::fit::{Means, Options, Progress, Tried, Using};
use sublet_core::simulate::Device;
use sublet_models::{Block, ResNet, Roofline, Setting, Transformer};
use sublet_tests::recording::{Recording, max_load};

const SWAP: Using = Using::NONE.with(Means::Swap);

#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn no_limit_costs_more_than_a_lower_one() {
    for (name, using) in [
        ("alexnet_train_b32", SWAP),
        ("vgg16_cifar_train_b100", SWAP.with(Means::Recompute)),
        ("resnet50_train_b32", SWAP),
    ] {
        let recording = Recording::named(name).expect("a trace of the small corpus");
        let peak = recording.max_load();
        let limits: Vec<u64> = (0..30).map(|k| peak / 100 * (99 - 2 * k)).collect();
        let device = Device::named("gtx1080ti").expect("a preset");
        let options = Options { using, work: 20, ..Options::new(0, device) };
        let swept = owned::sweep(&recording.recorded(), &options, &limits).expect("a sound trace");
        let alone: Vec<f64> = limits
            .iter()
            .map(|&limit| owned::fit(&recording.recorded(), &Options { limit, ..options }))
            .map(|fitted| fitted.map_or(f64::INFINITY, |fitted| fitted.run.overhead()))
            .collect();
        let mut before = 0.0;
        for ((&limit, fitted), &alone) in limits.iter().zip(&swept).zip(&alone) {
            let overhead = fitted.as_ref().map_or(f64::INFINITY, |fitted| fitted.run.overhead());
            assert!(fitted.as_ref().is_ok_and(|fitted| fitted.footprint <= limit) || overhead.is_infinite());
            assert!(before <= overhead && overhead <= alone, "{name} at {limit}: {before}, {overhead}, alone {alone}");
            before = overhead;
        }
    }
}

/// The first plan is placed above the limit. Bytes are then held back below the limit (headroom), and they have to grow
/// until the plan changes.
#[test]
fn more_is_held_back_until_the_plan_of_recomputation_changes() {
    let overhead = of_resnet(101, 32, 30, Using::NONE.with(Means::Recompute));
    assert!(overhead < 0.25, "{overhead}");
}

/// The first placements leave holes. A plan with a part of the limit held back everywhere adds a sixth less time than the
/// plans that hold back only where these were too high.
#[test]
fn swaps_are_planned_again_with_a_part_of_the_limit_held_back() {
    let recording = Recording::named("alexnet_train_b32").expect("a trace of the small corpus");
    let device = Device::named("gtx1080ti").expect("a preset");
    let options = Options { using: SWAP, ..Options::new(recording.max_load() / 10 * 7, device) };
    let overhead = owned::fit(&recording.recorded(), &options).expect("a schedule").run.overhead();
    assert!(overhead < 1.1, "{overhead}");
}

/// In the recorded order the updates come last, and what waits for them is more than the limit. Once another order has cost
/// less than the lower bound of this one, it is not worked on.
#[test]
fn an_order_that_is_proved_worse_is_not_worked_on() {
    let setting = Setting { batch: 1, training: true, device: Roofline::GTX1080TI };
    let network = Transformer {
        block: Block::Llama,
        layers: 4,
        width: 2048,
        heads: 16,
        tokens: 256,
        vocabulary: 1000,
        flash: true,
        element: 2,
    };
    let mut trace = network.build(&setting).unwrap().trace().unwrap();
    trace.operators.iter_mut().for_each(|operator| operator.ordered = false);
    let options = Options::new(max_load(&trace.rows) / 2, Device::named("gtx1080ti").expect("a preset"));
    let mut tried = [0; 2];
    let mut watch = |progress: &Progress| {
        if let Progress::Tried(Tried { reordering, .. }) = progress {
            tried[usize::from(reordering.is_some())] += 1;
        }
        ControlFlow::Continue(())
    };
    let fitted = owned::fit_watched(&trace.recorded(), &options, &mut watch).unwrap();
    assert!(tried[0] < 9 && fitted.run.overhead() < 0.05, "{tried:?} {}", fitted.run.overhead());
}

/// Under a low limit it pays to swap the few values that take longest to recompute, a sixteenth or a thirty-second of
/// the bytes, and to recompute the others. A fit that tried to swap only larger parts would take 22 % longer than the
/// original.
#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn the_values_that_are_dearest_to_recompute_are_swapped() {
    let overhead = of_resnet(50, 64, 20, SWAP.with(Means::Recompute));
    assert!(overhead < 0.19, "{overhead}");
}

/// In a network of a thousand layers, a swap is chosen thousands of times. If each choice looked at every block again,
/// or if estimates took all the work, the first schedule that fits would take six, or twice, as long as the original.
#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn a_network_of_a_thousand_layers_fits_in_a_fifth_of_its_memory() {
    let overhead = of_resnet(1001, 16, 20, Using::ALL);
    assert!(overhead < 0.25, "{overhead}");
}

/// The overhead of a fit of a residual network in training. `percent` is the limit, in percent of the max load; `using`
/// are the means.
fn of_resnet(depth: u32, batch: u32, percent: u64, using: Using) -> f64 {
    let setting = Setting { batch, training: true, device: Roofline::GTX1080TI };
    let trace = ResNet { depth, ..ResNet::default() }.build(&setting).unwrap().trace().unwrap();
    let device = Device::named("gtx1080ti").expect("a preset");
    let options = Options::new(max_load(&trace.rows) * percent / 100, device);
    owned::fit(&trace.recorded(), &Options { using, ..options }).unwrap().run.overhead()
}
