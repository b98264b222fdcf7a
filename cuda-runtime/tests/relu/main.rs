//! ReLU with a mask: the processor's against a loop that is as plain as its definition, the kernels' source, run on the
//! host, against the processor's, and both against PyTorch.

mod cpu;
mod kernels;
mod naive;
mod pytorch;
