"""The factor model against its formulas, and the estimator on ratings whose factors are known."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import stats
from sklearn.base import clone, is_regressor
from sklearn.model_selection import cross_val_score

import inbounds as ib
from inbounds.data.generated_ratings import generate_ratings
from inbounds.data.ratings import Ratings
from inbounds.models.factors import CENTRE, INTERACTION, LEVEL, LIKELIHOODS, FactorModel, levels_of, typical_mean
from inbounds.models.nmf import Curve, OneDrawWarning, UnknownLabelWarning, _Watcher, as_ratings
from inbounds.models.rating_baselines import UserItemBias
from inbounds.preconditioners import scaled_by_itself

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

USERS, ITEMS = 60, 40


def table(seed=0, share=0.5):
    random = np.random.default_rng(seed)
    truth = random.gamma(2, 0.5, (USERS, 3)) @ random.gamma(2, 0.5, (ITEMS, 3)).T
    user, item = np.nonzero(random.random(truth.shape) < share)
    return user, item, np.clip(np.round(truth[user, item] + 0.3 * random.standard_normal(len(user))), 0, 9)


@pytest.fixture(scope="module")
def ratings():
    return Ratings.from_columns(*table())


@pytest.fixture(scope="module")
def fitted(ratings):
    return ib.models.BayesianNMF(3, offsets=False, iterations=1_500, batch_size=300, keep=30).fit(ratings)


@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_likelihood_is_that_of_its_mean(ratings, likelihood, offsets):
    """Differences of log likelihoods between two positions are those of SciPy's distributions at the predicted means."""
    model = FactorModel.of(ratings, 3, likelihood, offsets)
    batch = {"user": ratings.user, "item": ratings.item, "rating": ratings.rating}
    positions = [model.start(jax.random.key(seed)) for seed in (0, 1)]
    ours = [np.asarray(model.log_likelihood(theta, batch), float) for theta in positions]
    means = [np.asarray(model.predict(theta, ratings.user, ratings.item), float) for theta in positions]
    exact = {
        "poisson": lambda mean: stats.poisson.logpmf(ratings.rating, mean),
        "gaussian": lambda mean: stats.norm.logpdf(ratings.rating, mean, model.spread / np.sqrt(1.5)),
        "binomial": lambda mean: stats.binom.logpmf(ratings.rating, 9, mean / 9),
    }[likelihood]
    np.testing.assert_allclose(ours[1] - ours[0], exact(means[1]) - exact(means[0]), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_preconditioner_is_one_over_the_curvature(ratings, likelihood, offsets):
    """At draws from the prior, within a factor of three: it sets the scale of steps, nothing else."""
    model = FactorModel.of(ratings, 3, likelihood, offsets)
    theta = model.start(jax.random.key(0))
    transform = ib.transforms.Softplus()
    batch = {"user": ratings.user, "item": ratings.item, "rating": model.predict(theta, ratings.user, ratings.item)}

    def energy(phi):  # of W alone, with ratings at their means: the expected curvature
        return -jnp.sum(model.log_likelihood(theta | {"W": transform(phi)}, batch))

    phi = transform.inv(theta["W"])
    curvature = jnp.stack([jax.jvp(jax.grad(energy), (phi,), (_unit(phi, r),))[1][:, r] for r in range(3)], axis=1)
    prior = model._prior_curvature()["W"]
    slope = transform.derivative(transform.inv(jnp.float32(model.typical_factor)))
    scales = _at(theta, model.preconditioner(ratings))["W"]
    ratio = np.asarray((curvature + slope**2 * prior) * scales).mean()
    assert 1 / 3 < ratio < 3


def _at(theta, scales):
    """Scales or variances that may be a function of theta."""
    return scales(theta) if callable(scales) else scales


def _unit(phi, column):
    return jnp.zeros_like(phi).at[:, column].set(1.0)


@pytest.mark.parametrize(("likelihood", "offsets"), [("gaussian", True), ("poisson", False)])
def test_the_gradient_variance_is_that_of_minibatches(ratings, likelihood, offsets):
    """On average over the rows, at data drawn from the model itself, within a factor of two."""
    model = FactorModel.of(ratings, 3, likelihood, offsets)
    random = np.random.default_rng(0)
    theta = model.start(jax.random.key(0))
    for name in ("W", "H"):  # at a draw from the prior
        shape = model.shapes[name]
        theta[name] = (
            np.abs(CENTRE + random.standard_normal(shape))
            if offsets
            else random.exponential(1 / model.prior_rate, shape)
        )
    mean = np.asarray(model.predict(theta, ratings.user, ratings.item), float)
    noise = model.spread / np.sqrt(1.5) * random.standard_normal(len(mean))
    rating = mean + noise if likelihood == "gaussian" else random.poisson(mean).astype(float)
    batch_size = 100
    rows = random.integers(0, len(mean), (400, batch_size))
    drawn = (ratings.user[rows], ratings.item[rows], rating[rows].astype(np.float32))

    def gradient(user, item, rating):
        batch = {"user": user, "item": item, "rating": rating}
        return jax.grad(lambda t: len(mean) / batch_size * jnp.sum(model.log_likelihood(t, batch)))(theta)

    found = jax.tree.map(lambda g: np.var(np.asarray(g), axis=0), jax.vmap(gradient)(*drawn))
    expected = _at(theta, model.gradient_variance(ratings, batch_size))
    assert {name: np.broadcast_shapes(np.shape(v), found[name].shape) for name, v in expected.items()} == model.shapes
    for name in found:
        assert 0.5 < np.mean(found[name]) / np.mean(expected[name]) < 2.0, name


def test_the_coupling_is_a_bilinear_form_of_factors_and_a_one(ratings):
    model = FactorModel.of(ratings, 3, "gaussian", offsets=True)
    theta = jax.tree.map(np.asarray, model.start_from(0))

    def table(theta):
        w, h = (np.insert(theta[name] - CENTRE, 0, 1.0, axis=1) for name in ("W", "H"))
        return theta["user_offset"][:, None] + theta["item_offset"] + w @ theta["coupling"] @ h.T

    random = np.random.default_rng(1)
    anywhere = {name: random.standard_normal(model.shapes[name]) for name in ("coupling", "user_offset", "item_offset")}
    for point in (theta, theta | anywhere):
        found = model.predictor(jax.tree.map(jnp.asarray, point), ratings.user, ratings.item)
        np.testing.assert_allclose(found, table(point)[ratings.user, ratings.item], atol=1e-4)


@pytest.mark.parametrize("rank", [1, 2, 20])
def test_the_prior_coupling_has_one_level_and_the_rest_in_pairs(ratings, rank):
    coupling = FactorModel.of(ratings, rank, "gaussian", offsets=True).prior_mean("coupling")
    pairs = np.diag(coupling)
    assert np.sum(pairs**2) == pytest.approx(INTERACTION)
    assert np.count_nonzero(pairs) == max(1, rank - 1)
    level = coupling - np.diag(pairs)
    assert np.count_nonzero(level) == (2 if rank > 1 else 0)
    if rank > 1:
        assert (-level[1, 0], -level[0, 1]) == tuple(map(np.float32, levels_of(ratings)))


def crossed(sds, users=300, items=200, share=0.2, seed=0, chosen=0.0):
    """Ratings = 3 + user + item + rest, with known sds, of a table with holes; better items are rated more often by `chosen`."""
    random = np.random.default_rng(seed)
    user, item = (sd * random.standard_normal(size) for sd, size in zip(sds, (users, items), strict=False))
    chance = share * np.exp(chosen * item / sds[1] - chosen**2 / 2)
    rows, columns = np.nonzero(random.random((users, items)) < chance)
    rating = 30 + user[rows] + item[columns] + sds[2] * random.standard_normal(len(rows))
    return Ratings.from_columns(rows, columns, rating)


@pytest.mark.parametrize("sds", [(0.5, 1.0, 1.0), (1.2, 0.4, 0.8)])
def test_the_levels_of_users_and_items_are_found_again(sds):
    table = crossed(sds)
    found = np.array(levels_of(table)) * table.rating.std()
    np.testing.assert_allclose(found, sds[:2], rtol=0.12)


def test_ratings_that_say_nothing_of_levels_get_those_of_no_knowledge():
    for rating in ([3.0] * 4, [1.0, 2.0, 3.0, 4.0]):
        one_each = Ratings.from_columns([0, 1, 2, 3], [0, 1, 2, 3], rating)
        assert levels_of(one_each) == (LEVEL, LEVEL)


def test_what_is_typical_is_not_the_mean_of_what_is_popular():
    table = crossed((0.5, 1.0, 1.0), chosen=0.8, share=0.1)
    assert table.rating.mean() > 30.5
    assert typical_mean(table, levels_of(table)) == pytest.approx(30, abs=0.2)


def test_the_bare_estimator_keeps_up_with_one_offset_per_user_and_item_on_a_tiny_table():
    """Five ratings per user to fit, and 25 to look at. With 2,000 steps on nine tenths of them it is 0.007 to 0.017 behind."""
    train, test, _ = generate_ratings(300, 150, 9_000, seed=1).split((5 / 30, 25 / 30, 0.0), 0)
    model = ib.models.BayesianNMF(rank=10, progress=False).fit(train)
    assert -model.score(test) < UserItemBias.fit(train).rmse(test) + 0.0045
    assert model.history_ == {}
    assert model.dispersion_ == 1
    # No rating was held out, and yet the intervals hold what they claim.
    low, high = model.predict_interval(test.user_ids[test.user], test.item_ids[test.item], level=0.9)
    assert np.mean((test.rating >= low) & (test.rating <= high)) == pytest.approx(0.9, abs=0.03)


def test_what_is_left_out_follows_from_the_ratings_per_user():
    """Length, draws kept and the share held out: of a table with few ratings per user, of one with more, and of a large one."""

    def chosen(users, items, per_user, **parameters):
        rating = np.ones(users * per_user, np.float32)
        user = np.repeat(np.arange(users), per_user)
        table = Ratings(user, np.tile(np.arange(per_user), users), rating, np.arange(users), np.arange(items))
        model = ib.models.BayesianNMF(**parameters)
        return *model._length(table), model._share(table)

    assert chosen(50, 40, 19) == (10_000, 300, 0)
    assert chosen(50, 40, 20) == (2_000, 100, 0.1)
    assert chosen(6_000, 4_000, 5) == (2_000, 100, 0)
    # Their intervals have no width of their own.
    assert chosen(50, 40, 5, likelihood="poisson") == (10_000, 300, 0.1)
    assert chosen(50, 40, 5, iterations=7, keep=3, validation=0.2) == (7, 3, 0.2)


def test_a_factor_with_a_strong_coupling_is_stiffer(ratings):
    """The scales and variances with offsets are those of the coupling as it stands, and of no factor that they belong to."""
    model = FactorModel.of(ratings, 3, "gaussian", offsets=True)
    theta = jax.tree.map(jnp.asarray, model.start_from(0))
    strong = theta | {"coupling": theta["coupling"].at[3, 3].mul(2.0)}
    scales, variances = model.preconditioner(ratings), model.gradient_variance(ratings, 100)
    for name in ("W", "H"):
        before, after = scales(theta)[name], scales(strong)[name]
        np.testing.assert_array_equal(before[:, :2], after[:, :2])
        assert np.all(after[:, 2] < before[:, 2])
        assert np.all(variances(strong)[name][:, 2] > 2 * variances(theta)[name][:, 2])
    assert scaled_by_itself(scales, theta) == []
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-6),
        model.preconditioner(ratings, few_rows=True)(theta),
        scales(theta),
    )


def test_a_model_saved_when_factors_meant_something_else_is_refused(ratings, tmp_path, monkeypatch):
    model = ib.models.BayesianNMF(2, iterations=20, progress=False).fit(ratings)
    monkeypatch.setattr(ib.models.BayesianNMF, "_version", 1)
    path = model.save(tmp_path / "old.npz")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="version 1 of its format, which is 2 now: fit it again"):
        ib.models.BayesianNMF.load(path)


def test_one_draw_has_no_spread_and_says_so(ratings):
    model = ib.models.BayesianNMF(2, iterations=5, progress=False).fit(ratings)
    user, item = ratings.user_ids[0], ratings.item_ids[0]
    assert np.isfinite(model.predict(user, item)).all()
    with pytest.warns(OneDrawWarning, match="kept one draw: its spread is not known"):
        model.predict(user, item, return_std=True)


def test_the_prior_mean_matches_the_ratings(ratings):
    model = FactorModel.of(ratings, 20)
    assert model.rank / model.prior_rate**2 == pytest.approx(ratings.rating.mean(), rel=1e-6)
    draws = np.random.default_rng(0).exponential(1 / model.prior_rate, (2, 4_000, 20))
    assert np.sum(draws[0] * draws[1], axis=1).mean() == pytest.approx(ratings.rating.mean(), rel=0.05)


def test_it_learns_the_table_and_its_intervals_cover(fitted):
    user, item, rating = table(seed=0, share=1.0)
    seen = set(zip(*table()[:2], strict=True))
    fresh = np.array([(u, i) not in seen for u, i in zip(user, item, strict=True)])
    user, item, rating = user[fresh], item[fresh], rating[fresh]
    error = np.sqrt(np.mean((fitted.predict(user, item) - _truth()[user, item]) ** 2))
    assert error < 0.4 < rating.std() / 3
    low, high = fitted.predict_interval(user, item, level=0.9)
    assert np.mean((_truth()[user, item] > low) & (_truth()[user, item] < high)) > 0.85
    assert fitted.score((user, item, rating)) > -0.7
    assert fitted.history_["rmse"][-1] <= fitted.history_["single_rmse"][-20:].mean()
    assert 0.5 < fitted.dispersion_ < 2


def _truth():
    random = np.random.default_rng(0)
    return random.gamma(2, 0.5, (USERS, 3)) @ random.gamma(2, 0.5, (ITEMS, 3)).T


def test_a_draw_weighs_its_number_at_any_time():
    """The average and the variance so far are NumPy's with weights 1, 2, 3, ...; kept draws lie as dense as those weights."""
    model = FactorModel(2, 1, 1)
    user, item, rating = jnp.array([0, 1]), jnp.array([0, 0]), jnp.array([1.0, 2.0])
    collector = Curve(model, user, item, rating, 40)
    watcher = _Watcher(False, model, 40, 40, keep=10)
    draws = np.random.default_rng(0).gamma(2, 1, (40, 2)).astype(np.float32)
    state = collector.init(None)
    for t, draw in enumerate(draws, start=1):
        theta = {"W": jnp.asarray(draw)[:, None], "H": jnp.ones((1, 1))}
        state = jax.jit(collector.update)(state, theta)
        mean = np.average(draws[:t], axis=0, weights=np.arange(1, t + 1))
        found = collector.result(state)
        np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
        variance = np.average(np.square(draws[:t] - mean), axis=0, weights=np.arange(1, t + 1))
        np.testing.assert_allclose(found["variance"], variance, rtol=1e-4, atol=1e-6)
        assert found["curve"][t - 1, 0] == pytest.approx(np.sqrt(np.mean((mean - rating) ** 2)), rel=1e-5)
        watcher(t, {"latest": ([t], jax.tree.map(lambda leaf: leaf[None], theta))})
    kept = watcher.kept_draws()["W"][:, :2, 0]
    number = 1 + np.argmin(np.abs(draws[None, :, 0] - kept[:, :1].astype(np.float32)), axis=1)
    np.testing.assert_array_equal(number, np.ceil(40 * np.sqrt(np.arange(1, 11) / 10)))


def test_recommendations_are_the_best_items_not_yet_rated(fitted, ratings):
    user = 7
    rated = set(ratings.item[ratings.user == user].tolist())
    best = fitted.recommend(user, n=5)
    assert not rated & set(best.items.tolist())
    others = [i for i in range(ITEMS) if i not in rated and i not in best.items]
    assert best.mean.min() >= fitted.predict(user, others).max()
    assert np.all(np.diff(best.mean) <= 0)
    assert np.all(best.std > 0)
    assert len(fitted.recommend(user, n=ITEMS, exclude_rated=False).items) == ITEMS


def test_unknown_labels_get_the_priors_answer_and_a_flag(fitted):
    with pytest.warns(UnknownLabelWarning, match="1 of 2 pairs"):
        mean = fitted.predict([7, 10_000], [3, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again, std, known = fitted.predict([7, 10_000], [3, 3], return_std=True, return_known=True)
    assert np.array_equal(mean, again)
    assert known.tolist() == [True, False]
    factor = fitted.model_.typical_factor  # of the unknown user, on the item's own factors
    expected = factor * fitted.draws_["H"][:, 3].astype(float).sum(axis=1).mean()
    assert mean[1] == pytest.approx(expected, rel=1e-3)
    assert std[1] > std[0]
    with pytest.warns(UnknownLabelWarning, match="prior's choice"):
        assert len(fitted.recommend(10_000, n=3).items) == 3


def test_factors_are_positive_means_with_spreads(fitted):
    factors = fitted.factors()
    assert factors.users.shape == factors.users_std.shape == (USERS, 3)
    assert factors.items.shape == (ITEMS, 3)
    assert all(np.all(x > 0) for x in factors)
    kept = fitted.draws_["W"][:, :USERS].astype(float).mean(axis=0)
    assert np.corrcoef(kept.ravel(), factors.users.ravel())[0, 1] > 0.95


def test_it_survives_a_file(fitted, tmp_path):
    again = ib.models.BayesianNMF.load(fitted.save(tmp_path / "model.npz"))
    assert again.get_params() == fitted.get_params()
    assert np.array_equal(again.predict(3, [1, 2, 3]), fitted.predict(3, [1, 2, 3]))
    assert np.array_equal(again.recommend(5).items, fitted.recommend(5).items)
    assert np.array_equal(again.factors().users_std, fitted.factors().users_std)
    assert np.array_equal(again.history_["rmse"], fitted.history_["rmse"])
    (tmp_path / "other.npz").write_bytes((tmp_path / "model.npz").read_bytes()[:-200])
    with pytest.raises(ValueError, match="not a saved BayesianNMF, or is damaged"):
        ib.models.BayesianNMF.load(tmp_path / "other.npz")


def test_it_follows_scikit_learn():
    model = ib.models.BayesianNMF(5, likelihood="binomial", keep=7)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(rank=6) is model
    assert repr(model) == "BayesianNMF(rank=6, likelihood='binomial', keep=7)"
    with pytest.raises(ValueError, match="has no parameter 'size'"):
        model.set_params(size=3)
    with pytest.raises(ValueError, match="not fitted yet"):
        model.predict([1], [1])


def test_every_form_of_ratings_is_the_same(ratings):
    user, item, rating = table()
    matrix = scipy.sparse.coo_array((rating, (user, item)), shape=(USERS, ITEMS))
    columns = np.stack([user, item, rating], axis=1)
    for form in (as_ratings(ratings), as_ratings(matrix), as_ratings(columns), as_ratings(columns[:, :2], rating)):
        np.testing.assert_array_equal(form.to_sparse().toarray(), ratings.to_sparse().toarray())
        assert form.user_ids.dtype.kind == "i"
    with pytest.raises(ValueError, match="three columns"):
        as_ratings(np.ones((5, 4)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rank": 0}, "`rank` must be a positive whole number"),
        ({"likelihood": "cauchy"}, "Unknown likelihood 'cauchy'. Known: poisson, gaussian, binomial"),
        ({"prior_rate": 1.0}, "leave it out, or say offsets=False"),
        ({"step_size": "large"}, 'or "auto"'),
        ({"kernel": "gibbs"}, "Unknown kernel 'gibbs'"),
        ({"validation": 1.0}, "`validation` is a share"),
    ],
)
def test_wrong_parameters_are_named(ratings, parameters, message):
    with pytest.raises(ValueError, match=message):
        ib.models.BayesianNMF(**parameters).fit(ratings)


def test_parameters_from_a_grid_survive_a_file(ratings, tmp_path):
    model = ib.models.BayesianNMF(np.int64(2), iterations=np.int64(40), random_state=np.int64(5), progress=False)
    again = ib.models.BayesianNMF.load(model.fit(ratings).save(tmp_path / "model.npz"))
    assert again.get_params() == model.get_params()


def test_scikit_learn_can_cross_validate_it():
    user, item, rating = table()
    model = ib.models.BayesianNMF(2, iterations=40, progress=False)
    assert is_regressor(model)
    assert np.all(np.isfinite(cross_val_score(model, np.stack([user, item], axis=1), rating, cv=2)))


def test_what_was_held_out_is_not_recommended(ratings):
    order = np.random.default_rng(0).permutation(len(ratings))
    train, held_out = ratings.select(np.sort(order[100:])), ratings.select(np.sort(order[:100]))
    model = ib.models.BayesianNMF(2, iterations=40, progress=False).fit(train, eval_set=held_out)
    for user, item in zip(held_out.user_ids[held_out.user], held_out.item_ids[held_out.item], strict=True):
        assert item not in model.recommend(user, ITEMS).items


def test_a_list_of_rows_is_one_of_rows():
    rows = [[1, 10, 5.0], [2, 20, 3.0], [3, 30, 4.0]]
    for form in (rows, np.array(rows), tuple(np.array(rows).T)):
        found = as_ratings(form)
        assert found.user_ids.tolist() == [1, 2, 3]
        assert found.rating.tolist() == [5.0, 3.0, 4.0]


def test_something_is_left_to_fit(ratings):
    few = ratings.select(np.arange(25))
    assert ib.models.BayesianNMF(2, iterations=20, validation=0.99, progress=False).fit(few).draws_["W"].size


def test_large_ratings_do_not_overflow_the_kept_draws():
    user, item, rating = table()
    model = ib.models.BayesianNMF(1, iterations=40, progress=False).fit((user, item, 1e10 * (rating + 1)))
    assert np.all(np.isfinite(model.predict(user[:5], item[:5])))


def test_all_the_ratings_in_a_step_have_no_noise_to_correct_for(ratings):
    model = ib.models.BayesianNMF(2)
    factors = FactorModel.of(ratings, 2)
    assert model._kernel(factors, ratings, len(ratings)).options["noise_correction"] is False
    assert model._kernel(factors, ratings, len(ratings) - 1).options["noise_correction"] is not False
