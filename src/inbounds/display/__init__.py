"""How the library shows things: tables, progress bars, pictures, and a page that holds them."""

from typing import TYPE_CHECKING

from inbounds.display.bars import tqdm  # first: see there
from inbounds.display.pages import Chapter, Section, Table, Verdict, cell, write_page
from inbounds.display.pictures import DARK, LIGHT, Theme, new_figure, save_picture
from inbounds.display.tables import escape, html_table, text_table
from inbounds.namespaces import namespace

__all__ = [
    "DARK",
    "LIGHT",
    "Chapter",
    "Section",
    "Table",
    "Theme",
    "Verdict",
    "cell",
    "escape",
    "html_table",
    "new_figure",
    "save_picture",
    "text_table",
    "tqdm",
    "write_page",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = namespace(__name__)
