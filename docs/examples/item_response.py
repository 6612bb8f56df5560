"""Item response (2PL): how hard each question is and how sharply it tells, which is positive. The persons are integrated out."""

from __future__ import annotations

import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Inferred, main

QUESTIONS = 10


def model(persons, person, question, right):
    with numpyro.plate("questions", QUESTIONS):
        sharpness = numpyro.sample("sharpness", dist.LogNormal(0, 0.5))
        difficulty = numpyro.sample("difficulty", dist.Normal(0, 1.5))
    with numpyro.plate("persons", persons):
        ability = numpyro.sample("ability", dist.Normal(0, 1))
    with numpyro.plate("answers", len(right)):
        logits = sharpness[question] * (ability[person] - difficulty[question])
        numpyro.sample("right", dist.Bernoulli(logits=logits), obs=right)


def data(persons: int) -> tuple:
    generator = np.random.default_rng(5)
    person = np.repeat(np.arange(persons, dtype=np.int32), QUESTIONS)
    question = np.tile(np.arange(QUESTIONS, dtype=np.int32), persons)
    sharpness, difficulty = generator.lognormal(0, 0.4, QUESTIONS), generator.normal(size=QUESTIONS)
    logits = sharpness[question] * (generator.normal(size=persons)[person] - difficulty[question])
    return persons, person, question, (generator.random(len(person)) < 1 / (1 + np.exp(-logits))).astype(np.int32)


EXAMPLE = Inferred(
    name="item_response",
    model=model,
    data=data,
    groups=200,
    small_groups=30,
    panels=[
        ("sharpness of question 1", "sharpness", 0),
        ("difficulty of question 1", "difficulty", 0),
        ("sharpness of question 2", "sharpness", 1),
    ],
    effects=("ability",),
)


if __name__ == "__main__":
    main(EXAMPLE, __doc__)
