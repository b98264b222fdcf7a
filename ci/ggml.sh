# ggml: llama.cpp, from PyPI's llama-cpp-python, with planned compute buffers: the same bits, less memory
# What is built of it, some minutes on two cores, stays in target.
. ci/debian.sh
needs cmake c++ patch
version=0.3.36
sources=target/ggml/llama_cpp_python-$version/vendor/llama.cpp
if [ ! -d "$sources" ]; then
    mkdir -p target/ggml
    if ! python3 -m pip download --quiet --no-deps --no-binary :all: --dest target/ggml "llama-cpp-python==$version"; then
        echo "skipped: ggml with planned memory; llama-cpp-python $version cannot be downloaded"
        exit 0
    fi
    tar --extract --file "target/ggml/llama_cpp_python-$version.tar.gz" --directory target/ggml "llama_cpp_python-$version/vendor"
fi
. ffi/packaging/install.sh
install_library target/ggml/prefix
examples/ggml/test.sh "$sources" target/ggml/prefix target/ggml/built
