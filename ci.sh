#!/usr/bin/env bash
# What is checked before a change lands, in stages that run alone: ./ci.sh STAGE [ARGUMENT]. Each is a file in ci/,
# and ./ci.sh --help lists them.
#
# Tests use these variables where they are set, and say what they skip where they are not:
#   SUBLET_DATA        folder of the larger corpus: traces/, minimalloc/, idealloc/, examples/
#   SUBLET_JUDGES      folder of check_plan.py and check_schedule.py
#   SUBLET_CLIENTS     folder of frameworks' sources: caffe/
#   SUBLET_PYTHON      a Python that has highspy and ortools
#   SUBLET_STREAMS     how many streams are searched for false periods, 20000 if not set
#   SUBLET_FUZZ_SEED   where `explore` begins; 0, another place each time, if not set
#   SUBLET_CHROMIUM    the browser, if it is not called chromium
set -euo pipefail
from=$PWD
cd "$(dirname "$0")"

# Solvers and the assembler of CUDA, which `tools` installs.
oracles=target/oracles

# The README's command to test; it runs once.
tests="cargo test --workspace --locked"

# The crates that are published, in the order in which they need each other.
published=(sublet-core sublet-models sublet-baselines sublet-cuda sublet-cli)

# A stage's file begins with its name and what it does.
stages() {
    local file
    for file in ci/*.sh; do
        sed -n '1{/^# [a-z_]*[ :]/!q;p}; 2,9{/^#    /!q;p}' "$file"
    done
}

stage=${1:-all}
case "$stage" in
    -h | --help)
        sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'
        stages | sed 's/^# /  /'
        exit
        ;;
esac
if [[ $stage = */* ]] || ! head -n 1 "ci/$stage.sh" 2> /dev/null | grep -q "^# $stage[ :]"; then
    echo "ci.sh: no stage $stage; ./ci.sh --help lists them" >&2
    exit 2
fi
shift || true
. "ci/$stage.sh"
