"""On a Gaussian the update of a kernel is its recursion: number by number, in every metric, with and without noise correction.

What recursions say of stationary laws (`tests/statistics`) is so said of the code.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.metrics._per_row import Part

SIZE, STEP = 6, 0.13
SHAPES = {"a": (2, 2), "b": (2,)}  # two rows of a table, and what is global
rng = np.random.default_rng(0)
ROOT = rng.normal(size=(SIZE, SIZE))
HESSIAN = ROOT @ ROOT.T / SIZE + np.eye(SIZE)
NOISE = rng.uniform(0.5, 3.0, SIZE)  # variance of the gradient of each coordinate of what moves


def tree(vector):
    return {"a": vector[..., :4].reshape(*vector.shape[:-1], 2, 2), "b": vector[..., 4:]}


def posterior():
    """A Gaussian whose gradient's noise is the mean of the rows of the minibatch."""

    def gradient(theta, rows):
        pull = jnp.concatenate([theta["a"].ravel(), theta["b"]]) @ HESSIAN
        return tree(jnp.mean(rows, axis=0) - pull)

    supports = {name: dist.constraints.real for name in SHAPES}
    data = ib.data.Generated(lambda key: jax.random.normal(key, (2, SIZE)))
    return ib.Posterior(supports=supports, gradient=gradient, data=data)


def metrics():
    zero, square = tree(np.zeros(SIZE)), rng.normal(size=(SIZE, SIZE)) / 3 + np.eye(SIZE)
    blocks = tuple(rng.normal(size=(rows, 2, 2)) / 3 + np.eye(2) for rows in (2, 1))
    parts = (Part((0,), 2), Part((1,), 1))
    vectors, _ = np.linalg.qr(rng.normal(size=(SIZE, 2)))
    return {
        "none": None,
        "dense": ib.metrics.Dense(zero, square, np.linalg.inv(square)),
        "low rank": ib.metrics.LowRank(zero, rng.uniform(0.5, 1.0, SIZE), vectors, np.array([2.0, 0.6])),
        "per row": ib.metrics.PerRow(zero, blocks, tuple(map(np.linalg.inv, blocks)), parts),
    }


METRICS = metrics()
KERNELS = {"sgld": ib.sgld, "leimkuhler_matthews": ib.leimkuhler_matthews, "baoab": ib.baoab}
SCALES = {False: np.ones(SIZE), True: rng.uniform(0.5, 1.0, SIZE)}
CASES = [  # metric, noise correction, temperature, preconditioner
    ("none", False, 1.0, False),
    ("none", True, 1.0, False),
    ("none", True, 2.0, True),
    ("dense", False, 1.0, False),
    ("dense", True, 1.0, False),
    ("dense", True, 2.0, False),
    ("low rank", False, 2.0, False),
    ("per row", False, 1.0, False),
]


def factor(kernel):
    """L, from what moves to phi."""
    like = kernel.moving(kernel.init(tree(np.zeros(SIZE))))
    columns = jax.vmap(lambda z: kernel.space.proxy(ib.trees.cut_like(like, z)))(jnp.eye(SIZE))
    return np.concatenate([np.reshape(leaf, (SIZE, -1)) for leaf in jax.tree.leaves(columns)], axis=1).T


def step_of(kernel, turn, scale):
    """One update: (state of the recursion, noise of the gradient, injected noise) -> state, all in coordinates of what moves."""
    start = kernel.init(tree(jnp.zeros(SIZE)))
    like, back = kernel.moving(start), jnp.linalg.inv(turn).T
    shown = back @ np.sqrt(NOISE)  # half the difference of the two halves of every minibatch

    def cut(vector):
        return ib.trees.cut_like(like, vector)

    def one(before, push, eta):
        first, second = before[:SIZE], before[SIZE:]
        batch = jnp.stack([back @ push + shown, back @ push - shown])

        def after(state, batch):
            return kernel.update(cut(eta), state, batch, STEP)[0]

        if kernel.name == "sgld":
            return ib.trees.ravel(after(start._replace(phi=cut(first)), batch).phi)
        if kernel.name == "leimkuhler_matthews":
            spread = jnp.sqrt(STEP * scale * kernel.temperature / 2)
            state = start._replace(phi=cut(first + spread * second), kick=cut(second), spread=cut(spread))
            moved = after(state, batch)
            return jnp.concatenate([ib.trees.ravel(moved.base), ib.trees.ravel(moved.kick)])
        # `baoab` makes the gradient of a step at the end of the one before, where half of it has kicked already.
        half = jnp.sqrt(2 * STEP * scale) / 2
        drift = push - turn.T @ HESSIAN @ turn @ first
        state = start._replace(phi=cut(first), velocity=cut(second + half * drift), drift=cut(drift))
        if kernel.estimates_noise:
            state = state._replace(variance=cut(jnp.asarray(NOISE)))
        moved = after(state, batch)
        return jnp.concatenate(
            [ib.trees.ravel(moved.phi), ib.trees.ravel(moved.velocity) - half * ib.trees.ravel(moved.drift)]
        )

    return jax.jit(jax.vmap(one))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("metric", "corrects", "temperature", "scaled"), CASES)
def test_an_update_is_the_recursion(name, metric, corrects, temperature, scaled, float64):
    scale = SCALES[scaled]
    kernel = KERNELS[name](
        posterior(),
        metric=METRICS[metric],
        noise_correction=corrects,
        temperature=temperature,
        preconditioner=tree(scale) if scaled else None,
        gradient=ib.gradients.minibatch(smoothing=0.0),
    )
    turn = factor(kernel)
    transition, added, read_out, of_law = kernel.recursion(STEP, turn.T @ HESSIAN @ turn, np.diag(NOISE), scale)
    size = len(transition)
    units = np.eye(size + 2 * SIZE)  # of the state, of the gradient's noise and of the injected noise
    found = np.asarray(step_of(kernel, turn, scale)(*np.split(units, [size, size + SIZE], axis=1))).T
    moved, pushed, injected = np.split(found, [size, size + SIZE], axis=1)
    np.testing.assert_allclose(moved, transition, atol=1e-9)
    np.testing.assert_allclose(pushed * NOISE @ pushed.T + injected @ injected.T, added, atol=1e-9)
    spread = np.sqrt(STEP * scale * temperature / 2) if name == "leimkuhler_matthews" else np.zeros(SIZE)
    np.testing.assert_allclose(read_out, np.hstack([np.eye(SIZE), np.diag(spread)])[:, :size], atol=1e-12)
    assert of_law == temperature
