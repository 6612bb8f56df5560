"""What the paper compares with, and what the literature uses: kernels that fail where theory says so, or apply less widely."""

from inbounds.kernels.baselines.ito import ito as ito
from inbounds.kernels.baselines.mirror import mirror as mirror
from inbounds.kernels.baselines.projected import projected as projected
from inbounds.kernels.baselines.scir import scir as scir
from inbounds.kernels.baselines.sgrld import sgrld as sgrld
from inbounds.kernels.baselines.touched import touched_rows as touched_rows
