# onnxruntime: ONNX models recorded; ONNX Runtime with planned memory, from Python and, where its header is, from C++
. ci/python_environment.sh

install_wheel "$python"
if ! timeout 600 "$python/bin/pip" "${pip_quietly[@]}" onnx==1.23.2 onnxruntime==1.32.0; then
    echo "skipped: ONNX Runtime, which cannot be installed here"
    exit 0
fi
"${ends[@]}" "$python/bin/pytest" --quiet --import-mode=importlib python/tests/test_onnx.py
built=$PWD/target/onnxruntime
mkdir -p "$built"
"$python/bin/python" examples/onnxruntime/measure.py "$built"
# The wheel has the library, and not its header.
header=$(find "${ORT_INCLUDE:-/usr/include/onnxruntime}" -name onnxruntime_c_api.h 2> /dev/null | head -n 1 || true)
if [ -z "$header" ]; then
    echo "skipped: ONNX Runtime from C++, for onnxruntime_c_api.h is not here; ORT_INCLUDE names its folder"
    exit 0
fi
. ffi/packaging/install.sh
install_library "$built/prefix"
library=$(find "$python" -name 'libonnxruntime.so.*' | head -n 1)
ln -sf "$library" "$built/libonnxruntime.so"
ln -sf "$library" "$built/libonnxruntime.so.1"
c++ -std=c++17 -Wall -Wextra -Werror -O1 -g -fsanitize=address,undefined -isystem "$(dirname "$header")" \
    -I"$built/prefix/include" examples/onnxruntime/run.cpp -o "$built/run" -L"$built" -lonnxruntime "-Wl,-rpath,$built" \
    "$built/prefix/lib/libsublet.a" -lpthread -ldl -lm
for rows in '1' '1 8 1'; do
    # shellcheck disable=SC2086
    ASAN_OPTIONS=detect_leaks=0 "$built/run" "$built/open.onnx" 2 $rows
done
