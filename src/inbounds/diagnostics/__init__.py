"""Is the chain where it should be? A doctor before the run, bias after it, distances to a known law, exact stationary laws."""

from typing import TYPE_CHECKING

from inbounds.namespaces import namespace

from . import distances as distances
from . import weak_error as weak_error
from ._bias import StepBias as StepBias
from ._bias import bias_of as bias_of
from ._check import Finding as Finding
from ._check import Report as Report
from ._check import check as check
from ._identities import Identities as Identities
from ._identities import identities as identities
from ._stein import Stein as Stein
from ._stein import imq_stein_matrix as imq_stein_matrix
from ._stein import stein_discrepancy as stein_discrepancy
from .distances import iid_floor as iid_floor
from .distances import kolmogorov_smirnov as kolmogorov_smirnov
from .distances import total_variation as total_variation
from .distances import wasserstein1 as wasserstein1
from .weak_error import StationaryLaw as StationaryLaw
from .weak_error import fitted_slope as fitted_slope
from .weak_error import stationary as stationary

__all__ = [
    "Finding",
    "Identities",
    "Report",
    "StationaryLaw",
    "Stein",
    "StepBias",
    "bias_of",
    "check",
    "distances",
    "fitted_slope",
    "identities",
    "iid_floor",
    "imq_stein_matrix",
    "kolmogorov_smirnov",
    "stationary",
    "stein_discrepancy",
    "total_variation",
    "wasserstein1",
    "weak_error",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)
