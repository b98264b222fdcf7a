# The environment in which the Python package is built and tested; no stage itself.

python=$PWD/target/python
pip_quietly=(install --quiet --disable-pip-version-check)

python_environment() {
    [ -x "$python/bin/python" ] || python3 -m venv "$python"
    "$python/bin/pip" "${pip_quietly[@]}" 'maturin>=1.9,<2' mypy numpy pytest
}

# The wheel, for every Python from 3.10 on.
wheel() {
    CARGO_TARGET_DIR=$PWD/target/python-build "$python/bin/maturin" build --quiet --release --locked \
        --manifest-path python/Cargo.toml --out "$1"
}

# The package as users install it, away from its sources, in the environment of $1.
install_wheel() {
    python_environment
    rm -rf "$python/wheels"
    wheel "$python/wheels"
    "$1/bin/pip" "${pip_quietly[@]}" --force-reinstall --no-deps "$python"/wheels/sublet-*.whl
    cc -O2 -shared -fPIC python/tests/heap.c -o "$python/libheap.so"
}

# Tests that hang end, and say where they were. Larger networks take hours on a slow machine.
ends=(env PYTHONFAULTHANDLER=1 timeout --signal=ABRT --kill-after=30 1800)
[ "${SUBLET_TORCH:-1}" != long ] || ends[-1]=14400
