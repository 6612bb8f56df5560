"""Metrics, control variates and noise correction: what they cost and what they gain, on the page docs/results/geometry/README.md."""
