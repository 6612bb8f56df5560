"""Where an inference stands, beside its checkpoints: what was found, tried and chosen, so that it goes on as if it had never stopped."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from typing import Any

from inbounds.files import read, write
from inbounds.inference.choose import Found, Plan
from inbounds.inference.elsewhere import Elsewhere, Rival
from inbounds.inference.mode import Mode
from inbounds.inference.noise import RowNoise
from inbounds.inference.setup import Setup
from inbounds.inference.structure import Structure
from inbounds.metrics import Arrow, Dense, LowRank
from inbounds.metrics._tables import Part
from inbounds.posterior import Posterior
from inbounds.sampling import Checkpoint
from inbounds.sampling.devices import is_first_process
from inbounds.sampling.fingerprint import differences
from inbounds.sampling.lock import local_folder
from inbounds.space import Space
from inbounds.trees import PyTree

__all__ = ["Journal", "Keeping"]

FILE = "inference.npz"
CLASSES = (Found, Mode, Elsewhere, Rival, Plan, RowNoise, Structure, Dense, LowRank, Arrow, Part)


class Keeping:
    """Where the draws and the checkpoints of an inference are kept. Each of its runs has checkpoints of its own; the store is that of the last.

    Args:
        store: as for `ib.sample`.
        checkpoint: a folder.
        resume: whether an inference goes on that was there before.

    Raises:
        ValueError: there is something already, and it is not to be gone on with; or nothing says where to go on.
    """

    def __init__(self, store: Any, checkpoint: str | os.PathLike[str] | Checkpoint | None, resume: bool):
        self.store, self.resume = store, resume
        self.checkpoint: Checkpoint | None = None
        if checkpoint is not None:
            self.checkpoint = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
            folder = local_folder(self.checkpoint.path)
            if folder is None:
                raise ValueError(f"`checkpoint` of ib.infer must be a local folder; got {self.checkpoint.path}.")
            self.folder = folder
        if resume and checkpoint is None:
            raise ValueError("resume=True needs the `checkpoint` folder that the interrupted run was given.")
        if not resume and checkpoint is not None and (self.folder / FILE).exists():
            raise ValueError(
                f"{self.folder} holds checkpoints of an inference. Go on from there with resume=True, or give another folder."
            )
        if not resume and store is not None:
            from inbounds.sampling.store import refuse_what_is_there  # here: Zarr is an extra

            refuse_what_is_there(str(store))

    def of_run(self, number: int) -> dict[str, Any]:
        """Arguments of `ib.sample` for a run: the store is emptied of what the run before left, and its checkpoints are gone."""
        options = {"store": self.store, "resume": self.resume and number == 0}
        begun = False
        if self.checkpoint is not None:
            folder = self.folder / f"run-{number}"
            begun = folder.exists()
            options |= {"checkpoint": replace(self.checkpoint, path=folder), "resume": self.resume or begun}
        if number and not begun and is_first_process():
            if self.store is not None:
                from inbounds.sampling.store import remove

                remove(str(self.store))
            if self.checkpoint is not None:
                shutil.rmtree(self.folder / f"run-{number - 1}", ignore_errors=True)
        return options

    def how_to_resume(self) -> str:
        """What to tell of an interrupted run."""
        place = "`error.draws`" if self.store is None else f"the store {self.store}"
        more = "" if self.checkpoint is None else " Go on with the same call and resume=True."
        return f"The draws until then are in {place}, with their certificate.{more}"


@dataclass
class Journal:
    """Where an inference stands.

    Attributes:
        identity: what tells it from others, in words.
        found: at the first look.
        plans: the methods to try.
        plan: the number of the one that is under way.
        round: how many of its runs found their steps too long.
        run: the number of the run, of all the methods.
        setup: of that run; None before it is chosen.
    """

    identity: dict[str, str | None]
    found: Found
    plans: list[Plan]
    plan: int = 0
    round: int = 0
    run: int = 0
    setup: Setup | None = None

    def next_round(self, setup: Setup) -> None:
        """Another run of the same method."""
        self.setup, self.round, self.run = setup, self.round + 1, self.run + 1

    def next_plan(self) -> None:
        """Another method."""
        self.setup, self.plan, self.round, self.run = None, self.plan + 1, 0, self.run + 1

    @property
    def is_last_plan(self) -> bool:
        return self.plan == len(self.plans) - 1

    def save(self, keeping: Keeping, theta: PyTree) -> None:
        """Write it down before its run begins. `theta` has the structure of a point."""
        if keeping.checkpoint is None or not is_first_process():
            return
        assert self.setup is not None
        written = dict(vars(self)) | {"setup": self.setup.as_written()}
        write(keeping.folder / FILE, written, theta)

    @classmethod
    def load(
        cls, keeping: Keeping, identity: dict[str, str | None], posterior: Posterior, space: Space, theta: PyTree
    ) -> Journal | None:
        """The one of an inference that is gone on with; None where there is none."""
        if not keeping.resume or not (keeping.folder / FILE).exists():
            return None
        file = keeping.folder / FILE
        written = read(file, *CLASSES, what="what ib.infer left there: give another `checkpoint` folder", like=theta)
        foreign = differences(written["identity"], identity)
        if foreign:
            raise ValueError(f"{keeping.folder} holds checkpoints of another inference: {'; '.join(foreign)}.")
        return cls(**written | {"setup": Setup.of_written(written["setup"], posterior, space)})
