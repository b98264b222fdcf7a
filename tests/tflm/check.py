"""Plans models with sublet, by every choice of means, and runs each plan in TFLM: outputs are those of the model without
a plan, bit by bit, on every input; the head of the arena is what sublet prints. LiteRT loads the files too. Controls
have to fail: every tensor at offset 0, and outputs that reach 16 bytes further into their inputs than their kernels have
read. python check.py SUBLET FOLDER MODEL..."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from make_models import main as make_models
from run import SEEDS, inputs

HERE = os.path.dirname(os.path.abspath(__file__))
CHOICES = {
    "plan": [],
    "in_place": ["--in-place"],
    "reorder": ["--reorder"],
    "reorder_in_place": ["--reorder", "--in-place"],
    "portable": ["--reorder", "--in-place", "--overlap"],
    "overlap": ["--overlap", "reference"],
    "all": ["--reorder", "--in-place", "--overlap", "reference"],
}
# Its rows are copied by memcpy, which may do anything where they overlap, and does what is expected in this C library.
LUCKY = ["own_moved_strided_slice"]
# What the models of others took before this was committed: no plan may take more. Head, and the whole arena.
MOST = {
    "mlperf_vww_int8": (36880, 66832),
    "hand_recrop": (787488, 807472),
    "mlperf_resnet8_int8": (33312, None),
    "mlperf_kws_int8": (9792, None),
    "seanet_pad1": (5184, 6096),
    "iris_landmark": (524416, 609616),
    "face_landmark": (1179712, 1237072),
}


def sublet(arguments, fails=False):
    done = subprocess.run([SUBLET, *arguments], capture_output=True, text=True)
    if (done.returncode != 0) != fails:
        raise SystemExit(f"sublet {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def tflm(path):
    """In a process of its own: a wrong plan may end it."""
    done = subprocess.run([sys.executable, os.path.join(HERE, "run.py"), path], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": f"status {done.returncode}"}


def litert(path):
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_path=path, experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    for d, x in zip(details, inputs(details, SEEDS[0])):
        interpreter.set_tensor(d["index"], x)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]).tobytes() for d in interpreter.get_output_details()]


def plan_words(data):
    """Where the offsets of the plan in a model begin, and how many there are: the head is ours, so that they are found by
    version and numbers in front of them."""
    name = data.index(b"OfflineMemoryAllocation")
    for at in range(name, min(len(data), name + (1 << 20)), 4):
        words = np.frombuffer(data[at : at + 16], "<u4")
        if len(words) == 4 and words[1] == 1 and words[2] > 0 and words[0] == 4 * (3 + int(words[3])):
            return at + 16, int(words[3])
    raise SystemExit("the plan is not found in the model")


def with_offsets(source, target, change):
    data = bytearray(open(source, "rb").read())
    at, count = plan_words(data)
    offsets = np.frombuffer(bytes(data[at : at + 4 * count]), "<i4").copy()
    data[at : at + 4 * count] = change(offsets).astype("<i4").tobytes()
    with open(target, "wb") as f:
        f.write(data)


def runs(path, arena):
    """In a process of its own: what does not fit may end it."""
    child = os.fork()
    if child == 0:
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            from tflite_micro.python.tflite_micro import runtime

            runtime.Interpreter.from_file(path, arena_size=arena).invoke()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def least_arena(path, most):
    """The least arena that runs, by bisection in steps of 16 bytes; it runs in `most`."""
    low, high = 0, most // 16
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if runs(path, 16 * middle) else (middle, high)
    return 16 * high


def differs(a, b):
    return a.get("outputs") != b.get("outputs")


def too_far(path, truth):
    """Whether results differ where one output begins 16 bytes closer to its input than sublet verify allows, tried with
    each tensor; what sublet names as broken is that pair alone."""
    data = open(path, "rb").read()
    at, count = plan_words(data)
    offsets = np.frombuffer(data[at : at + 4 * count], "<i4")
    tried = 0
    for t in np.flatnonzero(offsets >= 0):
        target = path.replace(".tflite", ".control.tflite")

        def raised(o):
            o[t] += 16
            return o

        with_offsets(path, target, raised)
        done = subprocess.run([SUBLET, "verify", target], capture_output=True, text=True)
        if done.returncode == 1 and re.search(rf"block {t}:.* is written over block ", done.stderr):
            tried += 1
            if differs(tflm(target), truth):
                return True, tried
    return False, tried


def check(path, folder):
    name = os.path.splitext(os.path.basename(path))[0]
    truth = tflm(path)
    if "error" in truth:
        return f"{name}: TFLM does not run it: {truth['error']} {truth.get('log', '')[-120:]!r}", None
    assert truth["outputs"][0] == truth["outputs"][-1], f"{name}: the model without a plan does not repeat itself"
    row, best = [f"{name}: TFLM {truth['head']}"], truth["head"]
    expected = litert(path) if name in LITERT else None
    for choice, options in CHOICES.items():
        planned = os.path.join(folder, f"{name}.{choice}.tflite")
        out = json.loads(sublet(["plan", path, *options, "--json", "--output", planned]))
        assert out["tflm_greedy"] <= truth["head"], (name, out["tflm_greedy"], truth["head"])
        ran = tflm(planned)
        assert not differs(ran, truth), f"{name} {choice}: outputs differ: {ran}"
        # What kernels ask for comes on top, and TFLM's head has 16 bytes of its own where it asks for none.
        assert abs(ran["head"] - out["tflm_head"]) <= 16 or truth["head"] != out["tflm_greedy"], (name, choice, ran["head"], out["tflm_head"])
        sublet(["verify", planned])
        if expected is not None and "--overlap" not in options:
            assert litert(planned) == expected, f"{name} {choice}: LiteRT gives other outputs"
        row.append(f"{choice} {out['peak']} ({ran['total']})")
        best = min(best, ran["head"])
    # The arena that is printed is the least that runs, and never above the one without a plan.
    least = [least_arena(p, truth["total"] + (1 << 16)) for p in (path, planned)]
    told = [out["arena_64"]["unplanned"], out["arena_64"]["planned"]]
    assert all(0 <= t - l <= 64 for t, l in zip(told, least)), f"{name}: told {told}, runs in {least}"
    assert least[1] <= least[0], (name, least)
    row.append(f"kTensorArenaSize {told[1]} (runs in {least[1]})")
    if name in MOST:
        head, total = MOST[name]
        assert out["peak"] <= head and (total is None or ran["total"] <= total), (name, out["peak"], ran["total"])
    control = os.path.join(folder, f"{name}.control.tflite")
    with_offsets(planned, control, lambda o: np.where(o >= 0, 0, o))
    done = subprocess.run([SUBLET, "verify", control], capture_output=True, text=True)
    if done.returncode == 1:
        assert "block" in done.stderr, done.stderr
        assert differs(tflm(control), truth) or name in LUCKY, f"{name}: all offsets 0, and nobody notices"
    else:
        # Every tensor of such a model may lie over its input.
        assert done.returncode == 0 and not differs(tflm(control), truth), f"{name}: all offsets 0 are no plan: {done.stderr}"
    found, tried = too_far(planned, truth)
    row.append(f"16 bytes too far: {'differs' if found else 'not seen'} of {tried}")
    assert found or not name.startswith("own_moved_") or name in LUCKY, f"{name}: nobody notices 16 bytes: {row}"
    return "  ".join(row), found


def main():
    own = os.path.join(FOLDER, "models")
    make_models(own)
    models = [os.path.join(own, f) for f in sorted(os.listdir(own))] + MODELS
    seen = 0
    with ThreadPoolExecutor(2) as pool:
        for line, found in pool.map(lambda path: check(path, FOLDER), models):
            print(line, flush=True)
            seen += bool(found)
    assert seen >= 2, f"16 bytes less of distance differ on {seen} models only"
    print(f"{len(models)} models; 16 bytes too far differ on {seen}")


if __name__ == "__main__":
    SUBLET, FOLDER, *MODELS = sys.argv[1:]
    LITERT = {os.path.splitext(os.path.basename(m))[0] for m in MODELS} | {"own_chain0", "own_residual0", "own_randwire8"}
    main()
