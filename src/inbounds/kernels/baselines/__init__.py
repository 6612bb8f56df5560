"""What the paper compares with, and what the literature uses: kernels that fail where theory says so, or apply less widely."""

from typing import TYPE_CHECKING

from inbounds.kernels.baselines._ito import ito as ito
from inbounds.kernels.baselines._mirror import mirror as mirror
from inbounds.kernels.baselines._projected import projected as projected
from inbounds.kernels.baselines._scir import scir as scir
from inbounds.kernels.baselines._sgrld import sgrld as sgrld
from inbounds.kernels.baselines._touched import touched_rows as touched_rows
from inbounds.namespaces import namespace

__all__ = [
    "ito",
    "mirror",
    "projected",
    "scir",
    "sgrld",
    "touched_rows",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)
