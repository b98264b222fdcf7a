# ggml: llama.cpp, from PyPI's llama-cpp-python, with planned compute buffers: the same bits, less memory; and its tutorial
# What is built of it, some minutes on two cores, stays in target.
. ci/debian.sh
needs cmake c++ patch
version=0.3.36
archive=target/ggml/llama_cpp_python-$version.tar.gz
if [ ! -f "$archive" ]; then
    mkdir -p target/ggml
    if ! python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest target/ggml "llama-cpp-python==$version"; then
        echo "skipped: ggml with planned memory; llama-cpp-python $version cannot be downloaded"
        exit 0
    fi
fi
# The tutorial's folder is as it was unpacked, but for what is built in it; the other one stays without the patch.
for folder in target/llama.cpp target/ggml/stock; do
    mkdir -p "$folder"
    tar --extract --file "$archive" --directory "$folder" --strip-components 3 "llama_cpp_python-$version/vendor/llama.cpp"
done
python3 ci/tutorial.py docs/tutorials/llama_cpp.md
examples/ggml/test.sh target/ggml/stock target/llama.cpp target/sublet target/ggml/built
