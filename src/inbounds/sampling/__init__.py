"""Who runs it: chunks, chains, progress, health."""

from typing import TYPE_CHECKING

from inbounds.namespaces import namespace
from inbounds.sampling import collect as collect
from inbounds.sampling.devices import Layout as Layout
from inbounds.sampling.devices import LostProcessError as LostProcessError
from inbounds.sampling.draws import Draws as Draws
from inbounds.sampling.driver import sample as sample
from inbounds.sampling.health import NonFiniteError as NonFiniteError
from inbounds.sampling.interrupts import Interrupted as Interrupted
from inbounds.sampling.verdict import UntrustworthyWarning as UntrustworthyWarning

if TYPE_CHECKING:
    from inbounds.sampling.checkpoint import Checkpoint as Checkpoint

__all__ = [
    "Checkpoint",
    "Draws",
    "Interrupted",
    "Layout",
    "LostProcessError",
    "NonFiniteError",
    "UntrustworthyWarning",
    "collect",
    "sample",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__, {"Checkpoint": "inbounds.sampling.checkpoint"})
