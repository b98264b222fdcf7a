# msrv: the workspace with the oldest Rust that Cargo.toml promises; by hand
version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rustup toolchain list | grep -q "^$version-" || rustup toolchain install "$version" --profile minimal
cargo "+$version" check --workspace --locked --target-dir target/msrv
