"""What is asked of a NumPyro model before it is sampled by stochastic gradients. Each answer names the site and the cure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers

from inbounds import transforms as tf
from inbounds.frontends._numpyro_model import CalledModel, DataPlate, base_of, is_latent, seeded

if TYPE_CHECKING:
    from inbounds.frontends.numpyro import NumPyroPosterior

__all__ = ["changing_with_rows", "check_lengths", "check_parameters", "check_start", "same_support", "supports_of"]

_DRAWS = 32  # draws from the prior at which parameters of distributions are compared to their bounds
MOST_CONSTANTS = 2**18  # numbers of an array that a program may hold
_PROBES = 3  # draws of the latents at which the model is looked at before it is trusted


def supports_of(called: CalledModel) -> tuple[dict[str, Any], list[dict[str, dict[str, np.ndarray]]]]:
    """The supports of the latents, which must be the same wherever the latents are; and how far draws take parameters out of range."""

    @jax.jit
    def supports(seed: int) -> Any:
        trace, _ = called.trace(seeded(seed))
        found = {name: site["fn"].support for name, site in trace.items() if is_latent(site)}
        return found, {name: _worst_parameters(site["fn"]) for name, site in trace.items() if site["type"] == "sample"}

    looks = [jax.tree.map(np.asarray, supports(seed)) for seed in range(_DRAWS)]
    first, *others = [found for found, _ in looks[:_PROBES]]
    if not first:
        raise ValueError("The model has no latent site to sample: every `numpyro.sample` has `obs`.")
    for name, support in first.items():
        if not all(same_support(support, other[name]) for other in others):
            raise ValueError(
                f"The support of {name!r} changes with another latent: {support}, then {others[0][name]}. Draw it on a "
                f"fixed support and move it: for a uniform on (0, b), u = numpyro.sample('{name}_unit', dist.Uniform(0, 1)) "
                f"and {name} = numpyro.deterministic({name!r}, b * u)."
            )
    return first, [beyond for _, beyond in looks]


def _worst_parameters(fn: Any) -> dict[str, jax.Array]:
    """How far each parameter of a distribution is beyond the bounds that NumPyro says it has; 0 within, and where it is NaN.

    At a bound is no fault: a positive number may underflow to zero.
    """
    base, beyond = base_of(fn), {}
    for name, constraint in base.arg_constraints.items():
        lower, upper = getattr(constraint, "lower_bound", None), getattr(constraint, "upper_bound", None)
        value = getattr(base, name, None)
        if (lower is None and upper is None) or not hasattr(value, "dtype"):
            continue
        value = jnp.asarray(value, float)
        below = 0.0 if lower is None else jnp.max(jnp.nan_to_num(lower - value), initial=0.0)
        above = 0.0 if upper is None else jnp.max(jnp.nan_to_num(value - upper), initial=0.0)
        beyond[name] = jnp.maximum(below, above)
    return beyond


def check_parameters(called: CalledModel, draws: list[dict[str, dict[str, np.ndarray]]]) -> None:
    """Refuse a model whose prior gives a distribution parameters that it cannot have: nothing keeps a chain from them."""
    for site in draws[0]:
        for parameter in draws[0][site]:
            seeds = [seed for seed, beyond in enumerate(draws) if beyond[site][parameter] > 1e-5]
            if not seeds:
                continue
            feeds, kind = _feeding(called, site, parameter, seeds[0]), called.sites()[site].kind
            raise ValueError(
                f"The parameter {parameter!r} of {site!r} ({kind}) lies outside {_wanted(called, site, parameter)} in {len(seeds)} of "
                f"{len(draws)} draws from the prior, and a chain would be free to go there. It is computed from "
                f"{', '.join(map(repr, feeds)) or 'the arguments'}: give that a prior with the right support (for a positive number "
                "LogNormal, Gamma, HalfNormal or dist.TruncatedNormal(mean, sd, low=0)), or compute the parameter so that it cannot "
                "leave its range (jnp.exp, jax.nn.softplus, jax.nn.sigmoid)."
            )


def _wanted(called: CalledModel, site: str, parameter: str) -> str:
    found: list[Any] = []
    jax.eval_shape(lambda: found.append(base_of(called.trace(seeded(0))[0][site]["fn"]).arg_constraints[parameter]))
    (constraint,) = found
    lower, upper = getattr(constraint, "lower_bound", None), getattr(constraint, "upper_bound", None)
    ends = [
        ("-inf", "inf")[place] if end is None else f"{np.asarray(end).item():g}"
        for place, end in enumerate((lower, upper))
    ]
    return f"({ends[0]}, {ends[1]})"


def _feeding(called: CalledModel, site: str, parameter: str, seed: int) -> list[str]:
    """The latents that a parameter changes with."""

    def values(seed: int, fixed: Any) -> Any:
        def put(fn: Any) -> Any:
            return handlers.substitute(handlers.seed(fn, rng_seed=seed), data=fixed)

        trace, _ = called.trace(put)
        latents = {name: s["value"] for name, s in trace.items() if is_latent(s)}
        return latents, getattr(base_of(trace[site]["fn"]), parameter)

    run = jax.jit(values, static_argnums=0)  # traced, NumPyro does not refuse the parameter itself
    one, before = run(seed, {})
    other, _ = run(seed + 1, {})
    return [
        name for name in one if name != site and not np.array_equal(before, run(seed, one | {name: other[name]})[1])
    ]


def same_support(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    return all(np.array_equal(x, y) for x, y in zip(tf.bounds(a), tf.bounds(b), strict=True))


def check_lengths(called: CalledModel, plates: dict[str, DataPlate]) -> None:
    """Rows beyond the end of an array: JAX would silently repeat its last row, NumPy says so."""
    arrays = list(called.arrays().items())
    for plate in plates.values():
        lengths = {size for _, x in arrays for size in x.shape}
        longer = [f"{name} {list(x.shape)}" for name, x in arrays if x.ndim and x.shape[0] > plate.size]
        if plate.size not in lengths and longer:
            raise ValueError(
                f"The plate {plate.name!r} has {plate.size:,} rows, but no array given has that length, and longer ones "
                f"there are: {', '.join(longer)}. Let the plate's size be the length of the data."
            )
    to_numpy = partial(jax.tree.map, lambda x: np.asarray(x) if isinstance(x, jax.Array) else x)
    in_numpy = CalledModel(called.model, to_numpy(called.args), to_numpy(called.kwargs))
    in_numpy._plates = plates
    last_rows = {plate.name: jnp.asarray([plate.size - 1]) for plate in plates.values()}
    try:
        in_numpy.sites(last_rows)
    except IndexError as error:
        sizes = ", ".join(f"{plate.name!r} has {plate.size:,} rows" for plate in plates.values())
        given = ", ".join(f"{name} {list(x.shape)}" for name, x in arrays)
        raise ValueError(
            f"Data of another length than their plate: {sizes}, and {error}. Arrays given: {given}. Let the plate's size be "
            "the length of the data."
        ) from error
    except Exception:  # a model that does not run on NumPy arrays says nothing about lengths
        return


def check_start(posterior: NumPyroPosterior) -> None:
    """What can only be seen in numbers: a density that is not finite, and one that hides data from the scaling."""
    plates = posterior.layout.plates
    theta = posterior.start(jax.random.key(0))
    widths = {plate.name: min(plate.size, plate.batch_size) for plate in plates}
    if posterior.layout.shared and plates:
        widths = dict.fromkeys(widths, min(widths.values()))
    first = {name: jnp.arange(width) for name, width in widths.items()}
    last = {plate.name: plate.size - widths[plate.name] + first[plate.name] for plate in plates}

    @jax.jit
    def look(theta: Any, rows: Any, arrays: dict[str, Any]) -> Any:
        held = posterior.called_with(arrays)
        sites = {name: site for name, site in held.trace(theta, rows).items() if site["type"] == "sample"}
        log_probs = {name: site["fn"].log_prob(site["value"]) for name, site in sites.items()}
        return (
            log_probs,
            {name: site["value"] for name, site in sites.items()},
            jax.grad(held.log_density)(theta, rows),
        )

    sites = posterior.called.sites()
    # Large arrays are constants of no program: compilers are slow with them. But a model may need their numbers while it is traced.
    arrays = {name: x for name, x in posterior.called.arrays().items() if x.size > MOST_CONSTANTS}
    try:
        jax.eval_shape(look, theta, first, arrays)
    except Exception:
        arrays = {}
    looks = [jax.tree.map(np.asarray, look(theta, rows, arrays)) for rows in ((first, last) if plates else (first,))]
    for log_probs, values, gradient in looks:
        for name, log_prob in log_probs.items():
            if not np.all(np.isfinite(log_prob)):
                raise ValueError(_not_finite(name, sites[name].kind, log_prob, values[name], theta))
        for name, value in gradient.items():
            if not np.all(np.isfinite(value)):
                raise ValueError(
                    f"The log density is finite at the start, but its gradient in {name!r} is not ({_short(value)}), with "
                    f"{_values(theta)}. Look for a square root, a logarithm or a norm at 0 in the model."
                )
    for name, site in sites.items():
        if not site.plates & set(widths) and not np.array_equal(looks[0][0][name], looks[-1][0][name]):
            raise ValueError(
                f"The site {name!r} is outside the data plate {plates[0].name!r} but depends on its rows, so it would not be "
                f"scaled to all the data. Move it inside: `with numpyro.plate({plates[0].name!r}, ...)`, one term per row."
            )


def changing_with_rows(posterior: NumPyroPosterior) -> frozenset[str]:
    """The deterministic sites outside the data plates whose values are others for other rows."""
    plates = posterior.layout.plates
    if not plates:
        return frozenset()
    theta, sites = posterior.start(jax.random.key(0)), jax.jit(posterior._deterministic_sites)
    last = {plate.name: jnp.array([plate.size - 1]) for plate in plates}
    some = {plate.name: jnp.arange(min(plate.size, plate.batch_size)) for plate in plates}
    first, *others = [jax.tree.map(np.asarray, sites(theta, rows)) for rows in (posterior._no_rows(), last, some)]
    return frozenset(
        name
        for name, value in first.items()
        if any(not np.array_equal(value, x[name], equal_nan=value.dtype.kind in "fc") for x in others)
    )


def _not_finite(name: str, kind: str, log_prob: np.ndarray, value: np.ndarray, theta: dict[str, Any]) -> str:
    bad = np.argwhere(~np.isfinite(log_prob))
    where = (
        "" if log_prob.ndim == 0 else f" in {len(bad):,} of {log_prob.size:,} terms, first at {tuple(map(int, bad[0]))}"
    )
    shown = _short(value[tuple(bad[0])] if log_prob.ndim and value.ndim >= log_prob.ndim else value)
    return (
        f"The log density is not finite at the start: site {name!r} ({kind}) has log probability {log_prob[tuple(bad[0])]}"
        f"{where}, where its value is {shown}. The start is {_values(theta)}. Is that value in the support of {kind}, and are "
        "the parameters that the model computes for it?"
    )


def _values(start: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {_short(value)}" for name, value in start.items())


def _short(value: Any) -> str:
    value = np.asarray(value)
    if value.size <= 4:
        return np.array2string(value, precision=4, separator=", ")
    return f"an array of shape {value.shape} from {value.min():.4g} to {value.max():.4g}"
