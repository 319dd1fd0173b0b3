"""Files that a command is going to write: refused before there is something to write."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from fairtopk.errors import InputError


def check_target(
    path: Path, *, endings: Sequence[str], inputs: Sequence[str | Path | None] = ()
) -> None:
    """Refuse a file that has another ending, is a folder or an input, or cannot be written."""
    if path.suffix.lower() not in endings:
        raise InputError(f"{path} must end in {' or '.join(endings)}")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")
    if path.exists() and any(
        path.samefile(one) for one in inputs if one and Path(one).exists()
    ):
        raise InputError(f"{path} is one of the files that are read; name another file")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise InputError(f"{path} cannot be written: {above} is a file")
    try:
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise InputError(f"{path} cannot be written: {above}: {what}") from error
