"""The files of a data set, whether they come as a zip, a folder or a single file.

A zip is read in place: nothing is ever unpacked to disk.
"""

import gzip
import lzma
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fairtopk import storage
from fairtopk.data.columns import first_line
from fairtopk.errors import InputError

HEAD_BYTES = 65_536
LONGEST_REASON = 200  # characters
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# What reading a damaged, encrypted or exotic archive raises.
DAMAGE = (
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    lzma.LZMAError,
    struct.error,
    ValueError,
)


class Archive:
    """Named files behind one path, found by what they hold.

    Args:
        path: A zip, a folder, or one file (``.gz`` is unpacked on reading).

    Attributes:
        names: The files' names inside the archive, sorted.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        storage.check_file(self.path, or_folder=True)
        self._folder = self.path if self.path.is_dir() else self.path.parent
        self._zip: zipfile.ZipFile | None = None
        found: list[Path] = []
        entries: list[zipfile.ZipInfo] = []
        if self.path.is_dir():
            for place, _, names in os.walk(self.path):  # which passes over folders that vanish
                found += (Path(place, name) for name in names)
                if len(found) > storage.MOST_FILES:
                    break
        elif zipfile.is_zipfile(self.path):
            try:
                self._zip = zipfile.ZipFile(self.path)
            except DAMAGE as error:
                raise InputError(
                    f"{self.path} is a damaged zip ({first_line(error)[:LONGEST_REASON]}); "
                    f"download it again"
                ) from error
            entries = sorted(self._zip.infolist(), key=lambda entry: entry.filename)
        elif self.path.suffix == ".zip":
            raise InputError(f"{self.path} is not a complete zip file; download it again")
        else:
            found = [self.path]
        if len(found) + len(entries) > storage.MOST_FILES:
            raise InputError(
                f"{self.path} holds more than {storage.MOST_FILES:,} files, the most that are "
                f"read"
            )
        for entry in entries:
            name = entry.filename
            climbs = ".." in re.split(r"[/\\]", name) or ":" in name[:2]
            if climbs or name.startswith(("/", "\\")):
                raise InputError(
                    f"{self.path} holds a file {name!r} that points outside its folder; "
                    f"do not trust it"
                )
        self._sizes = {
            file.relative_to(self._folder).as_posix(): file.stat().st_size
            for file in sorted(path for path in found if path.is_file())
        } | {entry.filename: entry.file_size for entry in entries if not entry.is_dir()}
        if not self._sizes:
            raise InputError(f"{self.path} holds no files")
        self.names = list(self._sizes)

    def read(self, name: str) -> bytes:
        """Return the bytes of one file, refusing an empty, vast or damaged one."""
        if self._sizes[name] == 0:  # some files of the system have no size and no end
            raise InputError(f"{self.where(name)} is empty")
        storage.refuse_large(self._sizes[name], self.where(name))
        if b"\0" in self.head(name):
            raise InputError(f"{self.where(name)} holds NUL bytes: it is no text, or damaged")
        data = self.head(name, limit=-1).removeprefix(BYTE_ORDER_MARK)
        if not data or data.isspace():
            raise InputError(f"{self.where(name)} is empty")
        return data

    def head(self, name: str, limit: int = HEAD_BYTES) -> bytes:
        """Return the first bytes of one file, enough for some lines; all if `limit` is -1."""
        if self._sizes[name] == 0:
            return b""
        member = None if self._zip is None else self._zip.getinfo(name)
        packed = self._sizes[name] if member is None else member.compress_size
        most = max(storage.LEAST_BOMB, storage.MOST_UNPACKED * packed)
        most = min(most, storage.MOST_UNPACKED_BYTES)
        try:
            if self._zip is not None and member is not None:
                if member.file_size <= most:
                    with self._zip.open(member) as part:
                        return part.read(limit)
            else:
                with storage.open_file(self._folder / name) as file:
                    if not name.endswith(".gz"):
                        return file.read(limit)
                    data = gzip.GzipFile(fileobj=file).read(limit if limit >= 0 else most + 1)
                if len(data) <= most:
                    return data
            raise InputError(
                f"{self.where(name)} unpacks to more than {storage.MOST_UNPACKED} times its "
                f"size, or {storage.MOST_UNPACKED_BYTES // 2**30} GB, as no data does; do not "
                f"trust it"
            )
        except InputError:
            raise
        except DAMAGE as error:
            raise InputError(
                f"{self.where(name)} cannot be read ({first_line(error)[:LONGEST_REASON]}); "
                f"download it again"
            ) from error

    def unpacked(self, name: str) -> Path | None:
        """Return where one file lies on the disk as it is; None if it is packed."""
        if self._zip is not None or name.endswith(".gz"):
            return None
        return self._folder / name

    def where(self, name: str) -> str:
        """Return how an error should call the file `name`."""
        return name if self.path.name == name else f"{name} of {self.path.name}"

    def find(self, line: str, *, usual: Iterable[str], what: str) -> str:
        """Return the file whose first line matches the pattern `line`.

        If several match, the one with a usual name is taken, else the largest: MovieLens 100K
        ships its ratings once whole and ten times in parts.
        """
        matches = self.find_all(line)
        if not matches:
            some, n_more = ", ".join(self.names[:4]), len(self.names) - 4
            some += f" and {n_more} more" if n_more > 0 else ""
            raise InputError(
                f"{self.path} holds no {what}: none of its files ({some}) starts like one"
            )
        usual = list(usual)
        for name in matches:
            if PurePosixPath(name).name in usual:
                return name
        return max(matches, key=lambda name: self._sizes[name])

    def find_all(self, line: str) -> list[str]:
        """Return the names of all files whose first line matches the pattern `line`."""
        found = []
        for name in self.names:
            text = self.head(name).removeprefix(BYTE_ORDER_MARK).decode("latin-1")
            if re.fullmatch(line, text.lstrip("\r\n").split("\n", 1)[0].rstrip("\r")):
                found.append(name)
        return found
