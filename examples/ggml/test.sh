#!/usr/bin/env bash
# test.sh SOURCES PREFIX OUT: builds the llama.cpp in the folder SOURCES, and its libggml-base once more with the patch, for
# the installation of the C library in PREFIX, in the folder OUT. Then small random models have to compute the same bits with
# plans, in chunks too, and other ones with a plan in which two blocks overlap; and llama.cpp has to tell the sizes of the
# table in docs/ggml.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sources=$(cd "$1" && pwd) prefix=$(cd "$2" && pwd)
mkdir -p "$3"
cd "$3"
out=$PWD

configure() {
    cmake -S "$1" -B "$2" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF \
        -DGGML_LLAMAFILE=OFF -DGGML_CCACHE=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF "${@:3}" > "$2.log" 2>&1 ||
        { cat "$2.log"; return 1; }
}
build() { cmake --build "$1" --target "${@:2}" -j "$(nproc)" >> "$1.log" 2>&1 || { tail -40 "$1.log"; return 1; }; }

configure "$sources" stock
build stock ggml-base ggml-cpu llama

# The patch changes libggml-base alone: the rest of the tree is not copied.
if ! cmp -s "$here/sublet_ggml.patch" applied.patch; then
    rm -rf patched
    mkdir patched
    for part in "$sources"/*; do
        if [ "$(basename "$part")" = ggml ]; then cp -r "$part" patched; else ln -s "$part" patched; fi
    done
    patch --quiet --directory patched --strip 1 < "$here/sublet_ggml.patch"
    cp "$here/sublet_ggml.patch" applied.patch
fi
configure patched planned -DGGML_SUBLET=ON -DCMAKE_PREFIX_PATH="$prefix"
build planned ggml-base
planned=$out/planned/bin/libggml-base.so.0
"${CC:-cc}" -c -O1 -fPIC -I "$prefix/include" "$here/overlap.c" -o overlap.o
(cd planned/ggml/src && sh -c "$(cat CMakeFiles/ggml-base.dir/link.txt) $out/overlap.o -Wl,--wrap=sublet_place_chunks -o $out/overlap.so")

program() {
    "${CXX:-c++}" -std=c++17 -O1 -Wall -Wextra "$here/$1.cpp" -I "$sources/include" -I "$sources/ggml/include" \
        -I "$sources/ggml/src" -L stock/bin -lllama -lggml -lggml-cpu -lggml-base -Wl,-rpath,"$out/stock/bin" -rdynamic -o "$1"
}
program logits
program holes
program fits

fail() { echo "$*" >&2; exit 1; }
lines() { wc -l < "$1"; }

./logits . > stock.txt
LD_PRELOAD=$planned ./logits . > planned.txt 2> planned.log
cmp stock.txt planned.txt || fail "plans change the logits"
grep -q 'Twin compute buffer .* by ggml' planned.log || fail "there is no plan for the second kind of memory"
CHUNK_KIB=64 LD_PRELOAD=$planned ./logits . > chunks.txt 2> chunks.log
cmp stock.txt chunks.txt || fail "plans in chunks change the logits"
GGML_SUBLET=0 LD_PRELOAD=$planned ./logits . > off.txt 2> off.log
cmp stock.txt off.txt && [ ! -s off.log ] || fail "GGML_SUBLET=0 does not turn plans off"
LD_PRELOAD=$out/overlap.so ./logits . > overlap.txt 2> overlap.log
different=$(diff stock.txt overlap.txt | grep -c '^>' || true)
[ "$different" -ge "$(($(lines stock.txt) / 2))" ] || fail "two blocks that overlap change only $different of $(lines stock.txt) logits"
echo "$(lines stock.txt) runs of small models give the bits of stock ggml, in one range and in chunks of 64 KiB;" \
    "with two blocks that overlap $different differ"
larger=$(awk '/by ggml/ { planned = $5; greedy = substr($7, 2); if (planned + 0 > greedy + 0) n++ } END { print n + 0 }' planned.log chunks.log)
[ "$larger" = 0 ] || fail "$larger plans are larger than ggml's"

./holes .
told() { LD_PRELOAD=$planned ./fits "$1.gguf" "$2" "$3" | sed -n 's/^flash attention on .*compute buffer //p'; }
while read -r model context ubatch size greedy; do
    answer=$(told "$model" "$context" "$ubatch")
    [ "$answer" = "$size MiB planned, $greedy by ggml" ] || fail "$model: $answer"
    echo "$model, context $context, ubatch $ubatch: $answer"
done << 'END'
llama2_7b 4096 512 84.51 100.51
llama3_70b 32768 2048 928.04 1056.05
qwen3_30b_a3b 32768 2048 337.10 480.05
END

added=$(($(stat -Lc %s "$planned") - $(stat -Lc %s stock/bin/libggml-base.so.0)))
[ "$added" -le 1048576 ] || fail "libggml-base grows by $added bytes"
echo "libggml-base grows by $((added / 1024)) KiB"
