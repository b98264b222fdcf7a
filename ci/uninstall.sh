# uninstall PREFIX: removes what install has put there, with the same DESTDIR and LIBDIR
. ffi/packaging/install.sh
uninstall_library "${1:?uninstall needs a PREFIX}"
