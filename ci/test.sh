# test: all tests, those too that the README's command leaves out; counts what ran and what was skipped
if [ -x "$oracles/bin/python" ]; then
    export SUBLET_PYTHON="${SUBLET_PYTHON:-$PWD/$oracles/bin/python}"
fi
log=$(mktemp)
status=0
$tests --no-fail-fast -- --show-output 2>&1 | tee "$log" || status=$?
cargo test -p sublet-ffi --lib --features cuda --locked -- torch runtime relu arena --show-output 2>&1 | tee -a "$log" || status=$?
# What the README's command leaves out, for it builds the C library anew: as installed, from C and C++, in frameworks.
cargo test -p sublet-tests --test c --test packaging --test c_runtime --test frameworks --locked --no-fail-fast -- \
    --show-output 2>&1 |
    tee -a "$log" || status=$?
# What it leaves out since it takes long; those that take minutes are run by hand.
cargo test --workspace --tests --locked --no-fail-fast -- --ignored --skip _on_more_ --show-output 2>&1 |
    tee -a "$log" || status=$?
echo
echo "Skipped:"
grep -hi '^skipped:' "$log" || echo "nothing"
awk '/^test result:/ { passed += $4; failed += $6 }
     /^[Ss]kipped:/ { skipped++ }
     END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log" | tee target/counts
rm -f "$log"
exit "$status"
