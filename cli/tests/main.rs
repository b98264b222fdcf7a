//! All tests of the program `sublet`, in one test binary: linked once, and run beside each other. `cargo test -p
//! sublet-cli --test program fit::` runs the tests of one file.

mod bad_input;
mod certificate;
mod corpus;
mod doctor;
mod effort;
mod explain;
mod fit;
mod graph;
mod model;
mod monotone;
mod onnx;
mod order;
mod places;
mod plan;
mod proof;
mod readme;
mod report;
mod rewritten;
mod support;
mod sweep;
mod tflite;
mod timeline;
mod voice;
