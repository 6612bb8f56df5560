"""Stochastic-gradient MCMC for bounded variables: draws that never leave the bounds, with the bias measured."""

from typing import TYPE_CHECKING

from inbounds import display as display  # isort: skip  # before what imports NumPyro: see its bars

# ArviZ leaves a NumPyro in its place that is loaded when something of it is asked for, and that loses what was imported of it before.
from numpyro import __version__ as _  # isort: skip  # noqa: F401
from inbounds import data as data
from inbounds import gradients as gradients
from inbounds import hierarchies as hierarchies
from inbounds import kernels as kernels
from inbounds import metrics as metrics
from inbounds import preconditioners as preconditioners
from inbounds import transforms as transforms
from inbounds import trees as trees
from inbounds.frontends import from_bambi as from_bambi
from inbounds.frontends import from_numpyro as from_numpyro
from inbounds.frontends import from_pymc as from_pymc
from inbounds.kernels import Info as Info
from inbounds.kernels import Kernel as Kernel
from inbounds.kernels import baoab as baoab
from inbounds.kernels import lazy_rows as lazy_rows
from inbounds.kernels import leimkuhler_matthews as leimkuhler_matthews
from inbounds.kernels import sgld as sgld
from inbounds.kernels import sgnht as sgnht
from inbounds.namespaces import namespace
from inbounds.posterior import Posterior as Posterior
from inbounds.sampling import Draws as Draws
from inbounds.sampling import Interrupted as Interrupted
from inbounds.sampling import Layout as Layout
from inbounds.sampling import LostProcessError as LostProcessError
from inbounds.sampling import NonFiniteError as NonFiniteError
from inbounds.sampling import UntrustworthyWarning as UntrustworthyWarning
from inbounds.sampling import collect as collect
from inbounds.sampling import sample as sample

if TYPE_CHECKING:
    from inbounds import diagnostics as diagnostics
    from inbounds import models as models
    from inbounds import schedules as schedules
    from inbounds import testing as testing
    from inbounds import tuning as tuning
    from inbounds.diagnostics._check import check as check
    from inbounds.inference import Certificate as Certificate
    from inbounds.inference import infer as infer
    from inbounds.inference import load as load
    from inbounds.kernels import baselines as baselines
    from inbounds.sampling import Checkpoint as Checkpoint
    from inbounds.sampling.leave_one_out import LeaveOneOut as LeaveOneOut
    from inbounds.tuning import tune as tune

__version__ = "0.1.0"
__all__ = [
    "Certificate",
    "Checkpoint",
    "Draws",
    "Info",
    "Interrupted",
    "Kernel",
    "Layout",
    "LeaveOneOut",
    "LostProcessError",
    "NonFiniteError",
    "Posterior",
    "UntrustworthyWarning",
    "__version__",
    "baoab",
    "baselines",
    "check",
    "collect",
    "data",
    "diagnostics",
    "display",
    "from_bambi",
    "from_numpyro",
    "from_pymc",
    "gradients",
    "hierarchies",
    "infer",
    "kernels",
    "lazy_rows",
    "leimkuhler_matthews",
    "load",
    "metrics",
    "models",
    "preconditioners",
    "sample",
    "schedules",
    "sgld",
    "sgnht",
    "testing",
    "transforms",
    "tune",
    "tuning",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(
        __name__,
        {
            "Checkpoint": "inbounds.sampling.checkpoint",
            "LeaveOneOut": "inbounds.sampling.leave_one_out",
            "load": "inbounds.inference",
            "baselines": "inbounds.kernels.baselines",
            "diagnostics": "inbounds.diagnostics",
            "models": "inbounds.models",
            "schedules": "inbounds.schedules",
            "testing": "inbounds.testing",
            "tuning": "inbounds.tuning",
            "Certificate": "inbounds.inference",
            "infer": "inbounds.inference",
            "check": "inbounds.diagnostics._check",
            "tune": "inbounds.tuning",
        },
    )
