"""The page of the paper's experiments: figures, tables, and the runs behind every number."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fairtopk.reporting.frame import rendered
from fairtopk.reporting.paper_figures import Drawn
from fairtopk.reporting.paper_table import PaperTable
from fairtopk.reporting.words import MEANINGS


class Section(NamedTuple):
    """A part of the page.

    Attributes:
        title: Its heading.
        words: What it is about.
        figures: With the pictures inside.
        tables: Shown below them.
        folded: Tables that are opened on demand.
    """

    title: str
    words: str
    figures: list[Drawn]
    tables: list[PaperTable]
    folded: list[PaperTable]


@dataclass(frozen=True)
class About:
    """What is said at the top, and at the end.

    Attributes:
        words: Sentences: what was run, on which data, how long it took.
        missing: In words, what is not there and why.
        runs: Where the runs are, as seen from the page.
    """

    words: list[str]
    missing: list[str]
    runs: str


def paper_page(about: About, sections: list[Section], figures: Path) -> str:
    """Return the page as HTML.

    Args:
        about: What is said at the top, and at the end.
        sections: What is between.
        figures: The folder where the figures were written.
    """
    return rendered(
        "paper.html",
        {},
        title="Learning to rank with top-K fairness: the experiments again",
        about=about,
        sections=sections,
        inlined=lambda drawn: inlined(figures / f"{drawn.name}.png"),
        meanings=MEANINGS,
    )


def inlined(picture: Path) -> str:
    """Return an address that holds a PNG itself."""
    text = base64.b64encode(picture.read_bytes()).decode("ascii")
    return f"data:image/png;base64,{text}"
