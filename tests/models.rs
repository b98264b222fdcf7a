//! Generated networks against recorded ones, and against the figures of papers.

use std::collections::{BTreeMap, HashSet};

use sublet_core::trace::Storage;
use sublet_core::trace::{Event, Op, Row};
use sublet_models::{
    AlexNet, Image, Lstm, Network, Operator, Phase, ResNet, Roofline, Setting, Stages, Unbuildable, Vgg, WideResNet,
};
use sublet_tests::recording::{Recording, max_load};

const GPU: Roofline = Roofline::GTX1080TI;

fn setting(batch: u32, convolution_workspace: u64) -> Setting {
    Setting { batch, training: true, device: Roofline { convolution_workspace, ..GPU } }
}

/// How many blocks of each size, in bytes, there are. Blocks that an operator frees within its run (its workspace) are
/// not counted.
fn sizes(rows: &[Row]) -> BTreeMap<u64, usize> {
    let scratch = rows.iter().filter(|r| r.event == Event::Free && r.op != Op::None);
    let scratch: HashSet<u32> = scratch.map(|r| r.block).collect();
    let mut sizes = BTreeMap::new();
    for r in rows.iter().filter(|r| r.event == Event::Malloc && !scratch.contains(&r.block)) {
        *sizes.entry(r.bytes).or_default() += 1;
    }
    sizes
}

fn line(operator: &Operator) -> String {
    let Operator { name, phase, may, .. } = operator;
    format!("{name},{phase},{},{}", u8::from(may.in_place), u8::from(may.rerun))
}

/// Asserts that a generated network equals the recording `name`: it has the same operators in the same order, tensors
/// of the same sizes, and the same max load within 1 %, since the recorder kept some blocks longer; if `timed`, also
/// the same time. Does nothing if there is no such recording.
fn equals_the_recording(name: &str, network: &Network, timed: bool) {
    let Some(recording) = Recording::named(name) else {
        println!("Skipped: {name} (SUBLET_DATA is not set)");
        return;
    };
    let generated: Vec<String> = network.operators.iter().map(line).collect();
    assert!(generated == recording.lines, "{name}: other operators");
    let trace = network.trace().unwrap();
    assert_eq!(sizes(&trace.rows), sizes(&recording.rows), "{name}");
    let (ours, recorded) = (max_load(&trace.rows), recording.max_load());
    assert!(ours.abs_diff(recorded) * 100 <= recorded, "{name}: {ours} of {recorded}");
    let [time, recorded] = [&trace.rows, &recording.rows].map(|rows| rows.last().unwrap().time_ns);
    println!("{name}: {ours} bytes, {time} of {recorded} ns");
    assert!(!timed || time == recorded, "{name}: {time} of {recorded} ns");
}

#[test]
fn generated_networks_are_the_recorded_ones() {
    let resnet = |depth, image| ResNet { depth, image, ..ResNet::default() };
    let imagenet = |batch| resnet(50, Image::ImageNet).build(&setting(batch, 8 << 20)).unwrap();
    equals_the_recording("resnet50_train_b32", &imagenet(32), true);
    equals_the_recording("resnet50_train_b64", &imagenet(64), true);
    for batch in [32, 64] {
        let alexnet = AlexNet::default().build(&setting(batch, 8 << 20)).unwrap();
        equals_the_recording(&format!("alexnet_train_b{batch}"), &alexnet, true);
    }
    let lstm = Lstm::default().build(&setting(64, 0)).unwrap();
    equals_the_recording("lstm4x1024_train_b64", &lstm, true);
    for depth in [11, 16] {
        let vgg = Vgg { depth, image: Image::Cifar }.build(&setting(100, 0)).unwrap();
        equals_the_recording(&format!("vgg{depth}_cifar_train_b100"), &vgg, false);
    }
    for depth in [18, 50] {
        let network = resnet(depth, Image::Cifar).build(&setting(100, 0)).unwrap();
        equals_the_recording(&format!("resnet{depth}_cifar_train_b100"), &network, false);
    }
    let inference = Setting { training: false, ..setting(1, 8 << 20) };
    equals_the_recording("resnet50_infer_b1", &resnet(50, Image::ImageNet).build(&inference).unwrap(), false);
    equals_the_recording("alexnet_infer_b1", &AlexNet::default().build(&inference).unwrap(), false);
}

/// Chen et al. 2016: a `ResNet` of 1000 layers, batch 32, takes 48 GB if no memory is saved.
#[test]
fn a_thousand_layers_take_what_chen_et_al_say() {
    let network = ResNet { depth: 1001, ..ResNet::default() }.build(&setting(32, 8 << 20)).unwrap();
    let peak = max_load(&network.trace().unwrap().rows);
    assert!((47_000_000_000..50_000_000_000).contains(&peak), "{peak}");
    let tenths = (peak + 50_000_000) / 100_000_000;
    let told = format!("{}.{} GB", tenths / 10, tenths % 10);
    assert!(include_str!("../docs/graphs.md").contains(&told), "{told}");
}

/// Jin et al. 2018: 11.61 GB for 152 layers in Caffe, 67.2 GB for 1001, and roughly 100 for 1517, with the blocks of
/// the network files that they publish. Caffe keeps the data and the gradient of each convolution, pooling and sum;
/// batch norm, scale and `ReLU` work in that memory. If several layers read a blob (a tensor of Caffe), each keeps a
/// gradient of it. The images have no gradient.
#[test]
fn in_caffe_networks_take_what_jin_et_al_say() {
    let caffe = |depth: u32, stages: Stages| {
        let network = ResNet { depth, stages, ..ResNet::default() };
        let network = network.build(&Setting { training: false, ..setting(32, 0) }).unwrap();
        let mut readers = vec![0; network.tensors.len()];
        network.operators.iter().flat_map(|o| &o.inputs).for_each(|&t| readers[t as usize] += 1);
        let bytes = |o: &Operator| network.tensors[o.outputs[0] as usize].bytes;
        let named = |names: &'static [&str]| network.operators.iter().filter(|o| names.contains(&o.name));
        let own = named(&["convolution", "max_pool2d_with_indices", "add_", "mean", "addmm"]);
        let own: u64 = own.map(|o| 2 * bytes(o)).sum();
        let shared = named(&["max_pool2d_with_indices", "relu"]).filter(|o| readers[o.outputs[0] as usize] > 1);
        let copies: u64 = shared.map(|o| readers[o.outputs[0] as usize] * bytes(o)).sum();
        let images = 32 * 3 * 224 * 224 * 4;
        // Where a stage begins, the published networks halve the side of the image one convolution earlier than ours.
        let earlier: u64 =
            [128 * 56 * 56, 256 * 28 * 28, 512 * 14 * 14].map(|maps| 2 * 32 * maps * 4 / 4 * 3).iter().sum();
        images + own + copies - earlier
    };
    let jin = [
        (152, Stages::Published, 1161, 1),
        (1001, Stages::Blocks([3, 57, 270, 3]), 6720, 5),
        (1517, Stages::Blocks([3, 83, 416, 3]), 10000, 50),
    ];
    for (depth, stages, hundredths_of_gib, within) in jin {
        let found = caffe(depth, stages) * 100 / (1 << 30);
        assert!(found.abs_diff(hundredths_of_gib) <= within, "{depth}: {found} hundredths of a GiB");
    }
}

/// The bytes that Layrub's code (github.com/CGCL-codes/Layrub at 0657919) reserves for a network of bottlenecks, with
/// `blocks` of them in each stage. A blob is a tensor of Caffe; batch norm, scale and `ReLU` work in the blob that they
/// read. Labels are left out.
fn reserved_by_layrub(blocks: [u64; 4], batch: u64) -> u64 {
    let maps = |channels: u64, side: u64| batch * channels * side * side * 4;
    // For each layer, the numbers of the blobs that it reads, and the bytes of the blob that it makes.
    let mut layers: Vec<(Vec<usize>, u64)> = vec![(vec![], maps(3, 224))];
    let mut layer = |reads: &[usize], bytes: u64| {
        layers.push((reads.to_vec(), bytes));
        layers.len() - 1
    };
    let first = layer(&[0], maps(64, 112));
    let mut x = layer(&[first], maps(64, 56));
    for (stage, blocks) in (0..).zip(blocks) {
        let (width, side) = (64 << stage, 56 >> stage);
        for block in 0..blocks {
            let shortcut = if block == 0 { layer(&[x], maps(4 * width, side)) } else { x };
            let narrow = layer(&[x], maps(width, side));
            let square = layer(&[narrow], maps(width, side));
            let wide = layer(&[square], maps(4 * width, side));
            x = layer(&[shortcut, wide], maps(4 * width, side));
        }
    }
    let mean = layer(&[x], batch * 2048 * 4);
    layer(&[mean], batch * 1000 * 4);

    let mut readers = vec![0; layers.len()];
    layers.iter().flat_map(|(reads, _)| reads).for_each(|&blob| readers[blob] += 1);
    // A slot, which holds one blob at a time, is free when all layers that read the blob have run, and the second layer
    // after the one that made it too.
    let mut uses: Vec<i32> = readers.clone();
    let mut slots: Vec<(u64, usize)> = Vec::new();
    for (made, (reads, bytes)) in layers.iter().enumerate() {
        match slots.iter_mut().find(|(_, blob)| uses[*blob] < 0) {
            Some(slot) => *slot = (slot.0.max(*bytes), made),
            None => slots.push((*bytes, made)),
        }
        for blob in reads.iter().copied().chain(made.checked_sub(2)) {
            uses[blob] = (uses[blob] - 1).max(-1);
        }
    }
    let slots: u64 = slots.iter().map(|(bytes, _)| bytes).sum();
    let shared: Vec<u64> = layers.iter().zip(&readers).filter(|(_, n)| **n > 1).map(|((_, bytes), _)| *bytes).collect();
    let most = |from: usize, by: usize| shared.iter().skip(from).step_by(by).max().copied().unwrap_or(0);
    // Beside the slots: two buffers, in which all shared blobs but the first lie by turns; the gradients of the two
    // copies of a shared blob; and a byte for each element of the first ReLU.
    slots + most(1, 2) + most(2, 2) + 2 * most(0, 1) + layers[first].1 / 4
}

/// Jin et al. 2018: 759.5 MB at batch 32, whatever the depth.
#[test]
fn layrub_reserves_what_jin_et_al_say() {
    for blocks in [[3, 4, 6, 3], [3, 4, 23, 3], [3, 8, 36, 3], [3, 57, 270, 3], [3, 83, 416, 3]] {
        assert_eq!(reserved_by_layrub(blocks, 32), 1519 << 19, "{blocks:?}");
    }
}

#[test]
fn every_depth_is_built_or_refused() {
    let small = setting(1, 0);
    let convolutions = |network: &Network| network.operators.iter().filter(|o| o.name == "convolution").count();
    for depth in 0..300 {
        for stages in [Stages::Published, Stages::Even, Stages::Third] {
            let resnet = ResNet { depth, stages, ..ResNet::default() };
            match resnet.build(&small) {
                // The depth counts the linear layer, which is no convolution.
                Ok(network) => {
                    // Without bottlenecks the first stage does not widen.
                    let projections = if [18, 34].contains(&depth) { 3 } else { 4 };
                    assert_eq!(convolutions(&network), depth as usize - 1 + projections);
                }
                Err(e) => {
                    let small = stages == Stages::Third && depth < 35;
                    assert!(depth < 14 || depth % 3 != 2 || small, "{depth}: {e}");
                }
            }
        }
        match (WideResNet { depth, width: 1 }).build(&small) {
            // The depth is 6 n + 4. There are 6 n convolutions in the blocks, one at the beginning, and a projection in
            // each of the two stages that widen.
            Ok(network) => assert_eq!(convolutions(&network), depth as usize - 4 + 1 + 2),
            Err(e) => assert!(depth < 10 || depth % 6 != 4, "{depth}: {e}"),
        }
        let vgg = Vgg { depth, image: Image::ImageNet }.build(&small);
        assert_eq!(vgg.is_ok(), [11, 13, 16, 19].contains(&depth));
    }
    let with = |depth, blocks| ResNet { depth, stages: Stages::Blocks(blocks), ..ResNet::default() }.build(&small);
    assert_eq!(with(50, [3, 4, 6, 3]), ResNet::default().build(&small));
    assert_ne!(with(50, [3, 3, 7, 3]), with(50, [3, 4, 6, 3]));
    for (depth, blocks) in [(50, [3, 4, 6, 4]), (50, [0, 7, 6, 3]), (50, [u32::MAX, 17, 0, 0]), (34, [3, 4, 6, 3])] {
        assert!(with(depth, blocks).is_err(), "{depth}: {blocks:?}");
    }
    let nothing: Result<Network, Unbuildable> = ResNet::default().build(&setting(0, 0));
    assert_eq!(nothing.unwrap_err().to_string(), "the batch size is 0; it has to be 1 to 65536");
}

/// Training updates every parameter once, with a gradient of its size. Persistent are only the parameters, their
/// momentum, and the running statistics of batch norms.
#[test]
fn training_updates_every_parameter() {
    let small = setting(2, 0);
    let networks = [
        ResNet { depth: 18, image: Image::Cifar, ..ResNet::default() }.build(&small),
        WideResNet { depth: 16, width: 2 }.build(&small),
        Vgg { depth: 11, image: Image::ImageNet }.build(&small),
        AlexNet { by_layers: true }.build(&small),
        Lstm { layers: 2, hidden: 16, steps: 3, inputs: 8, classes: 10 }.build(&small),
    ];
    for network in networks.map(Result::unwrap) {
        let updates: Vec<&Operator> = network.operators.iter().filter(|o| o.phase.name() == "upd").collect();
        let mut seen = HashSet::new();
        for o in &updates {
            let [parameter, gradient, momentum] = o.inputs[..] else { panic!("{o:?}") };
            let tensor = |t: u32| network.tensors[t as usize];
            assert_eq!(o.inputs, o.outputs);
            assert!(seen.insert(parameter) && seen.insert(momentum));
            assert_eq!(tensor(parameter).bytes, tensor(gradient).bytes);
            assert_eq!(tensor(gradient).storage, Storage::Iteration);
        }
        let statistics = network.operators.iter().filter(|o| o.name == "native_batch_norm").count() * 2;
        let persistent = network.tensors.iter().filter(|t| t.storage == Storage::Persistent).count();
        assert_eq!(persistent, seen.len() + statistics);
    }
}

/// Parameters, and multiplications of the forward pass for one image, are those of the published networks, with two
/// differences. The published `AlexNet` has 60,965,224 parameters in two towers, and its second, fourth and fifth
/// convolution read only their own tower; ours has one tower, so that these have twice as many weights. He et al. 2015
/// count 3.8 · 10⁹ multiplications, with the stride in the first convolution of a block; here it is in the second,
/// which makes 4.1 · 10⁹.
#[test]
fn parameters_and_arithmetic_are_as_published() {
    let told = |build: &dyn Fn(&Setting) -> Network| {
        // With these speeds a byte takes 1000 ns, or an operation does: so times count bytes or operations, in
        // thousands, rounded down for each operator.
        let device = Roofline { flops_per_s: f64::INFINITY, bytes_per_s: 1e6, launch_ns: 0, convolution_workspace: 0 };
        let time = |network: &Network, phase| {
            network.operators.iter().filter(|o| o.phase == phase).map(|o| o.time_ns).sum::<u64>()
        };
        let training = build(&Setting { batch: 1, training: true, device });
        let device = Roofline { flops_per_s: 1e6, bytes_per_s: f64::INFINITY, ..device };
        let inference = build(&Setting { batch: 1, training: false, device });
        // An update reads and writes a parameter of four bytes, its gradient and its momentum.
        (time(&training, Phase::Update).div_ceil(24_000), time(&inference, Phase::Forward).div_ceil(2000))
    };
    let split = 128 * 48 * 25 + 192 * 192 * 9 + 128 * 192 * 9;
    let alexnet = told(&|s| AlexNet::default().build(s).unwrap());
    assert_eq!(alexnet, (60_965_224 + 2 * split, 1_135_256_096));
    let vgg = told(&|s| Vgg { depth: 16, image: Image::ImageNet }.build(s).unwrap());
    assert_eq!(vgg, (138_357_544, 15_470_264_320));
    let resnet = |depth| told(&|s| ResNet { depth, ..ResNet::default() }.build(s).unwrap());
    assert_eq!(resnet(34), (21_797_672, 3_663_761_408));
    assert_eq!(resnet(50), (25_557_032, 4_089_184_256));
    assert_eq!(resnet(152).0, 60_192_808);
    let wide = told(&|s| WideResNet { depth: 28, width: 10 }.build(s).unwrap());
    assert_eq!(wide.0, 36_479_194);
}
