//! The options of `sublet generate`.

use clap::{Args, Subcommand, ValueEnum};
use sublet_models::{Block, Image, Roofline, Setting, Stages, Transformer};

use crate::text::size;

const EXAMPLES: &str = "\
NAME.csv gets the trace of one iteration, forward, backward and the update by SGD with momentum;
NAME.ops.csv its operators. An operator takes the time of its launch, and the longer of those of its
arithmetic and its memory traffic, on a device whose numbers are those of a GTX 1080 Ti unless they
are given.

Examples:
  sublet generate resnet --depth 1001 --batch 32 --output resnet1001.csv
  sublet generate lstm --steps 2048 --batch 64 --output lstm2048.csv
  sublet generate vgg --depth 16 --batch 1 --infer --output vgg16.csv
  sublet generate gpt --layers 48 --width 1600 --heads 25 --seq 1024 --batch 4 --flash \\
    --output gpt2xl.csv
  sublet generate llama --layers 16 --width 2048 --heads 32 --seq 2048 --batch 1 --flash --bf16 \\
    --output llama1b.csv";

/// Which network, and where it is written.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, subcommand_required = true)]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    pub(super) model: Model,
}

/// The networks that can be generated.
#[derive(Debug, Subcommand)]
pub(super) enum Model {
    /// A residual network (He et al. 2015)
    Resnet(ResNetArgs),
    /// A wide residual network for CIFAR (Zagoruyko and Komodakis 2016)
    Wrn(WrnArgs),
    /// Groups of convolutions of 3 × 3 (Simonyan and Zisserman 2014)
    Vgg(VggArgs),
    /// A residual network with grouped convolutions whose sizes a search found (Radosavovic et al. 2020)
    Regnet(RegNetArgs),
    /// A U-Net, which gives each pixel a class (Ronneberger et al. 2015)
    Unet(UNetArgs),
    /// An MLP-Mixer (Tolstikhin et al. 2021); B/16 if nothing else is asked for
    Mixer(MixerArgs),
    /// Five convolutions and three linear layers (Krizhevsky et al. 2012), in one tower
    Alexnet(AlexNetArgs),
    /// Layers of LSTM cells, unrolled, with a prediction at every step
    Lstm(LstmArgs),
    /// A decoder of text as GPT-2 (Radford et al. 2019); the width and heads are those of its smallest
    Gpt(TransformerArgs),
    /// A decoder of text as Llama (Touvron et al. 2023)
    Llama(TransformerArgs),
}

#[derive(Debug, Args)]
pub(super) struct ResNetArgs {
    /// Layers with weights: 18, 34, or 3 n + 2 from 14 on
    #[arg(long, value_name = "N")]
    pub(super) depth: u32,
    /// The images: their size and number of classes
    #[arg(long, value_enum, default_value = "imagenet")]
    pub(super) image: ImageArg,
    /// How the blocks are spread over the four stages
    #[arg(long, value_enum, default_value = "published")]
    pub(super) stages: StagesArg,
    /// How many blocks each of the four stages has, in place of --stages, such as 3,57,270,3
    #[arg(long, value_name = "N,N,N,N", value_parser = blocks, conflicts_with = "stages")]
    pub(super) blocks: Option<[u32; 4]>,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct WrnArgs {
    /// Layers with weights: 6 n + 4
    #[arg(long, value_name = "N")]
    pub(super) depth: u32,
    /// The widening factor: how many times as wide as the narrowest such network
    #[arg(long, value_name = "K", default_value_t = 10)]
    pub(super) width: u32,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct VggArgs {
    /// Layers with weights: 11, 13, 16 or 19
    #[arg(long, value_name = "N")]
    pub(super) depth: u32,
    /// The images: their size and number of classes
    #[arg(long, value_enum, default_value = "imagenet")]
    pub(super) image: ImageArg,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct RegNetArgs {
    /// The number in its name times ten: 4, 8, 16, 32, 80, 160 or 320, such as 320 for 32 GF
    #[arg(long, value_name = "N", default_value_t = 320)]
    pub(super) tenths: u32,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct UNetArgs {
    /// The side of an image, a multiple of 16
    #[arg(long, value_name = "N", default_value_t = 224)]
    pub(super) side: u32,
    /// Channels of the first convolution
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(super) width: u32,
    /// How many classes a pixel has
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(super) classes: u32,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct MixerArgs {
    /// Blocks, one above the other
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(super) layers: u32,
    /// Numbers that represent a patch
    #[arg(long, value_name = "N", default_value_t = 768)]
    pub(super) width: u32,
    /// The side of a patch
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(super) patch: u32,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct AlexNetArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct LstmArgs {
    /// Layers, one above the other
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(super) layers: u32,
    /// Cells of a layer
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(super) hidden: u32,
    /// Steps of the sequence
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(super) steps: u32,
    /// Size of the input at a step
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(super) inputs: u32,
    /// How many classes a prediction chooses from
    #[arg(long, value_name = "N", default_value_t = 5000)]
    pub(super) classes: u32,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct TransformerArgs {
    /// Blocks, one above the other
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(super) layers: u32,
    /// Numbers that represent a token
    #[arg(long, value_name = "N", default_value_t = 768)]
    pub(super) width: u32,
    /// Heads of attention
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(super) heads: u32,
    /// Tokens of an example
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(super) seq: u32,
    /// How many tokens a prediction chooses from
    #[arg(long, value_name = "N", default_value_t = 50_257)]
    pub(super) vocabulary: u32,
    /// Attention as one operator, which keeps no matrix of all pairs of tokens
    #[arg(long)]
    pub(super) flash: bool,
    /// Numbers have two bytes in place of four
    #[arg(long)]
    pub(super) bf16: bool,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

impl TransformerArgs {
    pub(super) fn of(&self, block: Block) -> Transformer {
        let &Self { layers, width, heads, seq: tokens, vocabulary, flash, bf16, .. } = self;
        Transformer { block, layers, width, heads, tokens, vocabulary, flash, element: if bf16 { 2 } else { 4 } }
    }
}

/// The options of every network.
#[derive(Debug, Args)]
pub(super) struct CommonArgs {
    /// Examples in an iteration
    #[arg(long, value_name = "B")]
    batch: u32,
    /// The forward pass alone
    #[arg(long)]
    infer: bool,
    /// The trace to write; its operators go to NAME.ops.csv beside it
    #[arg(long, short, value_name = "NAME.csv")]
    pub(super) output: String,
    /// Writes the static graph in place of the trace: its operators to NAME.csv, its tensors to NAME.tensors.csv
    #[arg(long)]
    pub(super) graph: bool,
    /// Floating-point operations per second that the device reaches
    #[arg(long, value_name = "N", default_value_t = Roofline::GTX1080TI.flops_per_s, value_parser = positive)]
    flops: f64,
    /// Bytes per second to and from its memory
    #[arg(long, value_name = "N", default_value_t = Roofline::GTX1080TI.bytes_per_s, value_parser = positive)]
    bandwidth: f64,
    /// Time that every operator takes besides its arithmetic or its memory traffic, in ns
    #[arg(long, value_name = "NS", default_value_t = Roofline::GTX1080TI.launch_ns)]
    launch: u64,
    /// The workspace of a convolution
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = size::parse)]
    workspace: u64,
    /// Prints one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl CommonArgs {
    pub(super) fn setting(&self) -> Setting {
        let device = Roofline {
            flops_per_s: self.flops,
            bytes_per_s: self.bandwidth,
            launch_ns: self.launch,
            convolution_workspace: self.workspace,
        };
        Setting { batch: self.batch, training: !self.infer, device }
    }
}

/// Four numbers with commas between.
fn blocks(text: &str) -> Result<[u32; 4], String> {
    let numbers: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
    numbers.ok().and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| "expected four numbers".into())
}

/// A number above 0.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("expected a number above 0".into()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ImageArg {
    /// 224 × 224, 1000 classes
    #[value(name = "imagenet")]
    ImageNet,
    /// 32 × 32, 10 classes
    Cifar,
}

impl From<ImageArg> for Image {
    fn from(arg: ImageArg) -> Self {
        match arg {
            ImageArg::ImageNet => Self::ImageNet,
            ImageArg::Cifar => Self::Cifar,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum StagesArg {
    /// As published for 50, 101, 152 and 200 layers, otherwise even
    Published,
    /// In the ratio 3 : 4 : 6 : 3, as Chen et al. 2016 deepen every stage
    Even,
    /// 3, 4 and 3 blocks in the first, second and fourth stage, and all others in the third
    Third,
}

impl From<StagesArg> for Stages {
    fn from(arg: StagesArg) -> Self {
        match arg {
            StagesArg::Published => Self::Published,
            StagesArg::Even => Self::Even,
            StagesArg::Third => Self::Third,
        }
    }
}
