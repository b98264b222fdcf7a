#!/usr/bin/env bash
# test.sh STOCK PATCHED PREFIX OUT: takes the llama.cpp in the folder PATCHED, built with the patch in PATCHED/build for the
# installation of the C library in PREFIX, and builds the libggml-base of the sources in STOCK in the folder OUT: the patch
# changes no other library. Small random models have to compute the same bits with both, in chunks too, and other ones with a
# plan in which two blocks overlap; and llama.cpp has to tell the sizes of the table in docs/ggml.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
stock=$(cd "$1" && pwd) patched=$(cd "$2" && pwd) prefix=$(cd "$3" && pwd)
mkdir -p "$4"
cd "$4"

cmake -S "$stock" -B stock -DCMAKE_BUILD_TYPE=Release > stock.log 2>&1 || { cat stock.log; exit 1; }
cmake --build stock --target ggml-base -j "$(nproc)" >> stock.log 2>&1 || { tail -n 40 stock.log; exit 1; }
plain=$PWD/stock/bin/libggml-base.so.0
bin=$patched/build/bin
"${CC:-cc}" -c -O1 -fPIC -I "$prefix/include" "$here/overlap.c" -o overlap.o
overlap=$PWD/overlap
(cd "$patched/build/ggml/src" &&
    sh -c "$(cat CMakeFiles/ggml-base.dir/link.txt) $overlap.o -Wl,--wrap=sublet_place_chunks -o $overlap.so")

program() {
    "${CXX:-c++}" -std=c++17 -O1 -Wall -Wextra "$here/$1.cpp" -I "$patched/include" -I "$patched/ggml/include" \
        -I "$patched/ggml/src" -L "$bin" -lllama -lggml -lggml-cpu -lggml-base -Wl,-rpath,"$bin" -rdynamic -o "$1"
}
program logits
program holes
program fits

fail() { echo "$*" >&2; exit 1; }
lines() { wc -l < "$1"; }

LD_PRELOAD=$plain ./logits . > stock.txt
./logits . > planned.txt 2> planned.log
cmp stock.txt planned.txt || fail "plans change the logits"
grep -q 'Twin compute buffer .* by ggml' planned.log || fail "there is no plan for the second kind of memory"
CHUNK_KIB=64 ./logits . > chunks.txt 2> chunks.log
cmp stock.txt chunks.txt || fail "plans in chunks change the logits"
GGML_SUBLET=0 ./logits . > off.txt 2> off.log
cmp stock.txt off.txt && [ ! -s off.log ] || fail "GGML_SUBLET=0 does not turn plans off"
LD_PRELOAD=$overlap.so ./logits . > overlap.txt 2> overlap.log
different=$(diff stock.txt overlap.txt | grep -c '^>' || true)
[ "$different" -ge "$(($(lines stock.txt) / 2))" ] || fail "two blocks that overlap change only $different of $(lines stock.txt) logits"
echo "$(lines stock.txt) runs of small models give the bits of stock ggml, in one range and in chunks of 64 KiB;" \
    "with two blocks that overlap $different differ"
larger=$(awk '/by ggml/ { planned = $5; greedy = substr($7, 2); if (planned + 0 > greedy + 0) n++ } END { print n + 0 }' planned.log chunks.log)
[ "$larger" = 0 ] || fail "$larger plans are larger than ggml's"

# Training: with fewer bytes the same losses, gradients and weights; others where clones lose the parameters of their nodes.
program train
limit() {
    "${CXX:-c++}" -std=c++17 -O1 -Wall -Wextra -fPIC -shared "$1" -I "$patched/ggml/include" -I "$prefix/include" \
        "$prefix/lib/libsublet.a" -L "$bin" -lggml-base -ldl -Wl,-rpath,"$bin" -o "$2"
}
limit "$here/limit.cpp" limit.so
sed '/memcpy(made->op_params/d' "$here/limit.cpp" > spoiled.cpp
limit spoiled.cpp spoiled.so
trained() { GGML_SUBLET_LIMIT=$1 LD_PRELOAD=$PWD/$2.so ./train > "$3.txt" 2> "$3.log"; }
./train > trained.txt 2> trained.log
trained 0.95 limit again
cmp trained.txt again.txt || fail "a limit changes losses, gradients or weights"
trained 0.95 spoiled spoiled
if cmp -s trained.txt spoiled.txt; then fail "clones without parameters change nothing"; fi
buffer() { sed -n 's/.*: compute buffer \(.*\) MiB.*/\1/p' "$1" | sort -n | tail -n 1; }
awk -v all="$(buffer trained.log)" -v less="$(buffer again.log)" 'BEGIN { exit !(less <= 0.95 && all > 2 * less) }' ||
    fail "the limit leaves the compute buffer at $(buffer again.log) of $(buffer trained.log) MiB"
echo "training steps of a small model have the same losses, gradients and weights in $(buffer again.log) of $(buffer trained.log) MiB"

./holes .
told() { ./fits "$1.gguf" "$2" "$3" | sed -n 's/^flash attention on .*compute buffer //p'; }
while read -r model context ubatch size greedy; do
    answer=$(told "$model" "$context" "$ubatch")
    [ "$answer" = "$size MiB planned, $greedy by ggml" ] || fail "$model: $answer"
    echo "$model, context $context, ubatch $ubatch: $answer"
done << 'END'
llama2_7b 4096 512 84.51 100.51
llama3_70b 32768 2048 928.04 1056.05
qwen3_30b_a3b 32768 2048 337.10 480.05
END

added=$(($(stat -Lc %s "$bin/libggml-base.so.0") - $(stat -Lc %s "$plain")))
[ "$added" -le 1048576 ] || fail "libggml-base grows by $added bytes"
echo "libggml-base grows by $((added / 1024)) KiB"
