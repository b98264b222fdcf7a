# Installs the C library with its headers, and removes them: functions for ci/install.sh and ci/uninstall.sh. `from` is
# the folder in which ci.sh was called; the folder of ci.sh is the working directory.

# Where the library goes: `prefix`, and `libdir`, which is LIBDIR in it, or LIBDIR itself where that is a path from the root.
places() {
    prefix=$1
    case "$prefix" in /*) ;; *) prefix=$from/$prefix ;; esac
    libdir=${LIBDIR:-lib}
    # The path from libdir back to the prefix gets one .. for each part of libdir.
    case "/$libdir/" in
        */./* | */../*)
            echo "LIBDIR is $libdir: no part of it may be . or .." >&2
            exit 2
            ;;
    esac
    case "$libdir" in /*) ;; *) libdir=$prefix/$libdir ;; esac
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
    # Programs need not be linked anew within a series: the major version, and the minor one as long as that is 0.
    series=${version%%.*}
    if [ "$series" = 0 ]; then series=${version%.*}; fi
}

# All that an installation may have, as paths under DESTDIR.
installed_files() {
    local name
    for name in sublet.h sublet.hpp sublet_fit.hpp sublet_torch.h sublet_runtime.h sublet_relu.h; do
        echo "$prefix/include/$name"
    done
    for name in libsublet.a libsublet.so "libsublet.so.$series" "libsublet.so.$version" pkgconfig/sublet.pc \
        pkgconfig/sublet-static.pc cmake/sublet/sublet-config.cmake cmake/sublet/sublet-config-version.cmake; do
        echo "$libdir/$name"
    done
}

install_library() {
    local prefix libdir version series name cuda=0 features=" ${SUBLET_FEATURES:-} "
    places "$1"
    case "${features//,/ }" in *" cuda "*) cuda=1 ;; esac
    cargo build --release --locked -p sublet-ffi ${SUBLET_FEATURES:+--features "$SUBLET_FEATURES"}
    uninstall_library "$1" > /dev/null
    # CARGO_BUILD_TARGET builds for another machine, whose strip is STRIP.
    local built=${CARGO_TARGET_DIR:-target}/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release to=${DESTDIR:-} strip=${STRIP:-strip}
    install -d "$to$prefix/include" "$to$libdir/pkgconfig" "$to$libdir/cmake/sublet"
    # What a build lacks is not installed, and the header says so.
    sed "s/^#define SUBLET_HAS_CUDA 0$/#define SUBLET_HAS_CUDA $cuda/" include/sublet.h > "$to$prefix/include/sublet.h"
    install -m 644 include/sublet.hpp include/sublet_fit.hpp "$to$prefix/include"
    if [ "$cuda" = 1 ]; then
        install -m 644 include/sublet_torch.h include/sublet_runtime.h include/sublet_relu.h "$to$prefix/include"
    fi
    install -m 644 "$built/libsublet.a" "$to$libdir"
    install -m 755 "$built/libsublet.so" "$to$libdir/libsublet.so.$version"
    if command -v "$strip" > /dev/null; then
        "$strip" --strip-debug "$to$libdir/libsublet.a"
        "$strip" --strip-unneeded "$to$libdir/libsublet.so.$version"
    fi
    ln -sf "libsublet.so.$version" "$to$libdir/libsublet.so.$series"
    ln -sf "libsublet.so.$series" "$to$libdir/libsublet.so"

    # From a folder below libdir back to the prefix, so that the whole may be moved; a path from the root if libdir is elsewhere.
    local back=$prefix inside=${libdir#"$prefix"/}
    if [ "$inside" != "$libdir" ]; then
        back=$(sed 's|[^/][^/]*|..|g' <<< "$inside")
    fi
    fill() {
        local text
        text=$(cat "ffi/packaging/$1.in")
        text=${text//@BACK@/"$3"}
        text=${text//@LIBDIR@/"$lib"}
        text=${text//@VERSION@/"$version"}
        text=${text//@SERIES@/"$series"}
        text=${text//@CUDA@/"$cuda"}
        printf '%s\n' "$text" > "$to$libdir/$2/$1"
    }
    # pkg-config reads values as a shell does.
    escaped() { sed 's|[^A-Za-z0-9_./-]|\\&|g' <<< "$1"; }
    local root here=$back lib
    case "$back" in
        /*) root=$(escaped "$back") lib=$(escaped "$libdir") ;;
        *)
            root="\${pcfiledir}/../$back" here="\${CMAKE_CURRENT_LIST_DIR}/../../$back"
            lib="\${prefix}/$(escaped "$inside")"
            ;;
    esac
    fill sublet.pc pkgconfig "$root"
    fill sublet-static.pc pkgconfig "$root"
    fill sublet-config.cmake cmake/sublet "$here"
    fill sublet-config-version.cmake cmake/sublet "$here"
    echo "sublet $version, installed${SUBLET_FEATURES:+ with $SUBLET_FEATURES}:"
    installed_files | while IFS= read -r name; do
        if [ -e "$to$name" ]; then echo "  $to$name"; fi
    done
}

uninstall_library() {
    local prefix libdir version series name to=${DESTDIR:-}
    places "$1"
    installed_files | while IFS= read -r name; do
        if [ -e "$to$name" ] || [ -L "$to$name" ]; then
            rm -f "$to$name"
            echo "removed $to$name"
        fi
    done
    rmdir "$to$libdir/cmake/sublet" 2> /dev/null || true
}
