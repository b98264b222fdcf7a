# jax: programs of JAX within a limit
. ci/python_environment.sh

install_wheel "$python"
if timeout 600 "$python/bin/pip" "${pip_quietly[@]}" jax==0.10.2; then
    SUBLET_HEAP=$python/libheap.so "${ends[@]}" "$python/bin/pytest" --quiet --import-mode=importlib python/tests/test_jax.py
    "$python/bin/python" python/tests/notebook.py python/examples/scan.ipynb
else
    echo "skipped: JAX, which cannot be installed here"
fi
