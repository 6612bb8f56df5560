"""How a chain moves: one algorithm per file, the same names in each."""

from typing import TYPE_CHECKING

from inbounds.kernels._baoab import baoab as baoab
from inbounds.kernels._base import Info as Info
from inbounds.kernels._base import Kernel as Kernel
from inbounds.kernels._base import ProxyGradient as ProxyGradient
from inbounds.kernels._base import kernel_factory as kernel_factory
from inbounds.kernels._base import kernel_on_proxy as kernel_on_proxy
from inbounds.kernels._lazy_rows import lazy_rows as lazy_rows
from inbounds.kernels._leimkuhler_matthews import leimkuhler_matthews as leimkuhler_matthews
from inbounds.kernels._sgld import sgld as sgld
from inbounds.kernels._sgnht import sgnht as sgnht
from inbounds.namespaces import namespace
from inbounds.space import Space as Space

if TYPE_CHECKING:
    from inbounds.kernels import baselines as baselines

__all__ = [
    "Info",
    "Kernel",
    "ProxyGradient",
    "Space",
    "baoab",
    "baselines",
    "kernel_factory",
    "kernel_on_proxy",
    "lazy_rows",
    "leimkuhler_matthews",
    "sgld",
    "sgnht",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__, {"baselines": "inbounds.kernels.baselines"})
