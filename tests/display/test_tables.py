"""Tables as text and HTML."""

from inbounds.display import html_table, text_table


def test_columns_are_as_wide_as_their_longest_cell():
    assert text_table([("name", "x"), ("a", "10"), ("longer", "2")]) == "name    x\na       10\nlonger  2"


def test_cells_are_escaped():
    shown = html_table(("name",), [("<b>",)], "a & b")
    assert shown == "<table><caption>a &amp; b</caption><tr><th>name</th></tr><tr><td>&lt;b&gt;</td></tr></table>"
