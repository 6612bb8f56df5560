"""The experiments of the paper, one module a figure. Nothing in the library imports from here."""
