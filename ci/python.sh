# python: the Python package as a wheel: formatting, types, examples, tests; ONNX models
. ci/python_environment.sh

install_wheel "$python"
# Its crate is no member of the workspace.
(cd python && cargo fmt --check &&
    CARGO_TARGET_DIR=$PWD/../target/python-build cargo clippy --quiet --release --locked --all-targets -- -D warnings)
(cd python && "$python/bin/mypy" --strict -p sublet)
run=("${ends[@]}" "$python/bin/pytest" --quiet --import-mode=importlib)
"${run[@]}" python/tests/test_sublet.py
"${run[@]}" --doctest-modules --doctest-ignore-import-errors --pyargs sublet
if timeout 600 "$python/bin/pip" "${pip_quietly[@]}" onnx==1.23.2 onnxruntime==1.32.0; then
    "${run[@]}" python/tests/test_onnx.py
else
    echo "skipped: ONNX, which cannot be installed here"
fi
