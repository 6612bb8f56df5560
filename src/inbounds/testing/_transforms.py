"""Is a transform the bijection that it says, with the derivatives that it says, inside its support for every phi?"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from inbounds.precision import in_double
from inbounds.testing._expectations import expect, expect_close
from inbounds.transforms import Transform, bounds

SINGULAR = -0.95  # power of the gap with which the density of a test goes to infinity at an end


def check_transform(
    transform: Transform,
    *,
    size: int = 3,
    reach: float = 60.0,
    free: Callable[[Array], Array] | None = None,
    seed: int = 0,
) -> None:
    r"""Whether a transform is right: a bijection onto its support, with its derivatives, that keeps theta inside.

    In double precision and at moderate phi: it maps into its support and back, shapes are what it says, $f'$, $f''/f'$ and
    $\log |\det J|$ are those of autodiff, and `pull_back` is the gradient of the density of phi. In single precision, up to `reach`:
    theta is strictly inside, nothing is infinite or NaN, dtypes are kept, and the drift is right next to an end, where a density may go to
    infinity. It is a value: equal, hashable and a pytree.

    Args:
        transform: the transform.
        size: how many numbers phi has, for transforms of vectors and matrices.
        reach: how far from 0 phi is looked at.
        free: of theta the numbers with respect to which densities on the support are densities, as many as phi has. None: all of them; of
            a vector that has one more than phi all but the last; of a matrix those below the diagonal, with it where phi has as many.
        seed: of the random points.

    Raises:
        AssertionError: something is not as it should be.

    Example:
        >>> ib.testing.check_transform(ib.transforms.Softplus())
        >>> ib.testing.check_transform(ib.transforms.LogRatios(), size=4)
    """
    _check_value(transform)
    shape = (24,) if transform.domain.event_dim == 0 else (24, size)
    generator = np.random.default_rng(seed)
    middle = generator.normal(size=shape) * min(1.5, reach / 4)
    with in_double():
        _check_bijection(transform, jnp.asarray(middle))
        _check_derivatives(transform, jnp.asarray(middle), free)
    far = reach * np.array([0.0, 1e-30, 1e-8, 0.02, 0.1, 0.5, 0.8, 1.0])
    _check_floats(transform, np.append(middle, generator.choice([*far, *-far], size=(200, *shape[1:])), axis=0))
    if transform.domain.event_dim == 0:
        _check_ends(transform, reach)


def _check_value(transform: Transform) -> None:
    leaves, structure = jax.tree.flatten(transform)
    again = jax.tree.unflatten(structure, leaves)
    expect(again == transform, f"{transform!r}: taken apart as a pytree and put together, it is not equal to itself")
    expect(hash(again) == hash(transform), f"{transform!r}: equal transforms have different hashes")


def _check_bijection(transform: Transform, phi: Array) -> None:
    @jax.jit
    def there_and_back(phi: Array) -> tuple[Array, Array, Array]:
        theta = transform(phi)
        return theta, transform.codomain(theta), transform.inv(theta)

    theta, inside, back = there_and_back(phi)
    expect(
        theta.shape == tuple(transform.forward_shape(phi.shape)),
        f"`forward_shape`: {transform.forward_shape(phi.shape)}, but theta has the shape {theta.shape}",
    )
    expect(
        transform.unconstrained_shape(theta.shape) == phi.shape,
        f"`inverse_shape`: {transform.unconstrained_shape(theta.shape)}, but phi has the shape {phi.shape}",
    )
    expect(inside, f"theta is outside of {transform.codomain}")
    expect_close(back, phi, "the inverse of theta is another phi", rtol=1e-6, atol=1e-6)


def _check_derivatives(transform: Transform, phi: Array, free: Callable[[Array], Array] | None) -> None:
    event_dim = transform.domain.event_dim

    def log_det(phi: Array) -> Array:
        return transform.log_abs_det_jacobian(phi, transform(phi))

    def log_density(theta: Array) -> Array:
        weights = jnp.cos(jnp.arange(theta.size, dtype=theta.dtype)).reshape(theta.shape)
        return jnp.sum(weights * theta) - 0.1 * jnp.sum(theta**2)

    @jax.jit
    def everything(phi: Array) -> dict[str, Array]:
        point = transform.evaluation_point(phi)
        found = {
            "log_det": log_det(phi),
            "drift": transform.pull_back(phi, point, jax.grad(log_density)(point)),
            "gradient": jax.grad(lambda p: log_density(transform(p)) + jnp.sum(log_det(p)))(phi),
        }
        if event_dim > 0:
            of_one = jax.jacobian(lambda p: _free(transform(p), p.size, free))
            return found | {"jacobian": jax.vmap(of_one)(phi)}
        found |= {"derivative": transform.derivative(phi), "slope": transform.log_derivative_slope(phi)}
        one = jnp.ones_like(phi)
        theta_slope = jax.jvp(transform, (phi,), (one,))[1]
        return found | {"theta_slope": theta_slope, "log_slope": jax.jvp(log_det, (phi,), (one,))[1]}

    found = {name: np.asarray(value) for name, value in everything(phi).items()}
    if event_dim > 0:
        jacobian = found["jacobian"]
        expect(
            jacobian.shape[-2] == jacobian.shape[-1],
            f"theta has {jacobian.shape[-2]} free numbers, phi {jacobian.shape[-1]}: say with `free` which numbers are free",
        )
        of_autodiff = np.linalg.slogdet(jacobian)[1]
    else:
        of_autodiff = np.log(np.abs(found["theta_slope"]))
        expect_close(found["derivative"], found["theta_slope"], "`derivative` is not that of theta", 1e-6, 1e-9)
        expect_close(found["slope"], found["log_slope"], "`log_derivative_slope` is not that of log |f'|", 1e-5, 1e-7)
    expect_close(found["log_det"], of_autodiff, "`log_abs_det_jacobian` is not log |det J|", 1e-6, 1e-6)
    expect_close(
        found["drift"],
        found["gradient"],
        "`pull_back` is not the gradient of log density and log |det J|: another law would be sampled",
        1e-6,
        1e-6,
    )


def _free(theta: Array, size: int, free: Callable[[Array], Array] | None) -> Array:
    if free is not None:
        return free(theta)
    if theta.ndim == 2 and theta.size != size:
        return theta[np.tril_indices(len(theta), 0 if size == len(theta) * (len(theta) + 1) // 2 else -1)]
    return theta[:-1] if theta.shape == (size + 1,) else theta.ravel()


def _check_floats(transform: Transform, phi: np.ndarray) -> None:
    @jax.jit
    def everything(phi: Array) -> tuple[dict[str, Array], Array]:
        theta, point = transform(phi), transform.evaluation_point(phi)
        drift = transform.pull_back(phi, point, jnp.zeros_like(point))
        log_det = transform.log_abs_det_jacobian(phi, theta)
        found = {"theta": theta, "evaluation_point": point, "pull_back": drift, "log_abs_det_jacobian": log_det}
        return found, transform.codomain(theta)

    found, inside = everything(jnp.asarray(phi, jnp.float32))
    lower, upper = (np.asarray(end, np.float32) for end in bounds(transform.codomain))
    for name in ("theta", "evaluation_point"):
        value = np.asarray(found[name])
        strictly = (value > lower) & (value < upper)
        expect(strictly, f"{name} is not strictly inside of {transform.codomain} at {_where(phi, ~strictly)}")
    for name, value in found.items():
        expect(value.dtype == jnp.float32, f"{name} of phi in single precision is in {value.dtype}")
        expect(np.isfinite(value), f"{name} is infinite or NaN at {_where(phi, ~np.isfinite(value))}")
    with in_double():
        exact = np.asarray(jax.jit(transform)(jnp.asarray(np.asarray(phi, np.float32), float)))
    # What is added to an end, or summed up in a vector, is lost beside the larger number; beside an end at 0 nothing is.
    largest = np.max(np.abs(exact), axis=tuple(range(1, exact.ndim)), keepdims=True) if exact.ndim > 1 else 0.0
    for end in (lower, upper):
        largest = np.where(np.isfinite(end), np.maximum(largest, np.abs(end)), largest)
    allowed = 2e-5 * np.abs(exact) + 1e-5 * largest + float(jnp.finfo(jnp.float32).tiny)
    rough = (np.abs(found["theta"] - exact) > allowed) & (np.abs(exact) < 1e30)
    expect(
        ~rough, f"theta in single precision is not theta in double precision at {_where(phi, rough)}: something cancels"
    )
    expect(inside, f"theta is outside of {transform.codomain} at phi that are far out: try less `reach`, and say so")


def _check_ends(transform: Transform, reach: float) -> None:
    """Next to an end f' / gap is of the size of |f'' / f'|, as L'Hopital has it, however small f' and the gap are.

    So the drift of a density that goes to infinity there like a power of the gap is known.
    """
    ends = [np.asarray(end, np.float32) for end in bounds(transform.codomain)]

    @jax.jit
    def at(phi: Array) -> tuple[Array, list[Array], list[Array]]:
        point = transform.evaluation_point(phi)
        gaps = [jnp.subtract(point, ends[0]), jnp.subtract(ends[1], point)]
        scores = [jnp.divide(SINGULAR, gaps[0]), jnp.divide(-SINGULAR, gaps[1])]
        return transform.log_derivative_slope(phi), gaps, [transform.pull_back(phi, point, score) for score in scores]

    phi = np.outer([-1.0, 1.0], reach * np.array([0.4, 0.7, 1.0])).ravel().astype(np.float32)
    slope, gaps, drifts = jax.tree.map(np.asarray, at(phi))
    for end, gap, drift in zip(ends, gaps, drifts, strict=True):
        near = np.isfinite(end) & (np.abs(gap) < 0.5) & (np.abs(slope) > 0.1)
        lost = near & ~(np.abs(drift - slope) > 0.2 * abs(SINGULAR) * np.abs(slope))
        expect(
            ~lost,
            f"`pull_back` loses the drift of a density that goes to infinity at {end:g}, at phi = {_where(phi, lost)}: f' is lost in the "
            "rounding of theta. Write it as (gap(theta) * gradient) * (f' / gap)(phi), the second factor in closed form, or try less `reach`",
        )


def _where(phi: np.ndarray | Array, wrong: np.ndarray) -> str:
    """The first phi of which something is wrong."""
    flat = np.asarray(wrong).reshape(len(phi), -1).any(axis=1)
    return str(np.asarray(phi)[np.argmax(flat)])
