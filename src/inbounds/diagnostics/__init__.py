"""Is the chain where it should be? Distances to a known law, and the bias of a kernel without Monte Carlo noise."""

from . import distances as distances
from . import weak_error as weak_error
from .distances import iid_floor as iid_floor
from .distances import kolmogorov_smirnov as kolmogorov_smirnov
from .distances import total_variation as total_variation
from .distances import wasserstein1 as wasserstein1
from .weak_error import StationaryLaw as StationaryLaw
from .weak_error import fitted_slope as fitted_slope
from .weak_error import stationary as stationary
