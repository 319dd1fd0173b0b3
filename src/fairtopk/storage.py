"""Files: reading what a user names, writing all or nothing, tensors with a description.

Only regular files and folders are read, by their literal names, and never more than a bound.
The bounds are far above what tables and published data sets hold, and keep a damaged or hostile
file from taking all of a machine. Pipes, sockets and devices are refused before they are
opened, since reading them may never end. Readers are handed open files, never names: a library
might take ``[``, ``*`` or ``?`` in a name for a pattern.

A checkpoint is a pair of files that carry one step number: the model to serve and the state to
go on from. Before a new pair takes their names, the old pair is set aside under other names; on
loading, the newest pair with one number is taken, so a kill at any moment leaves something to
go on from. Files are safetensors: nothing is unpickled. Each carries a checksum of its whole
content, so a damaged or edited file is refused. Torch is loaded with the first tensor only.
"""

import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open

from fairtopk.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

MOST_LINE_BYTES = 2**20  # of a line of delimited text
MOST_COLUMNS = 20_000  # of a table
MOST_ROWS = 2**31 - 1  # of a table: rows are numbered in 32 bits
MOST_FEATURE = 10_000  # number of a feature in LETOR text
MOST_FILES = 100_000  # of a folder, an archive or a pattern
MOST_UNPACKED = 200  # times the packed size, of what is larger than `LEAST_BOMB`
LEAST_BOMB = 2**26  # bytes
MOST_UNPACKED_BYTES = 2**34  # of one file, however large it is packed
MOST_DOWNLOAD = 10 * 10**9  # bytes
MOST_JSON_BYTES = 2**24  # of a card or a record
MOST_TEXT_BYTES = 2**28  # of a text file that is read whole

UNREAD = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")  # bytes, of a container on Linux
SHARE_OF_MEMORY = 0.5  # that one file or table may take

HALF = ".part"  # how the name of a file that is being written ends; it begins with a dot
LOCK = ".lock"  # which stays in the folder: to remove it would let two in
PATIENCE = 1.0  # seconds for a process that was stopped to end
ORPHANS = 60.0  # and for the processes of a sweep that was killed

MODEL, STATE = "model.safetensors", "state.safetensors"
NEW, BEFORE = "new-", "before-"  # how a pair that is being written, and the last but one begin
FORMAT = "fairtopk checkpoint 5"  # the one key of a file's metadata
PRIVATE = 0o600  # the mode of a file that only its owner may read


def check_file(path: Path, *, or_folder: bool = False) -> None:
    """Refuse what is no regular file, nor a folder if that will do, that can be read."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{path} does not exist; check the path") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {_reason(error)}") from error
    except ValueError as error:  # NUL in a name
        raise InputError(f"{str(path)!r} is no path: it holds a NUL character") from error
    if kind := UNREAD.get(stat.S_IFMT(mode)):
        raise InputError(
            f"{path} is {kind}, and only regular files are read; save what it gives to a file"
        )
    if stat.S_ISDIR(mode) and not or_folder:
        raise InputError(f"{path} is a folder; give the file")
    if not os.access(path, os.R_OK | os.X_OK if stat.S_ISDIR(mode) else os.R_OK):
        raise InputError(f"{path} cannot be read: permission denied")


def open_file(path: Path) -> BufferedReader:
    """Return a regular file, open for reading bytes."""
    check_file(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {_reason(error)}") from error


def read_small(path: Path, *, most: int = MOST_JSON_BYTES) -> bytes:
    """Return the bytes of a regular file, refusing one of more than `most`."""
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"{path} is larger than {most:,} bytes, the most that is read of it")
    return content


def read_text(path: Path) -> str:
    """Return a text file whole, refusing what is none."""
    content = read_small(path, most=MOST_TEXT_BYTES)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte 0x{content[error.start]:02x})"
        ) from error


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def md5_of(path: Path) -> str:
    """Return the MD5 of a regular file, as publishers list it.

    It guards against damage, not attack: saying so lets locked-down builds of Python allow it.
    """
    md5 = partial(hashlib.md5, usedforsecurity=False)
    with open_file(path) as file:
        return hashlib.file_digest(file, md5).hexdigest()


def refuse_large(
    n_bytes: int, what: str, *, remedy: str = "use less of it, or a larger machine"
) -> None:
    """Refuse what would take more than half of the machine's memory; `remedy` is what to do."""
    memory = memory_bytes()
    if memory is not None and n_bytes > SHARE_OF_MEMORY * memory:
        raise InputError(
            f"{what} takes {n_bytes / 1e9:,.1f} GB, and at most half of this machine's memory "
            f"of {memory / 1e9:,.1f} GB is given to it; {remedy}"
        )


def memory_bytes() -> int | None:
    """Return how much memory this process may use; None where the system does not tell."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    try:
        return min(machine, int(CONTAINER_LIMIT.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return machine


def jsonable(value: Any) -> Any:
    """Return a value that JSON can hold: NaN and infinity become null, also in lists."""
    if isinstance(value, Mapping):
        return {name: jsonable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_target(
    path: Path, *, endings: Sequence[str], inputs: Sequence[str | Path | None] = ()
) -> None:
    """Refuse a file that has another ending, is a folder or an input, or cannot be written."""
    if path.suffix.lower() not in endings:
        raise InputError(f"{path} must end in {' or '.join(endings)}")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")
    there = [one for one in inputs if one and Path(one).exists()]
    if path.exists() and any(map(path.samefile, there)):
        raise InputError(f"{path} is one of the files that are read; name another file")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise InputError(f"{path} cannot be written: {above} is a file")
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise InputError(f"{path} cannot be written: {above}: {_reason(error)}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file, all or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which takes its place only if all went well.

    Works for a file or a new folder; on an error or Ctrl-C the temporary one is removed. Its
    name is random, so that nobody can plant a link there.

    Raises:
        InputError: The disk is full, or `path` cannot be written.
    """
    with _temporary(path) as temporary:
        yield temporary
        os.replace(temporary, path)


@contextmanager
def together(path: Path) -> Iterator[Path]:
    """Yield a temporary folder whose files move beside `path` if all went well, `path` last.

    On an error or Ctrl-C the folder is removed, and what was there is still there. Once the
    first file is moved, a signal waits for the last.
    """
    with _temporary(path) as folder:
        folder.mkdir()
        try:
            yield folder
        except InputError as error:  # of a file in it, which will have another name
            raise InputError(str(error).replace(str(folder), str(path.parent))) from error

        def move() -> None:
            for file in sorted(folder.iterdir(), key=lambda file: file.name == path.name):
                os.replace(file, path.with_name(file.name))

        # Signals interrupt the main thread alone, and leaving the context waits.
        with ThreadPoolExecutor(1) as another:
            another.submit(move).result()


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a free name beside `path`, removed in the end; faults are reported for `path`."""
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}{HALF}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
    except OSError as error:
        # Files that are read meanwhile have names of their own; a full disk has none.
        name = str(temporary if error.filename is None else os.fsdecode(error.filename))
        if not name.startswith((str(temporary), str(path.parent))):
            raise
        raise InputError(f"cannot write {path}: {_reason(error)}") from error
    except pl.exceptions.ComputeError as error:
        found = re.search(r"([^:]+) \(os error \d+\)", str(error))  # as polars words it
        if found is None:
            raise
        raise InputError(f"cannot write {path}: {found[1].strip().lower()}") from error
    finally:
        _remove(temporary)


def remove_halves(folder: Path) -> None:
    """Remove what was being written into a folder when its process was killed."""
    for half in folder.glob(f".*{HALF}"):
        _remove(half)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _reason(error: OSError) -> str:
    """Return what the system said, for the end of a sentence."""
    return (error.strerror or str(error)).lower()


@contextmanager
def alone_in(out: Path, *, patience: float = PATIENCE) -> Iterator[None]:
    """Keep other processes out of a folder for a while, refusing where one is in it already.

    The lock ends with its process, and may be taken again by the process that holds it.
    """
    out.mkdir(parents=True, exist_ok=True)
    # One lock for each folder and process, so that a search and its runs share it.
    lock = FileLock(out.resolve() / LOCK, is_singleton=True)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        raise InputError(
            f"another process is at work in {out}; wait for it, or choose another --out"
        ) from None
    try:
        yield
    finally:
        lock.release()


class Saved(NamedTuple):
    """One file's tensors and their description."""

    tensors: "dict[str, Tensor]"
    about: dict[str, Any]


def save_tensors(
    path: Path, tensors: "Mapping[str, Tensor]", about: dict[str, Any], *, private: bool = False
) -> None:
    """Write tensors with a description, all or nothing; `private` ones for the owner alone."""
    from safetensors.torch import save_file

    whole = {name: value.detach().contiguous() for name, value in tensors.items()}
    text = json.dumps(about)
    header = json.dumps({"crc32": _checksum(whole, text), "about": text})
    with replacing(path) as temporary:
        temporary.touch(mode=PRIVATE if private else 0o666)
        mode = temporary.stat().st_mode  # safetensors would let nobody else read the file
        try:
            # Under one key: safetensors writes several in any order, and bytes would differ.
            save_file(whole, temporary, {FORMAT: header})
        except SafetensorError as error:  # which hides what the system said
            first_line = str(error).partition("\n")[0]
            raise InputError(f"cannot write {path}: {first_line}") from error
        temporary.chmod(mode)


def load_tensors(path: Path) -> Saved:
    """Return what `save_tensors` wrote, refusing a damaged, edited or foreign file."""
    check_file(path)
    try:
        path.open("rb").close()  # safetensors says of a file it may not read that there is none
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if FORMAT not in metadata:
                raise InputError(f"{path} was not written by this version of fairtopk")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        if isinstance(error, PermissionError):
            raise InputError(f"{path} cannot be read: permission denied") from error
        first_line = str(error).partition("\n")[0]
        raise InputError(f"{path} is damaged ({first_line})") from error
    try:
        header = json.loads(metadata[FORMAT])
        text, checksum = header["about"], header["crc32"]
        about = json.loads(text)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged (its description cannot be read)") from error
    if not isinstance(about, dict) or checksum != _checksum(tensors, text):
        raise InputError(f"{path} is damaged (its checksum does not fit its content)")
    return Saved(tensors, about)


def _checksum(tensors: "Mapping[str, Tensor]", about: str) -> int:
    """Return the CRC-32 of a description, and of names, types, shapes and bytes of tensors."""
    import torch

    found = zlib.crc32(about.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        value = tensors[name]
        found = zlib.crc32(f"{name} {value.dtype} {tuple(value.shape)}".encode(), found)
        if value.numel():
            raw = value.contiguous().view(-1).view(torch.uint8).numpy()
            found = zlib.crc32(raw.data, found)
    return found


def check_tensors(
    fault: str, found: "Mapping[str, Tensor]", wanted: "Mapping[str, Tensor]"
) -> None:
    """Refuse tensors that are not those wanted, by name, shape and type, after `fault`."""
    has, needs = (
        {name: f"{value.dtype} of shape {tuple(value.shape)}" for name, value in of.items()}
        for of in (found, wanted)
    )
    for name in sorted(has.keys() | needs.keys()):
        got, expected = has.get(name, "missing"), needs.get(name, "nothing of that name")
        if got != expected:
            raise InputError(f"{fault} {name!r:.100} is {got}, expected {expected}")


def save_pair(folder: Path, model: Saved, state: Saved) -> None:
    """Write a checkpoint; both descriptions carry the same ``step``."""
    for name, saved in ((MODEL, model), (STATE, state)):
        save_tensors(folder / f"{NEW}{name}", *saved)
    # The last one stays under its own name until the new one takes its place: a model can be
    # read at any time. So it is given a second name, or a copy where there are no links.
    for name in (MODEL, STATE):
        path, other = folder / name, folder / f"{BEFORE}{name}"
        if path.exists():
            other.unlink(missing_ok=True)
            try:
                os.link(path, other)
            except OSError:
                shutil.copyfile(path, other)
    for name in (MODEL, STATE):
        (folder / f"{NEW}{name}").replace(folder / name)


def load_pair(folder: Path) -> tuple[Saved, Saved] | None:
    """Return the newest checkpoint, model and state, whose two files belong together.

    Returns:
        None where none was ever whole, as after a kill while the first was being written.

    Raises:
        InputError: There was one, and it is damaged.
    """
    found: dict[str, list[Saved]] = {MODEL: [], STATE: []}
    settled, faults = [], []
    for prefix in (NEW, "", BEFORE):
        for name, kept in found.items():
            path = folder / f"{prefix}{name}"
            if not path.exists():
                continue
            settled += [path.name] if prefix != NEW else []
            try:
                saved = load_tensors(path)
                if not isinstance(saved.about.get("step"), int):
                    raise InputError(f"{path} is not part of a checkpoint")
                kept.append(saved)
            except InputError as error:
                faults += [str(error)] if prefix != NEW else []
    pairs = [
        (model, state)
        for model in found[MODEL]
        for state in found[STATE]
        if model.about["step"] == state.about["step"]
    ]
    if pairs:
        return max(pairs, key=lambda pair: int(pair[0].about["step"]))
    if faults:
        raise InputError(f"{folder} holds no checkpoint to go on from: {faults[0]}")
    if len(settled) > 1:
        raise InputError(
            f"{folder} holds no checkpoint to go on from: {settled[0]} and {settled[1]} are of "
            f"other steps"
        )
    return None
