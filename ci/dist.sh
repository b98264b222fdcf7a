# dist DIR: all that a release has, made from the last commit and tried: static programs, wheels, the C library, packages of
#       Debian, crates, for x86-64 and aarch64; checksums, and what each is made of. Nothing is published; by hand
#
# What is made is tried where nothing else is: programs in an empty root, wheels in a new environment, packages in the root of
# an empty Debian; those for aarch64 under an emulator. What cannot be made or tried here is said, a line each.
dist=${1:-target/dist/out}
case "$dist" in /*) ;; *) dist=$from/$dist ;; esac
work=$PWD/target/dist
machines=(x86_64 aarch64)
rm -rf "$dist" "$work"/{source,root,stage}
mkdir -p "$dist" "$work/stage"
git clone --quiet --no-hardlinks . "$work/source"
cd "$work/source"
if [ -n "$(git -C "$OLDPWD" status --porcelain --untracked-files=no)" ]; then
    echo "note: what is not committed is not in it"
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
CARGO_TARGET_DIR=$work/build
export SOURCE_DATE_EPOCH CARGO_TARGET_DIR
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
skip() { echo "skipped: $1"; }
# Whether this machine can build for a target.
can() {
    rustup target list --installed 2> /dev/null | grep -qx "$1" || timeout 300 rustup target add "$1" 2> /dev/null
}
packed() { # NAME FOLDER: the folder as an archive, the same bytes each time
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --directory "$(dirname "$2")" \
        "$(basename "$2")" | gzip --no-name --best > "$dist/$1"
}
# Runs a command in a root that has nothing else.
inside() {
    local root=$1
    shift
    if [ "$(id -u)" = 0 ]; then env -i "$(command -v chroot)" "$root" "$@"; else env -i "$(command -v unshare)" --user --map-root-user "$(command -v chroot)" "$root" "$@"; fi
}
documents() { # MACHINE TO: man pages, completions, licences
    mkdir -p "$2/man" "$2/completions"
    "$work/stage/x86_64/bin/sublet" man "$2/man"
    for shell in bash zsh fish; do "$work/stage/x86_64/bin/sublet" completions "$shell" > "$2/completions/sublet.$shell"; done
    cp LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md "$2"
}

emulated() { # MACHINE: what runs a program of it
    [ "$1" = "$(uname -m)" ] || echo "qemu-$1-static"
}

# The program, without any library beside it.
for machine in "${machines[@]}"; do
    target=$machine-unknown-linux-musl
    if ! can "$target"; then
        skip "sublet for $machine: there is no Rust for $target"
        continue
    fi
    if [ "$machine" != "$(uname -m)" ] && ! command -v "$machine-linux-gnu-gcc" > /dev/null; then
        skip "sublet for $machine: there is no $machine-linux-gnu-gcc"
        continue
    fi
    cargo install --quiet --locked --path cli --target "$target" --root "$work/stage/$machine" --no-track --force
    name=sublet-$version-$machine-linux
    mkdir -p "$work/stage/$name"
    cp "$work/stage/$machine/bin/sublet" "$work/stage/$name"
    documents "$machine" "$work/stage/$name"
    packed "$name.tar.gz" "$work/stage/$name"
    python3 ci/sbom.py Cargo.toml sublet-cli "$target" > "$dist/$name.cdx.json"
    # In an empty root, under an emulator for another machine.
    root=$work/root/$machine emulator=()
    mkdir -p "$root"
    tar --extract --file "$dist/$name.tar.gz" --directory "$root"
    cp traces/vgg16_cifar_train_b100.csv traces/vgg16_cifar_train_b100.ops.csv "$root"
    if [ -n "$(emulated "$machine")" ]; then
        if ! command -v "$(emulated "$machine")" > /dev/null; then
            skip "the try of $name: there is no $(emulated "$machine")"
            continue
        fi
        cp "$(command -v "$(emulated "$machine")")" "$root/emulator"
        emulator=(/emulator)
    fi
    for command in "plan /vgg16_cifar_train_b100.csv --output /plan.csv" "fit /vgg16_cifar_train_b100.csv --limit 50% --output /fitted" \
        "verify /vgg16_cifar_train_b100.csv /fitted/plan.csv --rewritten /fitted/rewritten.csv --reorder"; do
        inside "$root" "${emulator[@]}" "/$name/sublet" $command > /dev/null
    done
    # The same input gives the same bytes everywhere.
    sha256sum "$root"/plan.csv "$root"/fitted/{plan,rewritten}.csv | sed "s| .*/| |" > "$work/stage/$machine.plans"
    cmp "$work/stage/$machine.plans" "$work/stage/x86_64.plans"
    # Control: another machine's program does not run, and a spoiled plan is refused.
    sed -i '2s/,[0-9]*$/,1/' "$root/plan.csv"
    if inside "$root" "${emulator[@]}" "/$name/sublet" verify /vgg16_cifar_train_b100.csv /plan.csv > /dev/null 2>&1; then
        echo "$name accepts a spoiled plan" >&2
        exit 1
    fi
    echo "made and tried: $name.tar.gz, the same plans as for x86_64"
done

# The C library, as a folder that may lie anywhere, and as packages of Debian.
. ffi/packaging/install.sh
debian() { # PACKAGE ARCHITECTURE FOLDER DEPENDS DESCRIPTION
    mkdir -p "$3/DEBIAN"
    printf '%s\n' "Package: $1" "Version: $version" "Architecture: $2" "Maintainer: The sublet authors <sublet@localhost>" \
        "Section: devel" "Priority: optional" ${4:+"Depends: $4"} "Installed-Size: $(du -sk "$3" | cut -f1)" "Description: $5" \
        > "$3/DEBIAN/control"
    find "$3" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group --build "$3" "$dist/$1_${version}_$2.deb" > /dev/null
}
for machine in "${machines[@]}"; do
    target=$machine-unknown-linux-gnu architecture=amd64 tools=
    [ "$machine" = aarch64 ] && architecture=arm64
    [ "$machine" = "$(uname -m)" ] || tools=$machine-linux-gnu-
    if ! can "$target" || ! command -v "${tools}gcc" > /dev/null; then
        skip "the C library for $machine: it takes Rust for $target and ${tools}gcc"
        continue
    fi
    name=libsublet-$version-$machine-linux
    export CARGO_BUILD_TARGET=$target STRIP=${tools}strip
    SUBLET_FEATURES=cuda DESTDIR= LIBDIR=lib install_library "$work/stage/$name" > /dev/null
    SUBLET_FEATURES=cuda DESTDIR=$work/stage/deb-$machine LIBDIR=lib/$machine-linux-gnu install_library /usr > /dev/null
    unset CARGO_BUILD_TARGET STRIP
    cp LICENSE-MIT LICENSE-APACHE CHANGELOG.md docs/c.md "$work/stage/$name"
    packed "$name.tar.gz" "$work/stage/$name"
    python3 ci/sbom.py Cargo.toml sublet-ffi "$target" > "$dist/$name.cdx.json"
    least=$("${tools}objdump" -T "$work/stage/$name/lib/libsublet.so" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    # Tried: unpacked elsewhere, by pkg-config, shared and static.
    root=$work/root/c-$machine
    mkdir -p "$root"
    tar --extract --file "$dist/$name.tar.gz" --directory "$root"
    export PKG_CONFIG_PATH=$root/$name/lib/pkgconfig
    emulator=$(emulated "$machine")
    if [ -n "$emulator" ] && ! command -v "$emulator" > /dev/null; then
        skip "the try of $name: there is no $emulator"
    else
        "${tools}gcc" -std=c11 examples/c/fit.c $(pkg-config --cflags --libs sublet) -o "$root/shared"
        "${tools}gcc" -std=c11 -static-libgcc examples/c/fit.c $(pkg-config --cflags --libs sublet-static) -o "$root/static"
        for linked in shared static; do
            QEMU_LD_PREFIX=/usr/$machine-linux-gnu QEMU_SET_ENV=LD_LIBRARY_PATH=$root/$name/lib LD_LIBRARY_PATH=${emulator:+/}${emulator:-$root/$name/lib} \
                $emulator "$root/$linked" > "$root/$linked.out"
        done
        cmp "$root/shared.out" "$root/static.out"
        echo "made and tried: $name.tar.gz, which takes $least or later"
    fi
    unset PKG_CONFIG_PATH
    debian libsublet-dev "$architecture" "$work/stage/deb-$machine" "libc6 (>= ${least#GLIBC_})" "memory plans for deep networks, for C and C++"
    if [ -x "$work/stage/$machine/bin/sublet" ]; then
        of=$work/stage/deb-program-$machine
        install -D "$work/stage/$machine/bin/sublet" "$of/usr/bin/sublet"
        documents "$machine" "$work/stage/documents"
        install -d "$of/usr/share/man/man1" "$of/usr/share/doc/sublet"
        install -D -m 644 "$work/stage/documents/completions/sublet.bash" "$of/usr/share/bash-completion/completions/sublet"
        install -D -m 644 "$work/stage/documents/completions/sublet.zsh" "$of/usr/share/zsh/vendor-completions/_sublet"
        install -D -m 644 "$work/stage/documents/completions/sublet.fish" "$of/usr/share/fish/vendor_completions.d/sublet.fish"
        cp "$work/stage/documents/man"/*.1 "$of/usr/share/man/man1"
        gzip --no-name --best --force "$of/usr/share/man/man1"/*.1
        cat LICENSE-MIT LICENSE-APACHE > "$of/usr/share/doc/sublet/copyright"
        debian sublet "$architecture" "$of" "" "memory plans for deep networks, on the command line"
    fi
    # The root of an empty Debian takes both.
    root=$work/root/debian-$machine
    mkdir -p "$root/var/lib/dpkg"/{info,updates,triggers}
    touch "$root/var/lib/dpkg/status" "$root/var/lib/dpkg/available"
    fakeroot=()
    [ "$(id -u)" = 0 ] || fakeroot=(fakeroot)
    if "${fakeroot[@]}" dpkg --root="$root" --force-architecture --force-depends --force-not-root --force-bad-path --log=/dev/null \
        --install "$dist"/{sublet,libsublet-dev}_"${version}_$architecture.deb" > "$work/stage/dpkg.log" 2>&1; then
        emulator=()
        if [ -n "$(emulated "$machine")" ]; then
            cp "$(command -v "$(emulated "$machine")")" "$root/emulator"
            emulator=(/emulator)
        fi
        inside "$root" "${emulator[@]}" /usr/bin/sublet --version | grep -F "$version" > /dev/null
        test -e "$root/usr/lib/$machine-linux-gnu/pkgconfig/sublet.pc" -a -e "$root/usr/include/sublet.h"
        "${fakeroot[@]}" dpkg --root="$root" --force-not-root --force-bad-path --log=/dev/null --remove sublet libsublet-dev > /dev/null 2>&1
        test ! -e "$root/usr/bin/sublet"
        echo "made and tried: sublet and libsublet-dev for $architecture, installed and removed again"
    else
        cat "$work/stage/dpkg.log" >&2
        exit 1
    fi
done

# Wheels: by zig's linker for systems as old as glibc 2.28.
tools=$work/tools
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
if "$tools/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2' ziglang; then
    for machine in "${machines[@]}"; do
        target=$machine-unknown-linux-gnu
        if ! can "$target"; then
            skip "a wheel for $machine: there is no Rust for $target"
            continue
        fi
        env -u CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER PATH="$tools/bin:$PATH" "$tools/bin/maturin" build --quiet --release --locked --zig --target "$target" --compatibility manylinux_2_28 \
            --manifest-path python/Cargo.toml --out "$work/stage/wheels"
        wheel=$(basename "$work"/stage/wheels/sublet-"$version"-*"$machine".whl)
        cp "$work/stage/wheels/$wheel" "$dist"
        python3 ci/sbom.py python/Cargo.toml sublet-python "$target" > "$dist/${wheel%.whl}.cdx.json"
    done
    # Tried where nothing else is installed: in a new environment, and with the Python of another machine under an emulator.
    tried="import sublet; plan = sublet.plan('$work/stage/tried.csv'); fit = sublet.fit('$work/stage/tried.csv', '50%'); \
print(plan.peak, plan.optimal, fit.footprint, fit.overhead)"
    cp traces/vgg16_cifar_train_b100.csv $work/stage/tried.csv
    cp traces/vgg16_cifar_train_b100.ops.csv $work/stage/tried.ops.csv
    for wheel in "$dist"/sublet-"$version"-*x86_64.whl "$dist"/sublet-"$version"-*aarch64.whl; do
        [ -e "$wheel" ] || continue
        case "$wheel" in *x86_64.whl) machine=x86_64 ;; *) machine=aarch64 ;; esac
        rm -rf "$work/root/wheel-$machine"
        if [ "$machine" = "$(uname -m)" ]; then
            python3 -m venv "$work/root/wheel-$machine"
            "$work/root/wheel-$machine/bin/pip" install --quiet --disable-pip-version-check "$wheel"
            (cd / && "$work/root/wheel-$machine/bin/python" -c "$tried") > "$work/stage/wheel-$machine.out"
        else
            root=$work/root/wheel-$machine
            mkdir -p "$root/debs" "$root/site"
            of=(libc6 libgcc-s1 libstdc++6 libexpat1 zlib1g libffi8 libssl3 liblzma5 libbz2-1.0 libuuid1 libpython3.11-minimal libpython3.11-stdlib python3.11-minimal)
            if ! (cd "$root/debs" && apt-get download "${of[@]/%/:arm64}" > /dev/null 2>&1); then
                skip "the try of $(basename "$wheel"): Debian's Python for arm64 cannot be downloaded"
                continue
            fi
            for deb in "$root"/debs/*.deb; do dpkg -x "$deb" "$root"; done
            "$tools/bin/pip" install --quiet --disable-pip-version-check --target "$root/site" --platform manylinux_2_28_aarch64 \
                --python-version 3.11 --implementation cp --only-binary=:all: "$wheel"
            PYTHONHOME=$root/usr PYTHONPATH=$root/site qemu-aarch64-static -L "$root" "$root/usr/bin/python3.11" -c "$tried" \
                > "$work/stage/wheel-$machine.out"
        fi
        cmp "$work/stage/wheel-$machine.out" "$work/stage/wheel-x86_64.out"
        echo "made and tried: $(basename "$wheel"): $(cat "$work/stage/wheel-$machine.out")"
    done
    rm $work/stage/tried.csv $work/stage/tried.ops.csv
else
    skip "the wheels: maturin and ziglang cannot be installed here"
fi

# The crates, packed and built from what is packed.
(. ci/package.sh)
cp "$CARGO_TARGET_DIR"/../source/target/packages/package/*.crate "$dist"
(cd "$dist" && sha256sum -- * > SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
echo "made in $dist:"
(cd "$dist" && ls -l --block-size=K | awk 'NR > 1 { print "  " $5 "  " $9 }')
