"""The most memory that a process has held."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

__all__ = ["forget_peak", "peak_megabytes"]


def peak_megabytes() -> float:
    """The most memory that the process has held since the last `forget_peak`."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def forget_peak() -> None:
    """Importing a library leaves a peak behind that the row does not need (Linux; elsewhere the peak is the whole process's)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
