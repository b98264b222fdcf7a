# mutants: plants faults in the verifier, the replay, the waits and the C boundary, and names those that no test
#          catches; by hand: it takes hours
# Faults of cargo-mutants, each against the unit tests of the module that it is in. Those that are left out change nothing:
harmless_mutants=(
    # When a block begins, it has not ended itself.
    'verify/mod.rs.* replace < with <= in check_pairs'
    'verify/overlap.rs:.* replace < with <= in max_load'
    # A member that is found lies on one side of the rank, never on the way from it to the root.
    'replace < with <= in Ranks<.a>::nearest'
    # Lengths of workspaces that only get longer, or are less than another that the larger is taken of.
    'schedule.rs.* replace \* with [+/] in workspace'
    'schedule.rs.* replace \+ with \* in values_workspace'
)
command -v cargo-mutants > /dev/null || cargo install --debug --quiet --locked cargo-mutants
out=$PWD/target/mutants
status=0
harmless=$(IFS='|' && echo "${harmless_mutants[*]}")
rm -rf "$out"
plant() {
    name=$1 package=$2 files=$3 tests=$4
    mkdir -p "$out/$name"
    echo "$name:"
    CARGO_PROFILE_TEST_OPT_LEVEL=0 cargo mutants --no-times --timeout 60 --output "$out/$name" --package "$package" \
        --file "$files" --exclude-re "$harmless" -- --lib "$tests" ||
        status=$?
}
plant verify sublet-core 'core/src/verify/**' verify::
plant replay sublet-core 'core/src/replay/**' replay::
plant waits sublet-cuda cuda-runtime/src/waits.rs waits::
plant arguments sublet-ffi ffi/src/arguments.rs ''
plant boundary sublet-ffi ffi/src/boundary.rs ''
exit "$status"
