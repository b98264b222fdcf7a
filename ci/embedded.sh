# embedded: firmware on an emulated Cortex-M prints the host's plan; core's tests on 64-bit Arm
. ci/debian.sh
needs /usr/bin/rustc qemu-system-arm arm-none-eabi-size clang-14 ld.lld-14 qemu-aarch64-static aarch64-linux-gnu-gcc
out=$PWD/target/embedded
mkdir -p "$out"
(cd firmware && debian_cargo run --release --locked -Zbuild-std=core) > "$out/firmware.plan.csv"
cargo run --release --locked --quiet -p sublet-cli -- \
    plan traces/chainer_googlenet_infer.csv --solver portfolio --output "$out/host.plan.csv" > /dev/null
cmp "$out/firmware.plan.csv" "$out/host.plan.csv"
echo "firmware: $(($(wc -l < "$out/host.plan.csv") - 1)) blocks, the same plan as the host's"
(cd firmware && debian_cargo run --release --locked -Zbuild-std=core --bin small)
arm-none-eabi-size firmware/target/thumbv7em-none-eabihf/release/{sublet-firmware,small}
examples/two_memories/run.sh target/release/sublet fuzz/seeds/model/small.tflite "$out/two_memories"

CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64-static \
    debian_cargo test -p sublet-core --lib --locked --target aarch64-unknown-linux-gnu --target-dir "$out/aarch64" -- \
    --skip network:: --skip rewrite::fit --skip rewrite::means::order --skip trace::order \
    --skip every_shorter_buffer --skip large_blocks_that_come_and_go --skip the_same_call_gives_the_same_plan \
    --skip place::outward --skip place::banks::choice --skip without_pattern # Emulated, these take minutes.
