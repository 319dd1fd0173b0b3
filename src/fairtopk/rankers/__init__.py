"""One object that is fitted, ranks, is measured, saved and loaded."""
