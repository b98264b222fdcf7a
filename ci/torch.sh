# torch: PyTorch trained within a limit; plans for ExecuTorch
#        (SUBLET_TORCH: 0 leaves it out, which is a download of 1.5 GB; long adds larger networks)
. ci/python_environment.sh

if [ "${SUBLET_TORCH:-1}" = 0 ]; then
    echo "skipped: PyTorch, for SUBLET_TORCH is 0"
    exit 0
fi
# An environment of its own. PyTorch's build for CUDA runs on the processor without NVIDIA's libraries, once somebody has their
# names.
torch=$PWD/target/torch
[ -x "$torch/bin/python" ] || python3 -m venv "$torch"
install=(timeout 1200 "$torch/bin/pip" "${pip_quietly[@]}")
if ! "${install[@]}" numpy pytest typing_extensions sympy networkx jinja2 fsspec filelock 'setuptools>=77,<82' ||
    ! "${install[@]}" --no-deps torch==2.15.0; then
    echo "skipped: PyTorch, which cannot be installed here"
    exit 0
fi
install_wheel "$torch"
timeout 300 "$torch/bin/python" python/tests/stub_libraries.py
SUBLET_HEAP=$python/libheap.so "${ends[@]}" "$torch/bin/pytest" --quiet --import-mode=importlib -s \
    python/tests/test_torch.py python/tests/test_torch_graphs.py python/tests/test_torch_limits.py
PATH=$torch/bin:$PATH python3 ci/tutorial.py docs/tutorials/pytorch.md
# Its own trainer. Its first requirement is a nightly PyTorch; what is here runs on the released one.
if ! "${install[@]}" 'datasets>=3.6,<4.8' tokenizers safetensors tyro tensorboard einops ||
    ! "${install[@]}" --no-deps torchtitan==0.3.0 spmd_types==0.2.3 torchdata torch_checkpointing; then
    echo "skipped: torchtitan, which cannot be installed here"
else
    "${ends[@]}" "$torch/bin/pytest" --quiet --import-mode=importlib -s python/tests/test_torchtitan.py
fi
# 19 MB, without what it needs for other things than these tests.
if ! "${install[@]}" --no-deps executorch==1.5.1 flatbuffers ruamel.yaml tabulate; then
    echo "skipped: ExecuTorch, which cannot be installed here"
    exit 0
fi
"${ends[@]}" "$torch/bin/pytest" --quiet --import-mode=importlib python/tests/test_executorch.py
