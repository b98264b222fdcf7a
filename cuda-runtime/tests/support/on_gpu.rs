//! What is tried on a GPU: by the tests of a machine that has one, and on the driver for tests by all others.

use sublet_cuda::backend::Backend;
use sublet_cuda::cuda::CudaBackend;
use sublet_cuda::torch::{Cuda, Device as TorchDevice, Driver};
use sublet_cuda::{Error, Program, Runtime};

use super::by_host;
use super::fit::Trace;
use super::networks::{chain, chain_of};
use super::pattern::Reference;

use sublet_core::simulate::Device;

const LAYERS: u32 = 6;

pub(crate) fn program(trace: &Trace) -> Program {
    let limit = trace.peak() / 2;
    trace.fit(limit, Device::symmetric(12e9), |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap()).unwrap()
}

/// A program whose every byte is looked at.
pub(crate) fn train() -> Result<(), Error> {
    let trace = chain(LAYERS, 4096);
    let mut runtime = Runtime::new(CudaBackend::new(0)?, program(&trace))?;
    assert_eq!(by_host::run(&mut runtime, &trace, 3)?, [] as [String; 0]);
    Ok(())
}

/// A larger program takes over while the smaller one is under way; whether its arena is where the other was.
pub(crate) fn grow_under_work() -> Result<bool, Error> {
    let (small, large) = (chain(LAYERS, 1 << 16), chain_of(LAYERS, 1 << 16, 1 << 20));
    let backend = CudaBackend::new(0)?;
    let mut runtime = Runtime::new(backend.clone(), program(&small))?;
    let (address, bytes) = runtime.arena();
    let mut reference = Reference::new(&small);
    reference.write(&mut runtime)?;
    let scratch = backend.pin(runtime.program().arena_bytes())?;
    let launches = by_host::issue(&mut runtime, &mut reference, &scratch, 0..2)?;
    runtime.replan(program(&large), Some)?;
    assert!(launches.faults.lock().unwrap().is_empty());
    assert!(runtime.arena().1 > bytes);
    let stays = runtime.arena().0 == address;
    let weights = (0..LAYERS).map(|block| (block, block)).collect();
    let mut reference = reference.turned_into(&large, &weights);
    assert_eq!(by_host::go_on(&mut runtime, &mut reference, 2..5)?, [] as [String; 0]);
    Ok(stays)
}

/// Copies to a file in this folder.
#[cfg(target_os = "linux")]
pub(crate) fn swap_to_a_file(folder: &std::path::Path) -> Result<(), Error> {
    use sublet_cuda::storage::{Caching, Storage};

    let trace = chain(LAYERS, (2 << 20) + 4096);
    let backend = CudaBackend::new(0)?;
    let storage =
        Storage::in_folder(folder, Caching::Past).or_else(|_| Storage::in_folder(folder, Caching::Through))?;
    let stream = backend.stream()?;
    let mut runtime = Runtime::with_storage(backend, program(&trace), stream, &storage)?;
    assert_eq!(by_host::run(&mut runtime, &trace, 3)?, [] as [String; 0]);
    Ok(())
}

/// A training loop whose memory PyTorch's functions give: planned in the end.
pub(crate) fn plan_for_pytorch() -> Result<(), Error> {
    let mut device = TorchDevice::new(Cuda::open(0)?)?;
    let mut last = 0;
    for _ in 0..12 {
        let before = device.statistics()?.unplanned;
        let blocks = (1..=10).map(|i| device.malloc(i * 100_000, 0)).collect::<Result<Vec<_>, _>>()?;
        for block in blocks {
            device.free(block, 0)?;
        }
        last = device.statistics()?.unplanned - before;
    }
    assert_eq!(last, 0, "requests that are not planned");
    // Work of another stream, which is the default one's under its other name here, and what the cache holds.
    let block = device.malloc(5_000_000, 0)?;
    device.record_stream(block, 1)?;
    device.free(block, 0)?;
    device.reset()?;
    let done = device.statistics()?;
    assert_eq!((done.arena, done.reserved), (0, 0));
    let none = device.driver().memory()?.total.saturating_mul(2);
    assert!(matches!(device.malloc(none, 0), Err(Error::OutOfMemory { .. })));
    Ok(())
}
