"""Every kernel does what its equation says, step by step, and obeys the contract."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.preconditioners import scaled_by_itself
from tests.models_for_tests import linear_regression, poisson_rates

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

EPS = 0.07
GAMMA = ib.Posterior({"x": dist.Gamma(0.5, 2.0)})
CORV = {"sgld": ib.sgld, "leimkuhler_matthews": ib.leimkuhler_matthews, "baoab": ib.baoab, "sgnht": ib.sgnht}
BASELINES = {name: getattr(ib.baselines, name) for name in ("mirror", "ito", "projected", "sgrld")}
KERNELS = CORV | BASELINES


def drift(phi, k=0.5, rate=2.0):
    """Of the proxy of Gamma(k, rate) under softplus, in double precision."""
    theta, slope = np.logaddexp(phi, 0.0), 1 / (1 + np.exp(-phi))
    return slope * ((k - 1) / theta - rate) + (1 - slope)


def slope(phi):
    return 1 / (1 + np.exp(-phi))


def run(kernel, noises, theta=0.4):
    """The proxies after each of the given noises."""
    state, out = kernel.init({"x": theta}), []
    for noise in noises:
        state, _ = kernel.update({"x": jnp.asarray(noise, jnp.float32)}, state, None, EPS)
        out.append(float(kernel.proxy(state)["x"]))
    return out


NOISES = [0.3, -1.2, 0.8, 0.1]
PHI0 = np.log(np.expm1(0.4))


def test_sgld_is_euler_on_the_proxy():
    phi, expected = PHI0, []
    for z in NOISES:
        phi = phi + EPS * drift(phi) + np.sqrt(2 * EPS) * z
        expected.append(phi)
    np.testing.assert_allclose(run(ib.sgld(GAMMA), NOISES), expected, rtol=2e-5)


def test_leimkuhler_matthews_uses_each_noise_twice():
    y, eta, phi, expected = PHI0, 0.0, PHI0, []
    for z in NOISES:
        y = y + EPS * drift(phi) + np.sqrt(2 * EPS) * eta
        phi, eta = y + np.sqrt(EPS / 2) * z, z
        expected.append(phi)
    np.testing.assert_allclose(run(ib.leimkuhler_matthews(GAMMA), NOISES), expected, rtol=2e-5)


def test_leimkuhler_matthews_corrects_at_the_base_point():
    variance = 9.0
    y, eta, phi, expected = PHI0, 0.0, PHI0, []
    for z in NOISES:
        y = y + EPS * drift(phi) + np.sqrt(2 * EPS - EPS**2 * slope(y) ** 2 * variance) * eta
        phi, eta = y + np.sqrt(EPS / 2) * z, z
        expected.append(phi)
    kernel = ib.leimkuhler_matthews(GAMMA, noise_correction=variance)
    np.testing.assert_allclose(run(kernel, NOISES), expected, rtol=2e-5)


def test_sgld_corrects_where_it_is():
    phi, expected = PHI0, []
    for z in NOISES:
        phi = phi + EPS * drift(phi) + np.sqrt(2 * EPS - EPS**2 * slope(phi) ** 2 * 9.0) * z
        expected.append(phi)
    np.testing.assert_allclose(run(ib.sgld(GAMMA, noise_correction={"x": 9.0}), NOISES), expected, rtol=2e-5)


def test_baoab_is_its_splitting():
    h = np.sqrt(2 * EPS)
    keep = np.exp(-1.5 * h)
    phi, v, force, expected = PHI0, 0.0, 0.0, []
    for z in NOISES:
        v += h / 2 * force
        phi += h / 2 * v
        v = keep * v + np.sqrt(1 - keep**2) * z
        phi += h / 2 * v
        force = drift(phi)
        v += h / 2 * force
        expected.append(phi)
    np.testing.assert_allclose(run(ib.baoab(GAMMA, friction=1.5), NOISES), expected, rtol=2e-5)


def test_a_preconditioner_scales_step_and_noise():
    phi, expected = PHI0, []
    for z in NOISES:
        phi = phi + EPS * 0.3 * drift(phi) + np.sqrt(2 * EPS * 0.3) * z
        expected.append(phi)
    np.testing.assert_allclose(run(ib.sgld(GAMMA, preconditioner={"x": 0.3}), NOISES), expected, rtol=2e-5)


M, V, T = 0.3, 60.0, 0.7  # a preconditioner, a variance of the gradient noise, a temperature: all at once
OPTIONS = {"preconditioner": {"x": M}, "temperature": T}


def tempered(phi):
    """The drift at temperature T: it is only the density that is raised to the power 1 / T."""
    return drift(phi) - (1 - T) * (1 - slope(phi))


def test_sgld_with_every_option_is_its_equation():
    phi, expected = PHI0, []
    for z in NOISES:
        left = 2 * EPS * M * T - (EPS * M * slope(phi)) ** 2 * V
        phi = phi + EPS * M * tempered(phi) + np.sqrt(left) * z
        expected.append(phi)
    np.testing.assert_allclose(run(ib.sgld(GAMMA, noise_correction=V, **OPTIONS), NOISES), expected, rtol=2e-5)


def test_leimkuhler_matthews_with_every_option_is_its_equation():
    y, eta, phi, expected = PHI0, 0.0, PHI0, []
    for z in NOISES:
        left = 2 * EPS * M * T - (EPS * M * slope(y)) ** 2 * V
        y = y + EPS * M * tempered(phi) + np.sqrt(left) * eta
        phi, eta = y + np.sqrt(EPS * M * T / 2) * z, z
        expected.append(phi)
    kernel = ib.leimkuhler_matthews(GAMMA, noise_correction=V, **OPTIONS)
    np.testing.assert_allclose(run(kernel, NOISES), expected, rtol=2e-5)


def test_baoab_with_every_option_is_its_splitting():
    """The noise of a gradient moves phi in both halves of a step, before and after the O step damps it; the O step's noise in the second."""
    h = np.sqrt(2 * EPS)
    keep, unit = np.exp(-1.5 * h), np.sqrt(M)
    phi, v, force, variance, expected = PHI0, 0.0, 0.0, 0.0, []
    for z in NOISES:
        v += h / 2 * unit * force
        phi += h / 2 * unit * v
        v = keep * v + np.sqrt((1 - keep**2) * T - (h * (1 + keep) / 2) ** 2 * M * variance) * z
        phi += h / 2 * unit * v
        force, variance = tempered(phi), slope(phi) ** 2 * V
        v += h / 2 * unit * force
        expected.append(phi)
    np.testing.assert_allclose(
        run(ib.baoab(GAMMA, friction=1.5, noise_correction=V, **OPTIONS), NOISES), expected, rtol=2e-5
    )


@pytest.mark.parametrize(("friction", "mass"), [(1.5, 0.5), (1e-4, 1e12)], ids=["moving", "thermostat near zero"])
def test_sgnht_is_its_splitting(friction, mass):
    """Two coordinates share the thermostat, which answers to their mean energy in two halves of a step."""
    posterior = ib.Posterior({"x": dist.Gamma(0.5, 2.0).expand([2])})
    kernel = ib.sgnht(posterior, friction=friction, thermal_mass=mass, **OPTIONS)
    start = np.array([0.4, 0.9])
    h, unit = np.sqrt(2 * EPS), np.sqrt(M)
    phi, v, force, xi = np.log(np.expm1(start)), np.zeros(2), np.zeros(2), friction
    state = kernel.init({"x": start})
    for z in np.array([NOISES, NOISES[::-1]]).T:
        state, _ = kernel.update({"x": jnp.asarray(z, jnp.float32)}, state, None, EPS)
        v = v + h / 2 * unit * force
        phi = phi + h / 2 * unit * v
        xi = xi + h / 2 * (np.mean(v**2) - T) / mass
        v = np.exp(-xi * h) * v + np.sqrt(friction * T * -np.expm1(-2 * xi * h) / xi) * z
        xi = xi + h / 2 * (np.mean(v**2) - T) / mass
        phi = phi + h / 2 * unit * v
        force = tempered(phi)
        v = v + h / 2 * unit * force
        np.testing.assert_allclose(kernel.proxy(state)["x"], phi, rtol=5e-5)
        np.testing.assert_allclose(state.velocity["x"], v, rtol=5e-4, atol=1e-5)
        assert float(state.friction) == pytest.approx(xi, rel=1e-4)


@pytest.mark.parametrize("name", ["sgld", "leimkuhler_matthews", "baoab"])
def test_a_constant_preconditioner_is_a_change_of_units(name):
    """On a Gaussian, scale c^2 moves x as scale 1 moves x / c."""
    wide = ib.Posterior({"x": dist.Normal(0.0, 3.0)})
    unit = ib.Posterior({"x": dist.Normal(0.0, 1.0)})
    scaled = run(CORV[name](wide, preconditioner=9.0), NOISES, theta=1.5)
    np.testing.assert_allclose(np.array(scaled) / 3, run(CORV[name](unit), NOISES, theta=0.5), rtol=1e-5)


@pytest.mark.parametrize("name", ["sgld", "leimkuhler_matthews", "baoab", "sgnht"])
def test_scales_that_are_a_function_of_theta_are_those_that_it_makes(name):
    def scales(theta):
        return {"x": 0.3 + 0 * jnp.sum(theta["y"]), "y": jnp.full(2, 0.5)}

    posterior = ib.Posterior({"x": dist.Gamma(3.0, 2.0), "y": dist.Normal(0.0, 1.0).expand([2])})
    constant, function = (CORV[name](posterior, preconditioner=p) for p in ({"x": 0.3, "y": 0.5}, scales))
    start = {"x": jnp.asarray(0.4), "y": jnp.zeros(2)}
    states = [kernel.init(start) for kernel in (constant, function)]
    for i in range(5):
        pairs = zip((constant, function), states, strict=True)
        states = [kernel.step(jax.random.key(i), state, None, EPS)[0] for kernel, state in pairs]
    found, expected = (kernel.proxy(state) for kernel, state in zip((function, constant), states[::-1], strict=True))
    jax.tree.map(np.testing.assert_allclose, found, expected)


def test_a_variable_that_has_a_say_in_its_own_scale_is_refused():
    posterior = ib.Posterior({"x": dist.Gamma(3.0, 2.0), "y": dist.Normal(0.0, 1.0)})
    kernel = ib.sgld(
        posterior, preconditioner=lambda theta: {"x": 1 / (1 + theta["y"] ** 2), "y": jnp.exp(-theta["x"] * theta["y"])}
    )
    with pytest.raises(ValueError, match="scale of 'y' depends on 'y'"):
        ib.sample(kernel, EPS, 10, progress=False)


def test_what_a_scale_depends_on_is_seen_through_jit():
    def by_the_other(theta):
        return {"x": 1 / (1 + theta["y"] ** 2), "y": jnp.exp(-theta["x"])}

    theta = {"x": jnp.ones(()), "y": jnp.ones(())}
    for wrap in (lambda f: f, jax.jit, jax.checkpoint):
        assert scaled_by_itself(wrap(by_the_other), theta) == []
        assert scaled_by_itself(wrap(lambda theta: {"x": theta["y"], "y": 2 * theta["y"]}), theta) == ["y"]


def test_temperature_zero_climbs_without_noise():
    posterior = ib.Posterior({"x": dist.Gamma(3.0, 2.0)})
    state = ib.sgld(posterior, temperature=0.0).init({"x": 5.0})
    kernel = ib.sgld(posterior, temperature=0.0)
    step = jax.jit(kernel.step)
    for i in range(400):
        state, _ = step(jax.random.key(i), state, None, 0.1)
    mode = 1.0  # of Gamma(3, 2); not that of its proxy
    assert float(kernel.position(state)["x"]) == pytest.approx(mode, abs=1e-4)


@pytest.mark.parametrize("make", [ib.sgld, ib.leimkuhler_matthews, ib.baoab, ib.sgnht])
def test_the_jacobian_is_not_tempered(make):
    """Gamma(2, 2) to the power 4 is Gamma(5, 8)."""
    kernel = make(ib.Posterior({"x": dist.Gamma(2.0, 2.0)}), temperature=0.25)
    x = ib.sample(kernel, 0.02, 4_000, burn_in=500, num_chains=64, progress=False).theta["x"]
    assert np.mean(x) == pytest.approx(5 / 8, rel=0.03)
    assert np.std(x) == pytest.approx(5**0.5 / 8, rel=0.06)


@pytest.mark.parametrize("make", [ib.baoab, ib.sgnht])
def test_rmsprop_serves_kernels_that_know_the_drift_of_the_step_before(make):
    kernel = make(ib.Posterior({"x": dist.Normal(0.0, 0.01)}), preconditioner=ib.preconditioners.rmsprop(500))
    x = ib.sample(kernel, 1e-2, 3_000, burn_in=500, num_chains=16, init={"x": 0.02}, progress=False).theta["x"]
    assert np.std(x) == pytest.approx(0.01, rel=0.1)


def test_rmsprop_is_its_running_mean():
    """With bias correction, under its limit while that is low, frozen after six steps."""
    rmsprop, step_size = ib.preconditioners.rmsprop(adapt_steps=6, decay=0.8, damping=0.01), jnp.float32(0.05)
    drifts = np.array([[3.0, 0.1], [0.5, -0.2], [-2.0, 0.3], [1.0, 0.2], [4.0, 0.1], [-0.7, 0.2], [50.0, 9.0]])
    state, scales = rmsprop.init({"x": jnp.zeros(2)}), []
    for drift in drifts:
        scale, state = rmsprop.update(state, {"x": jnp.asarray(drift, jnp.float32)}, None, step_size)
        scales.append(np.asarray(scale["x"]))
    for step in range(6):
        weights = 0.8 ** np.arange(step, -1, -1)
        mean = np.average(drifts[: step + 1] ** 2, axis=0, weights=weights)
        expected = np.minimum(1 / (0.01 + np.sqrt(mean)), 0.05 * 2**step)
        np.testing.assert_allclose(scales[step], expected, rtol=1e-5)
    assert scales[0][0] == pytest.approx(0.05)  # limited
    assert scales[5][0] < 0.6 < 0.05 * 2**5  # and no more
    assert np.array_equal(scales[6], scales[5])
    np.testing.assert_allclose(rmsprop.moved(state)["x"], scales[5] / scales[2], rtol=1e-5)


@pytest.mark.parametrize("corrects", [False, True], ids=["plain", "noise-corrected"])
@pytest.mark.parametrize("make", [ib.sgld, ib.baoab])
def test_rmsprop_learns_from_the_mode_where_no_gradient_says_how_far_to_go(make, corrects):
    """With a control variate there is no gradient noise either: scales were 1 / damping, and the chains out of sight."""
    posterior, mean, sd = linear_regression()
    mode = {"w": jnp.asarray(mean, jnp.float32)}
    kernel = make(
        posterior,
        gradient=ib.gradients.control_variate(center=mode),
        noise_correction=corrects,
        preconditioner=ib.preconditioners.rmsprop(400),
    )
    draws = ib.sample(kernel, 1e-3, 5_000, burn_in=500, batch_size=100, num_chains=16, init=mode, progress=False)
    w = draws.theta["w"]
    np.testing.assert_allclose(w.std((0, 1)), sd, rtol=0.1)
    np.testing.assert_allclose(w.mean((0, 1)), mean, atol=0.15 * sd.max())
    adaptive = kernel.preconditioner
    assert np.max(np.abs(np.log(adaptive.moved(draws.state.preconditioner)["w"]))) < np.log(4)


def test_an_adaptation_that_was_frozen_while_it_moved_says_so():
    """From a mode, where the scale still doubles at every step."""
    kernel = ib.sgld(ib.Posterior({"x": dist.Normal(0.0, 1.0)}), preconditioner=ib.preconditioners.rmsprop(10))
    draws = ib.sample(kernel, 1e-3, 20, burn_in=10, init={"x": 1e-4}, progress=False)
    moved = kernel.preconditioner.moved(draws.state.preconditioner)["x"]
    assert np.all(moved > 8)


def test_rmsprop_freezes_after_its_adapting_steps():
    kernel = ib.sgld(GAMMA, preconditioner=ib.preconditioners.rmsprop(adapt_steps=5))
    state, seen = kernel.init({"x": 0.4}), []
    for i in range(8):
        state, _ = kernel.step(jax.random.key(i), state, None, EPS)
        seen.append(float(state.preconditioner.square["x"]))
    assert len(set(seen[:5])) == 5
    assert len(set(seen[4:])) == 1
    with pytest.raises(ValueError, match="burn_in=3 must be at least 5"):
        ib.sample(kernel, EPS, 100, burn_in=3)


@pytest.mark.parametrize("name", CORV)
def test_identity_on_the_real_line_is_the_classic_algorithm(name):
    """With f the identity nothing of the transform is left: the drift is the score."""
    posterior = ib.Posterior({"x": dist.Normal(1.0, 2.0)})
    kernel = CORV[name](posterior)
    assert kernel.space.transforms["x"].name == "identity"
    _, info = kernel.step(jax.random.key(0), kernel.init({"x": 3.0}), None, 1e-6)
    assert float(info.gradient_norm) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("name", KERNELS)
def test_steps_can_be_jitted_vmapped_and_scanned(name):
    kernel = KERNELS[name](ib.Posterior({"x": dist.Gamma(2.0, 1.0).expand([3])}))
    states = jax.vmap(kernel.init)({"x": jnp.full((4, 3), 0.5)})

    @jax.jit
    def run(states, key):
        def step(states, key):
            return jax.vmap(lambda k, s: kernel.step(k, s, None, 0.01))(jax.random.split(key, 4), states)

        return jax.lax.scan(step, states, jax.random.split(key, 20))

    states, info = run(states, jax.random.key(0))
    theta = jax.vmap(kernel.position)(states)["x"]
    assert theta.shape == (4, 3)
    assert bool(jnp.all(theta > 0))
    assert info.gradient_norm.shape == (20, 4)
    assert bool(jnp.all(info.finite))


@pytest.mark.parametrize("name", CORV)
def test_no_dtype_promotes_by_accident(name, strict_promotion):
    posterior = ib.Posterior(
        supports={"x": ib.transforms.Softplus().codomain},
        gradient=lambda theta, batch: {"x": -theta["x"] + jnp.mean(batch)},
        data=np.zeros(6, np.float32),
    )
    options = {"noise_correction": True} if name != "sgnht" else {}
    kernel = CORV[name](posterior, **options)
    state = kernel.init({"x": jnp.float32(0.5)})
    state, info = kernel.step(jax.random.key(0), state, jnp.ones(2), jnp.float32(0.1))
    assert kernel.position(state)["x"].dtype == jnp.float32
    assert bool(info.finite)


@pytest.mark.parametrize("name", KERNELS)
def test_a_blackjax_loop_drives_our_kernels(name):
    """The loop of BlackJAX's SGLD examples: only the constructor changes, and `info` comes with the state."""
    blackjax = pytest.importorskip("blackjax", reason="BlackJAX is not installed")
    data = {"n": jnp.asarray(poisson_rates().data["n"])}
    posterior = ib.Posterior(
        {"rate": dist.Gamma(2.0, 1.0)}, lambda t, b: b["n"][:, 0] * jnp.log(t["rate"]) - t["rate"], data
    )
    theta = {"rate": jnp.array(2.0)}

    def loop(init, step, position):
        state, key = init(theta), jax.random.key(0)
        for _ in range(5):
            key, batch_key, step_key = jax.random.split(key, 3)
            rows = jax.random.choice(batch_key, 40, (8,))
            state = step(step_key, state, {"n": data["n"][rows]}, 1e-3)
        return position(state)

    kernel = KERNELS[name](posterior)
    ours = loop(kernel.init, lambda *args: kernel.step(*args)[0], kernel.position)

    gradient = blackjax.sgmcmc.gradients.grad_estimator(
        lambda t: dist.Gamma(2.0, 1.0).log_prob(t["rate"]),
        lambda t, row: row["n"][0] * jnp.log(t["rate"]) - t["rate"],
        40,
    )
    theirs = blackjax.sgld(gradient)
    reference = loop(theirs.init, jax.jit(theirs.step), lambda state: state)
    assert 0.5 * float(reference["rate"]) < float(ours["rate"]) < 2 * float(reference["rate"])


@pytest.mark.parametrize("name", ["sgld", "leimkuhler_matthews", "baoab"])
def test_info_tells_when_noise_cannot_be_corrected_for(name):
    """Of three coordinates the two whose noise alone has more variance than the step may have."""
    h = np.sqrt(0.2)
    limit = 4 * np.tanh(h / 2) / h**2 if name == "baoab" else 2 / 0.1
    at = slope(np.log(np.expm1(1.0))) ** 2
    posterior = ib.Posterior({"x": dist.Gamma(0.5, 2.0).expand([3])})
    variance = np.array([0.96, 1.02, 1.02], np.float32) * limit / at
    kernel = CORV[name](posterior, noise_correction={"x": variance})
    state = kernel.init({"x": np.ones(3)})
    if name == "baoab":  # at first it has no gradient, and no noise of one
        _, info = kernel.step(jax.random.key(0), state, None, 0.1)
        assert (float(info.noise_variance), float(info.clamped)) == (0, 0)
        state = state._replace(variance={"x": at * jnp.asarray(variance)})
    _, info = kernel.step(jax.random.key(0), state, None, 0.1)
    assert float(info.clamped) == pytest.approx(2 / 3)
    assert float(info.noise_variance) == pytest.approx(limit, rel=1e-4)


@pytest.mark.parametrize("name", KERNELS)
def test_a_step_that_reports_nothing_moves_all_the_same(name):
    kernel = KERNELS[name](GAMMA)
    state, noise = kernel.init({"x": 0.4}), {"x": jnp.float32(0.3)}
    update = jax.jit(lambda report: kernel.update(noise, state, None, EPS, report))
    (told, info), (silent, nothing) = update(True), update(False)
    assert jax.tree.all(jax.tree.map(np.array_equal, told, silent))
    np.testing.assert_allclose(info, kernel.update(noise, state, None, EPS)[1], rtol=1e-6)
    assert info.gradient_norm > 0
    assert not np.any(nothing)


def test_info_tells_when_something_is_not_finite():
    posterior = ib.Posterior(supports={"x": GAMMA.supports["x"]}, log_prior=lambda t: jnp.sqrt(t["x"] - 1e9))
    _, info = ib.sgld(posterior).step(jax.random.key(0), ib.sgld(posterior).init({"x": 1.0}), None, 0.1)
    assert not bool(info.finite)


def test_equal_kernels_are_equal_and_others_are_not():
    assert ib.sgld(GAMMA, transforms="icll") == ib.sgld(GAMMA, transforms="icll")
    assert hash(ib.sgld(GAMMA)) == hash(ib.sgld(GAMMA, transforms="softplus"))
    assert ib.sgld(GAMMA) != ib.sgld(GAMMA, transforms="icll")
    assert ib.sgld(GAMMA) != ib.sgld(GAMMA, temperature=0.5)
    assert ib.sgld(GAMMA) != dataclasses.replace(ib.sgld(GAMMA), reports=())
    assert ib.sgld(GAMMA) != ib.leimkuhler_matthews(GAMMA)
    assert ib.baoab(GAMMA) != ib.baoab(GAMMA, friction=2.0)
    assert ib.sgld(GAMMA, preconditioner={"x": 2.0}) == ib.sgld(GAMMA, preconditioner={"x": 2.0})
    assert ib.sgld(GAMMA, preconditioner={"x": 2.0}) != ib.sgld(GAMMA, preconditioner={"x": 3.0})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ib.sgld(GAMMA, temperature=-1.0), "`temperature` must be at least 0"),
        (lambda: ib.baoab(GAMMA, friction=0.0), "`friction` must be positive"),
        (lambda: ib.sgnht(GAMMA, thermal_mass=0.0), "must be positive"),
        (lambda: ib.sgld(GAMMA, noise_correction=True), "no gradient noise"),
        (lambda: ib.sgld(GAMMA, noise_correction=np.True_), "no gradient noise"),
        (lambda: ib.sgld(GAMMA, noise_correction="yes"), "must be True, False, or a variance"),
        (lambda: ib.sgld(GAMMA, noise_correction=-1.0), "cannot be negative"),
        (lambda: ib.sgld(GAMMA, preconditioner="adam"), "Unknown preconditioner 'adam'"),
        (lambda: ib.sgld(GAMMA, preconditioner={"x": -1.0}), "must be positive"),
        (lambda: ib.sgld(GAMMA, preconditioner={"y": 1.0}).init({"x": 1.0}), "A preconditioner must be one .*: x "),
        (lambda: ib.sgld(GAMMA, gradient="svrg"), "`gradient` must be"),
        (lambda: ib.preconditioners.rmsprop(adapt_steps=0), "adapt_steps >= 1"),
        (lambda: ib.sgld(GAMMA, transforms="cosh"), "Unknown transform 'cosh'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_options_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


POSITIVE_TABLE, SHARES = dist.Exponential(1.0).expand([5, 3]).to_event(2), dist.Dirichlet(np.ones(3)).expand([5])


@pytest.mark.parametrize("make", [*KERNELS.values(), ib.baselines.scir])
def test_a_kernel_of_something_else_says_what_it_takes(make):
    with pytest.raises(TypeError, match=r"takes an ib.Posterior; got .* ib.from_numpyro"):
        make(lambda theta: -(theta["x"] ** 2))
