"""The most that is read of anything; what is past a bound is refused, and told the bound.

They are far above what tables and published data sets hold, and keep a damaged or hostile file
from taking all of a machine.

Paths that are read: the literal name of a regular file or of a folder, and nothing else.

Pipes, sockets and devices are refused before they are opened, since reading them may never end.
Readers are handed open files, never names: a library might take ``[``, ``*`` or ``?`` in a name
for a pattern.
"""

import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

from fairtopk.errors import InputError

MOST_LINE_BYTES = 2**20  # of a line of delimited text
MOST_COLUMNS = 20_000  # of a table
MOST_ROWS = 2**31 - 1  # of a table: rows are numbered in 32 bits
MOST_FEATURE = 10_000  # number of a feature in LETOR text
MOST_FILES = 100_000  # of a folder, an archive or a pattern
MOST_UNPACKED = 200  # times the packed size, of what is larger than `LEAST_BOMB`
LEAST_BOMB = 2**26  # bytes
MOST_DOWNLOAD = 10 * 10**9  # bytes
MOST_JSON_BYTES = 2**24  # of a card or a record
MOST_GROUPS = 1_000  # that items fall into
LARGEST_RELEVANCE = 100.0  # 2^y must fit float32 with room for a sum


KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")  # bytes, of a container on Linux
SHARE_OF_MEMORY = 0.5  # that one file or table may take


def check_file(path: Path) -> None:
    """Refuse what is no regular file that can be read."""
    if stat.S_ISDIR(_mode(path)):
        raise InputError(f"{path} is a folder; give the file")
    _check_access(path, os.R_OK)


def check_input(path: Path) -> None:
    """Refuse what is neither a regular file nor a folder that can be read."""
    folder = stat.S_ISDIR(_mode(path))
    _check_access(path, os.R_OK | os.X_OK if folder else os.R_OK)


def open_file(path: Path) -> BufferedReader:
    """Return a regular file, open for reading bytes."""
    check_file(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error


def read_small(path: Path, *, most: int = MOST_JSON_BYTES) -> bytes:
    """Return the bytes of a regular file, refusing one of more than `most`."""
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"{path} is larger than {most:,} bytes, the most that is read of it")
    return content


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_large(n_bytes: int, what: str) -> None:
    """Refuse what would take more than half of the machine's memory."""
    memory = memory_bytes()
    if memory is not None and n_bytes > SHARE_OF_MEMORY * memory:
        raise InputError(
            f"{what} takes {_size(n_bytes)}, and at most half of this machine's memory of "
            f"{_size(memory)} is given to it; use less of it, or a larger machine"
        )


def most_unpacked(packed: int) -> int:
    """Return how many bytes may come of a packed file of so many."""
    return max(LEAST_BOMB, MOST_UNPACKED * packed)


def unpacks_to_much(what: str) -> InputError:
    """Return the refusal of what is made to fill a machine."""
    return InputError(
        f"{what} unpacks to more than {MOST_UNPACKED} times its size, as no data does; do not "
        f"trust it"
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


def _mode(path: Path) -> int:
    """Return the mode of a file or folder, refusing all else."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{path} does not exist; check the path") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:  # NUL in a name
        raise InputError(f"{str(path)!r} is no path: it holds a NUL character") from error
    kind = KINDS.get(stat.S_IFMT(mode))
    if kind is not None:
        raise InputError(
            f"{path} is {kind}, and only regular files are read; save what it gives to a file"
        )
    return mode


def _check_access(path: Path, wanted: int) -> None:
    if not os.access(path, wanted):
        raise InputError(f"{path} cannot be read: permission denied")


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}")


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.1f} GB"
