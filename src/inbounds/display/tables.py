"""Small tables as text and as HTML, for objects that show themselves in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["escape", "html_table", "text_table"]


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first of them the column names, in columns as wide as their longest cell.

    Args:
        rows: of cells, each as long as the first.

    Returns:
        Lines of text.

    Example:
        >>> print(ib.display.text_table([("name", "mean"), ("rate", "0.5")]))
        name  mean
        rate   0.5
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """The same for a notebook; cells are escaped.

    Args:
        columns: their names.
        rows: of cells.
        caption: above the table; none where it is empty.

    Returns:
        HTML.

    Example:
        >>> "a&lt;b" in ib.display.html_table(["name"], [["a<b"]])
        True
    """

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    head = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{head}{line('th', columns)}{''.join(line('td', row) for row in rows)}</table>"
