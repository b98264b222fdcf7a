# What the stages take from Debian; no stage itself.

# What the tests look for, a program or a file, and the packages of Debian that bring it.
wanted=(
    chromium:chromium chromedriver:chromium-driver
    python3:python3 /usr/share/doc/python3-venv:python3-venv
    clang++-14:clang-14
    c++:gcc,g++,libc6-dev make:make cmake:cmake pkg-config:pkg-config valgrind:valgrind
    /usr/include/torch/csrc/api/include/torch/torch.h:libtorch-dev
    /usr/include/opencv4/opencv2/dnn.hpp:libopencv-dnn-dev
    protoc:protobuf-compiler,libprotobuf-dev /usr/include/boost/thread.hpp:libboost-system-dev,libboost-thread-dev
    /usr/include/boost/filesystem.hpp:libboost-filesystem-dev /usr/include/gflags/gflags.h:libgflags-dev
    /usr/include/glog/logging.h:libgoogle-glog-dev /usr/include/hdf5/serial/hdf5.h:libhdf5-dev
    /usr/share/doc/libopenblas-dev:libopenblas-dev patch:patch
    qemu-system-arm:qemu-system-arm ld.lld-14:lld-14 arm-none-eabi-size:binutils-arm-none-eabi
    qemu-aarch64-static:qemu-user-static aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu,libc6-dev-arm64-cross
    /usr/bin/rustc:rustc-web,cargo-web,rust-web-src,libstd-rust-web-dev,libstd-rust-web-dev:arm64
)

# Those of them that are not here, with their packages.
missing_tools() {
    local entry what
    for entry in "${wanted[@]}"; do
        what=${entry%%:*}
        if ! command -v "$what" > /dev/null && [ ! -e "$what" ]; then
            echo "$what: ${entry#*:}"
        fi
    done
}

# Ends a stage that lacks one of these, with the packages that bring it.
needs() {
    local what missing
    for what in "$@"; do
        if missing=$(missing_tools | grep -F "$what: "); then
            echo "missing $missing. These are packages of Debian; ./ci.sh tools installs what all stages need." >&2
            exit 1
        fi
    done
}

# Debian's compiler brings the sources of the standard library, from which `core` is built for a microcontroller. Its code is
# small only if it is optimised as a whole.
debian_cargo() {
    CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 RUSTC_BOOTSTRAP=1 \
        RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc /usr/bin/cargo "$@"
}
