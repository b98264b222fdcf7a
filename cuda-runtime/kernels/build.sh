#!/usr/bin/env bash
# Compiles a kernel to PTX that any driver since CUDA 9 takes: `build.sh relu.cu FILE` with clang 14, without CUDA's toolkit.
set -euo pipefail
cd "$(dirname "$0")"
clang++-14 -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -Xclang -target-feature -Xclang +ptx60 \
    -nocudainc -nocudalib -std=c++14 -Wall -Wextra -O3 -S "$1" -o "$2"
