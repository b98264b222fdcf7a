# no_panic: no function of the C library for firmware reaches a panic; their code sizes
# Every function of the C library for firmware is linked alone, into a program that has no panic handler: it links where
# no panic is reachable. The sizes are those of a Cortex-M4.
. ci/debian.sh
needs /usr/bin/rustc ld.lld-14 arm-none-eabi-size
target=thumbv7em-none-eabihf out=$PWD/target/no_panic
mkdir -p "$out"
RUSTFLAGS="--cfg prove_no_panic" debian_cargo rustc --locked --quiet -p sublet-ffi --no-default-features \
    --profile firmware --crate-type staticlib -Zbuild-std=core --target "$target" --target-dir "$out"
library=$out/$target/firmware/libsublet.a
links() {
    ld.lld-14 -m armelf --gc-sections -u "$1" -e "$1" -o "$out/linked" "$library" 2> "$out/errors"
}
if links sublet_panics || ! grep -q sublet_a_panic_is_reachable "$out/errors"; then
    echo "the function that panics does not fail as it has to: this proves nothing" >&2
    exit 1
fi
if arm-none-eabi-nm "$library" | grep -E ' U (malloc|free|__rust_alloc|__rust_dealloc)'; then
    echo "the library for firmware allocates" >&2
    exit 1
fi
failed=0
echo "code in bytes of the functions that reach no panic:"
for name in $(grep -oE '\bsublet_[a-z_]+\(' include/sublet.h | tr -d '(' | sort -u); do
    if links "$name"; then
        arm-none-eabi-size "$out/linked" | awk -v name="$name" 'NR == 2 { printf "  %-44s %7d\n", name, $1 }'
    else
        echo "  $name: a panic is reachable"
        failed=1
    fi
done
exit "$failed"
