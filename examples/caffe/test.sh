#!/usr/bin/env bash
# Caffe, built from its sources, trains nets with its own memory and with planned memory: what comes out has to be the same
# to the bit, with NaN in each memory as it begins, and the memory of the process has to fall to what is named here.
#
#   test.sh CAFFE PREFIX OUT [WHAT]    CAFFE: sources with build.sh and nets/; PREFIX: the installed C library; OUT: a folder
#                                      that keeps what was built; WHAT, by hand: `large`, nets of full size; `time`, the
#                                      processor's time beside what was said
set -euo pipefail
caffe=$1 prefix=$2 out=$3 what=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
# One thread: the number of threads changes the results, and the memory that OpenBLAS takes.
export OPENBLAS_NUM_THREADS=1 LC_ALL=C

read -ra hdf5 <<< "$(pkg-config --cflags hdf5 2> /dev/null || echo -I/usr/include/hdf5/serial)"
read -ra hdf5_link <<< "$(pkg-config --libs hdf5 2> /dev/null || echo "-L/usr/lib/x86_64-linux-gnu/hdf5/serial -lhdf5")"
compile() {
    c++ -std=c++11 -O1 -w -DUSE_HDF5 "${hdf5[@]}" -I"$caffe/include" -I"$out/include" -I"$prefix/include" -I"$here" "$@"
}
# FLAGS: builds Caffe, once for these sources, and the two programs.
build() {
    local sources
    sources=$(cat "$caffe"/build.sh "$caffe"/src/caffe/*.cpp "$caffe"/src/caffe/layers/*.cpp | sha256sum)
    if [ ! -f "$out/libcaffe.so" ] || [ "$(cat "$out/sources" 2> /dev/null)" != "$sources" ]; then
        rm -f "$out/sources"
        mkdir -p "$out"
        sh "$caffe/build.sh" "$out" "$@" > "$out/build.log" 2>&1 || { tail -n 40 "$out/build.log"; exit 1; }
        rm -rf "$out/unity"
        echo "$sources" > "$out/sources"
    fi
    patch -s -o "$out/syncedmem.cpp" "$caffe/src/caffe/syncedmem.cpp" "$here/sublet_caffe.patch"
    link=(-L"$out" -lcaffe -lglog -lgflags -lboost_system -lprotobuf "${hdf5_link[@]}" -lpthread "-Wl,-rpath,$out")
    [ "$#" = 0 ] || link+=(-lopencv_imgcodecs -lopencv_imgproc -lopencv_core)
    compile "$@" -DCPU_ONLY -DSTOCK "$here/train.cpp" -o "$out/stock" "${link[@]}"
    # The patched file stands before the one in the library. Of the static library only what is called is linked and loaded.
    compile "$@" -DCPU_ONLY "$here/train.cpp" "$out/syncedmem.cpp" -o "$out/planned" "${link[@]}" "$prefix/lib/libsublet.a" \
        -ldl -lm -Wl,--gc-sections
}
build
# The memories by themselves, and if the compiler can, with a check for races of threads.
thread=-fsanitize=thread
echo 'int main() {}' > "$out/empty.cpp"
c++ $thread "$out/empty.cpp" -o "$out/empty" 2> /dev/null && setarch -R "$out/empty" 2> /dev/null || thread=
compile $thread -g -DCPU_ONLY "$here/memories.cpp" "$out/syncedmem.cpp" -o "$out/memories" "${link[@]}" \
    "$prefix/lib/libsublet.a" -ldl -lm -Wl,--gc-sections
${thread:+setarch -R} "$out/memories" 2> "$out/memories.log" || { head -n 40 "$out/memories.log"; exit 1; }
# For a GPU: compiled, with headers that only declare; never run.
compile -I"$here/cuda_stub" -fsyntax-only "$here/train.cpp"
compile -I"$here/cuda_stub" -fsyntax-only "$out/syncedmem.cpp"
echo "the GPU's half of the adapter compiles against stub headers; it has not run"

# The value after a word in what a run has printed.
value() { sed -n "s/.*$1 \([^ ,]*\).*/\1/p" <<< "$2"; }
bits() { echo "$(value outputs "$1") $(value weights "$1")"; }
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b) }'; }

failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
# NET ITERATIONS [PLAN_MIB [LIMIT LIMIT_MIB]]: the most that the process may take by a plan, and within a limit.
net() {
    local file=$1 name iterations=$2 stock planned limited spoiled
    name=$(basename "$file" .prototxt)
    stock=$("$out/stock" "$file" "$iterations" "${options[@]}" 2> /dev/null)
    local line="$name${options[*]:+ (${options[*]})}, $iterations iterations: stock $(value VmHWM "$stock") MiB"
    if [ "${3:-0}" != 0 ]; then
        planned=$("$out/planned" "$file" "$iterations" plan poison "${options[@]}" 2> /dev/null || true)
        line+=", planned $(value VmHWM "$planned") MiB"
        ! above "$(value VmHWM "$planned")" "$(value VmHWM "$stock")" || fail "$name takes more by a plan than without one"
        [ "$(bits "$planned")" = "$(bits "$stock")" ] || fail "$name by a plan gives something else: $planned, not $stock"
        ! above "$(value VmHWM "$planned")" "$3" || fail "$name takes more than $3 MiB by a plan"
    fi
    if [ -n "${4:-}" ]; then
        limited=$("$out/planned" "$file" "$iterations" plan poison "limit=$4" "${options[@]}" 2> /dev/null)
        line+=", with layers run again $(value VmHWM "$limited") MiB"
        [ "$(bits "$limited")" = "$(bits "$stock")" ] || fail "$name within $4 MiB gives something else: $limited, not $stock"
        ! above "$(value VmHWM "$limited")" "$(value VmHWM "$stock")" || fail "$name takes more within $4 MiB than without a plan"
        ! above "$(value VmHWM "$limited")" "$5" || fail "$name takes more than $5 MiB within $4 MiB"
        [[ $limited != *", 0 layers ran again"* ]] || fail "$name: nothing ran again"
    fi
    spoiled=$("$out/planned" "$file" 1 plan overlap "${options[@]}" 2> /dev/null || true)
    [ "$(bits "$spoiled")" != "$(bits "$("$out/stock" "$file" 1 "${options[@]}" 2> /dev/null)")" ] ||
        fail "$name: two memories in one place are not seen"
    echo "$line; same bits; a planted overlap is seen"
}
# NET ITERATIONS ROUNDS [LIMIT]: the processor's time of an iteration beside stock's, without NaN; what was said of it. The
# programs take turns, and of the rounds the median counts, for what else runs on the machine slows one or the other. Nothing
# fails.
middle() { sort -n "$1" | sed -n "$(($(wc -l < "$1") / 2 + 1))p"; }
over() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%+.1f", 100 * (a / b - 1) }'; }
time_of() {
    local file=$1 iterations=$2 rounds=$3 limit=${4:-} run line stock planned limited
    rm -f "$out"/*.times
    for ((round = 0; round < rounds; round++)); do
        value median "$("$out/stock" "$file" "$iterations" 2> /dev/null)" >> "$out/stock.times"
        value median "$("$out/planned" "$file" "$iterations" plan 2> /dev/null)" >> "$out/planned.times"
        [ -n "$limit" ] || continue
        run=$("$out/planned" "$file" "$iterations" plan "limit=$limit" 2> /dev/null)
        value median "$run" >> "$out/limited.times"
        value said "$run" >> "$out/said.times"
    done
    stock=$(middle "$out/stock.times") planned=$(middle "$out/planned.times")
    line="$(basename "$file" .prototxt), time: stock $stock s, planned $(over "$planned" "$stock") %"
    if [ -n "$limit" ]; then
        limited=$(middle "$out/limited.times")
        line+=", in $(value '->' "$run") MiB $(over "$limited" "$stock") %, $(over "$limited" "$planned") % over planned"
        line+=", said +$(middle "$out/said.times") %"
    fi
    echo "$line"
}
# MODEL FILE [ITERATIONS]: the bytes of its blobs, before and after, where it only infers.
infers() {
    local stock planned
    stock=$("$out/stock" "$2" "${3:-1}" infer "${options[@]}" 2> /dev/null)
    planned=$("$out/planned" "$2" "${3:-1}" infer plan poison "${options[@]}" 2> /dev/null || true)
    [ "$(bits "$planned")" = "$(bits "$stock")" ] || fail "$2 infers something else by a plan: $planned, not $stock"
    echo "$1, inference: blobs$(sed 's/.*, blobs\(.*\), 0 layers.*/\1/' <<< "$planned")"
}

# Images that are read ahead, by a Caffe with OpenCV, whose names are those of versions before 4.
images() {
    local opencv=/usr/include/opencv4 out=$out/opencv
    if [ ! -f "$opencv/opencv2/imgcodecs.hpp" ]; then
        echo "skipped: ImageData; there is no $opencv/opencv2/imgcodecs.hpp"
        return
    fi
    build -DUSE_OPENCV -I"$opencv" -DCV_LOAD_IMAGE_COLOR=cv::IMREAD_COLOR -DCV_LOAD_IMAGE_GRAYSCALE=cv::IMREAD_GRAYSCALE
    net "$here/nets/opencv/images.prototxt" 20 102 1 90
}

options=()
# The files that nets of these read lie where it runs.
cd "$out"
"$out/stock" "$here/nets/siamese.prototxt" 1 numbers > "$out/numbers.log" 2>&1
if [ "$what" = time ]; then
    time_of "$caffe/nets/lenet_b64.prototxt" 60 7
    time_of "$caffe/nets/cifar_quick_b100.prototxt" 20 5
    time_of "$caffe/nets/cifar_full_sig_b100.prototxt" 16 5 27
    time_of "$caffe/nets/googlenet_b4.prototxt" 7 3 1
    time_of "$caffe/nets/googlenet_b16.prototxt" 7 3 1
    time_of "$caffe/nets/alexnet_b32.prototxt" 7 3 1
    time_of "$here/nets/large/resnet50_b4.prototxt" 7 3 400
    exit
fi
if [ "$what" = large ]; then
    net "$here/nets/large/resnet50_b4.prototxt" 5 1100 400 750
    net "$here/nets/large/vgg16_b2.prototxt" 5 1900
    net "$caffe/nets/alexnet_b32.prototxt" 5 976.1 1 916.2
    net "$caffe/nets/googlenet_b16.prototxt" 5 713.8 1 399.2
    options=(batch=8)
    net "$here/nets/large/vgg16_b2.prototxt" 3 2200 1 2100
    options=()
    for name in resnet50_b4 vgg16_b2; do
        infers "$name" "$here/nets/large/$name.prototxt"
    done
    images
    exit "$failed"
fi
time_of "$caffe/nets/lenet_b64.prototxt" 60 3
time_of "$caffe/nets/googlenet_b4.prototxt" 7 1 70
net "$caffe/nets/lenet_b64.prototxt" 20 29.6
net "$caffe/nets/cifar_quick_b100.prototxt" 20 42
net "$caffe/nets/cifar_full_sig_b100.prototxt" 20 53 27 48.4
net "$caffe/nets/googlenet_b4.prototxt" 6 0 70 270
for file in "$here"/nets/*.prototxt; do
    net "$file" 3 200
done
for options in debug reshape test iter_size=2 grow; do
    net "$here/nets/shared_blobs.prototxt" 6 200
done
options=(keep=flat)
net "$here/nets/shared_outputs.prototxt" 3 200
# Where its net grows, an arena moves, and the test net that shares it is read before it runs again.
options=(grow test)
net "$here/nets/shared_blobs.prototxt" 6 200
options=()
for file in "$caffe"/models/*/deploy.prototxt; do
    infers "$(basename "$(dirname "$file")")" "$file"
done
saliency=$here/nets/infer/saliency.prototxt
infers "saliency, an input that is filled before the plan and changed in place" "$saliency" 3
options=(backward)
infers "saliency, gradients of a net of phase TEST" "$saliency" 3
options=()
# Two nets that share parameters, one arena; gradients over two passes.
options=(test iter_size=2)
net "$caffe/nets/lenet_b64.prototxt" 10 32
# A net so small that the library would take more than a plan saves is left alone.
sed 's/dim: 24/dim: 2/g; s/dim: 32/dim: 4/g' "$here/nets/lstm.prototxt" > "$out/small.prototxt"
left=$("$out/planned" "$out/small.prototxt" 3 plan 2> /dev/null)
[[ $left == *"blobs 0.0 -> 0.0 MiB"* ]] || fail "a small net is planned: $left"
[ "$(bits "$left")" = "$(bits "$("$out/stock" "$out/small.prototxt" 3 2> /dev/null)")" ] || fail "a small net gives something else"
# A chain that takes the most while it is recorded, at first: a batch that is 5 % larger than the largest takes more.
chain() {
    echo 'layer { name: "data" type: "DummyData" top: "t0" top: "label" dummy_data_param {
        shape { dim: 16 dim: 8 dim: 32 dim: 32 } shape { dim: 16 } data_filler { type: "gaussian" } data_filler { value: 3 } } }'
    for ((i = 0; i < 16; i++)); do
        echo "layer { name: \"c$i\" type: \"Convolution\" bottom: \"t$i\" top: \"c$i\" convolution_param {
            num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: \"msra\" } } }
            layer { name: \"t$((i + 1))\" type: \"TanH\" bottom: \"c$i\" top: \"t$((i + 1))\" }"
    done
    echo 'layer { name: "fc" type: "InnerProduct" bottom: "t16" top: "fc" inner_product_param { num_output: 10 } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }'
}
chain > "$out/chain.prototxt"
largest=$("$here/largest_batch.sh" "$out/planned" "$out/chain.prototxt" 36)
largest=$(value "largest batch is" "$largest")
more=$((largest + largest / 20 + 1))
taken=$(value VmHWM "$("$out/planned" "$out/chain.prototxt" 1 plan limit=1 "batch=$more" 2> /dev/null)")
above "$taken" 36 || fail "the largest batch within 36 MiB is not $largest: $more takes $taken MiB"
echo "a chain of 32 layers trains with batch $largest in 36 MiB; $more takes $taken MiB"
# A program that fails is no batch that fits, and is named.
cat > "$out/refuses" << 'EOF'
#!/usr/bin/env bash
batch=${*: -1}
[ "${batch#batch=}" -lt 50 ] && echo "VmHWM 30 MiB, blobs 20 -> 10 MiB, load 10 MiB"
EOF
chmod +x "$out/refuses"
said=$(timeout 60 "$here/largest_batch.sh" "$out/refuses" none 36) || true
[[ $said == *"the largest batch is 49" ]] || fail "batches from 50 on are refused, and largest_batch.sh says: $said"
if said=$("$here/largest_batch.sh" "$out/refuses" none 36 50 2>&1); then fail "a first batch that fails is no error"; fi
[[ $said == *"batch 50 does not train"* ]] || fail "of a first batch that fails nothing is said: $said"
# Nets that cannot be recorded at batch 1: cut along the items by a negative axis, or with parameters for each item.
for file in "$here"/nets/axes/*.prototxt; do
    stock=$("$out/stock" "$file" 3 2> /dev/null)
    planned=$("$out/planned" "$file" 3 plan poison 2> /dev/null || true)
    [ "$(bits "$planned")" = "$(bits "$stock")" ] || fail "$file by a plan gives something else: $planned, not $stock"
done
# NAME SAID ARGUMENTS...: what a plan cannot do is said, and ends the program.
refuses() {
    local name=$1 said=$2 text
    shift 2
    if text=$("$out/planned" "$@" plan 2>&1); then fail "$name: there is no error"; fi
    [[ $text == *"$said"* ]] || fail "$name: nothing says: $said"
}
refuses "a blob that no net has" "there is no blob nosuch" "$here/nets/siamese.prototxt" 1 keep=nosuch
grep -v force_backward "$saliency" > "$out/forward.prototxt"
refuses "a second backward pass" "runs out of turn" "$saliency" 1 infer backward twice
refuses "a first pass that begins at the second layer" "runs out of turn" "$saliency" 1 infer from
refuses "a backward pass of phase TEST" "is not planned" "$out/forward.prototxt" 1 infer backward
exit "$failed"
