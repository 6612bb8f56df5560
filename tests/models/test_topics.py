"""Topic models: the gradient against exact integration, topics that are found again, and scikit-learn's conventions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.stats

import inbounds as ib
from inbounds.data.bag_of_words import BagOfWords, synthetic_documents
from inbounds.models.topics import LDA, TopicModel, completion_perplexity, halved, padded
from tests.models_for_tests import compilations

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

CORPUS = synthetic_documents(240, topics=3, words=40, length=60, seed=1)
TRAIN, TEST = CORPUS.counts[:180], CORPUS.counts[180:]
QUICK = dict(doc_topic_prior=0.1, topic_word_prior=0.1, batch_size=60, max_iter=40, draws=10, progress=False)


def distance(model):
    """Total variation between each topic and the one that was found for it, in the best of the orders."""
    apart = np.abs(model.components_[:, None] - CORPUS.topics).sum(axis=-1) / 2
    return min(max(apart[list(order), range(3)]) for order in itertools.permutations(range(3)))


@pytest.fixture(scope="module")
def fitted():
    return LDA(3, **QUICK).fit(TRAIN)


def exact_expected_counts(topics, counts, alpha):
    """E[n_dkw] for two topics: the document's proportions integrated out on a grid."""
    share = scipy.stats.beta(alpha, alpha).ppf((np.arange(4_000) + 0.5) / 4_000)  # equal masses of the prior
    pi = np.stack([share, 1 - share], axis=1)
    chance = pi @ topics
    weight = np.exp(counts @ np.log(chance).T)
    weight /= weight.sum()
    return counts * np.einsum("s,sk,kw,sw->kw", weight, pi, topics, 1 / chance)


@pytest.mark.parametrize("alpha", [1.0, 0.1])
def test_the_gradient_is_near_the_exact_one(alpha):
    corpus = synthetic_documents(30, topics=2, words=12, length=40, seed=3, topic_word_prior=0.5)
    model = TopicModel(2, 12, alpha, 0.1, "softmax", local_iterations=30)
    topics = jnp.asarray(corpus.topics, jnp.float32)
    documents = padded(corpus.counts)
    gradient = jax.grad(lambda t: jnp.sum(model.log_likelihood({"topics": t}, documents)))(topics)
    expected = sum(exact_expected_counts(corpus.topics, row, alpha) for row in corpus.counts.toarray())
    got = np.asarray(topics * gradient)
    np.testing.assert_allclose(got.sum(axis=0), expected.sum(axis=0), rtol=1e-4)  # every word belongs to some topic
    assert np.abs(got - expected).sum() / expected.sum() < 0.03


def test_the_minibatch_gradient_is_that_of_all_the_documents_on_average():
    model = TopicModel(3, 40, 0.1, 0.1)
    posterior = model.posterior(padded(TRAIN))
    estimator = ib.gradients.minibatch(posterior)
    theta = jax.tree.map(jnp.asarray, model.start(0))
    one = jax.jit(lambda batch: estimator.estimate(None, theta, batch, False)[0].value["topics"])
    parts = [one(jax.tree.map(lambda leaf, i=i: leaf[60 * i : 60 * (i + 1)], posterior.data)) for i in range(3)]
    whole = ib.gradients.full_gradient(posterior, theta)["topics"]
    np.testing.assert_allclose(np.mean(parts, axis=0), whole, rtol=1e-3, atol=1e-2)


def test_topics_are_found_again_and_predict_like_the_truth(fitted):
    assert distance(fitted) < 0.1
    observed, hidden = halved(TEST)
    assert (observed + hidden != TEST).nnz == 0
    truth = completion_perplexity(CORPUS.topics, observed, hidden, 0.1)
    assert fitted.perplexity(hidden, observed) < 1.06 * truth
    assert completion_perplexity(np.full((3, 40), 1 / 40), observed, hidden, 0.1) == pytest.approx(40, rel=1e-3)


def test_proportions_are_found_again(fitted):
    proportions = fitted.transform(TEST)
    assert proportions.shape == (60, 3)
    np.testing.assert_allclose(proportions.sum(axis=1), 1, rtol=1e-5)
    order = np.argmin(np.abs(fitted.components_[:, None] - CORPUS.topics).sum(axis=-1), axis=0)
    assert np.abs(proportions[:, order] - CORPUS.proportions[180:]).mean() < 0.05


def test_the_score_is_a_lower_bound_that_is_nearly_tight(fitted):
    # The exact probability of a document under one draw, by prior draws of its proportions.
    generator = np.random.default_rng(0)
    short = TEST[:3].multiply(TEST[:3] > 1).tocsr()
    pi = generator.dirichlet(np.full(3, 0.1), 200_000)
    one = LDA(3, **QUICK)
    one.__dict__.update(fitted.__dict__)
    one._keep(fitted.topics_[:1])
    log_chance = np.log(pi @ one.topics_[0].astype(float))
    exact = sum(float(scipy.special.logsumexp(log_chance @ row)) - np.log(len(pi)) for row in short.toarray())
    assert exact - 3.0 < one.score(short) < exact + 0.05
    assert one.perplexity(short) == pytest.approx(np.exp(-one.score(short) / short.sum()))


@pytest.mark.parametrize(
    "options",
    [
        {"positive": "integrated_probit"},
        {"parametrisation": "softmax"},
        {"parametrisation": "stick_breaking"},
        {"kernel": "sgrld"},
        {"kernel": "scir"},
    ],
    ids=lambda options: next(iter(options.values())),
)
def test_every_parametrisation_and_baseline_takes_a_sparse_prior(options):
    model = LDA(3, **(QUICK | {"doc_topic_prior": 0.01, "topic_word_prior": 0.01} | options)).fit(TRAIN)
    assert np.all(np.isfinite(model.topics_))
    assert np.all(model.topics_ >= 0)
    np.testing.assert_allclose(model.topics_.sum(axis=-1), 1, rtol=1e-4)
    # So sparse a prior has many modes: whichever was found predicts far better than no topics at all.
    observed, hidden = halved(TEST)
    unigram = np.asarray(TRAIN.sum(axis=0) + 1.0) / (TRAIN.sum() + 40)
    assert model.perplexity(hidden, observed) < 0.75 * completion_perplexity(unigram, observed, hidden, 1.0)


def test_batches_of_a_stream_are_not_compiled_again_and_lead_to_the_topics():
    model = LDA(3, **(QUICK | {"total_samples": 180, "random_state": 1}))
    generator = np.random.default_rng(0)
    for _ in range(60):
        assert model.partial_fit(TRAIN[generator.permutation(180)[:60]]) is model
    assert compilations(model._online.posterior) <= 2  # documents of up to 32 different words, and of up to 64
    assert model.n_steps_ == 60
    assert model.topics_.shape == (10, 3, 40)
    assert distance(model) < 0.2


@pytest.mark.parametrize("parametrisation", ["expanded_mean", "softmax"])
def test_a_few_documents_that_stand_for_a_million_do_not_blow_the_sampler_up(parametrisation):
    model = LDA(3, **(QUICK | {"parametrisation": parametrisation, "total_samples": 1_000_000}))
    for _ in range(3):
        model.partial_fit(TRAIN[:60])
    assert model.perplexity(TEST) < 60  # 40 words: no better than chance yet, and no worse


def test_the_same_seed_gives_the_same_model_from_any_form_of_the_counts(fitted):
    # A GPU adds up what is scattered in any order.
    rounding = 0 if jax.default_backend() == "cpu" else 1e-3
    np.testing.assert_allclose(LDA(3, **QUICK).fit(TRAIN.toarray()).topics_, fitted.topics_, rtol=rounding)
    for form in (TEST.toarray(), BagOfWords(TEST), scipy.sparse.coo_array(TEST)):
        np.testing.assert_array_equal(fitted.transform(form), fitted.transform(TEST))


def test_scikit_learn_takes_it_for_one_of_its_own():
    base = pytest.importorskip("sklearn.base")
    model = base.clone(LDA(4, doc_topic_prior=0.3))
    assert model.get_params()["doc_topic_prior"] == 0.3
    assert repr(model) == "LDA(n_components=4, doc_topic_prior=0.3)"
    exceptions = pytest.importorskip("sklearn.exceptions")
    with pytest.raises(exceptions.NotFittedError):
        model.transform(TRAIN)
    assert model.__sklearn_tags__().input_tags.sparse


def test_a_saved_model_is_the_same_and_goes_on(fitted, tmp_path):
    loaded = LDA.load(fitted.save(tmp_path / "topics.npz"))
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.components_, fitted.components_)
    np.testing.assert_array_equal(loaded.transform(TEST), fitted.transform(TEST))
    loaded.partial_fit(TRAIN)
    assert loaded.n_steps_ == fitted.n_steps_ + 3
    (tmp_path / "other.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a saved LDA"):
        LDA.load(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({}, -np.ones((2, 3)), "Negative values"),
        ({}, np.full((2, 3), np.nan), "NaN or infinity"),
        ({}, np.ones(3), r"shape \(documents, words\)"),
        ({}, np.zeros((2, 3)), "Every document is empty"),
        ({"n_components": 0}, TRAIN, "`n_components` must be a positive whole number"),
        ({"topic_word_prior": 0.0}, TRAIN, "`topic_word_prior` must be a positive number"),
        ({"parametrisation": "logit"}, TRAIN, "Unknown parametrisation"),
        ({"kernel": "gibbs"}, TRAIN, "Unknown kernel"),
        ({"kernel": "sgrld", "parametrisation": "softmax"}, TRAIN, "works on positive variables"),
    ],
)
def test_what_cannot_be_fitted_is_refused(options, X, message):
    with pytest.raises(ValueError, match=message):
        LDA(**options).fit(X)


def test_documents_of_another_vocabulary_are_refused(fitted):
    with pytest.raises(ValueError, match="expecting 40 features"):
        fitted.transform(np.ones((2, 41)))


def test_each_batch_of_a_stream_counts():
    words = np.r_[np.ones(10), np.zeros(10)] / 10
    generator = np.random.default_rng(0)
    model = LDA(2, batch_size=20, progress=False, total_samples=60)
    for place, law in enumerate([words] * 5 + [words[::-1]] * 20):
        model.partial_fit(generator.multinomial(40, law, 60))
        if place == 4:
            assert np.all(model.components_[:, :10].sum(axis=1) > 0.8)
    assert np.any(model.components_[:, :10].sum(axis=1) < 0.3)


@pytest.mark.parametrize("documents", [1, 60])
def test_documents_that_fit_one_minibatch_can_be_fitted(documents):
    counts = np.random.default_rng(0).multinomial(40, np.ones(20) / 20, documents)
    assert LDA(2, max_iter=3, progress=False).fit(counts).components_.shape == (2, 20)
    assert LDA(2, max_iter=3, progress=False).partial_fit(counts).components_.shape == (2, 20)


def test_parameters_from_a_grid_survive_a_file(tmp_path):
    counts = np.random.default_rng(0).multinomial(40, np.ones(20) / 20, 60)
    options = {"n_components": np.int64(2), "doc_topic_prior": np.float32(0.25)}
    model = LDA(max_iter=3, progress=False, **options).fit(counts)
    again = LDA.load(model.save(tmp_path / "model.npz"))
    assert again.get_params() | options == again.get_params()
    np.testing.assert_array_equal(again.components_, model.components_)
