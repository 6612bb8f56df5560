"""Topic models: latent Dirichlet allocation, its topics sampled from minibatches of documents.

The first half of this file states the model (Blei, Ng and Jordan 2003) as an ordinary `Posterior` of the topics. The
second half is an estimator with the conventions of scikit-learn's `LatentDirichletAllocation` that samples it with an ordinary
kernel, and averages over the draws.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.sparse

from inbounds.data.bag_of_words import BagOfWords
from inbounds.kernels import baoab, baselines, leimkuhler_matthews, sgld
from inbounds.kernels._base import Kernel
from inbounds.models.estimator import Transformer, is_whole
from inbounds.posterior import Posterior
from inbounds.sampling import sample
from inbounds.schedules import polynomial_decay
from inbounds.trees import PyTree

TINY = 1e-30  # below any probability that matters, and far above the smallest float
MEAN_SIZE = 0.4  # prior mean of the positive variables; they are normalised, so it is free, and softplus bends near 1
ROWS = 256  # documents whose proportions are computed at a time


# -- the model ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TopicModel:
    r"""Latent Dirichlet allocation with the topics as the only variable.

    $$\beta_k \sim \mathrm{Dirichlet}(\eta), \qquad \pi_d \sim \mathrm{Dirichlet}(\alpha), \qquad
      w_{di} \sim \textstyle\sum_k \pi_{dk} \beta_k$$

    Parametrisations of $\beta$: "expanded_mean" has positive variables $\theta_{kw} \sim \mathrm{Gamma}(\eta, b)$ with
    $\beta_{kw} = \theta_{kw} / \sum_v \theta_{kv}$ (Patterson and Teh 2013); "softmax" and "stick_breaking" sample
    $\beta_k$ on the simplex.

    Args:
        topics: how many.
        words: size of the vocabulary.
        doc_topic_prior: $\alpha$.
        topic_word_prior: $\eta$.
        parametrisation: "expanded_mean", "softmax" or "stick_breaking".
        local_iterations: of the fixed point that finds a document's proportions.
    """

    topics: int
    words: int
    doc_topic_prior: float
    topic_word_prior: float
    parametrisation: str = "expanded_mean"
    local_iterations: int = 10

    @property
    def on_simplex(self) -> bool:
        return self.parametrisation != "expanded_mean"

    @property
    def rate(self) -> float:
        """Of the gamma prior: only the scale of the positive variables depends on it."""
        return self.topic_word_prior / MEAN_SIZE

    def prior(self) -> dist.Distribution:
        if self.on_simplex:
            return dist.Dirichlet(jnp.full(self.words, self.topic_word_prior)).expand([self.topics])
        return dist.Gamma(self.topic_word_prior, self.rate).expand([self.topics, self.words])

    def normalised(self, theta: PyTree) -> jax.Array:
        """The topics: (topics, words), rows sum to 1."""
        value = theta["topics"]
        result: jax.Array = value if self.on_simplex else value / jnp.sum(value, axis=-1, keepdims=True)
        return result

    def log_likelihood(self, theta: PyTree, batch: PyTree) -> jax.Array:
        r"""One term a document, whose gradient is that of $\log p(w_d \mid \beta)$ with its expectation estimated.

        By Fisher's identity $\partial_{\beta_{kw}} \log p(w_d \mid \beta) = E[n_{dkw} \mid w_d, \beta] / \beta_{kw}$, with $n_{dkw}$
        the occurrences of word w that belong to topic k. With the document's proportions held at their estimate that is the
        gradient of $\sum_w c_{dw} \log \sum_k \pi_{dk} \beta_{kw}$.
        """
        chosen = jnp.moveaxis(self.normalised(theta)[:, batch["words"]], 0, 1)  # (documents, topics, places)
        pi = proportions(jax.lax.stop_gradient(chosen), batch["counts"], self.doc_topic_prior, self.local_iterations)
        chance = jnp.maximum(jnp.einsum("dkl,dk->dl", chosen, pi), TINY)
        result: jax.Array = batch["weight"] * jnp.sum(batch["counts"] * jnp.log(chance), axis=1)
        return result

    def posterior(self, documents: PyTree) -> Posterior:
        """The posterior of the topics given documents in the form of `padded`."""
        return Posterior({"topics": self.prior()}, self.log_likelihood, data=documents)

    def start(self, seed: int) -> PyTree:
        """Topics near the uniform one, each a little different: a sparse prior's own draws would be stuck where they are."""
        value = np.random.default_rng(seed).gamma(100.0, 0.01, (self.topics, self.words))
        return self.inside(MEAN_SIZE * value)

    def inside(self, value: np.ndarray) -> PyTree:
        """A start at `value`; on the simplex with sums of 1 to the last digit, which compiled single precision misses."""
        value = np.asarray(value, np.float64)
        if self.on_simplex:
            value = value / value.sum(axis=1, keepdims=True)
        return {"topics": value.astype(np.float32)}

    def conditional(self, rows: int) -> Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]:
        """For `scir`: the gamma law of the positive variables given the expected counts (Baker et al. 2018)."""

        def law(theta: PyTree, batch: PyTree) -> Any:
            topics = self.normalised(theta)
            simplex = TopicModel(**{**vars(self), "parametrisation": "softmax"})
            gradient = jax.grad(lambda t: jnp.sum(simplex.log_likelihood({"topics": t}, batch)))(topics)
            counts = topics * gradient * (rows / batch["counts"].shape[0])
            return {"topics": self.topic_word_prior + counts}, {"topics": jnp.full((), self.rate, topics.dtype)}

        return law


def proportions(chosen: jax.Array, counts: jax.Array, prior: float, iterations: int) -> jax.Array:
    r"""Proportions $\pi_d$ of documents, (documents, topics), by a fixed point.

    $$n_{dk} = \sum_w c_{dw} \frac{\pi_{dk} \beta_{kw}}{\sum_j \pi_{dj} \beta_{jw}}, \qquad \pi_{dk} \propto n_{dk} + \alpha$$

    The collapsed update of Asuncion et al. (2009) and Foulds et al. (2013), without the removal of a word's own count.

    Args:
        chosen: $\beta$ of the words of each document, (documents, topics, places).
        counts: how often each occurs, (documents, places); 0 where a place is empty.
        prior: $\alpha$.
        iterations: how many.
    """

    def turn(_: Any, pi: jax.Array) -> jax.Array:
        chance = jnp.einsum("dkl,dk->dl", chosen, pi)
        share = counts / jnp.maximum(chance, TINY)
        expected = pi * jnp.einsum("dkl,dl->dk", chosen, share) + prior
        return expected / jnp.sum(expected, axis=1, keepdims=True)

    documents, topics, _ = chosen.shape
    result: jax.Array = jax.lax.fori_loop(0, iterations, turn, jnp.full((documents, topics), 1 / topics, chosen.dtype))
    return result


def padded(
    counts: scipy.sparse.csr_matrix, rows: int | None = None, places: int | None = None
) -> dict[str, np.ndarray]:
    """Documents as arrays: the words of each, how often they occur, and the weight of the document.

    Args:
        counts: CSR matrix, (documents, words).
        rows: pad with empty documents to so many.
        places: pad each document to so many different words.
    """
    lengths = np.diff(counts.indptr)
    rows, places = rows or len(lengths), places or max(1, int(lengths.max(initial=1)))
    words, times = np.zeros((rows, places), np.int32), np.zeros((rows, places), np.float32)
    filled = np.zeros((rows, places), bool)
    filled[: len(lengths)] = np.arange(places) < lengths[:, None]
    words[filled], times[filled] = counts.indices, counts.data
    return {"words": words, "counts": times, "weight": np.ones(rows, np.float32)}


def halved(X: Any, seed: int = 0) -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
    """Each word of each document put into one of two halves, for document completion."""
    counts = _counts(X)
    first = counts.copy()
    first.data = np.random.default_rng(seed).binomial(counts.data.astype(np.int64), 0.5).astype(counts.dtype)
    second = counts - first
    for half in (first, second):
        half.eliminate_zeros()
    return first, second


@partial(jax.jit, static_argnames="iterations")
def _proportions_of(draws: jax.Array, batch: PyTree, prior: float, iterations: int) -> jax.Array:
    """(draws, documents, topics)."""
    result: jax.Array = jax.lax.map(
        lambda topics: proportions(jnp.moveaxis(topics[:, batch["words"]], 0, 1), batch["counts"], prior, iterations),
        draws,
    )
    return result


@jax.jit
def _mean_chances(draws: jax.Array, pi: jax.Array, words: jax.Array) -> jax.Array:
    """Probability of each word of each document, averaged over the draws: (documents, places)."""
    each = jax.lax.map(lambda one: jnp.einsum("kdl,dk->dl", one[0][:, words], one[1]), (draws, pi))
    return jnp.mean(each, axis=0)


# -- the estimator ------------------------------------------------------------------------------------------------

PARAMETRISATIONS = ("expanded_mean", "softmax", "stick_breaking")
KERNELS = ("leimkuhler_matthews", "sgld", "baoab", "sgrld", "scir")
FINAL_ITERATIONS = 50  # of the fixed point where proportions are the result


class LDA(Transformer):
    """Latent Dirichlet allocation by sampling, with the conventions of scikit-learn's `LatentDirichletAllocation`.

    The topics are sampled on the simplex from minibatches of documents; what is predicted is averaged over the draws.

    Args:
        n_components: number of topics.
        doc_topic_prior: Dirichlet concentration of a document's topics; None: 1 / n_components.
        topic_word_prior: Dirichlet concentration of a topic's words; None: 0.4.
        max_iter: passes over the documents.
        batch_size: documents per minibatch.
        parametrisation: "expanded_mean" (normalised positive variables), "softmax" or "stick_breaking".
        positive: transform of the positive variables: "softplus", "integrated_probit", "icll" or "exp".
        kernel: "leimkuhler_matthews", "sgld" or "baoab"; "sgrld" or "scir", the baselines of the literature; or a function
            of a posterior that returns a kernel.
        noise_correction: make room for the gradient's noise in the noise that is injected; with positive variables only.
        step_size: a number, a function of the step number, or "auto": see `auto_step_size`.
        burn_in: share of the passes whose draws are not kept.
        draws: how many draws to keep.
        local_iterations: of the fixed point that finds a document's proportions within a step.
        total_samples: documents that the calls of `partial_fit` together stand for.
        progress: show a bar on a terminal or in a notebook.
        random_state: a whole number; the same one gives the same model. None: another one each time.

    Attributes:
        components_: the topics, (n_components, words): mean over the draws; rows sum to 1.
        topics_: the draws, (draws, n_components, words).
        doc_topic_prior_, topic_word_prior_: the concentrations in use.
        n_features_in_: number of words.
        feature_names_in_: the words, where X was a table that has them.
        n_iter_: passes over the documents of the last `fit`, or calls of `partial_fit`.
        n_steps_: steps of the sampler so far.

    Example:
        >>> counts = np.random.default_rng(0).poisson(1.0, size=(40, 12))
        >>> model = ib.models.LDA(n_components=3, max_iter=4, batch_size=20, progress=False).fit(counts)
        >>> model.components_.shape, model.transform(counts[:5]).shape
        ((3, 12), (5, 3))
    """

    _fitted = "topics_"
    _format = "inbounds topic model"

    def __init__(
        self,
        n_components: int = 10,
        *,
        doc_topic_prior: float | None = None,
        topic_word_prior: float | None = None,
        max_iter: int = 40,
        batch_size: int = 100,
        parametrisation: str = "expanded_mean",
        positive: str = "softplus",
        kernel: str | Callable[[Posterior], Kernel] = "leimkuhler_matthews",
        noise_correction: bool = True,
        step_size: Any = "auto",
        burn_in: float = 0.5,
        draws: int = 20,
        local_iterations: int = 10,
        total_samples: int = 1_000_000,
        progress: bool = True,
        random_state: int | None = 0,
    ):
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.parametrisation = parametrisation
        self.positive = positive
        self.kernel = kernel
        self.noise_correction = noise_correction
        self.step_size = step_size
        self.burn_in = burn_in
        self.draws = draws
        self.local_iterations = local_iterations
        self.total_samples = total_samples
        self.progress = progress
        self.random_state = random_state

    # -- scikit-learn's conventions --------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        """Asked for by scikit-learn alone, so it is there when this runs."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=["float32"]),
            input_tags=InputTags(sparse=True, positive_only=True),
        )

    def fit(self, X: Any, y: Any = None) -> LDA:
        """Sample the topics of documents `X`, (documents, words), sparse or dense counts; returns self.

        Args:
            X: counts of words, (documents, words), dense or sparse.
            y: not looked at.

        Returns:
            The model itself.

        Raises:
            ValueError: every document is empty.
        """
        counts = _counts(X)
        self._learn_names(X)
        if counts.sum() == 0:
            raise ValueError("Every document is empty: there is nothing to learn topics from.")
        model = self._model(counts.shape[1])
        rows = counts.shape[0]
        batch_size = min(int(self.batch_size), rows)
        steps = -(-rows // batch_size)
        total = self.max_iter * steps
        burn_in = min(round(self.burn_in * total), total - 1)
        thin = max(1, (total - burn_in) // int(self.draws))
        burn_in = total - thin * min(int(self.draws), (total - burn_in) // thin)
        self._begin(model)
        seed = self._seed()
        run = sample(
            self._kernel(model, model.posterior(padded(counts)), counts, 1.0, corrects=2 <= batch_size < rows),
            self._schedule(float(counts.sum()), steps),
            total,
            burn_in=burn_in,
            thin=thin,
            batch_size=batch_size,
            seed=seed,
            init=model.start(seed),
            progress=bool(self.progress),
        )
        theta = run.theta["topics"][0]
        self._keep(theta)
        self._position = np.asarray(theta[-1])
        self.n_steps_, self.n_iter_ = total, int(self.max_iter)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> LDA:
        """One pass over a few documents out of `total_samples`; goes on where the last call ended. Returns self.

        The draws that count are the latest half of those at the ends of the calls, at most `draws` of them.

        Args:
            X: counts of words, (documents, words), dense or sparse.
            y: not looked at.

        Returns:
            The model itself.
        """
        counts = _counts(X)
        if not hasattr(self, "_position"):
            model = self._model(counts.shape[1])
            self._begin(model)
            self._learn_names(X)
            self._position = model.start(self._seed())["topics"]
            self.n_steps_, self.n_iter_, self._ends = 0, 0, []
        elif not hasattr(self, "_ends"):
            self._ends = list(self.topics_)
        self._check_names(X)
        self._check_words(counts)
        rows = counts.shape[0]
        # Shapes that recur, so that a stream of batches compiles once: whole minibatches, powers of two.
        batch_size = min(int(self.batch_size), 1 << (rows - 1).bit_length())
        steps = -(-rows // batch_size)
        places = 1 << max(5, int(np.diff(counts.indptr).max(initial=1) - 1).bit_length())
        documents = padded(counts, steps * batch_size, places)
        documents["weight"] *= self.total_samples / rows
        model = self._model(counts.shape[1])
        tokens = float(counts.sum()) * self.total_samples / rows
        online = getattr(self, "_online", None)
        if online is None or online.posterior.num_data != steps * batch_size:
            self._online = online = self._kernel(
                model, model.posterior(documents), counts, self.total_samples / rows, corrects=batch_size > 1
            )
        online.posterior.data = documents  # the compiled program takes the data as an argument
        passes = max(1, self.total_samples // int(self.batch_size))
        schedule = self._schedule(tokens, passes)
        run = sample(
            online,
            float(schedule(jnp.asarray(self.n_steps_))) if callable(schedule) else schedule,
            steps,
            thin=steps,
            batch_size=batch_size,
            batching="replacement" if online.independent_batches else None,  # a few documents are a sample of many
            seed=(self._seed() + 7_919 * self.n_steps_) % 2**31,
            init=model.inside(self._position),
            progress=False,
        )
        self._position = np.asarray(run.theta["topics"][0, -1])
        self.n_steps_ += steps
        self.n_iter_ += 1
        self._ends.append(self._position)
        self._keep(np.stack(self._ends[-min(int(self.draws), -(-len(self._ends) // 2)) :]))
        self._ends = self._ends[-2 * int(self.draws) :]
        return self

    def transform(self, X: Any) -> Any:
        """Proportions of the topics in each document, (documents, n_components): mean over the draws. See `set_output`.

        Args:
            X: counts of words, (documents, words), dense or sparse.

        Returns:
            Shares that sum to 1 per document.
        """
        counts = self._check_new(X)
        found = np.concatenate([np.asarray(pi).mean(axis=0)[:rows] for _, pi, rows in self._pieces(counts)])
        return self._as_asked(found, X)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """`fit`, then `transform` of the same documents.

        Args:
            X: counts of words, (documents, words), dense or sparse.
            y: not looked at.

        Returns:
            Shares that sum to 1 per document.
        """
        return self.fit(X).transform(X)

    def score(self, X: Any, y: Any = None) -> float:
        r"""A lower bound on the log probability of the documents, $\sum_d \log \frac1S \sum_s p(w_d \mid \beta^{(s)})$.

        Within each draw the proportions are integrated out by a variational bound, as in scikit-learn.

        Args:
            X: counts of words, (documents, words), dense or sparse.
            y: not looked at.

        Returns:
            The bound, summed over the documents.
        """
        counts = self._check_new(X)
        prior = float(self.doc_topic_prior_)
        topics = jnp.asarray(self.topics_)
        total = 0.0
        for batch, pi, rows in self._pieces(counts):
            lengths = batch["counts"].sum(axis=1)
            gamma = pi * (lengths[:, None] + prior * pi.shape[-1])
            bounds = np.asarray(_bounds(topics, gamma, batch, prior), np.float64)[:, :rows]
            total += float(np.sum(np.logaddexp.reduce(bounds, axis=0) - math.log(len(bounds))))
        return total

    def perplexity(self, X: Any, observed: Any = None) -> float:
        """exp(- log probability per word) of documents; lower is better.

        Args:
            X: documents.
            observed: other words of the same documents. Where given, their proportions come from these words, and those of
                `X` are predicted: document completion (`inbounds.models.topics.halved` makes two halves). Else the bound of
                `score`.

        Returns:
            The perplexity.

        Raises:
            ValueError: there are no words to predict, or `observed` is of other documents.
        """
        counts = self._check_new(X)
        words = float(counts.sum())
        if words == 0:
            raise ValueError("The documents have no words to predict.")
        if observed is None:
            return math.exp(-self.score(counts) / words)
        seen = self._check_new(observed)
        if seen.shape != counts.shape:
            raise ValueError(f"`observed` has shape {seen.shape} and X {counts.shape}: the same documents are needed.")
        return completion_perplexity(self.topics_, seen, counts, float(self.doc_topic_prior_))

    # -- on disk ---------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model, draws included, as an npz file without pickle.

        Args:
            path: the file; one that is there is replaced.

        Returns:
            The file's path.
        """
        self._check_fitted()
        header = {
            "steps": self.n_steps_,
            "passes": self.n_iter_,
            "priors": [self.doc_topic_prior_, self.topic_word_prior_],
        }
        return self._write(path, header, {"topics": self.topics_, "position": self._position})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LDA:
        """Read a model that `save` wrote. Nothing in the file is executed.

        Args:
            path: the file.

        Returns:
            The model, ready to be used.

        Raises:
            ValueError: the file holds no such model.
        """
        with cls._read(path) as (model, header, arrays):
            model._begin(model._model(arrays["topics"].shape[-1]))
            model.doc_topic_prior_, model.topic_word_prior_ = map(float, header["priors"])
            model.n_steps_, model.n_iter_ = int(header["steps"]), int(header.get("passes", model.max_iter))
            model._position = arrays["position"]
            topics = arrays["topics"]
            if topics.dtype.kind != "f" or topics.ndim != 3 or topics.shape[1] != model.n_components:
                raise ValueError(f"the topics have the shape {topics.shape}")
            model.topics_, model.components_ = topics, topics.mean(axis=0)
        return model

    # -- parts of fit ----------------------------------------------------------------------------------------------

    def _model(self, words: int) -> TopicModel:
        self._check_parameters()
        alpha = 1 / self.n_components if self.doc_topic_prior is None else float(self.doc_topic_prior)
        eta = 0.4 if self.topic_word_prior is None else float(self.topic_word_prior)
        return TopicModel(int(self.n_components), words, alpha, eta, self.parametrisation, int(self.local_iterations))

    def _begin(self, model: TopicModel) -> None:
        """Forget what an earlier fit left."""
        for name in ("_ends", "_online", "_position", "topics_"):
            if hasattr(self, name):
                delattr(self, name)
        self.n_features_in_ = model.words
        self.doc_topic_prior_, self.topic_word_prior_ = model.doc_topic_prior, model.topic_word_prior

    def _keep(self, theta: np.ndarray) -> None:
        """Draws of the variables, as topics whose rows sum to 1."""
        self.topics_ = np.asarray(theta / np.sum(theta, axis=-1, keepdims=True), np.float32)
        self.components_ = self.topics_.mean(axis=0)

    def _kernel(
        self, model: TopicModel, posterior: Posterior, counts: scipy.sparse.csr_matrix, weight: float, corrects: bool
    ) -> Kernel:
        """The kernel, for documents of which each stands for `weight` ones; `corrects`: whether there is noise to correct for."""
        if callable(self.kernel):
            return self.kernel(posterior)
        if self.kernel == "sgrld":
            return baselines.sgrld(posterior)
        if self.kernel == "scir":
            assert posterior.num_data is not None
            return baselines.scir(posterior, model.conditional(posterior.num_data))
        factory: Callable[..., Kernel] = {"leimkuhler_matthews": leimkuhler_matthews, "sgld": sgld, "baoab": baoab}[
            self.kernel
        ]
        if not model.on_simplex:
            return factory(posterior, self.positive, noise_correction=bool(self.noise_correction) and corrects)
        # The curvature of a coordinate is about the occurrences of its word in the topic: a step of its own for each.
        often = weight * (np.asarray(counts.sum(axis=0)).ravel()[: model.words - 1] + 1) / model.topics
        scale = np.broadcast_to(1 / (1 + often), (model.topics, model.words - 1))
        return factory(posterior, {"topics": self.parametrisation}, preconditioner={"topics": scale.astype(np.float32)})

    def _schedule(self, tokens: float, steps: int) -> Any:
        """`step_size`, or the automatic one."""
        if self.step_size != "auto":
            return self.step_size
        if callable(self.kernel):
            raise ValueError(
                'step_size="auto" goes with the kernels by name; with a function of your own give a number.'
            )
        return auto_step_size(self.kernel, self._model(self.n_features_in_), tokens, steps)

    def _pieces(self, counts: scipy.sparse.csr_matrix) -> Any:
        """(padded documents, their proportions under each draw, how many are real), a few documents at a time."""
        topics = jnp.asarray(self.topics_)
        places = max(1, int(np.diff(counts.indptr).max(initial=1)))
        for first in range(0, counts.shape[0], ROWS):
            part = counts[first : first + ROWS]
            batch = padded(part, min(ROWS, counts.shape[0]), places)
            pi = _proportions_of(topics, batch, float(self.doc_topic_prior_), FINAL_ITERATIONS)
            yield batch, pi, part.shape[0]

    def _check_new(self, X: Any) -> scipy.sparse.csr_matrix:
        self._check_fitted()
        self._check_names(X)
        counts = _counts(X)
        self._check_words(counts)
        return counts

    def _check_words(self, counts: scipy.sparse.csr_matrix) -> None:
        if counts.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {counts.shape[1]} features, but LDA is expecting {self.n_features_in_} features as input: the words "
                "of the documents that it was fitted on."
            )

    def _check_parameters(self) -> None:
        for name in ("n_components", "max_iter", "batch_size", "draws", "local_iterations", "total_samples"):
            value = getattr(self, name)
            if not is_whole(value) or value < 1:
                raise ValueError(f"`{name}` must be a positive whole number; got {value!r}.")
        for name in ("doc_topic_prior", "topic_word_prior"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float | np.number) and 0 < value < math.inf):
                raise ValueError(f"`{name}` must be a positive number, or None; got {value!r}.")
        if self.parametrisation not in PARAMETRISATIONS:
            raise ValueError(f"Unknown parametrisation {self.parametrisation!r}. Known: {', '.join(PARAMETRISATIONS)}.")
        if not callable(self.kernel) and self.kernel not in KERNELS:
            raise ValueError(
                f"Unknown kernel {self.kernel!r}. Known: {', '.join(KERNELS)}; or a function of a posterior."
            )
        if self.kernel in ("sgrld", "scir") and self.parametrisation != "expanded_mean":
            raise ValueError(f'kernel={self.kernel!r} works on positive variables: parametrisation="expanded_mean".')
        if not (isinstance(self.burn_in, int | float | np.number) and 0 <= self.burn_in < 1):
            raise ValueError(f"`burn_in` is a share, at least 0 and below 1; got {self.burn_in!r}.")
        if isinstance(self.step_size, str) and self.step_size != "auto":
            raise ValueError(
                f'`step_size` must be a number, a function of the step, or "auto"; got {self.step_size!r}.'
            )


AUTO_STEP = {"leimkuhler_matthews": 2.0, "sgld": 2.0, "baoab": 0.1, "sgrld": 0.8, "scir": 1.6}


def auto_step_size(kernel: str, model: TopicModel, tokens: float, steps: int) -> Any:
    r"""What `step_size="auto"` takes: a decay from a multiple of $S / n$.

    The curvature of a positive variable with softplus is at most $0.41\, n / S$, with $n$ the words that a topic explains and
    $S$ the sum of its variables. It falls like $t^{-1/2}$ after four passes over the documents.

    Args:
        kernel: its name.
        model: what is sampled.
        tokens: words in all the documents.
        steps: of one pass over them.
    """
    if model.on_simplex:
        return polynomial_decay(0.2, 4.0 * steps, 0.5)
    size = model.words * MEAN_SIZE / (tokens / model.topics)
    return polynomial_decay(AUTO_STEP[kernel] * min(size, 1.0), 4.0 * steps, 0.5)


def completion_perplexity(
    topics: np.ndarray,
    observed: Any,
    predicted: Any,
    doc_topic_prior: float,
    iterations: int = FINAL_ITERATIONS,
) -> float:
    """Perplexity of the words of `predicted`, with the proportions of their documents estimated from `observed`.

    Probabilities are averaged over the draws. It takes any topics, so that other programs can be judged by the same code.

    Args:
        topics: (draws, topics, words), or (topics, words) for one.
        observed, predicted: two halves of the same documents, as `halved` makes them.
        doc_topic_prior: concentration of the proportions.
        iterations: of the fixed point.
    """
    draws = jnp.asarray(topics if np.ndim(topics) == 3 else np.asarray(topics)[None], jnp.float32)
    seen, hidden = padded(_counts(observed)), padded(_counts(predicted))
    log_probability = 0.0
    for first in range(0, len(hidden["words"]), ROWS):
        part = {name: array[first : first + ROWS] for name, array in seen.items()}
        pi = _proportions_of(draws, part, doc_topic_prior, iterations)
        chance = np.asarray(_mean_chances(draws, pi, hidden["words"][first : first + ROWS]), np.float64)
        log_probability += float(np.sum(hidden["counts"][first : first + ROWS] * np.log(np.maximum(chance, TINY))))
    return math.exp(-log_probability / float(hidden["counts"].sum()))


@jax.jit
def _bounds(draws: jax.Array, gamma: jax.Array, batch: PyTree, prior: float) -> jax.Array:
    """Variational bounds on log p(document | topics) with Dirichlet(gamma) for the proportions: (draws, documents)."""
    digamma, gammaln = jax.scipy.special.digamma, jax.scipy.special.gammaln

    def one(inputs: Any) -> Any:
        topics, gamma = inputs
        total = jnp.sum(gamma, axis=1, keepdims=True)
        log_pi = digamma(gamma) - digamma(total)
        chosen = jnp.moveaxis(topics[:, batch["words"]], 0, 1)
        chance = jnp.einsum("dkl,dk->dl", chosen, jnp.exp(log_pi))
        words = jnp.sum(batch["counts"] * jnp.log(jnp.maximum(chance, TINY)), axis=1)
        k = gamma.shape[1]
        prior_terms = gammaln(k * prior) - k * gammaln(prior) + jnp.sum((prior - gamma) * log_pi, axis=1)
        return words + prior_terms + jnp.sum(gammaln(gamma), axis=1) - gammaln(total[:, 0])

    result: jax.Array = jax.lax.map(one, (draws, gamma))
    return result


def _counts(X: Any) -> scipy.sparse.csr_matrix:
    """X as a CSR matrix of counts, or an error that says what is wrong with it."""
    if isinstance(X, BagOfWords):
        X = X.counts
    if scipy.sparse.issparse(X):
        matrix = X.tocsr()
    else:
        dense = _numbers(X)
        if dense.ndim != 2:
            raise ValueError(f"X must have shape (documents, words); got {dense.shape}. Reshape your data.")
        if not np.all(np.isfinite(dense)):
            raise ValueError("X contains NaN or infinity.")
        if dense.shape[1] < 1:
            raise ValueError(
                f"0 feature(s) (shape={dense.shape}) while a minimum of 1 is required: a word for each column."
            )
        matrix = scipy.sparse.csr_matrix(dense)
    if matrix.shape[0] < 1 or matrix.shape[1] < 1:
        raise ValueError(
            f"X has shape {matrix.shape}: at least one document (sample) and one word (feature) are needed."
        )
    if not np.all(np.isfinite(matrix.data)):
        raise ValueError("X contains NaN or infinity.")
    if np.any(matrix.data < 0):
        raise ValueError("Negative values in data: X must hold how often each word occurs in each document.")
    return matrix


def _numbers(X: Any) -> np.ndarray:
    """X as an array of real numbers."""
    dense = np.asarray(X)
    if dense.dtype == object:
        try:
            dense = dense.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"X must hold counts: the argument must be a string or a number ({error}).") from error
    if dense.dtype.kind == "c":
        raise ValueError("Complex data not supported: X must hold counts.")
    if dense.dtype.kind not in "buif":
        raise ValueError(f"X must hold counts; got dtype {dense.dtype}. Count words with CountVectorizer.")
    return dense


__all__ = ["LDA", "TopicModel", "auto_step_size", "completion_perplexity", "halved", "padded", "proportions"]
