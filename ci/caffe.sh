# caffe: Caffe, built from $SUBLET_CLIENTS/caffe, trains and infers by plans: the same bits, less memory;
#        by hand `caffe large`: nets of full size; `caffe time`: what they take beside what was said
# What is built of Caffe, four minutes on two cores, stays in target.
sources=${SUBLET_CLIENTS:-}/caffe
if [ ! -f "$sources/build.sh" ]; then
    echo "skipped: Caffe with planned memory; SUBLET_CLIENTS names no folder with caffe/build.sh"
    exit 0
fi
. ffi/packaging/install.sh
install_library target/caffe/prefix
examples/caffe/test.sh "$sources" "$PWD/target/caffe/prefix" "$PWD/target/caffe/built" "${1:-}"
