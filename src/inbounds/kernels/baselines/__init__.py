"""What the paper compares with, and what the literature uses: kernels that fail where theory says so, or apply less widely."""

from inbounds.kernels.baselines._ito import ito as ito
from inbounds.kernels.baselines._mirror import mirror as mirror
from inbounds.kernels.baselines._projected import projected as projected
from inbounds.kernels.baselines._scir import scir as scir
from inbounds.kernels.baselines._sgrld import sgrld as sgrld
from inbounds.kernels.baselines._touched import touched_rows as touched_rows
