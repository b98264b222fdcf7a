# python: the Python package as a wheel: formatting, types, examples, tests
. ci/python_environment.sh

install_wheel "$python"
# Its crate is no member of the workspace.
(cd python && cargo fmt --check &&
    CARGO_TARGET_DIR=$PWD/../target/python-build cargo clippy --quiet --release --locked --all-targets -- -D warnings)
(cd python && "$python/bin/mypy" --strict -p sublet)
run=("${ends[@]}" "$python/bin/pytest" --quiet --import-mode=importlib)
"${run[@]}" python/tests/test_sublet.py
"${run[@]}" --doctest-modules --doctest-ignore-import-errors --pyargs sublet
