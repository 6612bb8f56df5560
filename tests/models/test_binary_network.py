"""Binary networks: the posterior, the classifier, and what it writes to disk."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import inbounds as ib
from inbounds.data import synthetic_digits
from inbounds.models import BinaryNetwork, packed
from inbounds.models.binary_network import (
    INTERCEPTS,
    Curve,
    Network,
    PackedSigns,
    binarise,
    loss_and_accuracy,
    network_posterior,
    steps_per_epoch,
    translated_beta,
)

# Short or bad on purpose: the law of these runs is looked at in other ways, or not at all.
pytestmark = pytest.mark.filterwarnings("ignore::inbounds.UntrustworthyWarning")

ROOT = Path(__file__).parents[2]
TRAIN, TEST = synthetic_digits(1_500, seed=0, size=12), synthetic_digits(500, seed=1, size=12)
LABELS = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])


@pytest.fixture(scope="module")
def told():
    """What `progress` was told while the model below was fitted."""
    return []


@pytest.fixture(scope="module")
def model(told):
    """Fitted once for all the tests that only look at it: text labels, two chains, a callback."""
    return BinaryNetwork(
        hidden=(30,), epochs=25, scaling="global", num_chains=2, progress=told.append, random_state=5
    ).fit(TRAIN.x, LABELS[TRAIN.y])


# -- the posterior ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercepts", [(), INTERCEPTS])
def test_logits_of_the_network_are_those_of_the_numpy_predictor(intercepts):
    network = Network((6, 5, 4, 3), "tanh", 2.5, intercepts)
    weights = binarise(network.start(jax.random.key(0)))
    x = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    signs = np.concatenate([np.asarray(weights[name]).ravel() > 0 for name in network.shapes])
    nets = packed.PackedNetworks(
        np.packbits(signs)[None], network.layers, "tanh", 2.5, intercepts, np.zeros(1), np.ones(1), np.arange(3)
    )
    np.testing.assert_allclose(nets.predict_proba(x), jax.nn.softmax(network.logits(weights, x)), atol=1e-5)


def test_the_prior_is_the_translated_beta_of_the_paper():
    w = {"layer_1": jnp.array([[-0.99, -0.3], [0.2, 0.999]])}
    for a, b in ((0.5, 0.5), (0.1, 2.0)):
        beta = dist.TransformedDistribution(dist.Beta(a, b), dist.transforms.AffineTransform(-1.0, 2.0))
        ours = jax.grad(translated_beta((a, b)))(w)["layer_1"]
        theirs = jax.grad(lambda v, prior=beta: jnp.sum(prior.log_prob(v)))(w["layer_1"])
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_the_posterior_is_an_ordinary_one_that_every_kernel_takes():
    network = Network((4, 3, 2))
    rng = np.random.default_rng(0)
    posterior = network_posterior(network, rng.normal(size=(20, 4)), rng.integers(0, 2, 20))
    state = ib.sgld(posterior, "arctan").init(network.start(jax.random.key(1)))
    assert set(state.phi) == {"layer_1", "layer_2"}
    assert posterior.num_data == 20


def test_signs_are_packed_in_the_order_of_the_layers():
    network = Network((3, 11, 2))
    collector = PackedSigns(2, network.num_weights)
    weights = network.start(jax.random.key(3))
    state = collector.update(collector.init(weights), weights)
    bits = np.unpackbits(np.asarray(collector.result(state))[0], count=network.num_weights)
    expected = np.concatenate([np.asarray(weights[f"layer_{i}"]).ravel() >= 0 for i in (1, 2)])
    np.testing.assert_array_equal(bits, expected)


def test_the_curve_leaves_burn_in_out_of_its_average():
    network = Network((3, 4, 2), logit_scale=2.0)
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.normal(size=(9, 3)), jnp.float32), jnp.asarray(rng.integers(0, 2, 9))
    draws = [network.start(jax.random.key(i)) for i in range(4)]
    collector = Curve(network, x, y, draws=4, burn_in=2)
    state = collector.init(draws[0])
    for draw in draws:
        state = collector.update(state, draw)
    each = [jax.nn.softmax(network.logits(binarise(draw), x)) for draw in draws]
    expected = loss_and_accuracy((each[2] + each[3]) / 2, y)
    np.testing.assert_allclose(np.asarray(collector.result(state))[-1, :2], np.asarray(expected), rtol=1e-5)


@pytest.mark.parametrize(("rows", "batch"), [(56_000, 100), (56_300, 100), (150, 100), (100_003, 7)])
def test_an_epoch_is_made_of_equal_blocks(rows, batch):
    steps, least = steps_per_epoch(rows, batch), -(-rows // batch)
    blocks = -(-least // 512)
    assert steps % blocks == 0
    assert least <= steps < least + blocks


# -- the classifier -----------------------------------------------------------------------------------------------


def test_it_learns_digits_and_keeps_the_labels(model):
    assert model.score(TEST.x, LABELS[TEST.y]) > 0.85
    assert list(model.classes_) == sorted(LABELS)
    assert model.n_features_in_ == 144
    probabilities = model.predict_proba(TEST.x)
    assert probabilities.shape == (500, 10)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-12)
    assert set(model.predict(TEST.x)) <= set(LABELS)


def test_averaging_beats_one_network(model):
    assert model.history_["loss"][-1] < np.mean(model.history_["single_loss"][-5:])
    assert model.history_["accuracy"][-1] > np.mean(model.history_["single_accuracy"][-5:])


def test_progress_tells_every_epoch_with_the_validation_loss(model, told):
    assert [row["epoch"] for row in told] == list(range(1, 26))
    assert told[-1]["loss"] == pytest.approx(model.history_["loss"][-1], rel=1e-5)


def test_weights_are_one_bit_each(model):
    weights = 144 * 30 + 30 * 10 + len(INTERCEPTS) * 40
    assert model.weights().dtype == np.uint8
    assert model.weights().shape == (2 * 20, math.ceil(weights / 8))
    assert set(np.unique(model.networks_.weights(0)[0])) == {-1.0, 1.0}


def test_a_saved_model_predicts_the_same_bits(model, tmp_path):
    path = model.save(tmp_path / "model.npz")
    again = BinaryNetwork.load(path)
    np.testing.assert_array_equal(again.predict_proba(TEST.x), model.predict_proba(TEST.x))
    np.testing.assert_array_equal(again.history_["loss"], model.history_["loss"])
    assert again.hidden == (30,)
    assert again.random_state == 5
    assert list(tmp_path.iterdir()) == [path]  # nothing half-written beside it


def test_a_file_that_is_no_model_is_refused(model, tmp_path):
    (tmp_path / "cut.npz").write_bytes(model.save(tmp_path / "model.npz").read_bytes()[:200])
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    for name in ("cut.npz", "other.npz"):
        with pytest.raises(ValueError, match="not a saved BinaryNetwork"):
            BinaryNetwork.load(tmp_path / name)
    header = np.frombuffer(json.dumps({"format": "cats", "version": 1}).encode(), np.uint8)
    np.savez(tmp_path / "cats.npz", header=header)
    with pytest.raises(ValueError, match="'cats' version 1"):
        BinaryNetwork.load(tmp_path / "cats.npz")


def test_an_export_is_read_back_exactly_and_is_small(model, tmp_path):
    path = model.export(tmp_path / "digits.ibnet")
    np.testing.assert_array_equal(packed.read(path).predict_proba(TEST.x), model.predict_proba(TEST.x))
    assert path.stat().st_size < model.weights().size + 1_000


def test_a_damaged_export_is_refused(model, tmp_path):
    content = model.export(tmp_path / "digits.ibnet").read_bytes()
    for name, wrong, message in (
        ("cut", content[:-100], "damaged or cut off"),
        ("flipped", content[:500] + bytes([content[500] ^ 1]) + content[501:], "damaged or cut off"),
        ("foreign", b"GIF89a" + content, "does not hold exported"),
        ("newer", content[:7] + b"\x09" + content[8:], "format version 9"),
    ):
        (tmp_path / name).write_bytes(wrong)
        with pytest.raises(ValueError, match=message):
            packed.read(tmp_path / name)


def test_the_predictor_in_the_docs_reads_the_export_with_numpy_alone(model, tmp_path):
    page = (ROOT / "docs" / "binary-networks.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def read_networks" in block)
    model.export(tmp_path / "digits.ibnet")
    np.save(tmp_path / "x.npy", TEST.x)
    script = code + "\nimport sys\nassert 'jax' not in sys.modules\n"
    script += "networks = read_networks('digits.ibnet')\nnp.save('p.npy', predict_proba(networks, np.load('x.npy')))\n"
    subprocess.run([sys.executable, "-I", "-c", script], cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), model.predict_proba(TEST.x), atol=1e-5)


def test_the_packed_module_needs_numpy_alone():
    module = ROOT / "src" / "inbounds" / "models" / "packed.py"
    script = f"import runpy, sys; runpy.run_path({str(module)!r}, run_name='packed'); assert 'jax' not in sys.modules"
    # A dataclass looks its module up by name: give it one.
    script = "import types, sys; sys.modules['packed'] = types.ModuleType('packed')\n" + script
    subprocess.run([sys.executable, "-I", "-c", script], check=True)


def test_a_file_from_before_a_parameter_was_renamed_still_loads(model, tmp_path):
    with np.load(model.save(tmp_path / "new.npz")) as stored:
        arrays = dict(stored)
    header = json.loads(arrays["header"].tobytes())
    header["parameters"]["transform"] = header["parameters"].pop("transforms").replace("probit", "sigmoid")
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(tmp_path / "old.npz", **arrays)
    assert BinaryNetwork.load(tmp_path / "old.npz").transforms == "sigmoid"


def test_two_classes_a_kernel_of_your_own_and_no_validation():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2)) * [1.0, 100.0] + [5.0, -40.0]
    large = x[:, 0] > 5.7
    model = BinaryNetwork(
        hidden=(20,),
        epochs=100,
        kernel=lambda posterior: ib.leimkuhler_matthews(posterior, "sigmoid"),
        step_size=0.1,
        validation=0.0,
    ).fit(x, large)
    assert model.history_ == {}
    assert model.classes_.dtype == bool
    # The boundary does not go through the mean: the constant inputs are needed, and no feature rules by its unit.
    assert model.score(x, large) > 0.85


# -- scikit-learn's conventions, and bad input --------------------------------------------------------------------


def test_parameters_can_be_read_set_and_shown():
    model = BinaryNetwork(epochs=3)
    assert model.get_params()["epochs"] == 3
    assert model.set_params(epochs=4, prior=1.0) is model
    assert repr(model) == "BinaryNetwork(prior=1.0, epochs=4)"
    with pytest.raises(ValueError, match="no parameter 'depth'"):
        model.set_params(depth=3)


def test_scikit_learn_accepts_it_as_a_classifier(model):
    base = pytest.importorskip("sklearn.base")
    clone = base.clone(model)
    assert not hasattr(clone, "networks_")
    assert clone.get_params()["hidden"] == (30,)
    assert base.is_classifier(clone)
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    with pytest.raises(NotFittedError):
        clone.predict(TEST.x)


X, Y = np.ones((30, 3)), np.arange(30) % 2


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X[0], Y, r"shape \(rows, features\); got \(3,\)"),
        (X, Y[:-1], "30 rows and y 29 labels"),
        (X, Y.astype(float) + 0.5, "continuous"),
        (X, np.zeros(30), "greater than one"),
        (X, np.stack([Y, Y], axis=1), r"y must have shape \(rows,\)"),
        (
            np.where(np.arange(90).reshape(30, 3) == 7, np.nan, X),
            Y,
            "NaN or infinity in 1 rows, the first of them row 2",
        ),
        (X + 1j, Y, "Complex data not supported"),
        (X[:, :0], Y, "minimum of 1 is required"),
        (X[:1], Y[:1], "minimum of 2"),
        (X, np.array([1, "a"] * 15, object), "Unknown label type: labels must be numbers or texts, all of one kind"),
        (X, None, "requires y to be passed, but the target y is None"),
    ],
    ids=[
        "vector",
        "lengths",
        "continuous",
        "one class",
        "two columns",
        "nan",
        "complex",
        "no features",
        "one row",
        "mixed",
        "no labels",
    ],
)
def test_bad_data_is_refused_before_anything_runs(x, y, message):
    with pytest.raises(ValueError, match=message):
        BinaryNetwork().fit(x, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden": 50}, "`hidden` must hold"),
        ({"hidden": (0,)}, "`hidden` must hold"),
        ({"activation": "cats"}, "Unknown activation 'cats'. Known: relu"),
        ({"scaling": "cats"}, "Unknown scaling"),
        ({"kernel": "cats"}, "Unknown kernel"),
        ({"epochs": 0}, "`epochs` must be a positive whole number"),
        ({"prior": -1.0}, "`prior` must be a positive number"),
        ({"burn_in": 1.0}, "`burn_in` is a share"),
        ({"step_size": "large"}, "`step_size` must be"),
        ({"kernel": ib.sgld}, "give a number"),
    ],
)
def test_bad_parameters_are_refused_before_anything_runs(parameters, message):
    with pytest.raises(ValueError, match=message):
        BinaryNetwork(**parameters).fit(X, Y)


def test_other_feature_counts_are_refused_at_prediction(model):
    with pytest.raises(ValueError, match="X has 3 features, but BinaryNetwork is expecting 144"):
        model.predict(X)
