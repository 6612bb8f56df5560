"""The estimators as scikit-learn sees them: its own checks, names of columns, tables."""

import gc
import pickle
import warnings

import jax
import numpy as np
import pytest

from inbounds.models import LDA, BayesianNMF, BinaryNetwork

checks = pytest.importorskip("sklearn.utils.estimator_checks")
clone = pytest.importorskip("sklearn.base").clone

NETWORK = BinaryNetwork(hidden=(8,), epochs=4, validation=0.0, progress=False)
TOPICS = LDA(2, max_iter=2, draws=2, progress=False)
RATINGS = BayesianNMF(2, iterations=20, progress=False)

# What scikit-learn's checks give to a regressor, and a table of ratings cannot be: two columns of labels, each pair once, and
# ratings that are not negative.
WIDTH = "the check's X has another number of columns than the two of a pair (user, item)"
TWICE = "the check's X has the same pair of labels twice, which two ratings contradict"
NEGATIVE = "the check's y has negative ratings"
NOT_OF_RATINGS = {
    "check_fit_score_takes_y": WIDTH,
    "check_estimators_overwrite_params": TWICE,
    "check_dont_overwrite_parameters": WIDTH,
    "check_estimators_fit_returns_self": TWICE,
    "check_readonly_memmap_input": TWICE,
    "check_n_features_in_after_fitting": WIDTH,
    "check_positive_only_tag_during_fit": WIDTH,
    "check_estimators_dtypes": WIDTH,
    "check_dtype_object": WIDTH,
    "check_pipeline_consistency": WIDTH,
    "check_estimators_nan_inf": WIDTH,
    "check_estimators_pickle": WIDTH,
    "check_f_contiguous_array_estimator": WIDTH,
    "check_regressors_train": WIDTH,
    "check_regressor_data_not_an_array": WIDTH,
    "check_regressors_no_decision_function": WIDTH,
    "check_supervised_y_2d": WIDTH,
    "check_regressors_int": WIDTH,
    "check_methods_sample_order_invariance": WIDTH,
    "check_methods_subset_invariance": WIDTH,
    "check_fit2d_1sample": WIDTH,
    "check_dict_unchanged": WIDTH,
    "check_fit_idempotent": NEGATIVE,
    "check_fit_check_is_fitted": NEGATIVE,
    "check_n_features_in": NEGATIVE,
    "check_fit2d_predict1d": WIDTH,
}


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly():
    """The checks fit dozens of times, a few steps each: what is compiled need not be fast."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.parametrize(
    ("model", "expected"), [(TOPICS, {}), (RATINGS, NOT_OF_RATINGS)], ids=lambda x: type(x).__name__
)
def test_scikit_learns_own_checks_pass(model, expected):
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of the checks: no base class of scikit-learn's, checks that are not run, data to convert
        found = checks.check_estimator(model, expected_failed_checks=expected, on_fail=None)
    assert [f"{one['check_name']}: {one['exception']!r}" for one in found if one["status"] == "failed"] == []
    by_status = {
        status: {one["check_name"] for one in found if one["status"] == status} for status in ("xfail", "skipped")
    }
    assert by_status["xfail"] == set(expected)  # none is expected to fail that passes
    assert by_status["skipped"] <= {"check_array_api_input"}
    assert len(found) > 40


def test_a_network_passes_the_checks_of_the_interface_and_those_of_classifiers():
    """A fit of it is dear; what the estimators share is looked at with the others."""

    def of(network, **which):
        return {_name(check): (one, check) for one, check in checks.estimator_checks_generator(network, **which)}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = of(NETWORK, legacy=False)
        own |= {name: pair for name, pair in of(NETWORK).items() if "classifier" in name}
        assert len(own) > 20
        assert {"check_classifiers_train", "check_classifiers_classes", "check_classifiers_one_label"} <= set(own)
        for network, check in own.values():
            check(network)


def _name(check):
    return getattr(check, "func", check).__name__


def table(seed=0):
    random = np.random.default_rng(seed)
    pairs = np.argwhere(random.random((12, 9)) < 0.7)
    return pairs, random.integers(1, 6, len(pairs)).astype(float)


def test_a_table_of_ratings_keeps_the_conventions_that_the_checks_could_not_try():
    """Pickling, the same fit twice, rows in any order or apart, inputs that stay as they are, columns that are no vector."""
    X, y = table()
    before = X.copy(), y.copy()
    model = BayesianNMF(2, iterations=20, progress=False)
    assert model.fit(X, y) is model
    assert all(np.array_equal(a, b) for a, b in zip(before, (X, y), strict=True))
    mean = model.predict(X)
    np.testing.assert_array_equal(mean, model.predict(X[:, 0], X[:, 1]))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), mean)
    np.testing.assert_allclose(np.concatenate([model.predict(row[None]) for row in X[:5]]), mean[:5], rtol=1e-6)
    np.testing.assert_allclose(model.predict(X[::-1]), mean[::-1], rtol=1e-6)
    with pytest.warns(UserWarning, match="A column-vector y was passed"):
        again = BayesianNMF(2, iterations=20, progress=False).fit(X.astype(object), y[:, None])
    np.testing.assert_array_equal(again.predict(X), mean)
    for wrong, message in (
        (X + 1j, "Complex data"),
        (np.where(X == 3, np.nan, X), "NaN or infinity"),
        (X[:, :1], "minimum of 2"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(wrong, y)


def folds(model):
    """Two folds of a table, each of a size of its own, so that nothing of one can serve the other: (X, y)."""
    random = np.random.default_rng(0)
    if isinstance(model, BayesianNMF):
        every = np.argwhere(np.ones((120, 90), bool))
        return [
            (every[random.permutation(len(every))[: 2_000 + n]], random.integers(1, 6, 2_000 + n)) for n in range(3)
        ]
    if isinstance(model, LDA):
        return [(random.poisson(0.5, (300 + n, 40)), None) for n in range(2)]
    return [(random.normal(size=(400 + n, 20)).astype(np.float32), np.arange(400 + n) % 2) for n in range(2)]


@pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")  # few steps
@pytest.mark.parametrize("model", [NETWORK, TOPICS, RATINGS], ids=lambda model: type(model).__name__)
def test_a_cross_validation_keeps_no_model_and_no_data(model):
    alive = []
    for X, y in folds(model):
        fitted = clone(model).fit(X, y)
        assert np.isfinite(fitted.score(X, y))
        del fitted
        gc.collect()
        alive.append(sum(array.nbytes for array in jax.live_arrays()))
    assert alive[1] - alive[0] < 2_000  # a few keys; the arrays of a fold have 8,000 bytes and more


@pytest.mark.parametrize(
    "check",
    [
        "check_transformer_get_feature_names_out",
        "check_transformer_get_feature_names_out_pandas",
        "check_set_output_transform_pandas",
    ],
)
def test_topics_have_names_and_come_as_tables(check):
    if check.endswith("pandas"):
        pytest.importorskip("pandas")
    getattr(checks, check)("LDA", TOPICS)


def test_columns_in_another_order_are_refused():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.random.default_rng(0).poisson(2, (20, 3)), columns=["cat", "dog", "owl"])
    for model in (LDA(2, max_iter=1, draws=1, progress=False), BinaryNetwork(hidden=(2,), epochs=1, progress=False)):
        model.fit(X, np.arange(20) % 2)
        assert model.feature_names_in_.tolist() == ["cat", "dog", "owl"]
        predict = model.transform if isinstance(model, LDA) else model.predict_proba
        np.testing.assert_array_equal(predict(X), predict(X.to_numpy()))
        with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
            predict(X[["owl", "cat", "dog"]])
        with pytest.raises(ValueError, match="unseen at fit time: cow; seen at fit time, yet now missing: owl"):
            predict(X.rename(columns={"owl": "cow"}))
        model.fit(X.to_numpy(), np.arange(20) % 2)
        assert not hasattr(model, "feature_names_in_")


def test_an_unknown_output_is_refused():
    with pytest.raises(ValueError, match="'default', 'pandas', 'polars' or None; got 'excel'"):
        LDA(2).set_output(transform="excel")
