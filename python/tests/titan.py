"""torchtitan's own trainer on the processor, on made-up text: ranks on gloo under one limit; prints what each rank tells, as
lines of JSON.

    python titan.py RANKS STEPS POLICY[=LIMIT][@FAULT]... [-- OPTION...]

POLICY is `sublet` or one of torchtitan's. OPTION are torchtitan's own. Of each step the loss is told, in full, and what it has
taken beside parameters, optimizer and inputs, the first one excepted. FAULT is the last rank's: `slow`, its operators have other
times, some of them long; and alone, `gone`, it ends while the others plan, or `killed`, it ends in the second step.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
import types
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

CONFIG = "graph_trainer_llama3_debugmodel_sdpa_cross_entropy_loss"
SIZES = ["--training.local_batch_size", "4", "--training.seq_len", "256", "--compile.disable_passes", "cudagraph_pass"]
ENDS = {0: "gone", 1: "killed"}
"""Faults with which a rank ends, by the number of steps before."""
OTHERS = ["--training.disable_cuda_graphs", "--metrics.log_freq", "1000", "--debug.seed", "1"]


class Kernels(types.ModuleType):
    """Stands for kernels that need a GPU to be imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def on_processor() -> None:
    """Has torchtitan take the processor for its device."""
    import torch

    sys.modules["triton"] = None  # type: ignore[assignment]
    name = "torchtitan.distributed.minimal_async_ep.kernels"
    sys.modules[name] = Kernels(name)
    torch._utils._get_available_device_type = lambda: "cpu"  # type: ignore[assignment]
    cpu: Any = torch.cpu
    cpu.get_device_name = lambda *args: "cpu"
    cpu.get_device_properties = lambda *args: SimpleNamespace(total_memory=1 << 34, name="cpu")
    cpu.memory_stats = lambda *args: {}
    cpu.current_device = lambda: 0
    for name in ("reset_peak_memory_stats", "empty_cache", "set_device"):
        setattr(cpu, name, lambda *args: None)
    for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated"):
        setattr(cpu, name, lambda *args: 0)
    torch.set_num_threads(1)


def assets(folder: str) -> None:
    """Text, and a tokenizer that knows bytes."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    place = os.path.join(folder, "tests", "assets")
    os.makedirs(os.path.join(place, "tokenizer"))
    os.makedirs(os.path.join(place, "c4_test"))
    words = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    words |= {"<|begin_of_text|>": len(words), "<|end_of_text|>": len(words) + 1}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.save(os.path.join(place, "tokenizer", "tokenizer.json"))
    with open(os.path.join(place, "tokenizer", "tokenizer_config.json"), "w") as file:
        json.dump({"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}, file)
    with open(os.path.join(place, "c4_test", "data.json"), "w") as file:
        for i in range(200):
            text = " ".join(hashlib.sha256(f"{i} {k}".encode()).hexdigest() for k in range(20))
            file.write(json.dumps({"text": text, "timestamp": "", "url": ""}) + "\n")


def order_of(module: Any) -> str:
    """A digest of the collectives of a graph, in order."""
    from sublet.torch._measure import is_collective

    nodes = [node for node in module.graph.nodes if node.op == "call_function" and is_collective(node)]
    told = [(str(node.target), [list(x.meta["val"].shape) for x in node.all_input_nodes if hasattr(x.meta.get("val"), "shape")]) for node in nodes]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]


def trained(rank: int, policy: str, steps: int, options: list[str]) -> dict[str, Any]:
    """What a rank tells of a training of some steps."""
    import torch
    from torch.utils._pytree import tree_leaves

    import sublet.torchtitan
    from ranks import other_times
    from sublet.torch._measure import HEAP
    from torchtitan.config import ConfigManager

    plain, _, fault = policy.partition("@")
    name, _, limit = plain.partition("=")
    last = rank == int(os.environ["WORLD_SIZE"]) - 1
    named = [] if "--config" in options else ["--config", CONFIG]
    given = ["--module", "sublet.torchtitan", *named, *SIZES, *OTHERS, "--training.steps", str(steps), *options]
    config = ConfigManager().parse_args([*given, "--compile.memory_policy", name, "--compile.limit", limit])
    config.checkpoint.enable = False
    if config.validator is not None:
        config.validator.enable = False
    trainer = config.build()
    losses: list[str] = []
    peaks: list[int] = []
    took: list[int] = []
    run = trainer.forward_backward_step

    def counted(**given: Any) -> Any:
        if last and fault == ENDS.get(len(losses)):
            os._exit(1)
        since = HEAP.since(torch.device("cpu"))
        begin = time.thread_time_ns()
        loss = run(**given)
        took.append(time.thread_time_ns() - begin)
        peaks.append(since.peak)
        losses.append(loss.item().hex())
        return loss

    trainer.forward_backward_step = counted
    told: dict[str, Any] = {"policy": policy, "rank": rank}
    sublet.torchtitan.reports.clear()
    sublet.torchtitan.taken.clear()
    try:
        with other_times(last) if fault == "slow" else nullcontext():
            trainer.train()
    except Exception as e:
        return told | {"error": f"{type(e).__name__}: {e}"}
    told |= {"losses": losses, "peak": max(peaks[1:]), "cpu_ms": min(took[1:]) / 1e6}
    told |= {"order": order_of(trainer._traced_step.gm), "taken": max(sublet.torchtitan.taken, default=0)}
    weights = (getattr(p, "_local_tensor", p) for part in trainer.model_parts for p in part.parameters())
    told["weights"] = hashlib.sha256(b"".join(x.detach().numpy().tobytes() for x in weights)).hexdigest()[:12]
    for report in sublet.torchtitan.reports:
        inputs = sum(x.nbytes for x in tree_leaves(trainer._traced_step.example_inputs[trainer._traced_step.num_static_inputs :]))
        told |= {"limit": report.limit, "planned": report.planned, "original": report.original, "held": report.held}
        told |= {"beside": report.planned - report.held, "inputs": inputs, "overhead": report.overhead}
        told |= {"again": len(report.again), "gathers": sum("all_gather" in name for name in report.again)}
    trainer.close()
    return told


def rank_main(rank: int, ranks: int, port: int, policies: list[str], steps: int, options: list[str], told: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(ranks), "HF_HUB_OFFLINE": "1"}
    on_processor()
    for policy in policies:
        told.put(trained(rank, policy, steps, options))
    told.close()
    told.join_thread()
    os._exit(0)


def main(ranks: int, steps: int, arguments: list[str]) -> None:
    import torch.multiprocessing as mp

    end = arguments.index("--") if "--" in arguments else len(arguments)
    policies, options = arguments[:end], arguments[end + 1 :]
    context = mp.get_context("spawn")
    told = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        assets(folder)
        os.chdir(folder)
        port = 20000 + os.getpid() % 20000
        given = [(rank, ranks, port, policies, steps, options, told) for rank in range(ranks)]
        processes = [context.Process(target=rank_main, args=each, daemon=True) for each in given]
        for process in processes:
            process.start()
        for _ in range(sum(ranks - policy.endswith(tuple(ENDS.values())) for policy in policies)):
            print(json.dumps(told.get(timeout=300)), flush=True)
        for process in processes:
            process.join()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
