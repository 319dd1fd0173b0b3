import gzip
import struct
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairtopk import storage
from fairtopk.data import letor
from fairtopk.data import letor as letor_text
from fairtopk.data.groups import GroupRule, groups_from
from fairtopk.data.letor import read_letor
from fairtopk.errors import InputError

SAMPLE = """\
# a comment before the data
2 qid:10 1:0.03 2:-1e-3 4:7 # docid = GX1 inc = 1 prob = 0.02

0 qid:10 2:5 #docid = GX2
1.5 qid:9 1:1 #docid=GX1
0 qid:10 3:0.5 # docid = GX3"""
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
GRADES = st.floats(0, 100, width=32)


def written(folder: Path, text: str, name: str = "sample.txt") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, newline="")
    return path


def test_lines_become_documents_grouped_by_query(tmp_path: Path) -> None:
    data = read_letor(written(tmp_path, SAMPLE))

    assert data.name == "sample"
    assert data.query_ids.to_list() == [10, 9]
    assert data.offsets.tolist() == [0, 3, 4]
    assert data.row.tolist() == [0, 1, 3, 2]
    assert data.item_ids.to_list() == ["GX1", "GX2", "GX3", "GX1"]
    assert data.relevance.tolist() == [2, 0, 0, 1.5]
    assert data.feature_names == ("f1", "f2", "f3", "f4")
    wanted = [[0.03, -1e-3, 0, 7], [0, 5, 0, 0], [0, 0, 0.5, 0], [1, 0, 0, 0]]
    np.testing.assert_array_equal(data.values, np.array(wanted, np.float32))
    assert data.n_unknown == 4


def test_windows_line_ends_a_mark_and_gzip_change_nothing(tmp_path: Path) -> None:
    plain = read_letor(written(tmp_path, SAMPLE))
    windows = written(tmp_path, "\ufeff" + SAMPLE.replace("\n", "\r\n") + "\r\n", "windows.txt")
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(SAMPLE.encode()))

    assert read_letor(windows).checksum == plain.checksum
    assert read_letor(packed).checksum == plain.checksum
    assert read_letor(packed).name == "packed"


def test_a_feature_with_number_0_comes_first(tmp_path: Path) -> None:
    data = read_letor(written(tmp_path, "1 qid:1 2:5\n0 qid:1 0:4\n"))

    assert data.feature_names == ("f0", "f1", "f2")
    assert data.values.tolist() == [[0, 0, 5], [4, 0, 0]]


def test_documents_are_called_by_their_row_unless_every_line_names_one(tmp_path: Path) -> None:
    data = read_letor(written(tmp_path, SAMPLE.replace("#docid=GX1", "")))

    assert data.item_ids.to_list() == data.row.tolist()
    assert data.notes[-1].startswith("only 3 of 4 lines name a document")


def test_the_files_of_a_folder_or_zip_are_joined_in_the_order_of_their_names(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "parts"
    written(folder, "1 qid:2 1:3\n", "S2.txt")
    written(folder, "# later\n0 qid:1 1:4 2:1\n", "S1.txt")
    written(folder, "LETOR\nLines are like\n2 qid:10 1:0.5\n", "README")
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"MQ/{file.name}")

    data = read_letor(folder)

    assert data.query_ids.to_list() == [1, 2]
    assert data.values.tolist() == [[4, 1], [3, 0]]
    assert data.notes[-2:] == ("read S1.txt, S2.txt", "left out what is no LETOR text: README")
    assert read_letor(tmp_path / "parts.zip").checksum == data.checksum


def test_files_that_share_a_query_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "1 qid:2 1:3\n", "train.txt")
    written(tmp_path, "1 qid:2 1:3\n", "test.txt")

    message = "query 2 is in test.txt of .* and in train.txt of "
    with pytest.raises(InputError, match=message):
        read_letor(tmp_path)


def test_a_folder_without_such_text_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "user,item\n1,2\n", "ratings.csv")
    written(tmp_path, "nothing\n", "README")

    with pytest.raises(InputError, match="holds no LETOR text"):
        read_letor(tmp_path)


def test_a_rule_on_a_feature_makes_groups_and_the_feature_stays(tmp_path: Path) -> None:
    path = written(tmp_path, SAMPLE)

    data = read_letor(path, groups=GroupRule("f2", equals=0))

    assert data.group_names == ("0", "other")
    assert data.group.tolist() == [1, 1, 0, 0]
    assert "f2" in data.feature_names


def test_a_bound_means_the_number_that_is_written_in_the_file(tmp_path: Path) -> None:
    # 0.7 in float32 lies below 0.7 in float64.
    data = read_letor(
        written(tmp_path, "0 qid:1 1:0.7\n0 qid:1 1:0.6\n"),
        groups=GroupRule("f1", at_least=0.7),
    )

    assert data.group.tolist() == [0, 1]


def test_labels_by_document_id_hold_in_every_query(tmp_path: Path) -> None:
    labels = pl.DataFrame({"doc": ["GX1", "GX2"], "site": ["a", "b"]})
    groups = groups_from(labels, item="doc", column="site", equals="a")

    data = read_letor(written(tmp_path, SAMPLE), groups=groups)

    assert data.group_names == ("a", "other")
    assert data.group.tolist() == [0, 1, -1, 0]


def test_labels_by_row_fit_documents_without_ids(tmp_path: Path) -> None:
    labels = pl.DataFrame({"row": [0, 1, 2], "site": ["a", "b", "b"]})
    groups = groups_from(labels, item="row", column="site")

    data = read_letor(
        written(tmp_path, "0 qid:1 1:1\n1 qid:2 1:1\n2 qid:1 1:1\n"), groups=groups
    )

    assert data.to_frame()["group"].to_list() == ["a", "b", "b"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "a qid:1 1:2",
            "must start with its relevance, a finite number, got 'a' in 'a qid:1 1:2",
        ),
        ("1 1:2", "must be followed by qid: and a whole number, got '1:2' in '1 1:2'"),
        ("1 qid:1 x", "must be followed by pairs like 3:0.25, got 'x' in '1 qid:1 x'"),
        (
            "1 qid:1 1:nan # c",
            "finite number within float32, got '1:nan' in '1 qid:1 1:nan # c'",
        ),
        ("1 qid:1 1:-inf", "finite number within float32, got '1:-inf'"),
        ("inf qid:1 1:1", "must start with its relevance, a finite number, got 'inf'"),
        ("1 qid:1 2:1 1:1", "must rise within a line, got '1:1' in '1 qid:1 2:1 1:1'"),
        (
            "1 qid:1 " + "9:1 " * 99,
            "must rise within a line, got '9:1' in '1 qid:1 (9:1 )+9:1 '$",
        ),
    ],
)
def test_a_bad_line_is_refused_with_its_number_and_beginning(
    tmp_path: Path, line: str, message: str
) -> None:
    path = written(tmp_path, f"# one\n\n0 qid:1 1:5\n{line}\n0 qid:1 1:5\n")

    with pytest.raises(InputError, match=f"^sample.txt, line 4: .*{message}"):
        read_letor(path)


def test_a_document_twice_in_a_query_is_refused_with_both_lines(tmp_path: Path) -> None:
    written(tmp_path, SAMPLE, "A.txt")
    written(tmp_path, "1 qid:1 1:1 #docid = X\n# no\n1 qid:1 1:2 #docid = X\n", "B.txt")

    message = (
        "^B.txt of .*, line 3: query 1 holds item 'X' again \\(first in B.txt of .*, line 1"
    )
    with pytest.raises(InputError, match=message):
        read_letor(tmp_path)


def test_a_matrix_past_what_the_machine_or_the_limit_holds_is_refused_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "1 qid:1 1:1 10000:1\n0 qid:1 1:1\n")
    monkeypatch.setattr(letor, "LIMIT_BYTES", 79_999)
    with pytest.raises(InputError, match=r"2 documents by 10,000 features would take 0\.0 GB"):
        read_letor(path)
    monkeypatch.setattr(storage, "memory_bytes", lambda: 100_000)
    with pytest.raises(InputError, match=r"features takes 0\.0 GB, and at most half of this"):
        read_letor(path)


def test_a_feature_number_past_the_bound_is_refused_with_the_bound(tmp_path: Path) -> None:
    path = written(tmp_path, "1 qid:1 1:1 1500000000:1\n0 qid:1 1:1\n")
    with pytest.raises(InputError, match=r"number 1,500,000,000; numbers go up to 10,000, so"):
        read_letor(path)


@pytest.mark.parametrize("label", ["-1", "1e9"])
def test_relevance_that_no_gain_can_be_taken_of_is_refused(tmp_path: Path, label: str) -> None:
    with pytest.raises(InputError, match="line 2: relevance must lie between 0 and 100, got"):
        read_letor(written(tmp_path, f"1 qid:1 1:1\n{label} qid:1 1:1\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# only\n# comments\n", "holds no documents"),
        ("1 qid:1\n0 qid:2\n", "holds no features"),
        (" \n", "is empty"),
    ],
)
def test_a_file_with_nothing_to_rank_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_letor(written(tmp_path, text))


def test_a_rule_on_a_feature_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no feature 'f9': its features are f1 to f4"):
        read_letor(written(tmp_path, SAMPLE), groups=GroupRule("f9", equals=1))


def test_a_rule_that_matches_every_document_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="into one group"):
        read_letor(written(tmp_path, SAMPLE), groups=GroupRule("f1", at_least=0))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4), GRADES, st.dictionaries(st.integers(0, 30), FLOATS, min_size=1)
        ),
        min_size=1,
    )
)
def test_sparse_rows_written_as_text_come_back_in_their_order(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, float, dict[int, float]]],
) -> None:
    lines = [
        f"{label!r} qid:{query} " + " ".join(f"{i}:{x!r}" for i, x in sorted(pairs.items()))
        for query, label, pairs in rows
    ]
    path = written(tmp_path_factory.mktemp("letor"), "\n".join(lines))

    frame = read_letor(path).to_frame()

    assert frame["query"].to_list() == [query for query, _, _ in rows]
    assert frame["relevance"].to_list() == [label for _, label, _ in rows]
    names = [name for name in frame.columns if name[0] == "f"]
    wanted = [[pairs.get(int(name[1:]), 0.0) for name in names] for _, _, pairs in rows]
    assert frame.select(names).to_numpy().tolist() == wanted
    assert names[-1] == f"f{max(index for _, _, pairs in rows for index in pairs)}"


def test_mq2008_is_read_as_published(real_data: Path) -> None:
    data = read_letor(real_data / "ltr" / "mq2008-letor.zip")

    assert (data.n_rows, data.n_queries, data.values.shape[1]) == (15_211, 784, 46)
    wanted = pl.read_parquet(real_data / "ltr" / "mq2008.parquet")
    frame = data.to_frame()
    names = list(data.feature_names)
    assert frame["query"].to_list() == wanted["query_id"].to_list()
    assert frame["item"].equals(wanted["doc_id"])
    assert frame["relevance"].to_list() == wanted["relevance"].to_list()
    assert frame.select(names).equals(wanted.select(names).cast(pl.Float32))


@pytest.mark.parametrize(
    ("part", "n_rows", "n_queries"), [("train", 3_005, 201), ("test", 768, 50)]
)
def test_the_lambdarank_example_is_read_whole(
    real_data: Path, part: str, n_rows: int, n_queries: int
) -> None:
    data = read_letor(real_data / "ltr" / f"lightgbm-lambdarank.{part}.letor.gz")

    assert (data.n_rows, data.n_queries) == (n_rows, n_queries)


def as_bytes(text: str) -> NDArray[np.uint8]:
    """A text as the loops take it, which has a line break at its end."""
    return np.frombuffer(text.encode() + b"\n", np.uint8)


def read(text: str, *, low: int = 1) -> tuple[NDArray[np.float32], NDArray[np.float32], list]:
    """The matrix, the labels and the queries of a text without faults."""
    data = as_bytes(text)
    n_rows, _, largest, fault, _ = measure(text)
    assert fault == letor_text.FINE
    values = np.zeros((n_rows, largest - low + 1), np.float32)
    relevance, query = np.empty(n_rows, np.float32), np.empty(n_rows, np.int64)
    spans = np.empty((n_rows, 3), np.int64)
    assert letor_text.read_rows(data, low, values, relevance, query, spans)[0] == n_rows
    return values, relevance, query.tolist()


def measure(text: str) -> tuple[int, int, int, int, int]:
    return letor_text.read_rows(
        as_bytes(text),
        0,
        np.empty((0, 0), np.float32),
        np.empty(0, np.float32),
        np.empty(0, np.int64),
        np.empty((0, 3), np.int64),
    )


def number(text: str) -> tuple[float, int]:
    return letor_text.read_number(as_bytes(text), 0)


def float32_from_bits(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


FLOAT_BITS = st.integers(0, 2**32 - 1).map(float32_from_bits).filter(np.isfinite)


@pytest.mark.kernel
@given(FLOAT_BITS, st.sampled_from(["{!r}", "{:.9e}", "{:.9E}", "{:+.12g}", "{:.60f}"]))
def test_any_float32_survives_being_written_and_read(value: float, form: str) -> None:
    text = form.format(value)

    got, end = number(text)

    assert end == len(text)
    assert np.float32(got).tobytes() == np.float32(text).tobytes()


@pytest.mark.kernel
@given(st.floats(-1e30, 1e30), st.integers(0, 40))
def test_a_number_of_many_digits_is_right_to_the_last_places_of_float64(
    value: float, digits: int
) -> None:
    text = f"{value:.{digits}f}"

    assert number(text)[0] == pytest.approx(float(text), rel=5e-16, abs=1e-300)


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7.0),
        ("-.5", -0.5),
        ("+3.", 3.0),
        ("1e3", 1000.0),
        ("12345678901234567890123e-22", 1.2345678901234567),
        ("0.00000000000000000000000000000000000001e38", 1.0),
        ("0e999999", 0.0),
        ("1e-400", 0.0),
    ],
)
def test_these_spellings_are_numbers(text: str, value: float) -> None:
    got, end = number(text)

    assert (np.float32(got), end) == (np.float32(value), len(text))


@pytest.mark.kernel
@pytest.mark.parametrize(
    "text", ["", "-", ".", "e5", "1e", "1e+", "nan", "-inf", "Infinity", "1e39", "-4e38", "x"]
)
def test_these_spellings_are_no_numbers_that_float32_can_hold(text: str) -> None:
    assert number(text)[1] == 0


@pytest.mark.kernel
@given(
    st.lists(
        st.tuples(
            FLOAT_BITS,
            st.integers(-(10**17), 10**17),
            st.dictionaries(st.integers(0, 12), FLOAT_BITS, max_size=5),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["\n", "\r\n", " # a comment\n", "\n\n", "\t\n# between 1:2\n"]),
    st.booleans(),
)
def test_sparse_rows_written_as_text_are_read_back(
    rows: list[tuple[float, int, dict[int, float]]], line_end: str, final: bool
) -> None:
    lines = [
        " ".join(
            [repr(label), f"qid:{query}", *(f"{i}:{x!r}" for i, x in sorted(pairs.items()))]
        )
        for label, query, pairs in rows
    ]
    text = line_end.join(lines) + (line_end if final else "")
    wanted = np.zeros((len(rows), 13), np.float32)
    for place, (_, _, pairs) in enumerate(rows):
        wanted[place, list(pairs)] = list(pairs.values())
    indices = [index for _, _, pairs in rows for index in pairs]

    n_rows, smallest, largest, fault, _ = measure(text)
    values, relevance, query = read(text, low=0)

    assert (n_rows, fault) == (len(rows), letor_text.FINE)
    assert (smallest, largest) == (min(indices, default=-1), max(indices, default=-1))
    np.testing.assert_array_equal(values, wanted[:, : largest + 1])
    np.testing.assert_array_equal(relevance, np.array([row[0] for row in rows], np.float32))
    assert query == [row[1] for row in rows]


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("line", "fault", "word"),
    [
        ("x qid:1 1:2", letor_text.BAD_LABEL, "x"),
        ("nan qid:1 1:2", letor_text.BAD_LABEL, "nan"),
        ("1qid:1 1:2", letor_text.BAD_LABEL, "1qid"),
        ("1 1:2", letor_text.BAD_QUERY, "1:2"),
        ("1 qid: 1:2", letor_text.BAD_QUERY, "qid: "),
        ("1 qid:a 1:2", letor_text.BAD_QUERY, "qid:a"),
        ("1 qid:1.5 1:2", letor_text.BAD_QUERY, "qid:1.5"),
        ("1 qid:9999999999999999999 1:2", letor_text.BAD_QUERY, "qid:9"),
        ("1", letor_text.BAD_QUERY, ""),
        ("1 qid:1 a:2", letor_text.BAD_PAIR, "a:2"),
        ("1 qid:1 1:2 3", letor_text.BAD_PAIR, "3"),
        ("1 qid:1 -1:2", letor_text.BAD_PAIR, "-1:2"),
        ("1 qid:1 1:2 2:nan", letor_text.BAD_VALUE, "2:nan"),
        ("1 qid:1 1:2 2:", letor_text.BAD_VALUE, "2:"),
        ("1 qid:1 1:2:3", letor_text.BAD_VALUE, "1:2:3"),
        ("1 qid:1 1:1e99", letor_text.BAD_VALUE, "1:1e99"),
        ("1 qid:1 2:1 2:1", letor_text.NOT_RISING, "2:1"),
        ("1 qid:1 3:1 2:1", letor_text.NOT_RISING, "2:1"),
    ],
)
@pytest.mark.parametrize("after", ["", "\n", "\n1 qid:1 1:1\n"])
def test_a_fault_is_told_apart_and_found_at_its_word(
    line: str, fault: int, word: str, after: str
) -> None:
    text = f"0 qid:1 1:5\n{line}{after}"

    n_rows, _, _, got, place = measure(text)

    assert (n_rows, got) == (1, fault)
    assert text[place:].startswith(word)
    assert place >= text.index(line)


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("comment", "wanted"),
    [
        ("#docid = GX008-86 inc = 1", "GX008-86"),
        ("# docid=a", "a"),
        ("#\tdocid  =\tb\r", "b"),
        ("# docid =", ""),
        ("# docid", ""),
        ("# id = docid", ""),
        ("", ""),
    ],
)
@pytest.mark.parametrize("after", ["", "\n"])
def test_the_span_of_a_document_id_is_that_of_its_word(
    comment: str, wanted: str, after: str
) -> None:
    text = f"\n1 qid:1 1:2 {comment}{after}"
    spans = np.empty((1, 3), np.int64)

    letor_text.read_rows(
        as_bytes(text),
        1,
        np.zeros((1, 1), np.float32),
        np.empty(1, np.float32),
        np.empty(1, np.int64),
        spans,
    )

    line, start, end = spans[0].tolist()
    assert (line, text[start:end]) == (1, wanted)
