//! Files that may be no models: the readers of `.tflite` and `.onnx` return an error or a problem that can be planned,
//! without a panic or a hang.
//!
//! The input is a file of one of the formats, as its first bytes say.
#![cfg_attr(fuzzing, no_main)]

use sublet_core::check_blocks;

sublet_fuzz::target!(|data: &[u8]| {
    if let Ok(problem) = sublet_cli::read("a.tflite", data) {
        assert!(!problem.blocks().is_empty());
        check_blocks(problem.blocks(), 1).expect("what is read can be planned");
    }
});
