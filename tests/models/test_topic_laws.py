"""Topics against what is known exactly: densities, proportions of topics that share no word, a corpus small enough for quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy import special, stats

import inbounds as ib
from inbounds.models.topics import LDA, TopicModel, padded, proportions

COUNTS = np.array([[36, 9, 3], [6, 27, 12], [3, 6, 30], [18, 15, 6]])
ALPHA, ETA = 0.5, 1.5
SURE = 5.0  # a concentration at which proportions are known well enough for the fixed point to be nearly exact


def test_the_prior_is_a_gamma_law_whose_shape_is_the_concentration():
    model = TopicModel(2, 3, ALPHA, 0.7)
    theta = np.random.default_rng(0).gamma(1.0, 1.0, (2, 2, 3))
    ours = np.asarray(jax.vmap(model.prior().log_prob)(jnp.asarray(theta, jnp.float32)))
    exact = stats.gamma.logpdf(theta, 0.7, scale=0.4 / 0.7)  # their mean is 0.4
    np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=1e-4)
    share = theta / theta.sum(axis=-1, keepdims=True)
    simplex = TopicModel(2, 3, ALPHA, 0.7, "softmax").prior()
    ours = np.asarray(jax.vmap(simplex.log_prob)(jnp.asarray(share, jnp.float32)))
    exact = [[stats.dirichlet.logpdf(row, np.full(3, 0.7)) for row in draw] for draw in share]
    np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 3.0])
def test_proportions_of_topics_without_a_common_word_are_those_of_a_dirichlet(alpha):
    """Each word tells its topic, so that the counts of topics are known: (n_k + alpha) / (n + K alpha)."""
    topics = np.array([[0.7, 0.3, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]], np.float32)
    counts = np.array([[2, 3, 1, 4], [0, 0, 5, 0]], np.float32)
    chosen = jnp.broadcast_to(topics, (2, 3, 4))
    of_topic = np.stack([counts[:, :2].sum(axis=1), counts[:, 2], counts[:, 3]], axis=1)
    expected = (of_topic + alpha) / (of_topic.sum(axis=1, keepdims=True) + 3 * alpha)
    np.testing.assert_allclose(proportions(chosen, jnp.asarray(counts), alpha, 3), expected, rtol=1e-5)


def test_the_gradient_holds_the_proportions_still():
    """Fisher's identity: d log p / d beta_kw = pi_k sum_d c_dw / p_dw, with the proportions as numbers."""
    model = TopicModel(2, 3, ALPHA, ETA, "softmax", local_iterations=10)
    topics = np.array([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]], np.float32)
    documents = padded(scipy.sparse.csr_matrix(COUNTS.astype(float)))
    found = jax.grad(lambda t: jnp.sum(model.log_likelihood({"topics": t}, documents)))(jnp.asarray(topics))
    chosen = jnp.broadcast_to(topics, (4, 2, 3))
    pi = np.asarray(proportions(chosen, jnp.asarray(COUNTS, jnp.float32), ALPHA, 10))
    np.testing.assert_allclose(found, np.einsum("dk,dw->kw", pi, COUNTS / (pi @ topics)), rtol=1e-4)


@pytest.mark.parametrize("alpha", [0.1, 2.0])
def test_the_score_of_topics_without_a_common_word_is_exact(alpha):
    """The proportions of a document are then Dirichlet(n + alpha), and the bound is the probability itself."""
    counts = np.array([[2, 3, 1, 4], [0, 0, 5, 0], [1, 0, 0, 0]])
    topics = np.array([[0.7, 0.3, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    model = LDA(3, doc_topic_prior=alpha, max_iter=1, draws=1, progress=False).fit(counts)
    model._keep(np.maximum(topics, 1e-12)[None].astype(np.float32))
    of_topic = np.stack([counts[:, :2].sum(axis=1), counts[:, 2], counts[:, 3]], axis=1)
    words = counts @ np.log(topics.max(axis=0))
    shares = special.gammaln(of_topic + alpha).sum(axis=1) - special.gammaln(of_topic.sum(axis=1) + 3 * alpha)
    exact = words + shares + special.gammaln(3 * alpha) - 3 * special.gammaln(alpha)
    assert model.score(counts) == pytest.approx(exact.sum(), abs=1e-3)


def test_concentrations_by_default_are_one_topic_in_all_and_two_fifths():
    model = LDA(4, max_iter=1, draws=1, progress=False).fit(COUNTS)
    assert (model.doc_topic_prior_, model.topic_word_prior_) == (0.25, 0.4)


def known(first, second):
    """What does not depend on which topic is called which: their mean, and how far they lie apart, word by word."""
    return np.concatenate([(first + second) / 2, np.square(first - second)], axis=-1)


def quadrature(cells=16, nodes=24):
    """Means and sds of `known` under the exact posterior: both topics on a grid of the simplex, proportions at equal masses."""
    corners = [(i + (1 + d) / 3, j + (1 + d) / 3) for i in range(cells) for j in range(cells - i) for d in (0, 1)]
    corners = np.array([(x, y, cells - x - y) for x, y in corners if x + y < cells]) / cells
    prior = (ETA - 1) * np.log(corners).sum(axis=1)
    log = np.add.outer(prior, prior)
    share = stats.beta(SURE, SURE).ppf((np.arange(nodes) + 0.5) / nodes)
    mixed = [np.log(pi * corners[:, None] + (1 - pi) * corners) for pi in share]
    for row in COUNTS:
        log += np.logaddexp.reduce([words @ row for words in mixed])
    weight = np.exp(log - log.max())
    values = known(np.broadcast_to(corners[:, None], mixed[0].shape), np.broadcast_to(corners, mixed[0].shape))
    mean = np.einsum("ab,abf->f", weight, values) / weight.sum()
    square = np.einsum("ab,abf->f", weight, values**2) / weight.sum()
    return mean, np.sqrt(square - mean**2)


@pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")  # each of the many chains is short
def test_a_tiny_corpus_has_the_posterior_of_quadrature():
    estimator = LDA(2, doc_topic_prior=SURE, topic_word_prior=ETA)
    counts = scipy.sparse.csr_matrix(COUNTS.astype(float))
    model = estimator._model(3)
    kernel = estimator._kernel(model, model.posterior(padded(counts)), counts, 1.0, corrects=False)
    run = ib.sample(
        kernel,
        0.05,
        1_600,
        burn_in=600,
        thin=10,
        num_chains=200,
        seed=0,
        init=model.start(0),
        batch_size=4,
        progress=False,
    )
    topics = np.asarray(run.theta["topics"], float).reshape(-1, 2, 3)
    topics /= topics.sum(axis=-1, keepdims=True)
    found = known(topics[:, 0], topics[:, 1])
    mean, sd = quadrature()
    assert np.all(np.abs(found.mean(axis=0) - mean) < 0.2 * sd)
    np.testing.assert_allclose(found.std(axis=0), sd, rtol=0.15)
