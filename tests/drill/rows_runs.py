"""Rows that spoil what a run left: its config, weights, results and what is beside them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from drill.rows import (
    DEEP,
    ESCAPE,
    HUGE,
    SPOILS,
    Do,
    Row,
    about,
    all_of,
    as_link,
    copied,
    drop_key,
    edited,
    header,
    put,
    removed,
    resealed,
    row,
    set_key,
    swap,
    tensors,
)

RUN = "runs/kso-red"
COMMANDS = {  # that open a run
    "evaluate": f"evaluate {RUN} --k 4",
    "recommend": f"recommend {RUN} --out made.csv",
    "export": f"export {RUN} made.onnx",
    "rerank": f"rerank {RUN} --method det-greedy --k 4",
}
RESUME = f"train kso-red.toml --out {RUN} --resume"
REPORT = "report runs"
MODEL, STATE = f"{RUN}/model.safetensors", f"{RUN}/state.safetensors"
METRICS, CONFIG = f"{RUN}/metrics.json", f"{RUN}/config.toml"
PROVENANCE = f"{RUN}/provenance.json"
PER_QUERY = f"{RUN}/per_query.safetensors"

GONE = ("is removed", "is a link to itself")  # by which a file is as good as not there
DEEP_JSON = "[" * DEEP + "]" * DEEP
TEXTS: dict[str, str | bytes] = {  # what a JSON file must not hold
    "is an empty object": "{}",
    "is a list": "[]",
    "is null": "null",
    "is a number": "1",
    "is nested 10,000 deep": DEEP_JSON,
    "holds an object nested 10,000 deep": '{"a": ' * DEEP + "1" + "}" * DEEP,
    "holds an integer of 5,000 digits": f'{{"metrics": {HUGE}}}',
    "is not UTF-8": b'{"metrics": "\xff"}',
    "holds NaN": '{"metrics": NaN}',
}

Edit = Callable[[Any], Any]
HEADERS: dict[str, Edit] = {  # of a safetensors file
    "has no metadata": drop_key("__metadata__"),
    "has other metadata": set_key("__metadata__", {"format": "pt"}),
    "has a description that is no JSON": lambda found: _said(found, "nonsense"),
    "has a description nested deep": lambda found: _said(found, DEEP_JSON),
    "has a description that is a list": lambda found: _said(found, "[]"),
    "has a description that is null": lambda found: _said(found, "null"),
    "has a description that is a number": lambda found: _said(found, HUGE),
    "has an empty description": lambda found: _said(found, "{}"),
    "has a tensor of another shape": lambda found: _tensor(found, "shape", lambda s: [*s, 1]),
    "has a tensor of another type": lambda found: _tensor(found, "dtype", lambda _: "I32"),
    "has a tensor of an unknown type": lambda found: _tensor(found, "dtype", lambda _: "X9"),
    "has a tensor beyond its end": lambda found: _tensor(
        found, "data_offsets", lambda o: [o[0], o[1] + 10**9]
    ),
    "has a tensor of negative size": lambda found: _tensor(found, "shape", lambda s: [-1]),
    "has a tensor renamed": lambda found: _renamed(found),
    "is a list": lambda found: [],
    "is an object in an object": lambda found: {"a": found},
}


def _said(found: dict[str, Any], text: str) -> None:
    said = found["__metadata__"]
    for key in said:
        said[key] = text


def _first(found: dict[str, Any]) -> str:
    return next(name for name in found if name != "__metadata__" and found[name]["shape"])


def _tensor(found: dict[str, Any], key: str, change: Callable[[Any], Any]) -> None:
    of = found[_first(found)]
    of[key] = change(of[key])


def _renamed(found: dict[str, Any]) -> None:
    found[f"x{ESCAPE}"] = found.pop(_first(found))


ABOUTS: dict[str, Edit] = {  # of a model or a state
    "is of another run": set_key("identity.run", "0" * 32),
    "has no identity": drop_key("identity"),
    "has an identity that is a number": set_key("identity", 1),
    "has an identity without a run": drop_key("identity.run"),
    "has a run that is a list": set_key("identity.run", []),
    "is of other data": set_key("identity.data", "0" * 64),
    "is of another config": set_key("identity.config", "0" * 32),
}
Tensors = dict[str, torch.Tensor]


def _largest(found: Tensors) -> str:
    return max(found, key=lambda name: found[name].numel())


TENSORS: dict[str, Callable[[Tensors], Any]] = {  # of a model or a state
    "lacks a tensor": lambda found: found.pop(_largest(found)),
    "has a tensor too many": lambda found: found.update(nonsense=torch.zeros(3)),
    "has a tensor cut short": lambda found: _map(found, lambda one: one[:-1].clone()),
    "has a tensor of whole numbers": lambda found: _map(found, lambda one: one.long()),
    "has an empty tensor": lambda found: _map(found, lambda one: one[:0].clone()),
    "has a scalar for a tensor": lambda found: _map(found, lambda one: torch.tensor(1.0)),
}


OPTIMIZER: dict[str, Callable[[Tensors], Any]] = {  # of a state
    "lacks what the optimizer remembers": lambda found: _dropped(found, "optimizer."),
    "lacks a moment": lambda found: found.pop(_moment(found)),
    "has a moment of another shape": lambda found: found.update(
        {_moment(found): torch.zeros(2, 2)}
    ),
    "has a moment that is NaN": lambda found: found[_moment(found)].fill_(torch.nan),
    "has a moment below 0": lambda found: found[_moment(found)].fill_(-1.0),
    "has weights that are NaN": lambda found: found[_weight(found)].fill_(torch.nan),
}


def _dropped(found: Tensors, start: str) -> None:
    for name in [one for one in found if one.startswith(start)]:
        del found[name]


def _moment(found: Tensors) -> str:
    return next(name for name in sorted(found) if name.endswith("exp_avg_sq"))


def _weight(found: Tensors) -> str:
    return next(name for name in sorted(found) if name.startswith("scorer."))


def _map(found: Tensors, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    name = _largest(found)
    found[name] = change(found[name])


STATES: dict[str, Edit] = {
    "has no step": drop_key("step"),
    "has a step that is text": set_key("step", "x"),
    "has a step that is a list": set_key("step", []),
    "has another step": set_key("step", 10**6),
    "has no progress": drop_key("progress"),
    "has progress that is a list": set_key("progress", []),
    "has progress without a phase": drop_key("progress.phase"),
    "has progress in a phase that is none": set_key("progress.phase", 99),
    "has progress in a phase below 0": set_key("progress.phase", -1),
    "has progress in a phase that is text": set_key("progress.phase", "x"),
    "has progress with a history that is a number": set_key("progress.history", 1),
    "has seconds that are text": set_key("seconds", "x"),
    "has seconds below 0": set_key("seconds", -1.0),
    "has an empty record": set_key("progress.history", [{}]),
    "has a choice that is not there": set_key("progress.chosen", 77),
    "has no choice": set_key("progress.chosen", None),
    "has an epoch too many": set_key("progress.epoch", 99),
    "has a step below 0": set_key("progress.step", -1),
    "has a sum without a count": set_key("progress.sums", {"loss": 1.0}),
}


def opened() -> list[Row]:
    """Return what may befall the config and the model of a run, for all that open one."""
    rows = []
    for command, words in COMMANDS.items():
        for name in (CONFIG, MODEL):
            short = Path(name).name
            for how, spoil in SPOILS.items():
                gone = name == CONFIG and how in GONE
                says = RUN if gone else short
                if name == CONFIG and how == "is cut in half":
                    continue  # which is a config, of another run
                rows.append(row(f"{command}: {short} {how}", words, spoil(name), says=says))
    evaluate = COMMANDS["evaluate"]
    rows += [
        row(f"evaluate: its model {how}", evaluate, tensors(MODEL, edit), says="model.saf")
        for how, edit in TENSORS.items()
    ]
    rows += [
        row(
            f"evaluate: model.safetensors {how}",
            evaluate,
            header(MODEL, edit),
            says="model.saf",
        )
        for how, edit in HEADERS.items()
    ]
    rows += [
        row(f"{command}: model.safetensors {how}", words, about(MODEL, edit), says=RUN)
        for command, words in COMMANDS.items()
        for how, edit in ABOUTS.items()
    ]
    fitted = "ease-run/model.safetensors"
    rows += [
        row(
            f"evaluate a fitted model: {how}",
            "evaluate ease-run",
            edit(fitted, one),
            says="ease",
        )
        for edit, found in ((header, HEADERS), (about, ABOUTS))
        for how, one in found.items()
    ]
    for command, words in COMMANDS.items():
        rows += [
            row(f"{command}: the model of another method", words,
                copied("runs/k-song/model.safetensors", MODEL), says=RUN),
            row(f"{command}: the model of another seed", words,
                copied("other-run/model.safetensors", MODEL), says=RUN),
            row(f"{command}: a seed edited in the config", words,
                swap(CONFIG, "seed = 0", "seed = 7"), says=RUN),
            row(f"{command}: a method edited in the config", words,
                swap(CONFIG, '"kso-red"', '"so-red"'), says=RUN),
            row(f"{command}: an epoch edited in the config", words,
                swap(CONFIG, "epochs = 2", "epochs = 3"), says=RUN),
        ]  # fmt: skip
    return rows


def resumed() -> list[Row]:
    """Return what may befall a checkpoint that a run goes on from; its results are removed."""
    unfinished = all_of(removed(METRICS), _without_older)
    both = ((MODEL, "model"), (STATE, "state"))
    rows = [
        row(f"resume: {short}.safetensors {how}", RESUME,
            all_of(unfinished, header(name, edit)), says=RUN)
        for name, short in both
        for how, edit in HEADERS.items()
    ]  # fmt: skip
    rows += [
        row(
            f"resume: {short}.safetensors {how}",
            RESUME,
            all_of(unfinished, spoil(name)),
            # With one file of its first checkpoint a run begins anew.
            code=0 if how in GONE else 2,
            says=RUN,
        )
        for name, short in both
        for how, spoil in SPOILS.items()
    ]
    rows += [
        row(f"resume: state.safetensors {how}", RESUME, all_of(unfinished, about(STATE, edit)),
            says=RUN)
        for how, edit in {**STATES, "is of another run": ABOUTS["is of another run"]}.items()
    ]  # fmt: skip
    rows += [
        row(f"resume: {short}.safetensors {how}", RESUME,
            all_of(unfinished, tensors(name, edit)), says=RUN)
        for name, short in both
        for how, edit in TENSORS.items()
    ]  # fmt: skip
    rows += [
        row(f"resume: state.safetensors {how}", RESUME,
            all_of(unfinished, tensors(STATE, edit)), says="state.safetensors does not fit")
        for how, edit in OPTIMIZER.items()
    ]  # fmt: skip
    rows += [
        row("resume: the state of another run", RESUME,
            all_of(unfinished, copied("other-run/state.safetensors", STATE)), says=RUN),
        row("resume: the checkpoint of another run", RESUME,
            all_of(unfinished, copied("other-run/state.safetensors", STATE),
                   copied("other-run/model.safetensors", MODEL)), says=RUN),
        row("resume: an unfinished run as it should be", RESUME, unfinished, code=0),
        row("resume: config.toml is of another run", RESUME,
            copied("other-run/config.toml", CONFIG), says="seed"),
        row("resume: config.toml is no TOML", RESUME, put(CONFIG, "nonsense"), says=RUN),
    ]  # fmt: skip
    for how, text in TEXTS.items():
        rows.append(
            row(f"resume: metrics.json {how}", RESUME, put(METRICS, text), says=METRICS)
        )
    for how, spoil in SPOILS.items():
        if how not in GONE:  # where it is measured again
            rows.append(
                row(f"resume: metrics.json {how}", RESUME, spoil(METRICS), says=METRICS)
            )
    return rows


def _without_older(folder: Path) -> None:
    for name in ("model", "state"):
        (folder / RUN / f"before-{name}.safetensors").unlink(missing_ok=True)


RESULTS: dict[str, Edit] = {
    "has no metrics": drop_key("metrics"),
    "has metrics that are a list": set_key("metrics", []),
    "has a metric that is a number": set_key("metrics.ndcg@5", 1),
    "has a metric without a mean": drop_key("metrics.ndcg@5.mean"),
    "has a mean that is text": set_key("metrics.ndcg@5.mean", "x"),
    "has a mean that is a list": set_key("metrics.ndcg@5.mean", [1]),
    "has an interval that is a number": set_key("metrics.ndcg@5.ci95", 1),
    "has an interval of one": set_key("metrics.ndcg@5.ci95", [1]),
    "has an interval of text": set_key("metrics.ndcg@5.ci95", ["a", "b"]),
    "has n that is text": set_key("metrics.ndcg@5.n", "x"),
    "has a metric at K = x": set_key("metrics.ndcg@x", {"mean": 1}),
    "has no protocol": drop_key("protocol"),
    "has a protocol that is a list": set_key("protocol", []),
    "has no data": drop_key("data"),
    "has a part that is a number": set_key("part", 1),
    "has users that are a number": set_key("users", 1),
    "has users without counts": set_key("users", {}),
    "has a spread that is text": set_key("score_spread", "x"),
    "has warnings that are a number": set_key("warnings", 1),
    "is of another method": set_key("method", "k-song"),
    "is of another seed": set_key("seed", 7),
    "is of another part": set_key("part", "validation"),
    "is of another protocol": set_key("protocol", "full"),
    "has an interval without bounds": set_key("metrics.ndcg@5.ci95", [None, None]),
    "has a gap at one K less": drop_key("metrics.exposure_gap@5"),
    "has no metric": set_key("metrics", {}),
    "has no word of labels": drop_key("needs_labels_when_serving"),
    "has another protocol that is null": set_key("other_protocol", {"protocol": None}),
    "has another protocol without a gap": drop_key(
        "other_protocol.metrics.rank_exposure_gap@5"
    ),
}


def reported() -> list[Row]:
    """Return damaged runs among whole ones: a report names them, and shows the others."""
    rows = []
    for name in (METRICS, CONFIG):
        short = Path(name).name
        rows += [
            row(f"report: {short} {how}", REPORT, spoil(name), code=0, says="kso-red")
            for how, spoil in SPOILS.items()
            if name == METRICS or how not in (*GONE, "is cut in half")
        ]  # fmt: skip
    rows += [
        row(f"report: metrics.json {how}", REPORT, put(METRICS, text), code=0, says="kso-red")
        for how, text in TEXTS.items()
    ]
    rows += [
        row(
            f"report: metrics.json {how}",
            REPORT,
            resealed(METRICS, edit),
            code=0,
            says="kso-red",
        )
        for how, edit in RESULTS.items()
    ]
    rows += [
        row("report: an edited number in metrics.json", REPORT,
            edited(METRICS, set_key("metrics.ndcg@5.mean", 0.5)), code=0, says="kso-red"),
    ]  # fmt: skip
    beside = {
        "log.jsonl": f"{RUN}/log.jsonl",
        "provenance.json": PROVENANCE,
        "per_query.safetensors": PER_QUERY,
        "the re-ranked": "runs/k-song/rerank-det-greedy-k=5-sampled-test.json",
    }
    for short, name in beside.items():
        rows += [
            row(f"report: {short} {how}", REPORT, spoil(name), code=0)
            for how, spoil in SPOILS.items()
        ]
        if not name.endswith("safetensors"):
            rows += [
                row(f"report: {short} {how}", REPORT, put(name, text), code=0)
                for how, text in TEXTS.items()
            ]
    rows += [
        row(f"report: per_query.safetensors {how}", REPORT, header(PER_QUERY, edit), code=0)
        for how, edit in HEADERS.items()
    ]
    rows += [
        row("report: values of another run", REPORT,
            copied("runs/k-song/per_query.safetensors", PER_QUERY), code=0),
        row("report: every run is damaged", REPORT,
            all_of(put(METRICS, ""), put("runs/k-song/metrics.json", "")), says="runs"),
        row("report: a folder with escapes", REPORT, _renamed_run(f"x{ESCAPE}"), code=0),
        row("report: a folder in markup", REPORT, _renamed_run("[x]"), code=0),
        row("report: a folder of HTML", REPORT, _renamed_run("<b>x<b>"), code=0),
        row("report: a link to the folder above", REPORT, as_link("runs/up", ".."), code=0),
    ]  # fmt: skip
    return rows


QUERIES: dict[str, Edit] = {  # of the values of each query
    "has names that are lists": set_key("metrics", [[1]]),
    "has no protocol": drop_key("protocol"),
    "is of another protocol": set_key("protocol", "full"),
    "is of another part": set_key("part", "validation"),
    "is of another seed": set_key("seed", 7),
}
GOAL_RUN = "goal-run"
SEARCH = f"{GOAL_RUN}/search.json"
SEARCHES: dict[str, Edit] = {
    "has another verdict": set_key("reached", lambda reached: not reached),
    "has another goal": set_key("goal.target.at_most", 0.1),
    "has no chance level": drop_key("colour_blind.by_chance"),
    "has a try without what it is of the blind": lambda found: found["tries"][0].update(
        target_relative=None
    ),
    "is of another run": set_key("identity.run", "0" * 32),
}


def belonging() -> list[Row]:
    """Return files of another run or of other lists, where each is read."""
    rows = [
        row(f"report: per_query.safetensors {how}, checksum and all", REPORT,
            about(PER_QUERY, edit), code=0)
        for how, edit in QUERIES.items()
    ]  # fmt: skip
    rows += [
        row("export: the metrics of another method", COMMANDS["export"],
            copied("runs/k-song/metrics.json", METRICS), says="metrics.json is of another run"),
        row("export: the metrics of another seed", COMMANDS["export"],
            copied("other-run/metrics.json", METRICS), says="metrics.json is of another run"),
        row("export: an edited number in metrics.json", COMMANDS["export"],
            edited(METRICS, set_key("metrics.ndcg@5.mean", 0.5)), says="checksum"),
        row("resume: an edited number in metrics.json", RESUME,
            edited(METRICS, set_key("metrics.ndcg@5.mean", 0.5)), says=METRICS),
    ]  # fmt: skip
    rows += [
        row(f"resume: metrics.json {how}, checksum and all", RESUME,
            resealed(METRICS, RESULTS[how]), says=METRICS)
        for how in RESULTS
        if how.startswith("is of") or "interval" in how or "protocol" in how
    ]  # fmt: skip
    goal = f"train goal.toml --out {GOAL_RUN} --resume"
    rows += [
        row(f"goal: search.json {how}", goal, resealed(SEARCH, edit), code=(0, 1))
        for how, edit in SEARCHES.items()
    ]
    tried = f"{GOAL_RUN}/tries/colour-blind/validation.json"
    rows += [
        row("goal: a try of another run", goal,
            all_of(removed(SEARCH), copied(METRICS, tried)),
            says="validation.json is of another run", leaves=True),
        row("goal: a try that was edited", goal,
            all_of(removed(SEARCH), edited(tried, set_key("metrics.ndcg@5.mean", 0.5))),
            says="validation.json is damaged", leaves=True),
    ]  # fmt: skip
    return rows


def _renamed_run(name: str) -> Do:
    return lambda folder: shutil.move(folder / RUN, folder / "runs" / name)


CARD = "prepared/card.json"
CARDS: dict[str, Edit] = {
    "has no name": drop_key("name"),
    "has another name": set_key("name", "movielens-1m"),
    "has a name that is a list": set_key("name", []),
    "has no files": drop_key("files"),
    "has files that are a list": set_key("files", []),
    "has files that are none": set_key("files", {}),
    "has a file outside": set_key("files", {"../ratings.parquet": "0"}),
    "has a checksum that is a number": set_key("files", lambda files: dict.fromkeys(files, 1)),
    "has no columns": drop_key("columns"),
    "has columns that are a list": set_key("columns", []),
    "has a column too many": set_key("columns.nonsense", "x"),
    "has a column that is not there": set_key("columns.user", "nonsense"),
    "has a column that is a number": set_key("columns.user", 1),
    "has no rating range": drop_key("rating_range"),
    "has a rating range that is text": set_key("rating_range", "ab"),
    "has a rating range of one": set_key("rating_range", [1]),
}


def prepared() -> list[Row]:
    """Return what may befall a prepared folder."""
    words = "train kso-red.toml --out made --set data.path=prepared --set data.options="
    docs = "train docs.toml --out made --set data.path=prepared-docs --set data.groups="
    rows = [
        row(f"prepared: card.json {how}", words, edited(CARD, edit))
        for how, edit in CARDS.items()
    ]
    rows += [
        row(f"prepared: card.json {how}", words, put(CARD, text), says="prepared")
        for how, text in TEXTS.items()
    ]
    for name in ("ratings.parquet", "items.parquet"):
        rows += [
            row(f"prepared: {name} {how}", words, spoil(f"prepared/{name}"), says="prepared")
            for how, spoil in SPOILS.items()
        ]
    rows += [
        row(f"prepared documents: {how}", docs, edited("prepared-docs/card.json", edit))
        for how, edit in {
            "features that are a number": set_key("features", 1),
            "features that are not there": set_key("features", ["nonsense"]),
            "no features": drop_key("features"),
            "the card of ratings": lambda found: _card_of("csv", found),
        }.items()
    ]
    return [
        *rows,
        row("prepared documents as they should be", docs, code=0),
        row("prepared: table of another folder", words,
            copied("items.parquet", "prepared/ratings.parquet"), says="prepared"),
    ]  # fmt: skip


def _card_of(name: str, found: dict[str, Any]) -> None:
    found["name"] = name


def searched() -> list[Row]:
    """Return what may befall the folder of a goal, and of a sweep."""
    resume = "train goal.toml --out goal-run --resume"
    sweep = "sweep sweep.toml --out swept --resume --processes 1"
    rows = [
        row(f"goal: goal.toml {how}", resume, spoil("goal-run/goal.toml"), says="goal-run")
        for how, spoil in SPOILS.items()
        if how not in (*GONE, "is cut in half")
    ]
    rows += [
        row(
            f"goal: search.json {how}",
            resume,
            put("goal-run/search.json", text),
            code=(0, 1, 2),
        )
        for how, text in TEXTS.items()
        if how != "is an empty object"
    ]
    rows += [
        row("goal: search.json is an empty object", resume, put("goal-run/search.json", "{}"),
            code=(0, 1)),
        row("goal: search.json lacks tries", resume,
            edited("goal-run/search.json", drop_key("tries")), code=(0, 1)),
        row("goal: search.json has tries that are text", resume,
            edited("goal-run/search.json", set_key("tries", "x")), code=(0, 1)),
        row("goal: another goal", resume, swap("goal.toml", "0.9", "0.8"), says="goal"),
        row("sweep: a finished one resumed", sweep, code=0),
        row("sweep: results.json is damaged", sweep, put("swept/results.json", "x"), code=0),
        row("sweep: afterwards.json is a list", sweep, _everywhere("afterwards.json", "[]"),
            code=0),
        row("sweep: afterwards.json is a number", sweep, _everywhere("afterwards.json", "1"),
            code=0),
        row("sweep: afterwards.json is nested deep", sweep,
            _everywhere("afterwards.json", DEEP_JSON), code=0),
        row("sweep: afterwards.json lists no lists", sweep,
            _everywhere("afterwards.json", json.dumps({"protocols": 1, "rerank": 2})), code=0),
        row("sweep: another config in a cell", sweep, _edited_cell, says="swept"),
        row("sweep: no TOML in a cell", sweep, _everywhere("config.toml", "nonsense"),
            says="config.toml"),
    ]  # fmt: skip
    return rows


def _everywhere(name: str, text: str) -> Do:
    def do(folder: Path) -> None:
        found = sorted((folder / "swept").rglob(name))
        assert found, name
        for path in found:
            path.write_text(text)

    return do


def _edited_cell(folder: Path) -> None:
    path = min((folder / "swept").rglob("config.toml"))
    path.write_text(path.read_text().replace("seed = 0", "seed = 7", 1))


def cached() -> list[Row]:
    """Return what may befall the cache of stages: a run trains anew, with the same numbers."""

    def each(spoil: Callable[[str], Do]) -> Do:
        def do(folder: Path) -> None:
            kept = sorted((folder / "home").rglob("*.safetensors"))
            assert kept
            for path in kept:
                spoil(str(path.relative_to(folder)))(folder)

        return do

    words = "train kso-red.toml --out made"
    rows = [row(f"cache: {how}", words, each(spoil), code=0) for how, spoil in SPOILS.items()]
    rows += [
        row(f"cache: {how}", words, each(lambda name, edit=edit: header(name, edit)), code=0)
        for how, edit in HEADERS.items()
    ]
    edits = {how: edit for how, edit in STATES.items() if "progress" in how}
    rows += [
        row(f"cache: {how}", words, each(lambda name, edit=edit: about(name, edit)), code=0)
        for how, edit in edits.items()
    ]
    return rows


ROWS = [
    *opened(), *resumed(), *reported(), *belonging(), *prepared(), *searched(), *cached(),
]  # fmt: skip
