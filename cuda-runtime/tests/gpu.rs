//! On a GPU: growth, another program under work, a file, PyTorch's memory, kernels, and a fault on purpose.
//!
//! Without a GPU each test says that it is skipped; `driver.rs` runs the same on a driver for tests, all but the fault.

mod support;

use std::process::Command;

use support::on_gpu;

use sublet_cuda::backend::Backend;
use sublet_cuda::cuda::CudaBackend;
use sublet_cuda::relu::gpu::{Kernels, Operands};
use sublet_cuda::relu::{self, Activation, Format};
use sublet_cuda::{Error, Runtime};

/// Whether there is a GPU; where there is none, a line says so.
fn is_there(test: &str) -> bool {
    let opened = CudaBackend::new(0);
    if let Err(error) = &opened {
        println!("Skipped: {test} ({error})");
    }
    opened.is_ok()
}

#[test]
fn a_program_runs() {
    if is_there("a program on a GPU") {
        on_gpu::train().unwrap();
    }
}

#[test]
fn a_larger_program_takes_over_under_work() {
    if is_there("a larger program on a GPU") {
        let grows = CudaBackend::new(0).unwrap().attributes().grows_in_place;
        assert_eq!(on_gpu::grow_under_work(), Ok(grows));
    }
}

#[test]
fn copies_go_to_a_file() {
    if is_there("a file on a GPU") {
        on_gpu::swap_to_a_file(&std::env::temp_dir()).unwrap();
    }
}

#[test]
fn memory_for_pytorch_is_planned() {
    if is_there("memory for PyTorch on a GPU") {
        on_gpu::plan_for_pytorch().unwrap();
    }
}

/// A kernel that writes where no memory is: everything after it is an error, nothing hangs, and dropping works. It takes the
/// context with it, and so has a process of its own.
#[test]
fn a_fault_is_an_error_and_hangs_nobody() {
    const CHILD: &str = "SUBLET_TEST_FAULT";
    if !is_there("a fault on a GPU") {
        return;
    }
    if std::env::var_os(CHILD).is_none() {
        let itself = std::env::current_exe().unwrap();
        let mut child = Command::new(itself);
        child.args(["--exact", "a_fault_is_an_error_and_hangs_nobody", "--nocapture"]).env(CHILD, "1");
        assert!(child.status().unwrap().success());
        return;
    }
    let trace = support::networks::chain(6, 4096);
    let gpu = CudaBackend::new(0).unwrap();
    let kernels = gpu.in_context(Kernels::load).unwrap().unwrap();
    let mut runtime = Runtime::new(gpu.clone(), on_gpu::program(&trace)).unwrap();
    let nowhere = Operands { from: 4096, to: 4096, mask: 1 << 20, mask_bytes: 4, elements: 32, format: Format::F32 };
    let outcome = runtime.iterate(|next| {
        let raw = next.stream.raw();
        // SAFETY: nothing of this process is there; that the device says so is what is tried.
        gpu.in_context(|| unsafe { kernels.forward(raw, Activation::Relu, nowhere) })?
    });
    let is_lost = |error: &Error| matches!(error, Error::Lost { .. });
    if let Err(error) = outcome {
        assert!(matches!(&error, relu::Error::Driver(error) if is_lost(error)), "{error}");
    }
    assert!(runtime.finish().is_err_and(|error| is_lost(&error)));
    assert!(runtime.restart().is_err_and(|error| is_lost(&error)));
    assert!(gpu.stream().map(drop).is_err_and(|error| is_lost(&error)));
}
