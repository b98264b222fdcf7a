"""Processes that end: the whole group of one that takes too long is ended, and says first where each of its threads is."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence

WORDS = 10
"""How many seconds a group has to say where it is before it is killed."""


def _without_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def ran(
    command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What a command gives that has so many seconds. AssertionError where it takes longer, with what it has printed and the
    stacks of all processes of Python that it has started."""
    told = {**os.environ, **(environment or {}), "PYTHONFAULTHANDLER": "1"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=told,
        start_new_session=True,
        preexec_fn=_without_core,
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)
        try:
            out, err = process.communicate(timeout=WORDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate(timeout=WORDS)
        raise AssertionError(f"{' '.join(command)}: more than {seconds} s\n{out[-4000:]}\n{err[-8000:]}") from None
    finally:
        # Whatever of the group is left, such as a rank that waits for others.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, err)
