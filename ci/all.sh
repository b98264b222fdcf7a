# all [tools]: every stage but those by hand, in two lanes; with `tools`, those are installed first, while what needs only
#         Rust runs
#
# Each lane is about half of the work, so that no core waits where the other has only one thing to do. A stage that failed
# runs a second time, with nothing beside it: a fault fails there too, and that it passed only then is printed. Little is
# printed, so that what failed is not lost among what passed.

# Runs one stage; what it prints goes to a file named after it and its `try`, and how it ended to `ends`. A stage that hangs
# is ended after 50 minutes, and all of them together after 80: its status is 124 then.
stage() {
    local what=$1 try=$2 begin=$SECONDS status=0 limit=3000
    if [ $((4800 - SECONDS)) -lt "$limit" ]; then limit=$((4800 - SECONDS)); fi
    if [ "$limit" -lt 1 ]; then limit=1; fi
    # A stage with arguments is one word here.
    timeout --kill-after=20 "$limit" ./ci.sh $what > "$logs/${what%% *}$try.log" 2>&1 || status=$?
    if [ "$status" = 0 ]; then
        echo "$what$try: passed in $((SECONDS - begin)) s" | tee -a "$logs/ends"
    else
        echo "$what$try: FAILED with status $status after $((SECONDS - begin)) s" | tee -a "$logs/ends"
        why_failed "$logs/${what%% *}$try.log"
    fi
    return "$status"
}

# What cargo says of tests that failed and of code that does not compile, and the last lines.
why_failed() {
    awk '/^failures:$/ { inside = 1 } /^error/ { lines = 12 } inside || lines > 0 { print; lines-- }
         /^test result: FAILED/ { inside = 0 }' "$1" | head -n 100
    echo "---- the last lines of $1"
    tail -n 20 "$1"
    echo "----"
}

# Runs stages one after the other, all of them, and keeps the names of those that failed.
lane() {
    local what
    for what in "$@"; do
        stage "$what" "" || echo "$what" >> "$logs/failed"
    done
}

logs=target/ci
status=0
# Builds are faster without debug information, and without optimising once more as they link. The same code is tested.
export CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_RELEASE_DEBUG=false
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
rm -rf "$logs" target/counts
mkdir -p "$logs"
# These need only Rust: what the others need may be installed meanwhile.
lane check readme &
first=$!
# Without them tests are skipped, and pass.
if [ "${1:-}" = tools ] && ! stage tools "" && ! stage tools " again"; then
    wait "$first"
    exit 1
fi
lane no_panic embedded kernels tflm python book onnxruntime jax torch package "fuzz 1" &
second=$!
wait "$first"
lane test caffe ggml
wait "$second"
if [ -f "$logs/failed" ]; then
    while IFS= read -r what; do
        stage "$what" " alone" < /dev/null || status=$?
    done < "$logs/failed"
fi
echo
echo "What each stage printed is in $PWD/$logs. How each ended:"
cat "$logs/ends"
grep -hE '^[Ss]kipped:.' "$logs"/*.log | sort -u || true
cat target/counts || status=1
exit "$status"
