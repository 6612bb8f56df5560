"""Progress of a long run: a bar on a terminal and in notebooks, silence elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from inbounds.bars import tqdm


def progress_bar(total: int, done: int, show: bool, description: str) -> Any:
    """A bar with steps a second and the time left."""
    in_notebook = "ipykernel" in sys.modules
    visible = show and (in_notebook or sys.stderr.isatty())
    return tqdm(
        total=total, initial=done, desc=description, unit="step", unit_scale=True, disable=not visible, leave=False
    )
