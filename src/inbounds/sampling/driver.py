"""Who runs it: `sample` decides everything, compiles once, runs chunk after chunk, and watches over the health of the chains."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inbounds.arguments import whole_number
from inbounds.kernels._base import Kernel
from inbounds.sampling import verdict
from inbounds.sampling.draws import Draws
from inbounds.sampling.resolve import minibatches_of as minibatches_of
from inbounds.sampling.resolve import resolve
from inbounds.sampling.run import Run
from inbounds.sampling.run import Stop as Stop
from inbounds.sampling.starts import Init
from inbounds.sampling.starts import Starts as Starts
from inbounds.schedules import StepSize

if TYPE_CHECKING:
    from inbounds.sampling.checkpoint import Checkpoint

__all__ = ["Starts", "Stop", "minibatches_of", "sample"]


def sample(
    kernel: Kernel,
    step_size: StepSize,
    num_steps: int,
    *,
    burn_in: int = 0,
    thin: int = 1,
    batch_size: int | None = None,
    num_chains: int = 1,
    seed: int = 0,
    init: Init = None,
    collect: Any = None,
    progress: bool = True,
    store: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    resume: bool = False,
    batching: str | None = None,
    chunk_steps: int | None = None,
    monitor: Callable[[int, Any], None] | None = None,
    on_failure: str = "raise",
    devices: Any = None,
    until: Stop | None = None,
) -> Draws:
    """Run chains of `kernel` and return their draws.

    Args:
        kernel: how the chains move, for example `ib.sgld(posterior)`.
        step_size: a number, one number per chain (an array of `num_chains`), or a function of the step number, such as those
            in `ib.schedules` and Optax's.
        num_steps: steps of each chain, burn-in included.
        burn_in: first steps whose draws are not kept.
        thin: keep every `thin`-th step; of sweeps, the end of every `thin`-th sweep.
        batch_size: rows per minibatch; None takes what the posterior says (a NumPyro model's `subsample_size`), or all the data.
        num_chains: independent chains, run side by side.
        seed: a whole number; the same seed gives the same draws, however the run is cut into chunks.
        init: a start for all the chains, a tree with a leading axis of `num_chains`, a function of a random key, or
            None: near the middle of the prior.
        collect: running statistics instead of stored draws, such as `ib.collect.mean_and_variance()`, or a dict of them.
        progress: show a bar on a terminal or in a notebook.
        store: a folder, or a URL that fsspec knows, for the draws: a Zarr store that xarray and ArviZ open, also while the
            run goes on. Memory then does not grow with the number of draws, and the result reads from the store.
        checkpoint: a folder for checkpoints, one a minute, or `ib.Checkpoint(folder, every_steps=...)`.
        resume: go on from the latest checkpoint, given the same arguments (`num_steps` may be larger). The draws are those of
            a run that was never interrupted. Starts from the beginning where there is no checkpoint yet.
        batching: "epochs" (shuffled, read as contiguous slices), "replacement" (independent minibatches), or "sweeps". None takes
            "replacement" for kernels that correct for gradient noise, which assume it, and "epochs" for all others and where a step
            uses all the data. A sweep is an epoch forwards, then the same backwards, and draws are kept at its end alone. Gradient
            noise has hardly an effect there, however correlated it is, as long as step size times curvature times the steps of a
            sweep is below 0.5 or so. Sweeps are not for kernels that correct for noise, data on disk, or data on several devices.
        chunk_steps: most steps between two looks at the chains, or those of one block where a model of few numbers has longer
            ones (up to 1,024); None adapts to the speed of the run.
        monitor: called between two chunks with the number of steps done and what `collect` has gathered so far.
        on_failure: "raise", or "continue": where a chain becomes non-finite the others go on, and its own draws are NaN.
            For many step sizes tried side by side: such a run does not warn, its summary has the notes.
        devices: how many devices the chains are divided over, or `ib.Layout(chain=..., data=...)` to divide the data of each
            chain too; None runs on one. Where there are several processes (`jax.distributed`), each gives its own rows of
            the data, all call `sample` alike, and all return the same draws.
        until: a `Stop`, which looks at the draws now and then and may end the run before `num_steps`. Its run does not warn at the end.

    Warns:
        UntrustworthyWarning: once, at the end, where the draws cannot be trusted as they are: it says why, and what to do. The
            notes are in `Draws.warnings()` and in the summary too. A run with fewer than 100 draws per chain is not judged.

    Raises:
        ValueError: the arguments do not fit; nothing has run.
        NonFiniteError: a chain left the finite numbers; `error.draws` holds everything until then.
        Interrupted: Ctrl-C, at the end of a chunk; `error.draws` holds everything until then.
        OSError: the disk is full; what was written until then is readable.
        LostProcessError: another process of the run has ended.

    Returns:
        The draws, with the names of the posterior's variables.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> kernel = ib.leimkuhler_matthews(posterior, noise_correction=True)
        >>> draws = ib.sample(kernel, 1e-4, 150, burn_in=100, batch_size=100, num_chains=2, progress=False)
        >>> draws.theta["rate"].shape
        (2, 50)
    """
    resolved = resolve(
        kernel, step_size, num_steps, burn_in=burn_in, thin=thin, batch_size=batch_size, batching=batching,
        num_chains=num_chains, seed=seed, init=init, collect=collect, devices=devices,
    )  # fmt: skip
    chunk_steps = None if chunk_steps is None else whole_number("chunk_steps", chunk_steps)
    run = Run(resolved, chunk_steps, monitor, _throws(on_failure), until)
    with run.feed, run.held:
        run.open(store, checkpoint, resume)
        draws = run.go(progress)
    if until is None and (text := run.judge(draws)):
        warnings.warn(text, verdict.UntrustworthyWarning, stacklevel=2)
    return draws


def _throws(on_failure: str) -> bool:
    if on_failure not in ("raise", "continue"):
        raise ValueError(f'`on_failure` must be "raise" or "continue"; got {on_failure!r}.')
    return on_failure == "raise"
