"""Students and teachers: marks with an effect of both. The students are integrated out, the teachers are sampled."""

from __future__ import annotations

import numpy as np
import numpyro
import numpyro.distributions as dist
from against_nuts import Inferred, main

TEACHERS, MARKS = 12, 8


def model(students, student, teacher, mark):
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    of_students = numpyro.sample("sd of students", dist.HalfNormal(1))
    of_teachers = numpyro.sample("sd of teachers", dist.HalfNormal(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    with numpyro.plate("teachers", TEACHERS):
        gift = numpyro.sample("gift", dist.Normal(0, 1))
    numpyro.deterministic("of teacher", of_teachers * gift)
    with numpyro.plate("students", students):
        talent = numpyro.sample("talent", dist.Normal(0, 1))
    with numpyro.plate("rows", len(mark)):
        expected = mean + of_students * talent[student] + of_teachers * gift[teacher]
        numpyro.sample("mark", dist.Normal(expected, noise), obs=mark)


def data(students: int) -> tuple:
    generator = np.random.default_rng(4)
    student = np.repeat(np.arange(students, dtype=np.int32), MARKS)
    teacher = generator.integers(0, TEACHERS, len(student)).astype(np.int32)
    expected = 3 + generator.normal(0, 0.5, students)[student] + generator.normal(0, 0.4, TEACHERS)[teacher]
    return students, student, teacher, generator.normal(expected, 0.9).astype(np.float32)


EXAMPLE = Inferred(
    name="crossed_effects",
    model=model,
    data=data,
    groups=100,
    small_groups=20,
    panels=[
        ("sd of students", "sd of students"),
        ("sd of teachers", "sd of teachers"),
        ("first teacher", "of teacher", 0),
    ],
    effects=("talent",),
)


if __name__ == "__main__":
    main(EXAMPLE, __doc__)
