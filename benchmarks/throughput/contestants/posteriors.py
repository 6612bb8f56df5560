"""posteriors (PyTorch) as its documentation has it: log posterior over the number of data, temperature one over it, updates in place.

Chains are an axis of the parameters; their log posteriors are added, which leaves every gradient its own.
"""

import time

import numpy as np
import posteriors
import torch
from rows import RATE, SHAPE
from torch.nn import functional


def logistic(phi, batch):
    logits = torch.einsum("cbd,cd->cb", batch["x"], phi["w"])
    return (batch["y"] * logits - functional.softplus(logits)).mean(1).sum(), -0.5 * (phi["w"] ** 2).sum()


def mlp(phi, batch):
    hidden = torch.relu(batch["x"][0] @ phi["w1"][0] + phi["b1"][0])
    loss = functional.cross_entropy(hidden @ phi["w2"][0] + phi["b2"][0], batch["y"][0])
    return -loss, -0.5 * sum((leaf**2).sum() for leaf in phi.values())


def rates(phi, batch):
    theta = functional.softplus(phi["rate"])
    rate = theta[0][batch["index"][0]]
    likelihood = (batch["count"][0] * torch.log(rate) - rate).mean()
    return likelihood, ((SHAPE - 1) * torch.log(theta) - RATE * theta + functional.logsigmoid(phi["rate"])).sum()


def gamma(phi, batch):
    theta = functional.softplus(phi["x"])
    return 0.0, (-0.5 * torch.log(theta) - 2.0 * theta + functional.logsigmoid(phi["x"])).sum()


def beta(phi, batch):
    return 0.0, (0.5 * (functional.logsigmoid(phi["x"]) + functional.logsigmoid(-phi["x"]))).sum()


MODELS = {"logistic": logistic, "mlp": mlp, "rates": rates, "gamma": gamma, "beta": beta}
TO_THETA = {"rates": functional.softplus, "gamma": functional.softplus, "beta": torch.sigmoid}
TO_PHI = {
    "rates": lambda x: torch.log(torch.expm1(x)),
    "gamma": lambda x: torch.log(torch.expm1(x)),
    "beta": torch.logit,
}


def choose(row, data, num_steps):
    """How many threads: on small tensors PyTorch's default, one per core, can be several times slower than one."""
    seconds = {}
    for threads in {torch.get_num_threads(), 1}:
        run = prepare(row, data, num_steps, threads)
        run(0)
        began = time.perf_counter()
        run(1)
        seconds[threads] = time.perf_counter() - began
    return {"threads": min(seconds, key=seconds.get)}


def prepare(row, data, num_steps, threads):
    whole = {name: leaf.astype(np.int64) if leaf.dtype == np.int32 else leaf for name, leaf in data.items()}
    tensors = {name: torch.from_numpy(leaf) for name, leaf in whole.items()}
    rows = len(next(iter(data.values()))) if data else 1
    start = {name: TO_PHI.get(row.model, lambda x: x)(torch.as_tensor(leaf)) for name, leaf in row.make_start().items()}

    def log_posterior(phi, batch):
        likelihood, prior = MODELS[row.model](phi, batch)
        return likelihood + prior / rows, torch.tensor([])

    transform = posteriors.sgmcmc.sgld.build(log_posterior, lr=row.step_size * rows, temperature=1 / rows)

    def run(seed):
        torch.set_num_threads(threads)
        torch.manual_seed(seed)
        state = transform.init({name: leaf.expand(row.num_chains, *leaf.shape).clone() for name, leaf in start.items()})
        kept, batch = [], None
        for number in range(1, num_steps + 1):
            if data:
                index = torch.randint(rows, (row.num_chains, row.batch_size))
                batch = {name: leaf[index] for name, leaf in tensors.items()}
            state, _ = transform.update(state, batch, inplace=True)
            if number % row.thin == 0:
                kept.append({name: state.params[name].clone() for name in start})
        theta = TO_THETA.get(row.model, lambda x: x)
        return {name: np.asarray(theta(torch.stack([draw[name] for draw in kept], 1))) for name in start}

    return run
