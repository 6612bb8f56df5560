"""Formulas as MathML, made while the site is built: a browser draws them without a script, and nothing is fetched."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

FUNCTION = "arg|cos|det|diag|exp|inf|log|max|min|sin|sup|tr"


def mathml(formula: str, display: str = "inline") -> str:
    """The formula, with what browsers without a font for mathematics draw badly put right."""
    text = convert(formula, display=display)
    # A prime is a raised sign already: as a superscript it would be raised twice.
    text = re.sub(
        r"<msup>(<m[in]>[^<]*</m[in]>)<mi>(&#x0?203[23];|&#x02057;)</mi></msup>",
        r'<mrow>\1<mo lspace="0" rspace="0">\2</mo></mrow>',
        text,
    )
    # The name of a function stands a little apart from its argument, and a sign after a bracket belongs to what follows.
    text = re.sub(rf"(<mi>(?:{FUNCTION})</mi>)(?=<m[in])", r'\1<mspace width="0.17em" />', text)
    return re.sub(r"(<mo[^>]*>(?:&#x00028;|\()</mo>)<mo>(&#x02212;|-)</mo>", r'\1<mo form="prefix">\2</mo>', text)


def inline(translator: Any, node: nodes.math) -> None:
    """A formula in a sentence."""
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def display(translator: Any, node: nodes.math_block) -> None:
    """A formula on lines of its own."""
    translator.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer for Sphinx."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
