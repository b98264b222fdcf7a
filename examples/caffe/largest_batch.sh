#!/usr/bin/env bash
# The largest batch with which a net trains within so much memory, all that the process takes counted; layers run again.
#
#   largest_batch.sh TRAIN NET.prototxt MIB [BATCH]    TRAIN: the program `planned` that test.sh builds; the net's data come
#                                                      from DummyData; BATCH: one that fits, 16 if not told
#
# A run with BATCH tells what the process takes beside the arena. Then larger batches are planned only, within what is
# left of MIB, and the largest that fits is trained. What that run takes beside the arena may be less: a small batch takes
# the most while the net is recorded. So the search is repeated, between the largest batch that was trained within MIB
# and the smallest that took more, until no larger batch fits.
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
    # A batch that Caffe refuses, because a blob would be too large, has no plan.
    said=$("$train" "$net" 0 plan "limit=$limit" "batch=$1" 2> /dev/null) || return 1
    awk -v arena="$(value '->' "$said")" -v limit="$limit" 'BEGIN { exit !(arena <= limit + 0.05) }'
}

# Trains a batch within a limit, and tells what the process took.
try() {
    local said arena
    said=$(trains "$1" "$2") || { echo "batch $1 does not train: $train failed" >&2; exit 1; }
    all=$(value VmHWM "$said") arena=$(value '->' "$said")
    beside=$(awk -v all="$all" -v arena="$arena" 'BEGIN { print all - arena }')
    echo "batch $1: $all MiB, the arena $arena, beside it $beside"
}

within() { awk -v all="$all" -v most="$most" 'BEGIN { exit !(all <= most) }'; }

try "$fits" 1
within || { echo "batch $fits takes more than $most MiB: name one that fits"; exit 1; }
too_large=0
while :; do
    limit=$(awk -v most="$most" -v beside="$beside" 'BEGIN { print most - beside }')
    batch=$fits over=$too_large
    while [ "$over" = 0 ] || [ $((over - batch)) -gt 1 ]; do
        next=$((over ? (batch + over) / 2 : 2 * batch))
        if plans "$next"; then batch=$next; else over=$next; fi
    done
    [ "$batch" != "$fits" ] || break
    try "$batch" "$limit"
    if within; then fits=$batch; else too_large=$batch; fi
done
echo "the largest batch is $fits"
