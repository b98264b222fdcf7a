# threads: the runtime's threads, and the lock of allocators, under ThreadSanitizer, with the nightly toolchain and its sources;
#          by hand
# The standard library is built with the sanitizer too: of what it does not see it tells races that are none. Streams that
# are threads then train and copy, with random delays.
rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
rustup component add rust-src --toolchain nightly
# Tests ask for more memory than there is, and want to be told.
TSAN_OPTIONS=allocator_may_return_null=1 RUSTFLAGS=-Zsanitizer=thread cargo +nightly test --locked -Zbuild-std \
    --target x86_64-unknown-linux-gnu --target-dir target/threads -p sublet-cuda --test host -- data:: failures:: storage:: replan::
RUSTFLAGS=-Zsanitizer=thread cargo +nightly test --locked -Zbuild-std --target x86_64-unknown-linux-gnu \
    --target-dir target/threads -p sublet-ffi --lib -- lock::
