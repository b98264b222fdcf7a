# explore: each fuzz target under libFuzzer for SUBLET_FUZZ_SECONDS (60), with the nightly toolchain; by hand
# The nightly toolchain and cargo-fuzz, where they are missing.
rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
# It only calls cargo: built without optimisation it is there sooner.
command -v cargo-fuzz > /dev/null || cargo install --debug --quiet --locked cargo-fuzz

# One fuzz target from its committed inputs; new ones gather in fuzz/corpus, which git ignores.
fuzz_explore() {
    local target=$1 log=fuzz/target/$1.log
    local options=(-max_total_time="${SUBLET_FUZZ_SECONDS:-60}" -timeout=60 -print_final_stats=1)
    options+=(-seed="${SUBLET_FUZZ_SEED:-0}" -len_control=0)
    if [ -f "fuzz/$target.dict" ]; then
        options+=("-dict=fuzz/$target.dict")
    fi
    mkdir -p fuzz/target "fuzz/corpus/$target"
    if ! cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- "${options[@]}" > "$log" 2>&1; then
        echo "$target: a finding, or no run; the log ends with"
        tail -n 60 "$log"
        return 1
    fi
    sed -n "s/^stat::number_of_executed_units: */$target: executions: /p" "$log"
}

cargo +nightly fuzz build
export -f fuzz_explore
cargo +nightly fuzz list | xargs -P 2 -I '{}' bash -euo pipefail -c 'fuzz_explore {}'
