"""Runs the program `sublet` for the measurements of this folder."""
import json
import resource
import subprocess
import sys


def run(*command):
    """Runs a command with --json. Returns what it prints, whether it found a result, and its CPU seconds, user and system.

    The status 1 or 3 says that nothing was found, such as no schedule within a limit; at any other but 0 the measurement ends.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run([*map(str, command), "--json"], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran.returncode not in (0, 1, 3):
        sys.exit(f"{command}: {ran.stderr}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(ran.stdout), ran.returncode == 0, seconds
