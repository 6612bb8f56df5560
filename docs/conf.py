"""How `make docs` builds the site. Every warning is an error there: a broken link, an image that is missing, a public name without words."""

import sys
from pathlib import Path

import inbounds

sys.path.insert(0, str(Path(__file__).parent / "_site"))

project = "Inbounds"
author = "Inbounds maintainers"
copyright = f"2026, {author}"
version = release = inbounds.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "formulas",
    "reference",
]
exclude_patterns = ["_site", "examples/*.json", "results/**/*.json"]
suppress_warnings = ["ref.python"]  # an attribute in a docstring that has the name of another class's

# Pages are Markdown that reads well in the repository too.
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are kept with their results; the tests run them
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
add_module_names = False
python_display_short_literal_types = True

html_title = "Inbounds"
html_theme = "pydata_sphinx_theme"
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["inbounds.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
