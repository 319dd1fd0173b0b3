"""``python -m fairtopk`` is the command line."""

from fairtopk.experiments.cli import main

if __name__ == "__main__":
    main()
