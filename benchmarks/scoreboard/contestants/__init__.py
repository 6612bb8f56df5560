"""Who races: the name of each, its function, and its options."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["CONTESTANTS", "Contestant"]


class Contestant(NamedTuple):
    """A function of a module of this folder, and its options: a process each, one look after another of one contestant."""

    module: str
    function: str
    rungs: tuple[dict[str, Any], ...] = ({},)
    helped: bool = False  # the best rung is taken by the reference


ERRORS = (0.05, 0.02, 0.1, 0.2)  # in the order in which they are run
CONTESTANTS = {
    "infer": Contestant("infer", "infer", tuple({"error": error, "method": "minibatch"} for error in ERRORS)),
    "infer auto": Contestant("infer", "infer", tuple({"error": error, "method": "auto"} for error in ERRORS)),
    "numpyro nuts": Contestant("numpyros", "nuts"),
    "blackjax nuts": Contestant("blackjaxes", "nuts"),
    "blackjax mclmc": Contestant("blackjaxes", "mclmc"),
    "nutpie": Contestant("nutpies", "nuts"),
    "svi normal": Contestant("numpyros", "svi_normal"),
    "svi flow": Contestant("numpyros", "svi_flow"),
    "laplace": Contestant("numpyros", "laplace"),
    "pathfinder": Contestant("blackjaxes", "pathfinder"),
    "hmcecs": Contestant("numpyros", "hmcecs"),
    "sgld by hand": Contestant("blackjaxes", "sgld", tuple({"step": 10.0**-k} for k in range(2, 8)), helped=True),
}
