"""What makes the published pages of docs/results; run from the root of the repository.

Each folder is one study: ``python -m studies.movielens.run --help``. Speed is measured in
``benchmarks/``.
"""
