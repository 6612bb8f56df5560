"""What `ib.infer` is judged by: posteriors whose truth is known, written down before it existed.

`python -m benchmarks.infer.NAME --help`, from the root of the repository, for each of `posteriordb`, `coverage`, `hostile`, `models`,
`references` and `logistic`.
"""
