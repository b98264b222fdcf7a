# install PREFIX: builds the C library and installs it with its headers, for pkg-config and CMake, on Linux; DESTDIR is
#         put in front of PREFIX; LIBDIR is `lib` if not set; SUBLET_FEATURES=cuda for plans that run and PyTorch's memory
. ffi/packaging/install.sh
install_library "${1:?install needs a PREFIX}"
