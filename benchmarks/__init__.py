"""What is measured against what: `python -m benchmarks.NAME --help`, from the root of the repository."""
