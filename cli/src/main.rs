//! The binary `sublet`.

use std::process::ExitCode;

fn main() -> ExitCode {
    sublet_cli::run()
}
