"""The doctor: looks at a kernel and its posterior before they run, and says what will go wrong and what to do about it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from inbounds import gradients, trees
from inbounds.contents import in_words
from inbounds.data.arrays import is_source
from inbounds.diagnostics._check_bounds import look_at_bounds, look_at_edges, look_at_transforms
from inbounds.diagnostics._check_center import Center, find_center
from inbounds.diagnostics._check_patient import Patient
from inbounds.diagnostics._check_report import Finding, Report
from inbounds.diagnostics._check_steps import Steps, look_at_steps
from inbounds.kernels import Kernel, leimkuhler_matthews
from inbounds.posterior import Posterior
from inbounds.trees import PyTree, variable_name

__all__ = ["Finding", "Report", "check"]

SLICE = 8_192  # rows whose terms are looked at together
NAMED_ROWS = 3
COARSE = 0.05  # posterior sds between two floats from which on steps are rounded off


def check(
    what: Posterior | Kernel,
    transforms: PyTree = None,
    *,
    gradient: Any = gradients.minibatch,
    batch_size: int | None = None,
    init: PyTree = None,
    seed: int = 0,
    show: bool | Literal["all"] = True,
) -> Report:
    """Look a kernel and its posterior over before they run: a verdict, what is wrong with a remedy per line, and step sizes.

    It stands at the mode that `ib.infer` finds. A second look at the same costs nothing.

    Args:
        what: the kernel that is to run, or a posterior: then the step sizes are for `ib.leimkuhler_matthews(posterior)`. They are not those
            of another kernel, nor of the same with another gradient, friction or correction.
        transforms: as for the kernels, where a posterior is given; None looks at the defaults.
        gradient: as for the kernels, where a posterior is given. `ib.gradients.svrg()` is centred near the mode, so it speaks for
            `control_variate(center=report.center)` too.
        batch_size: rows per minibatch; None takes those that `ib.sample` would take.
        init: theta where to start looking; None: near the middle of the prior.
        seed: a whole number.
        show: print the report (a notebook shows what is returned instead): True leaves out the ticks, "all" does not.

    Returns:
        The report: its findings, a centre, and a range of step sizes.

    Raises:
        ValueError: `what` is neither, the kernel is one of which nothing is known on a Gaussian, or an argument does not fit.

    Example:
        >>> spent = np.random.default_rng(0).exponential(2.0, size=1_000).astype(np.float32)
        >>> def log_likelihood(theta, batch):
        ...     return dist.Exponential(theta["rate"]).log_prob(batch)
        >>> posterior = ib.Posterior({"rate": dist.Gamma(2.0, 2.0)}, log_likelihood, spent)
        >>> report = ib.check(ib.sgld(posterior), batch_size=100, show=False)
        >>> report.ok, report.step_sizes[0] < report.step_sizes[1]
        (True, True)
    """
    if show not in (True, False, "all"):
        raise ValueError(f'`show` must be True, False or "all"; got {show!r}.')
    kernel = _kernel(what, transforms, gradient)
    contents = in_words((kernel.arrays, init))
    asked = ("report", kernel, kernel.posterior.version, contents, repr((batch_size, seed)), jnp.result_type(float))
    found = kernel.posterior.compiled.found
    if asked not in found:
        found[asked] = _look_over(Patient(kernel, batch_size, init, seed))
    report: Report = replace(found[asked], everything=show == "all")
    if show and not _in_a_notebook():
        print(report)
    return report


def _look_over(patient: Patient) -> Report:
    """All that is found, and step sizes."""
    findings = [*look_at_transforms(patient), *_unbiased(patient)]
    comes_back = all(finding.topic != "round trip" or finding.status == "ok" for finding in findings)
    center = find_center(patient) if comes_back else None
    if center is not None:
        findings.append(center.finding)
    if center is not None and center.found:
        patient.move_to(center.flat)
    findings += [*_terms(patient), *look_at_edges(patient, _sds(center)), *look_at_bounds(patient)]
    steps = None
    if center is not None and center.found:
        steps = look_at_steps(patient, center)
        findings += [*_precision(patient, center), *steps.findings]
    return _report(patient, findings, steps)


def _kernel(what: Any, transforms: PyTree, gradient: Any) -> Kernel:
    """The kernel that is looked at."""
    if isinstance(what, Posterior):
        return leimkuhler_matthews(what, transforms, gradient=gradient)
    if not isinstance(what, Kernel):
        raise ValueError(
            f"`check` takes a kernel or an ib.Posterior; got {type(what).__name__}. For a NumPyro model use ib.from_numpyro."
        )
    if transforms is not None or gradient is not gradients.minibatch:
        raise ValueError(
            f"{what.name} has its transforms and its gradient already: leave `transforms` and `gradient` out."
        )
    if what.recursion is None or not what.one_temperature:
        raise ValueError(
            f"Nothing is known of what {what.name} does to a Gaussian at its temperature, and so nothing of its step sizes. Take ib.sgld, "
            "ib.leimkuhler_matthews, ib.baoab or ib.sgnht at one temperature above 0, or look at the posterior alone: ib.check(posterior)."
        )
    return what


def _report(patient: Patient, findings: list[Finding], steps: Steps | None) -> Report:
    found, steps = steps is not None, steps or Steps([], None, None, None)
    scales = None if steps.scales is None else patient.unravel(jnp.asarray(steps.scales, patient.flat.dtype))
    return Report(
        findings=findings,
        kernel=patient.kernel.name,
        step_size=None if steps.sizes is None else steps.sizes[1] / math.sqrt(10),
        step_sizes=steps.sizes,
        preconditioner=scales,
        preconditioned_step_size=steps.scaled_size,
        center=patient.theta if found else None,
        batch_size=patient.batch_size,
    )


def _sds(center: Center | None) -> np.ndarray | None:
    """Of phi at the centre, where they are known."""
    if center is None or center.mode is None or center.mode.hessian is None or not center.found:
        return None
    sds: np.ndarray = np.sqrt(np.diag(np.linalg.inv(center.mode.hessian)))
    return sds


def _precision(patient: Patient, center: Center) -> Iterator[Finding]:
    """Whether the floats of a run are fine enough for the posterior."""
    sds = _sds(center)
    if sds is None:
        return
    phi = patient.space.proxy(patient.unravel(patient.flat))
    flat = np.asarray(ravel_pytree(phi)[0])
    steps = np.spacing(np.abs(flat)) / sds
    names = [variable_name(path) for path, leaf in jax.tree_util.tree_leaves_with_path(phi) for _ in range(leaf.size)]
    worst = int(np.argmax(steps))
    values = {"sds": float(steps[worst])}
    if steps[worst] < COARSE:
        yield Finding("precision", "", "ok", "floats of the run are fine beside the posterior's sds", values=values)
        return
    yield Finding(
        "precision", names[worst], "problem",
        f"the posterior's sd is {sds[worst]:.2g} at {flat[worst]:.6g}, where the next float is {steps[worst]:.2g} sds away: small steps are "
        "rounded off",
        "Centre the data, or let JAX have doubles: jax.config.update('jax_enable_x64', True).", values,
    )  # fmt: skip


# -- the data -----------------------------------------------------------------------------------------------------


def _terms(patient: Patient) -> Iterator[Finding]:
    """Rows whose log likelihood is not finite here: they spoil every gradient."""
    posterior, data = patient.posterior, patient.posterior.data
    if posterior.log_likelihood is None or is_source(data):
        return
    likelihood = posterior.log_likelihood
    terms = jax.jit(likelihood)
    bad: list[int] = []
    placed = posterior.placed_data
    rows = posterior.num_data or 0
    for first in range(0, rows, SLICE):
        places = np.minimum(np.arange(first, first + min(SLICE, rows)), rows - 1)  # slices of one length
        found = np.asarray(terms(patient.theta, trees.rows(placed, places)))[: rows - first]
        bad += (first + np.flatnonzero(~np.isfinite(found))).tolist()
    if not bad:
        return
    worst = {name: np.asarray(leaf)[bad[0]] for name, leaf in posterior.observed().items()}
    shown = ", ".join(f"{name} = {value}" for name, value in worst.items() if np.size(value) == 1)
    named = ", ".join(f"{row:,}" for row in bad[:NAMED_ROWS]) + (", ..." if len(bad) > NAMED_ROWS else "")
    yield Finding(
        "data", "", "problem",
        f"the log likelihood of {len(bad):,} of {posterior.num_data:,} rows is not finite (rows {named}"
        + (f"; in the first of them {shown})" if shown else ")"),
        "Look for data outside of what the model allows, such as a negative count or a zero under a log; correct them or leave them out.",
        {"rows": bad[:NAMED_ROWS], "count": len(bad)},
    )  # fmt: skip


def _unbiased(patient: Patient) -> Iterator[Finding]:
    """Mean of many minibatch gradients against the gradient of all the data, along random directions."""
    posterior = patient.posterior
    if not posterior.has_all_rows:
        return
    full = np.asarray(jax.jit(lambda theta: ravel_pytree(gradients.full_gradient(posterior, theta))[0])(patient.theta))
    estimates = np.asarray(
        jax.jit(
            lambda: jax.lax.map(lambda batch: ravel_pytree(patient.gradient(patient.theta, batch))[0], patient.pool)
        )()
    )
    count = len(estimates)
    directions = np.random.default_rng(12).normal(size=(full.size, 16))
    with np.errstate(invalid="ignore"):
        errors = (estimates - full).astype(float) @ directions
    values: dict[str, Any] = {"minibatches": count}
    if not np.isfinite(errors).all():
        bad = int(np.sum(~np.isfinite(errors).all(axis=1)))
        yield Finding(
            "unbiased", "", "problem", f"the gradients of {bad} of {count} minibatches, or of all the data, are not finite",
            "Look for log, sqrt or division of something that can be zero or negative in the likelihood.", values,
        )  # fmt: skip
        return
    spread = errors.std(axis=0, ddof=1) / math.sqrt(count) if count > 1 else np.zeros(errors.shape[1])
    rounding = 1e-4 * np.abs(full) @ np.abs(directions)
    worst = float(np.max(np.abs(errors.mean(axis=0)) / np.maximum(spread + rounding, 1e-30)))
    values["z"] = worst
    if worst < 5:
        message = f"minibatch gradients are unbiased (largest z {worst:.2g} of {count} batches)"
        yield Finding("unbiased", "", "ok", message, values=values)
        return
    yield Finding(
        "unbiased", "", "problem", f"the mean of the minibatch gradients is not the full gradient (z = {worst:.3g})",
        "`log_likelihood` must return one term per row, neither averaged nor dependent on the rest of the batch (no batch "
        "normalisation); `gradient` must scale its likelihood by N / batch size.", values,
    )  # fmt: skip


def _in_a_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return type(shell).__name__ == "ZMQInteractiveShell"
