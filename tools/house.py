"""Print figures of how the package is divided into files and functions.

    python tools/house.py           # every figure, with the limit that we keep to
    python tools/house.py --static  # without running anything: what `make lint` prints
    python tools/house.py --rooms   # the same figures for each room

It is a report, not a gate: it exits with 0 whatever it finds. "Files on the way" of a task are
the source files of the package in which at least one Python function ran, imports aside;
compiled loops are not Python functions and do not count.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGE = "fairtopk"
SHORT = 60  # lines: a file below this is rarely a concept of its own
MANY = 6  # parameters: past that they are a settings object

# Name of a figure, its limit, and the decimals that it is printed with.
LIMITS = {
    "source files": (160, 0),
    "lines": (30_000, 0),
    f"files under {SHORT} lines": (10, 0),
    "modules with exactly one importer": (40, 0),
    "functions per 1,000 lines": (35, 1),
    "import lines, share in %": (5.5, 1),
    f"functions with more than {MANY} parameters": (10, 0),
}
TASKS = {
    "files on the way of a tiny `train`": ("train", 45),
    "files on the way of `KsoRed` forward and backward": ("loss", 12),
    "files on the way of an `audit`": ("audit", 25),
}


@dataclass(frozen=True)
class Module:
    """One source file and what its syntax tree shows."""

    name: str  # dotted
    path: Path
    lines: int
    import_lines: int
    functions: int
    wide: tuple[str, ...]  # functions with more than MANY parameters, as file:line name
    imports: frozenset[str]  # modules of the package

    @property
    def room(self) -> str:
        """The folder below the package, or "(top level)"."""
        parts = self.path.relative_to(SOURCE / PACKAGE).parts
        return parts[0] + "/" if len(parts) > 1 else "(top level)"

    @property
    def is_short(self) -> bool:
        """Whether this is a file of fewer than SHORT lines and not the head of a room."""
        return self.lines < SHORT and self.path.name not in ("__init__.py", "__main__.py")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--static", action="store_true", help="run nothing")
    parser.add_argument("--rooms", action="store_true", help="static figures for each room")
    parser.add_argument("--list", action="store_true", help="name the files and functions too")
    parser.add_argument("--trace", choices=("train", "loss", "audit"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.trace:
        _trace(options.trace)
        return
    modules = read_modules()
    if options.rooms:
        print_rooms(modules)
        return
    rows = [(name, value, *LIMITS[name]) for name, value in figures(modules).items()]
    found: dict[str, list[str]] = {}
    if not options.static:
        for label, (task, limit) in TASKS.items():
            found[label] = files_on_the_way(task)
            rows.append((label, len(found[label]), limit, 0))
    width = max(len(label) for label, *_ in rows)
    print(f"{'':{width}} {'now':>9} {'at most':>9}")
    for label, value, limit, decimals in rows:
        mark = "" if value <= limit else "  over"
        print(f"{label:{width}} {value:9,.{decimals}f} {limit:9,}{mark}")
    if options.list:
        print_names(modules, found)


def read_modules() -> list[Module]:
    """Return every module of the package, sorted by name."""
    paths = {_dotted(path): path for path in sorted((SOURCE / PACKAGE).rglob("*.py"))}
    commands = _commands(SOURCE / PACKAGE / "cli")
    return [_read(name, path, set(paths), commands) for name, path in paths.items()]


def figures(modules: Sequence[Module]) -> dict[str, float]:
    """Return the static figures, in the order of LIMITS."""
    lines = sum(module.lines for module in modules)
    values = (
        len(modules),
        lines,
        sum(module.is_short for module in modules),
        len(single_importers(modules)),
        1000 * sum(module.functions for module in modules) / lines,
        100 * sum(module.import_lines for module in modules) / lines,
        sum(len(module.wide) for module in modules),
    )
    return dict(zip(LIMITS, values, strict=True))


def single_importers(modules: Iterable[Module]) -> dict[str, str]:
    """Return each module that exactly one other imports, with its importer.

    The package's own `__init__`, which lists the public names, does not count as an importer,
    and the modules that it lists are not counted: users import them.
    """
    modules = list(modules)
    public = next(module.imports for module in modules if module.name == PACKAGE)
    importers: dict[str, list[str]] = {}
    for module in modules:
        for name in module.imports - {module.name}:
            if module.name != PACKAGE:
                importers.setdefault(name, []).append(module.name)
    packages = {module.name for module in modules if module.path.name == "__init__.py"}
    return {
        name: those[0]
        for name, those in sorted(importers.items())
        if len(those) == 1 and name not in public | packages
    }


def print_rooms(modules: Sequence[Module]) -> None:
    """Print the static figures of each room."""
    single = single_importers(modules)
    rooms: dict[str, list[Module]] = {}
    for module in modules:
        rooms.setdefault(module.room, []).append(module)
    print(f"{'room':14} {'files':>6} {'lines':>7} {'short':>6} {'one importer':>13} "
          f"{'functions':>10} {'per 1,000':>10} {'imports %':>10} {'wide':>5}")  # fmt: skip
    for room, those in sorted(rooms.items()):
        lines = sum(module.lines for module in those)
        functions = sum(module.functions for module in those)
        print(f"{room:14} {len(those):6} {lines:7,} {sum(m.is_short for m in those):6} "
              f"{sum(m.name in single for m in those):13} {functions:10} "
              f"{1000 * functions / lines:10.1f} "
              f"{100 * sum(m.import_lines for m in those) / lines:10.1f} "
              f"{sum(len(m.wide) for m in those):5}")  # fmt: skip


def print_names(modules: Sequence[Module], found: dict[str, list[str]]) -> None:
    """Print the files and functions behind the figures."""
    single = [f"{name} <- {by}" for name, by in single_importers(modules).items()]
    lists = {
        "short files": [str(m.path.relative_to(SOURCE)) for m in modules if m.is_short],
        "modules with exactly one importer": single,
        "functions with many parameters": [one for m in modules for one in m.wide],
    }
    for label, names in (lists | found).items():
        print(f"\n{label}:", *names, sep="\n  ")


def files_on_the_way(task: str) -> list[str]:
    """Return the files of the package in which a function ran during `task`.

    The task runs in a process of its own, on generated data in a temporary folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--trace", task]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the task {task!r} failed:\n{done.stdout}{done.stderr}")
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read(name: str, path: Path, known: set[str], commands: set[str]) -> Module:
    text = path.read_text(encoding="utf-8")
    import_lines = functions = 0
    wide: list[str] = []
    imports: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            import_lines += (node.end_lineno or node.lineno) - node.lineno + 1
            imports |= _imported(node) & known
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions += 1
            is_command = "cli" in path.parts and node.name in commands
            if _n_parameters(node) > MANY and not is_command:
                wide.append(f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}")
    lines = len(text.splitlines())
    return Module(name, path, lines, import_lines, functions, tuple(wide), frozenset(imports))


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Return the names that a statement may import modules by."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    names = {f"{node.module}.{alias.name}" for alias in node.names}
    return names | {node.module or ""}


def _n_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many parameters a function has, `self`, `*args` and `**kwargs` aside."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in arguments)


def _commands(room: Path) -> set[str]:
    """Return the names of functions that become commands, by decorator or by call."""
    found = set()
    for path in room.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(map(_registers, node.decorator_list)):
                found.add(node.name)
            elif isinstance(node, ast.Call) and _registers(node.func):
                found |= {one.id for one in node.args if isinstance(one, ast.Name)}
    return found


def _registers(node: ast.expr) -> bool:
    """Return whether an expression is a call of `<app>.command` or `<app>.callback`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("command", "callback")
    )


def _trace(task: str) -> None:
    """Run `task` in this process; print the files it ran through as a line of JSON."""
    sys.path.insert(0, str(SOURCE))
    root, seen = str(SOURCE / PACKAGE), set()

    def on_event(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event != "call" or path in seen or not path.startswith(root):
            return
        if not path.endswith(".py"):  # a compiled template
            return
        # Bodies of modules and classes are no functions, and what they call is importing.
        caller: FrameType | None = frame
        while caller is not None:
            code = caller.f_code
            if code.co_filename.startswith(root) and not code.co_flags & CO_OPTIMIZED:
                return
            if "/numba/core/" in code.co_filename.replace("\\", "/"):  # compiling
                return
            caller = caller.f_back
        seen.add(path)

    run = {"train": _train, "loss": _loss, "audit": _audit}[task]
    threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        run()
    finally:
        sys.setprofile(None)
    print(json.dumps(sorted(str(Path(path).relative_to(SOURCE)) for path in seen)))


def _command(*words: str) -> None:
    """Run the command line of the package with `words`."""
    from fairtopk.cli.app import main as run

    sys.argv = ["fairtopk", *words]
    try:
        run()
    except SystemExit as end:
        if end.code:
            raise


def _train() -> None:
    """Train KSO-RED on the embedded data for two short epochs, and measure it."""
    Path("run.toml").write_text('[method]\nname = "kso-red"\nk = 20\nc_relative = 1.0\n')
    small = (
        "training.warmup_epochs=1",
        "training.epochs=1",
        "model.width=8",
        "model.hidden=[8]",
    )
    _command("train", "run.toml", "--out", "run", *(f"--set={one}" for one in small))


def _loss() -> None:
    """Take the loss of two random lists, and its gradient."""
    import torch

    import fairtopk as ft

    scores = torch.randn(2, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    relevance = torch.arange(16).reshape(2, 8) % 3
    group = torch.arange(16).reshape(2, 8) % 2
    loss = ft.losses.KsoRed(k=3, c=1.0)
    loss(
        scores, relevance, group, query=torch.arange(2), item=torch.arange(8).repeat(2, 1)
    ).backward()


def _audit() -> None:
    """Measure a small table of rankings as the command line does."""
    rows = ["query,item,score,relevance,sex"]
    for query in range(20):
        for item in range(12):
            score, relevance = (7 * item + 5 * query) % 12, (item + query) % 3
            rows.append(f"{query},{item},{score},{relevance},{'fm'[item % 2]}")
    Path("rankings.csv").write_text("\n".join(rows) + "\n")
    columns = ("--query=query", "--item=item", "--score=score", "--relevance=relevance")
    _command("audit", "rankings.csv", *columns, "--groups=sex", "--k=5", "--out=audit")


if __name__ == "__main__":
    main()
