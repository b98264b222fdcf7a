//! What the command line says of a model.

use clap::{Args, ValueEnum};

use crate::model::Means;

/// What only models have.
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
    /// Of a model: what TFLM prints of its plan, built with `TF_LITE_SHOW_MEMORY_USE`; tells what its kernels ask for
    #[arg(long, value_name = "TXT", conflicts_with = "workspace")]
    pub(crate) tflm_log: Option<String>,
    /// Of a model: what kernels ask for while they run, a CSV file op,bytes
    #[arg(long, value_name = "CSV")]
    pub(crate) workspace: Option<String>,
}

/// Kernels of which it is known in which order they read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kernels {
    /// TFLM's reference kernels, portable C++
    Reference,
}

impl ModelArgs {
    pub(crate) fn means(&self) -> Means {
        Means { reorder: self.reorder, in_place: self.in_place, overlap: self.overlap.is_some() }
    }

    /// Whether anything is asked that only a model has.
    pub(crate) fn any(&self) -> bool {
        self.means() != Means::default() || [&self.header, &self.tflm_log, &self.workspace].iter().any(|f| f.is_some())
    }
}
