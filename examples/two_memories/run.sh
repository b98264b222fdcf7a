#!/usr/bin/env bash
# run.sh SUBLET MODEL OUT: plans MODEL for two memories in two ways, compiles both headers into one program, and runs it
# on an emulated Cortex-M4. That one tensor lies in a wrong place has to be noticed.
set -euo pipefail
sublet=$1 model=$2 out=$3 here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
banks=(--bank fast=640 --bank slow=64KiB:8)
"$sublet" plan "$model" "${banks[@]}" --header "$out/first.h" --prefix first > /dev/null
"$sublet" plan "$model" "${banks[@]}" --reorder --in-place --overlap --header "$out/second.h" --prefix second > /dev/null
run() {
    clang-14 --target=thumbv7em-none-eabi -mcpu=cortex-m4 -mfloat-abi=soft -std=c99 -Wall -Wextra -Werror -Os -ffreestanding \
        -fno-builtin -I"$1" -I"$out" -c "$here/main.c" -o "$out/main.o"
    ld.lld-14 -T "$here/two_memories.ld" "$out/main.o" -o "$out/program"
    qemu-system-arm -machine mps2-an386 -cpu cortex-m4 -nographic -semihosting-config enable=on,target=native \
        -kernel "$out/program"
}
run "$out"
# The tensor 4, which an operator reads later, begins where the tensor 7 does, which is written in between.
mkdir -p "$out/control"
place=$(sed -n 's/^ *{\(.*\), [0-9]*u}, .* 7:.*/\1/p' "$out/first.h")
sed "s/^\( *{\).*\(, [0-9]*u}, .* 4:.*\)/\1$place\2/" "$out/first.h" > "$out/control/first.h"
if run "$out/control" > "$out/control/said.txt" 2>&1; then
    echo "a tensor in a wrong place is not noticed" >&2
    exit 1
fi
grep -q "first: differs" "$out/control/said.txt"
