# kernels: the committed PTX is what clang 14 makes of the kernels, and assembles for the GPUs from 2017 on
# Every kernel is compiled anew and compared; the assembler of CUDA then takes it for Volta, Orin and Hopper, and tells
# what it needs: a spill would be traffic that the kernels do not count with.
. ci/debian.sh
needs clang++-14
out=$PWD/target/kernels
mkdir -p "$out"
ptxas=$(echo "$oracles"/lib/python*/site-packages/nvidia/cuda_nvcc/bin/ptxas)
for kernel in cuda-runtime/kernels/*.cu; do
    name=$(basename "$kernel" .cu)
    cuda-runtime/kernels/build.sh "$name.cu" "$out/$name.ptx"
    cmp "$out/$name.ptx" "cuda-runtime/kernels/$name.ptx"
    for arch in sm_70 sm_87 sm_90; do
        "$ptxas" -v --warn-on-spills -Werror -arch="$arch" "$out/$name.ptx" -o "$out/$name.$arch.cubin" \
            2> "$out/$name.$arch.log" || { cat "$out/$name.$arch.log"; exit 1; }
        sed -n "s/.*Used \([0-9]*\) registers.*/\1/p" "$out/$name.$arch.log" | sort -n |
            awk -v on="$name on $arch" '{ most = $1 } END { print on ": " NR " kernels, at most " most " registers" }'
    done
done
