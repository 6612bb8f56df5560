"""tqdm's bars: widgets in a notebook that has ipywidgets, text elsewhere.

Imported before anything else of the library: NumPyro imports `tqdm.auto` too, and where ipywidgets is missing the first import
in a notebook warns, though the text bars that it falls back to are all that is needed. Then NumPyro as a whole: ArviZ leaves a module that is
loaded when it is first used in its place, and a package whose parts are imported before that loses them.
"""

import warnings

__all__ = ["tqdm"]

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="IProgress not found")
    from tqdm.auto import tqdm as tqdm

import numpyro

NUMPYRO = numpyro.__version__  # that it is asked for loads it
