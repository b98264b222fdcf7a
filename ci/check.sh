# check: formatting, lints, documentation
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
cargo clippy -p sublet-ffi --all-targets --features cuda --locked -- -D warnings
cargo clippy -p sublet-ffi --lib --no-default-features --profile firmware --locked -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
