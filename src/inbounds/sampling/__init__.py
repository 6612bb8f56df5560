"""Who runs it: chunks, chains, progress, health."""

from inbounds.sampling import collect as collect
from inbounds.sampling.draws import Draws as Draws
from inbounds.sampling.driver import sample as sample
from inbounds.sampling.health import NonFiniteError as NonFiniteError
