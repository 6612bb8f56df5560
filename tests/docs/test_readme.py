"""The examples at the top of the README run, and print what stands below them."""

import re
from pathlib import Path

import numpy as np
import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def table(text):
    """{variable: {column: number}}, and the text below."""
    head, *lines = text.strip().splitlines()
    columns, rows = head.split(), {}
    while lines and len(lines[0].split()) == len(columns):
        name, *numbers = lines.pop(0).split()
        rows[name] = dict(zip(columns[1:], map(float, numbers), strict=True))
    return rows, " ".join(lines)


def test_the_readme_opens_with_two_examples_of_infer():
    assert len(EXAMPLES) == 2
    assert all("ib.infer(" in code for code, _ in EXAMPLES)
    assert README.count("\n") <= 130  # about three screens


@pytest.mark.parametrize("number", [0, 1])
def test_an_example_prints_what_stands_below_it(number, capsys):
    """But for the last digits, which a busy machine may change: it may take another method, and another length."""
    code, shown = EXAMPLES[number]
    exec(compile(code, "README.md", "exec"), {})
    (printed, verdict), (stated, says) = table(capsys.readouterr().out), table(shown)
    assert list(printed) == list(stated)
    assert says == "certified. `error` is the total error of the mean, Monte Carlo and bias together, in posterior sds."
    assert verdict.startswith(says[:40])
    for name, row in stated.items():
        assert list(row) == ["mean", "sd", "5%", "50%", "95%", "error", "ess", "ess_tail", "r_hat"]
        other = printed[name]
        off = np.hypot(row["error"], other["error"]) * row["sd"]
        assert abs(row["mean"] - other["mean"]) < 4 * off, name
        assert other["sd"] == pytest.approx(row["sd"], rel=0.1)
        assert max(row["error"], other["error"]) <= 0.025 + 1e-4
