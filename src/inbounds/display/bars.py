"""tqdm's bars: widgets in a notebook that has ipywidgets, text elsewhere.

Imported before anything else of the library: NumPyro imports `tqdm.auto` too, and where ipywidgets is missing the first import
in a notebook warns, though the text bars that it falls back to are all that is needed.
"""

import warnings

__all__ = ["tqdm"]

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="IProgress not found")
    from tqdm.auto import tqdm as tqdm
