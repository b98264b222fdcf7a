//! `sublet generate`: the trace of a network of any depth and batch size, for experiments.

mod args;

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use sublet_core::trace::Storage;
use sublet_models::{AlexNet, Block, Lstm, Mixer, Network, RegNet, ResNet, Stages, UNet, Vgg, WideResNet};

pub(crate) use args::GenerateArgs;
use args::{CommonArgs, Model};

use crate::failure::Failure;
use crate::output;
use crate::problem::Problem;
use crate::text::unit::Unit;

/// What `generate` prints. Sizes in bytes.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    output: &'a str,
    operators: usize,
    rows: usize,
    blocks: usize,
    /// Bytes that are never freed: parameters, momentum, running statistics.
    persistent: u64,
    /// Bytes that the forward pass keeps for the backward pass.
    kept: u64,
    max_load: u64,
    time_ns: u64,
}

/// Makes the trace or the graph of a network, and writes it.
///
/// # Errors
/// No such network, or a file that cannot be written.
pub(crate) fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let (network, common) = match &args.model {
        Model::Resnet(a) => {
            let stages = a.blocks.map_or_else(|| a.stages.into(), Stages::Blocks);
            let model = ResNet { depth: a.depth, image: a.image.into(), stages };
            (model.build(&a.common.setting()), &a.common)
        }
        Model::Wrn(a) => (WideResNet { depth: a.depth, width: a.width }.build(&a.common.setting()), &a.common),
        Model::Vgg(a) => (Vgg { depth: a.depth, image: a.image.into() }.build(&a.common.setting()), &a.common),
        Model::Alexnet(a) => (AlexNet::default().build(&a.common.setting()), &a.common),
        Model::Regnet(a) => (RegNet { tenths: a.tenths }.build(&a.common.setting()), &a.common),
        Model::Unet(a) => {
            let &args::UNetArgs { side, width, classes, ref common } = a;
            (UNet { side, width, classes }.build(&common.setting()), common)
        }
        Model::Mixer(a) => {
            let &args::MixerArgs { layers, width, patch, ref common } = a;
            (Mixer { layers, width, patch }.build(&common.setting()), common)
        }
        Model::Gpt(a) => (a.of(Block::Gpt).build(&a.common.setting()), &a.common),
        Model::Llama(a) => (a.of(Block::Llama).build(&a.common.setting()), &a.common),
        Model::Lstm(a) => {
            let &args::LstmArgs { layers, hidden, steps, inputs, classes, ref common } = a;
            (Lstm { layers, hidden, steps, inputs, classes }.build(&common.setting()), common)
        }
    };
    write(&network.map_err(|e| Failure::Usage(e.to_string()))?, common)
}

fn write(network: &Network, args: &CommonArgs) -> Result<(), Failure> {
    let file = &args.output;
    let path = Path::new(file);
    if file == "-" || path.extension().is_none_or(|e| e != "csv") || file.ends_with(".ops.csv") {
        return Err(Failure::Usage(format!("{file}: expected NAME.csv, beside which NAME.ops.csv is written")));
    }
    let trace = network.trace().map_err(|e| Failure::Usage(e.to_string()))?;
    let (rows, time_ns) = (trace.rows.len(), trace.rows.last().map_or(0, |r| r.time_ns));
    let names: Vec<String> = (0..trace.blocks).map(|n| n.to_string()).collect();
    let problem = Problem::of_trace(file, trace.rows, names).map_err(|e| Failure::Usage(e.message))?;
    if args.graph {
        output::write(file, |out| output::graph(&network.operators, out))?;
        output::write(&output::beside(file, "tensors.csv"), |out| output::tensors(&network.tensors, out))?;
    } else {
        output::write(file, |out| output::trace(&problem, out))?;
        output::write(&output::beside(file, "ops.csv"), |out| output::ops(&network.operators, out))?;
    }

    let persistent = network.tensors.iter().filter(|t| t.storage == Storage::Persistent);
    let outcome = Outcome {
        output: file,
        operators: network.operators.len(),
        rows,
        blocks: problem.blocks.len(),
        persistent: persistent.map(|t| t.bytes).sum(),
        kept: network.kept_bytes(),
        max_load: problem.max_load(),
        time_ns,
    };
    output::print(&outcome, args.json, &[], |out| outcome.text(out))
}

impl Outcome<'_> {
    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let unit = Unit::for_largest(self.max_load);
        writeln!(out, "output      {}", self.output)?;
        writeln!(out, "operators   {}, {} rows, {} blocks", self.operators, self.rows, self.blocks)?;
        writeln!(out, "persistent  {}", unit.size(self.persistent))?;
        writeln!(out, "kept        {}, from the forward to the backward pass", unit.size(self.kept))?;
        writeln!(out, "max load    {} ({} bytes)", unit.size(self.max_load), self.max_load)?;
        let (seconds, rest) = (self.time_ns / 1_000_000_000, self.time_ns / 1_000 % 1_000_000);
        writeln!(out, "time        {seconds}.{rest:06} s")
    }
}
