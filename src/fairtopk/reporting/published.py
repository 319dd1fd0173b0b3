"""Numbers of the paper, "Learning to Rank with Top-K Fairness", to stand beside ours."""

LARGE = 1e5  # C of its table, beside 0
KS = (50, 100, 200)
Published = dict[
    str, tuple[tuple[float, float], ...]
]  # measure to mean and deviation at each K


def _published(ndcg: list[float], gap: list[float]) -> Published:
    """Return a row of the paper: mean and deviation, at K = 50, 100 and 200."""
    pairs = {
        name: tuple(zip(row[::2], row[1::2], strict=True))
        for name, row in (("ndcg", ndcg), ("gap", gap))
    }
    return {
        "ndcg": pairs["ndcg"],
        "exposure_gap": pairs["gap"],
        "exposure_gap_released": pairs["gap"],
    }


# "Learning to Rank with Top-K Fairness", the table of its appendix "Experiment Statistical
# Significance". At C = 0 its four methods with an NDCG loss have the same numbers.
SOURCE = "Learning to Rank with Top-K Fairness, appendix Experiment Statistical Significance"
BLIND = _published(
    [0.5769, 0.0521, 0.5910, 0.0465, 0.5973, 0.0430],
    [0.0139, 0.0001, 0.0069, 0.0, 0.0034, 0.0],
)
PUBLISHED: dict[tuple[str, float], Published] = {
    ("KSO-RED", 0.0): BLIND,
    ("KSO-RED", LARGE): _published(
        [0.5719, 0.0541, 0.5847, 0.0409, 0.5901, 0.0464],
        [0.0095, 0.0, 0.0042, 0.0, 0.0012, 0.0],
    ),
    ("SO-RED", 0.0): BLIND,
    ("SO-RED", LARGE): _published(
        [0.5740, 0.0528, 0.5886, 0.0471, 0.5953, 0.0442],
        [0.0103, 0.0, 0.0063, 0.0, 0.0012, 0.0],
    ),
    ("K-SONG", 0.0): BLIND,
    ("NG-DE", 0.0): BLIND,
    ("NG-DE", LARGE): _published(
        [0.5707, 0.0553, 0.5864, 0.0491, 0.5914, 0.0465],
        [0.0135, 0.0001, 0.0048, 0.0, 0.0011, 0.0],
    ),
    ("DELTR", 0.0): _published(
        [0.5496, 0.0551, 0.5531, 0.0501, 0.5581, 0.0481],
        [0.0136, 0.0001, 0.0041, 0.0, 0.0015, 0.0],
    ),
    ("DELTR", LARGE): _published(
        [0.5452, 0.0584, 0.5656, 0.0517, 0.5591, 0.0484],
        [0.0114, 0.0, 0.0042, 0.0, 0.0008, 0.0],
    ),
}
PUBLISHED_OF = "MovieLens-20M-H"

# "Learning to Rank with Top-K Fairness", the table of its appendix "Computational Efficiency
# Analysis": minutes on MovieLens-20M-H.
PAPER_MINUTES = {
    "DELTR": "84",
    "NG-DE": "110",
    "SO-RED": "126",
    "KSO-RED": "127",
    "K-SONG": "127",
    "Robust (labels when serving)": "1,522",
    "DPR-RSP": "> 4,320 (stopped early)",
    "DPR-REO": "> 4,320 (stopped early)",
}
