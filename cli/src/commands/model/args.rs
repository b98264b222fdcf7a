//! The options of `sublet plan` for models.

use clap::{Args, ValueEnum};

use crate::model::Means;

/// The options for models alone.
#[derive(Debug, Default, Args)]
pub(crate) struct ModelArgs {
    /// Of a model: operators run in the order that needs the least memory
    #[arg(long)]
    pub(crate) reorder: bool,
    /// Of a model: elementwise operators and reshapes write over their input
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Of a model: outputs reach into the input that their operator reads last, as far as these kernels have read it;
    /// wrong results with other kernels
    #[arg(long, value_name = "KERNELS")]
    pub(crate) overlap: Option<Kernels>,
    /// Of a model: writes the offsets as a C header, for firmware without a runtime
    #[arg(long, value_name = "H")]
    pub(crate) header: Option<String>,
    /// Of a model: the lines that TFLM prints of its plan if built with `TF_LITE_SHOW_MEMORY_USE`; they tell the
    /// scratch of its kernels
    #[arg(long, value_name = "TXT", conflicts_with = "workspace")]
    pub(crate) tflm_log: Option<String>,
    /// Of a model: the scratch of kernels, a CSV file op,bytes
    #[arg(long, value_name = "CSV")]
    pub(crate) workspace: Option<String>,
}

/// Kernels whose order of reads and writes is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kernels {
    /// TFLM's reference kernels, portable C++
    Reference,
}

impl ModelArgs {
    pub(crate) fn means(&self) -> Means {
        Means { reorder: self.reorder, in_place: self.in_place, overlap: self.overlap.is_some() }
    }

    /// Whether any of these options is given.
    pub(crate) fn any(&self) -> bool {
        self.means() != Means::default() || [&self.header, &self.tflm_log, &self.workspace].iter().any(|f| f.is_some())
    }
}
