"""Record what the package computes on generated data, to compare before and after a change.

    python tools/golden.py record before.json
    ...                                           # move code about
    python tools/golden.py record after.json
    python tools/golden.py compare before.json after.json

A record holds, without times: the metrics of every method (on sampled lists and on the full
catalogue), re-ranked tables, the `audit.json` of three tables, predictions of rankers on
features, keys and shapes of the losses' states, options of the command line and keys of the
config. Records of two machines may differ in the last digits; compare those of one machine.
`compare` exits with 1 and names each value that differs.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

METHODS = (
    *("song", "k-song", "listnet", "sl-at-k", "deltr", "ng-de", "so-red", "kso-red"),
    *("dpr-rsp", "dpr-reo", "robust", "fair-distill"),
)
RERANKERS = (
    *("det-greedy", "det-cons", "det-relaxed", "det-const-sort"),
    *("fa-ir", "exposure-lp", "group-bonus"),
)
COMMANDS = (
    *("audit", "data", "demo", "evaluate", "export", "recommend"),
    *("report", "reproduce", "rerank", "sweep", "train"),
)
LOSSES = ("Song", "KSong", "ListNet", "SlAtK", "Deltr", "NgDe", "SoRed", "KsoRed")

SMALL = {
    "training.warmup_epochs": 2,
    "training.epochs": 4,
    "training.rate_epochs": [3],
    "model.width": 8,
    "evaluation.k": [10, 20],
}
UNWEIGHTED = ("song", "k-song", "listnet", "sl-at-k")
OWN_WEIGHT = ("dpr-rsp", "dpr-reo", "robust", "fair-distill")
# Times, places, checksums of files that hold them, and prose.
VARYING = re.compile(
    r"seconds|time|rss|version|commit|checksum|digest|file|path|key|sha256|definitions|notes"
)


def main() -> None:
    """Record or compare, as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("record").add_argument("out", type=Path)
    comparing = actions.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.action == "record":
        with tempfile.TemporaryDirectory() as folder:
            record = recorded(Path(folder))
        options.out.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        print(f"{len(record)} records in {options.out}")
        return
    before, after = (json.loads(path.read_text()) for path in (options.before, options.after))
    differences = list(differing(before, after, ""))
    print(*differences, sep="\n")
    print(f"{len(differences)} differences in {len(before)} records")
    raise SystemExit(bool(differences))


def recorded(folder: Path) -> dict[str, Any]:
    """Return every record, made in `folder`."""
    record: dict[str, Any] = {}
    for method in METHODS:
        run = folder / method
        weight = {} if method in UNWEIGHTED + OWN_WEIGHT else {"method.c_relative": 1.0}
        config = folder / f"{method}.toml"
        config.write_text(f'[method]\nname = "{method}"\nk = 10\n')
        sets = [f"--set={key}={json.dumps(value)}" for key, value in (SMALL | weight).items()]
        record[f"train {method}"] = _command("train", config, "--out", run, "--no-cache", *sets)
        for path in sorted(run.glob("metrics*.json")):
            record[f"{method} {path.name}"] = json.loads(path.read_text())
        record[f"{method} config"] = tomllib.loads((run / "config.toml").read_text())
        if method != "robust":  # it ranks whole lists only
            _command("evaluate", run, "--protocol=full", "--out", folder / f"{method}.json")
            path = folder / f"{method}.json"
            record[f"{method} full"] = json.loads(path.read_text()) if path.exists() else None
    record |= _tables(folder) | _api()
    record["options"] = {command: _options(command) for command in COMMANDS}
    return {name: _steady(value) for name, value in record.items()}


def differing(before: Any, after: Any, where: str) -> Any:
    """Yield a line for each place at which two records differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differing(before.get(key), after.get(key), f"{where}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differing(one, other, f"{where}[{i}]")
    elif before != after:
        yield f"{where}: {str(before)[:200]} -> {str(after)[:200]}"


def _tables(folder: Path) -> dict[str, Any]:
    """Return audits of three tables (two groups, ties, five groups) and re-ranked ones."""
    record = {}
    columns = ["--query=query", "--item=item", "--score=score", "--groups=group"]
    for name, n_groups, n_scores in (("two", 2, 997), ("ties", 2, 5), ("five", 5, 997)):
        rows = ["query,item,score,relevance,group"]
        for query in range(30):
            for item in range(40):
                score = (37 * item + 101 * query + item * item * 7) % n_scores
                rows.append(f"{query},{item},{score},{(item * query) % 4},g{item % n_groups}")
        table = folder / f"{name}.csv"
        table.write_text("\n".join(rows) + "\n")
        out = folder / f"audit-{name}"
        _command(
            "audit",
            table,
            *columns,
            "--relevance=relevance",
            "--k=5,10",
            "--out",
            out,
            fails=True,
        )
        record[f"audit {name}"] = json.loads((out / "audit.json").read_text())
    for method in RERANKERS:
        out = folder / f"{method}.csv"
        words = [folder / "two.csv", *columns, f"--method={method}", "--k=10", "--out", out]
        said = _command("rerank", *words, fails=True)
        text = out.read_bytes() if out.exists() else said.encode()
        record[f"rerank {method}"] = hashlib.sha256(text).hexdigest()
    return record


def _api() -> dict[str, Any]:
    """Return what the Python interface gives: states of losses, rankers on features."""
    import torch

    import fairtopk as ft

    record: dict[str, Any] = {"public names": sorted(ft.__all__)}
    draw = torch.Generator().manual_seed(0)
    relevance, group = torch.arange(60).reshape(4, 15) % 3, torch.arange(60).reshape(4, 15) % 2
    for name in LOSSES:
        weight = {} if name in ("Song", "KSong", "ListNet", "SlAtK") else {"c": 10.0}
        top = {} if name in ("Song", "ListNet", "Deltr") else {"k": 5}
        loss = getattr(ft.losses, name)(**top, **weight, n_queries=4)
        scores = torch.randn(4, 15, generator=draw, requires_grad=True)
        items = torch.arange(15).repeat(4, 1)
        value = loss(scores, relevance, group, query=torch.arange(4), item=items)
        value.backward()
        assert scores.grad is not None
        state = {key: list(tensor.shape) for key, tensor in loss.state_dict().items()}
        record[f"loss {name}"] = {
            "value": value.item(),
            "grad": scores.grad.tolist(),
            "state": state,
        }
    for model in ("linear", "mlp"):
        draw = torch.Generator().manual_seed(1)
        x = torch.randn(400, 6, generator=draw)
        y = (x[:, 0] + torch.randn(400, generator=draw) > 0.5).long()
        ranker = ft.FairRanker(
            method="kso-red", model=model, k=5, c_relative=1.0, seed=0, epochs=3
        )
        ranker.fit(
            x.numpy(),
            y.numpy(),
            qid=torch.arange(400).numpy() // 20,
            groups=(x[:, 1] > 0).numpy(),
        )
        record[f"ranker {model}"] = [float(score) for score in ranker.predict(x.numpy())]
    return record


def _options(command: str) -> list[str]:
    return sorted(set(re.findall(r"--[a-z][a-z-]*", _command(command, "--help"))))


def _command(*words: object, fails: bool = False) -> str:
    """Return what a command printed; with `fails`, exit codes 1 and 2 are results too."""
    line = [sys.executable, "-m", "fairtopk", *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode and not fails:
        raise SystemExit(f"{' '.join(line)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr if done.returncode or "--help" in words else ""


def _steady(value: Any) -> Any:
    """Return a record without what changes from run to run."""
    if isinstance(value, dict):
        return {key: _steady(one) for key, one in value.items() if not VARYING.search(key)}
    return [_steady(one) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
