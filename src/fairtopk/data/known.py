"""The data sets that the library knows by name: what they hold and where to get them.

Counts are those of the published files; checksums are the MD5 sums their publisher lists.
"""

from dataclasses import dataclass

GROUPLENS = "https://grouplens.org/datasets/movielens/"
MOVIELENS_FILES = "https://files.grouplens.org/datasets/movielens/"
RESEARCH_ONLY = "GroupLens terms: research use, cite, no commercial use, no redistribution"
PASS_ON = "GroupLens terms: research use, cite, no commercial use, pass on under the same terms"


@dataclass(frozen=True)
class Counts:
    """How many the published files hold; `items` somebody rated, `listed` are all."""

    ratings: int
    users: int
    items: int
    listed: int


@dataclass(frozen=True)
class Known:
    """A data set by name.

    Attributes:
        title: What people call it.
        size: How much it holds, in a few words.
        groups: Columns that a group rule can use.
        licence: The terms, in one line.
        home: The page to get it from.
        file: The file to get there, where there is one.
        url: Where that file can be downloaded; None where it cannot.
        md5: The published checksum of that file; None where the file changes over time.
        counts: What the published files hold; None where that changes over time.
    """

    title: str
    size: str
    groups: str
    licence: str
    home: str
    file: str = ""
    url: str | None = None
    md5: str | None = None
    counts: Counts | None = None


def _movielens(
    title: str, licence: str, counts: Counts | None = None, md5: str | None = None
) -> Known:
    short = title.lower().replace(" ", "-")
    file = f"ml-{short}.zip"
    size = "changes over time" if counts is None else f"{counts.ratings:,} ratings"
    return Known(
        title=f"MovieLens {title}",
        size=size,
        groups="genres, year",
        licence=licence,
        home=f"{GROUPLENS}{short.removesuffix('-small')}/",
        file=file,
        url=f"{MOVIELENS_FILES}{file}",
        md5=md5,
        counts=counts,
    )


MOVIELENS: dict[str, Known] = {
    "movielens-100k": _movielens(
        "100K",
        RESEARCH_ONLY,
        Counts(100_000, 943, 1_682, 1_682),
        "0e33842e24a9c977be4e0107933c0723",
    ),
    "movielens-1m": _movielens(
        "1M",
        RESEARCH_ONLY,
        Counts(1_000_209, 6_040, 3_706, 3_883),
        "c4d9eecfca2ab87c1945afe126590906",
    ),
    "movielens-10m": _movielens(
        "10M",
        RESEARCH_ONLY,
        Counts(10_000_054, 69_878, 10_677, 10_681),
        "ce571fd55effeba0271552578f2648bd",
    ),
    "movielens-20m": _movielens(
        "20M",
        PASS_ON,
        Counts(20_000_263, 138_493, 26_744, 27_278),
        "cd245b17a1ae2cc31bb14903e1204af3",
    ),
    "movielens-25m": _movielens(
        "25M",
        PASS_ON,
        Counts(25_000_095, 162_541, 59_047, 62_423),
        "6b51fb2759a8657d3bfcbfc42b592ada",
    ),
    # The publisher replaces these two now and then; the small one has stood since 9/2018.
    "movielens-latest-small": _movielens(
        "latest small", PASS_ON, Counts(100_836, 610, 9_724, 9_742)
    ),
    "movielens-latest": _movielens("latest", PASS_ON),
}

KNOWN: dict[str, Known] = {
    "synthetic": Known(
        title="Embedded generator",
        size="any, 'demo' or 'movielens-20m' shape",
        groups="made with a known bias",
        licence="Apache-2.0, as the package",
        home="comes with the package",
    ),
    **MOVIELENS,
    "netflix": Known(
        title="Netflix Prize",
        size="100,480,507 ratings",
        groups="year",
        licence="Netflix Prize terms: research use, no redistribution, never identify users",
        home="withdrawn by Netflix; use a copy you hold under its terms",
        counts=Counts(100_480_507, 480_189, 17_770, 17_770),
    ),
    "letor": Known(
        title="LETOR / SVMrank text",
        size="your files",
        groups="any feature, or a side table",
        licence="that of your files",
        home="your files; MQ2008 is at microsoft.com/research, 'LETOR 4.0'",
    ),
    "csv": Known(
        title="CSV",
        size="your file",
        groups="any column",
        licence="that of your file",
        home="your file",
    ),
    "parquet": Known(
        title="Parquet",
        size="your file",
        groups="any column",
        licence="that of your file",
        home="your file",
    ),
}
