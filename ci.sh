#!/usr/bin/env bash
# What is checked before a change lands, in parts that run alone.
#
#   ./ci.sh check      formatting, lints, documentation
#   ./ci.sh test       all tests; counts what ran and what was skipped
#   ./ci.sh readme     the commands of README.md, exactly as printed there, but for the tests, which are the above
#   ./ci.sh tools      installs what the tests use beside Rust: Chromium, a MIP solver, a constraint solver
#   ./ci.sh all        everything above but the tools
#
# Tests use these variables where they are set, and say what they skip where they are not:
#   SUBLET_DATA        folder of the larger corpus: traces/, minimalloc/, idealloc/, examples/
#   SUBLET_JUDGES      folder of check_plan.py and check_schedule.py
#   SUBLET_PYTHON      a Python that has highspy and ortools
#   SUBLET_STREAMS     how many streams are searched for false periods, 20000 if not set
#   SUBLET_CHROMIUM    the browser, if it is not called chromium
set -euo pipefail
cd "$(dirname "$0")"

oracles=target/oracles

# The README's command to test; it runs once.
tests="cargo test --workspace --locked"

check() {
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
}

test_all() {
    if [ -x "$oracles/bin/python" ]; then
        export SUBLET_PYTHON="${SUBLET_PYTHON:-$PWD/$oracles/bin/python}"
    fi
    local log
    log=$(mktemp)
    local status=0
    $tests -- --show-output 2>&1 | tee "$log" || status=$?
    echo
    echo "Skipped:"
    grep -hi '^skipped:' "$log" || echo "nothing"
    awk '/^test result:/ { passed += $4; failed += $6 }
         /^[Ss]kipped:/ { skipped++ }
         END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
    rm -f "$log"
    return "$status"
}

# The lines of the first shell block in the README.
readme() {
    awk '/^```sh$/ { inside = 1; next } /^```$/ && inside { exit } inside' README.md | while IFS= read -r line; do
        [ "$line" != "$tests" ] || continue
        echo "\$ $line"
        bash -euo pipefail -c "$line" < /dev/null
    done
}

tools() {
    if ! command -v chromium > /dev/null || ! command -v chromedriver > /dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver > /dev/null
    fi
    if [ ! -x "$oracles/bin/python" ]; then
        python3 -m venv "$oracles"
    fi
    "$oracles/bin/pip" install --quiet --disable-pip-version-check highspy ortools
}

case "${1:-all}" in
    check) check ;;
    test) test_all ;;
    readme) readme ;;
    tools) tools ;;
    all)
        check
        readme
        test_all
        ;;
    *)
        sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2
        exit 2
        ;;
esac
