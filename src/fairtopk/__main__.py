"""``python -m fairtopk`` is the command line."""

from fairtopk.cli.app import main

if __name__ == "__main__":
    main()
