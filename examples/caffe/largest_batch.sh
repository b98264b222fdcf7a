#!/usr/bin/env bash
# The largest batch with which a net trains within so much memory, all that the process takes counted; layers run again.
#
#   largest_batch.sh TRAIN NET.prototxt MIB [BATCH]    TRAIN: the program `planned` that test.sh builds; the net's data come
#                                                      from DummyData; BATCH: one that fits, 16 if not told
#
# A run of BATCH tells what the process takes beside the arena. Batches are then planned only, in what is left; the largest that
# fits is trained, and where the process takes more than MIB after all, the rest of the search has that much less.
set -euo pipefail
train=$1 net=$2 most=$3 fits=${4:-16}
export OPENBLAS_NUM_THREADS=1 LC_ALL=C

# The value after a word in what a run has printed.
value() { sed -n "s/.*$1 \([^ ,]*\).*/\1/p" <<< "$2"; }
# The first iteration takes the most, since a later plan is made while the arena has nothing.
trains() { "$train" "$net" 1 plan "limit=$2" "batch=$1" 2> /dev/null; }
# Whether the arena of a batch is no larger than the limit.
plans() {
    local said
    said=$("$train" "$net" 0 plan "limit=$limit" "batch=$1" 2> /dev/null)
    awk -v arena="$(value '->' "$said")" -v limit="$limit" 'BEGIN { exit !(arena <= limit + 0.05) }'
}

said=$(trains "$fits" 1)
beside=$(awk -v all="$(value VmHWM "$said")" -v arena="$(value '->' "$said")" 'BEGIN { print all - arena }')
echo "batch $fits: $(value VmHWM "$said") MiB, $beside of them beside the arena"
too_large=0
while :; do
    limit=$(awk -v most="$most" -v beside="$beside" 'BEGIN { print most - beside }')
    while [ "$too_large" = 0 ] || [ $((too_large - fits)) -gt 1 ]; do
        batch=$((too_large ? (fits + too_large) / 2 : 2 * fits))
        if plans "$batch"; then fits=$batch; else too_large=$batch; fi
    done
    said=$(trains "$fits" "$limit")
    over=$(awk -v all="$(value VmHWM "$said")" -v most="$most" 'BEGIN { print all - most }')
    echo "batch $fits: $(value VmHWM "$said") MiB, the arena $(value '->' "$said")"
    case "$over" in -* | 0) break ;; esac
    beside=$(awk -v beside="$beside" -v over="$over" 'BEGIN { print beside + over }')
    too_large=$((fits + 1)) fits=$((fits / 2))
done
