//! The options of `sublet plan` for models.

use clap::Args;

use crate::model::Means;
use crate::model::kernels::Kernels;
use crate::model::shapes;
use crate::output;

/// The options for models alone.
#[derive(Debug, Default, Args)]
pub(crate) struct ModelArgs {
    /// Of a model or a graph: operators run in the order that needs the least memory
    #[arg(long)]
    pub(crate) reorder: bool,
    /// Of a model: elementwise operators and reshapes write over their input; of a graph: those with inplace 1
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Of a model: outputs reach into inputs, as far as the kernels have read them; with KERNELS as --kernels
    #[arg(long, value_name = "KERNELS", num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "an option with an optional value")]
    pub(crate) overlap: Option<Option<Kernels>>,
    /// Of a model: the kernels that run it, which decide how far outputs may reach. A plan for reference gives wrong
    /// results with others
    #[arg(long, value_name = "KERNELS")]
    pub(crate) kernels: Option<Kernels>,
    /// Of a model that holds a plan: makes another one. Without it that plan is kept. What another compiler has placed,
    /// such as Vela the tensors of ethos-u, keeps its place
    #[arg(long)]
    pub(crate) replace_plan: bool,
    /// Of a model: writes the offsets as a C header, for firmware without a runtime
    #[arg(long, value_name = "H")]
    pub(crate) header: Option<String>,
    /// What all names in the header begin with, so that several go into one program
    #[arg(long, value_name = "NAME", value_parser = output::prefix, default_value = "sublet", requires = "header")]
    pub(crate) prefix: String,
    /// Of a .tflite: an input has this shape in place of the file's, and all other tensors have those that follow; given for
    /// each such input. The file cannot hold such a plan: it is for --header or a table
    #[arg(long, value_name = "NAME=SIZES", value_parser = shapes::parse, conflicts_with_all = ["bank", "board"])]
    pub(crate) shape: Vec<shapes::Given>,
    /// Of a model: the lines that TFLM prints of its plan if built with `TF_LITE_SHOW_MEMORY_USE`; they tell the
    /// scratch of its kernels
    #[arg(long, value_name = "TXT", conflicts_with = "workspace")]
    pub(crate) tflm_log: Option<String>,
    /// Of a model: the scratch of kernels, a CSV file op,bytes
    #[arg(long, value_name = "CSV")]
    pub(crate) workspace: Option<String>,
}

impl ModelArgs {
    pub(crate) fn means(&self) -> Means {
        let overlap = self.overlap.map(|own| own.or(self.kernels).unwrap_or_default());
        Means { reorder: self.reorder, in_place: self.in_place, overlap }
    }

    /// The kernels that run the model.
    pub(crate) fn kernels(&self) -> Kernels {
        self.kernels.or(self.overlap.flatten()).unwrap_or_default()
    }

    /// Whether none of these options is given that only a model can have.
    pub(crate) fn only_arranges(&self) -> bool {
        self.overlap.is_none()
            && self.kernels.is_none()
            && !self.replace_plan
            && self.shape.is_empty()
            && [&self.header, &self.tflm_log, &self.workspace].iter().all(|f| f.is_none())
    }

    /// Whether any of these options is given.
    pub(crate) fn any(&self) -> bool {
        self.reorder || self.in_place || !self.only_arranges()
    }
}
