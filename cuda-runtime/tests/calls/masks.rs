//! Masks as `fit` plans them, in launches of the kernels.

use half::f16;
use sublet_core::rewrite::fit::{Means, Using};
use sublet_core::simulate::Device;
use sublet_cuda::host::{HostBackend, Mode, Options, Order};
use sublet_cuda::relu::gpu::{Kernels, Operands};
use sublet_cuda::relu::{self, Activation, Format};
use sublet_cuda::torch::Cuda;
use sublet_cuda::{ALIGNMENT, Program, Runtime};

use crate::networks::rectified;
use crate::{Array, again, is_child};

const BYTES: u64 = 6404;

/// The bytes of a rectifier's mask in a program that was made to fit with masks, of elements of this many bytes.
fn planned(element: u8) -> u64 {
    let mut trace = rectified(6, BYTES);
    for operator in &mut trace.operators {
        operator.element = element;
    }
    let using = Using::NONE.with(Means::Relu);
    let program = trace.fit_aligned(using, ALIGNMENT, trace.peak() * 3 / 4, Device::symmetric(12e9), |schedule| {
        Program::new(&trace.recorded(), schedule, ALIGNMENT).unwrap()
    });
    let host = HostBackend::new(Options::new(Mode::Ordered(Order::Time), 1 << 20));
    let mut runtime = Runtime::new(host, program.unwrap()).unwrap();
    let mut masks = Vec::new();
    while let Some(launch) = runtime.next().unwrap() {
        masks.extend(launch.operands().iter().filter(|o| o.mask && o.write).map(|o| o.bytes));
    }
    assert!(masks.len() > 2 && masks.iter().all(|&bytes| bytes == masks[0]), "{masks:?}");
    masks[0]
}

/// A rectifier of 16 bits over a whole block, with a mask of so many bytes.
fn launch(mask_bytes: u64) -> Result<(), relu::Error> {
    let kernels = Kernels::load()?;
    let mut driver = Cuda::open(0)?;
    let memory = Array { driver: (&mut driver).into() };
    let x = vec![f16::ONE; usize::try_from(BYTES / 2).unwrap()];
    let (from, mask) = (memory.of(&x)?, memory.of(&vec![0u8; usize::try_from(mask_bytes).unwrap()])?);
    let operands = Operands { from, to: from, mask, mask_bytes, elements: BYTES / 2, format: Format::F16 };
    // SAFETY: the arrays live, and the driver for tests has done the launch when it returns.
    unsafe { kernels.forward(std::ptr::null_mut(), Activation::Relu, operands) }
}

/// 3202 elements of 2 bytes need 101 words; 1601 elements of 4 bytes would need half of that.
#[test]
fn a_mask_that_is_planned_for_elements_of_2_bytes_is_long_enough_for_them() {
    if is_child() {
        assert_eq!(launch(planned(2)), Ok(()));
        let needed = relu::mask_words(usize::try_from(BYTES / 2).unwrap());
        let got = usize::try_from(planned(4) / 4).unwrap();
        assert_eq!(launch(planned(4)), Err(relu::Error::Mask { needed, got }));
        assert!(got < needed);
        return;
    }
    again("masks::a_mask_that_is_planned_for_elements_of_2_bytes_is_long_enough_for_them", &[]);
}
