# tools: installs what the tests use beside Rust: Chromium, solvers, C tools, emulators, frameworks
. ci/debian.sh
# As root on Debian it installs what is missing; elsewhere it says what that is.
mapfile -t missing < <(missing_tools | sed 's/^[^:]*: //' | tr ',' '\n')
if [ "${#missing[@]}" -gt 0 ]; then
    if ! command -v apt-get > /dev/null || [ "$(id -u)" != 0 ]; then
        echo "Only root on Debian can install what is missing here: a program or a file, and Debian's packages for it." >&2
        missing_tools | sed 's/^/    /' >&2
        echo "Without them tests print that they are skipped, and the stages that need them end." >&2
        exit 1
    fi
    dpkg --add-architecture arm64
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
fi
if [ ! -x "$oracles/bin/python" ]; then
    python3 -m venv "$oracles"
fi
# The assembler of CUDA 12: that of CUDA 13 does not know Volta any more.
"$oracles/bin/pip" install --quiet --disable-pip-version-check highspy ortools nvidia-cuda-nvcc-cu12==12.9.86
# Checks proofs that no plan is lower.
# Built without optimisation it is there sooner, and the proofs of the tests are short.
command -v veripb > /dev/null || cargo install --debug --quiet --locked veripb@3.0.2
