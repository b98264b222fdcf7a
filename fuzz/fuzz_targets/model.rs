//! Models that are none: the readers of `.tflite` and `.onnx` give an error or a problem that can be planned, no panic, no
//! hang, memory in proportion to the file.
//!
//! The input is a file of one of the formats, as its first bytes say.
#![cfg_attr(fuzzing, no_main)]

use sublet_core::block;

sublet_fuzz::target!(|data: &[u8]| {
    if let Ok(problem) = sublet_cli::read("a.tflite", data) {
        assert!(!problem.blocks().is_empty());
        block::check(problem.blocks(), 1).expect("what is read can be planned");
    }
});
