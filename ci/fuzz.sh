# fuzz [N]: each fuzz target on its committed inputs and on changes of them, the same ones each time, N at once
# How many changes of its committed inputs each fuzz target tries: 5 to 15 seconds each on one core, so that a cold run of
# everything stays short. Without libFuzzer and its sanitizer that is still more inputs than in 30 seconds with them. They do
# not depend on the code, so that a change fails for what it does itself, and not because it led a fuzzer to what was there
# before; what looks for that is `explore`.
changes=(
    model:50000 read:500000 place:4000 spoiled:350000 workspace:800 graph:100000 fit:1000 passes:4000
    pool:300000 period:400000 replay:30000 c_abi:50000
)

fuzz_changes() {
    local target=${1%%:*} number=${1#*:} dictionary=()
    if [ -f "fuzz/$target.dict" ]; then
        dictionary=("fuzz/$target.dict")
    fi
    if ! "target/debug/$target" "fuzz/seeds/$target" "$number" "${dictionary[@]}" 2> "target/fuzz.$target.log"; then
        tail -n 60 "target/fuzz.$target.log"
        return 1
    fi
}

diff <(printf '%s\n' "${changes[@]%%:*}" | sort) <(ls fuzz/seeds)
cargo=(--manifest-path fuzz/Cargo.toml)
cargo fmt "${cargo[@]}" --check
CARGO_TARGET_DIR=$PWD/target cargo clippy "${cargo[@]}" --locked -- -D warnings
CARGO_TARGET_DIR=$PWD/target cargo build "${cargo[@]}" --locked
export -f fuzz_changes
printf '%s\n' "${changes[@]}" | xargs -P "${1:-2}" -I '{}' bash -euo pipefail -c 'fuzz_changes {}'
