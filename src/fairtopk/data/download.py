"""Fetching a published file once, whole and checked.

A download grows under ``NAME.part`` and takes its own name by an atomic rename, so a file under
its own name is always complete. Beside a verified file lies its checksum, ``NAME.md5``: the
next call checks against that and needs no network.
"""

import os
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from email.utils import formatdate, mktime_tz, parsedate_tz
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from fairtopk.errors import InputError
from fairtopk.storage import MOST_DOWNLOAD, check_file, md5_of, read_small, write_text

Progress = Callable[[int, int | None], None]

TIMEOUT = 30.0
CHUNK_BYTES = 262_144
SIDECAR_BYTES = 4_096
# "MD5 (ml-1m.zip) = c4d9..." as macOS prints it, or "c4d9...  ml-1m.zip" as Linux does.
SIDECAR_LINE = re.compile(r"(?:MD5 \(.*\) = )?([0-9a-f]{32})(?:\s.*)?", re.IGNORECASE)
NETWORK_ERRORS = (OSError, HTTPException)
OK, PARTIAL, NOT_FOUND, BEYOND_THE_END = 200, 206, 404, 416  # HTTP status codes


@dataclass(frozen=True)
class Download:
    """A complete file and its checksum."""

    path: Path
    md5: str
    verified: bool  # whether `md5` is the published one; False where none is published


def download(
    url: str,
    target: Path,
    *,
    home: str,
    md5: str | None,
    progress: Progress | None = None,
    timeout: float = TIMEOUT,
) -> Download:
    """Return the file at `url`, fetched to `target` unless it is there already.

    What an earlier call left in ``NAME.part`` is kept, and only the rest is requested. A file
    with another checksum is replaced, once the new one is complete.

    Args:
        url: Where the file is published.
        target: Where it should lie; its folder is made.
        home: The page to send the user to when `url` cannot be reached.
        md5: The checksum it must have; None takes the one published beside it, if any.
        progress: Called with the bytes there so far and the total, None where that is unknown.
        timeout: Seconds of silence after which the server counts as unreachable.

    Raises:
        InputError: `url` cannot be reached, the connection broke, the checksum is wrong or
            `target` cannot be written.
    """
    part, sidecar = (target.with_name(target.name + suffix) for suffix in (".part", ".md5"))
    try:
        for path in (target, sidecar, part):
            if path.is_symlink() and path != target:
                path.unlink()  # only the file itself may lie elsewhere
            if path.exists():
                check_file(path)
        if target.exists():
            known = md5 or (_parse_md5(read_small(sidecar)) if sidecar.exists() else None)
            found = md5_of(target)
            if known is None or found == known.lower():
                return Download(target, found, verified=known is not None)
        wanted = md5 or published_md5(url, home=home, timeout=timeout)
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch(_Source(url, home, timeout, progress), part, checked=wanted is not None)
        found = md5_of(part)
        if wanted is None:
            sidecar.unlink(missing_ok=True)
        elif found == wanted.lower():
            write_text(sidecar, f"{found}  {target.name}\n")
        else:
            part.unlink()
            raise InputError(
                f"{url} came with MD5 {found} instead of {wanted.lower()} and was deleted; "
                f"run the same command again, or get it from {home} and pass it with --from"
            )
        part.replace(target)
    except OSError as error:
        raise InputError(
            f"cannot read or write {target} ({_reason(error)}); "
            f"check its folder's permissions and the free space"
        ) from error
    return Download(target, found, verified=wanted is not None)


def published_md5(url: str, *, home: str, timeout: float = TIMEOUT) -> str | None:
    """Return the checksum that ``URL.md5`` holds, or None if there is none.

    A page without a checksum counts as none: some servers greet a wrong address with one.
    """
    source = _Source(f"{url}.md5", home, timeout)
    with closing(source.request({}, accept=(OK, NOT_FOUND))) as answer:
        if answer.status == NOT_FOUND:
            return None
        try:
            return _parse_md5(answer.read(SIDECAR_BYTES))
        except NETWORK_ERRORS as error:
            raise source.unreachable(_reason(error)) from error


@dataclass(frozen=True)
class _Source:
    """A published file, the page to fetch it from by hand, and a callback for the progress."""

    url: str
    home: str
    timeout: float
    progress: Progress | None = None

    def request(self, headers: dict[str, str], *, accept: tuple[int, ...]) -> HTTPResponse:
        """Return the server's answer if its status is one of `accept`; errors lack a body."""
        try:
            answer = urlopen(Request(self.url, headers=headers), timeout=self.timeout)
        except HTTPError as error:
            error.close()
            answer = error.fp
        except NETWORK_ERRORS as error:
            raise self.unreachable(_reason(error)) from error
        if answer.status not in accept:
            answer.close()
            raise self.unreachable(f"HTTP {answer.status} {answer.reason}")
        return cast(HTTPResponse, answer)

    def unreachable(self, reason: str) -> InputError:
        """Return the error that sends the user to the page of the file."""
        name = self.url.rsplit("/", 1)[-1].removesuffix(".md5")
        return InputError(
            f"cannot reach {self.url} ({reason}); "
            f"download {name} yourself from {self.home} and pass it with --from"
        )


def _fetch(source: _Source, part: Path, *, checked: bool) -> None:
    """Bring `part` to its full length, asking only for what it lacks."""
    size = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={size}-"} if size else {}
    if size and not checked:
        # No checksum will tell whether the file has changed since, so the server must.
        headers["If-Range"] = formatdate(part.stat().st_mtime, usegmt=True)
    accept = (OK, PARTIAL, BEYOND_THE_END) if size else (OK,)
    with closing(source.request(headers, accept=accept)) as answer:
        content = answer.headers.get("Content-Range", "")
        if answer.status == OK:  # also the answer of a server that ignores Range
            done, total = 0, answer.length
        elif rest := re.fullmatch(rf"bytes {size}-\d+/(\d+)", content):
            done, total = size, int(rest[1])
        elif content == f"bytes */{size}":  # nothing is lacking
            return
        else:
            answer.close()
            part.unlink()
            return _fetch(source, part, checked=checked)
        with part.open("ab" if done else "wb") as file:
            try:
                while done != total:
                    try:
                        chunk = answer.read1(CHUNK_BYTES)
                        if total is not None and not chunk:
                            raise ConnectionError("connection closed")
                    except NETWORK_ERRORS as error:
                        raise InputError(
                            f"{source.url} broke off after {done:,} bytes ({_reason(error)}); "
                            f"run the same command again to fetch the rest"
                        ) from error
                    if not chunk:
                        break
                    if max(done + len(chunk), total or 0) > MOST_DOWNLOAD:
                        raise InputError(
                            f"{source.url} is larger than {MOST_DOWNLOAD / 1e9:g} GB, the most "
                            f"that is fetched; get it from {source.home} and pass it with "
                            f"--from"
                        )
                    file.write(chunk)
                    done += len(chunk)
                    if source.progress is not None:
                        source.progress(done, total)
            finally:
                file.flush()
                # The part bears the time of what it was taken from, for `If-Range`.
                if changed := parsedate_tz(answer.headers.get("Last-Modified", "")):
                    os.utime(part, (mktime_tz(changed), mktime_tz(changed)))


def _reason(error: BaseException) -> str:
    """Return what went wrong in a few words: the inmost cause, without its error number."""
    cause = error.reason if isinstance(error, URLError) else error
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def _parse_md5(text: bytes) -> str | None:
    lines = text.decode("utf-8", errors="replace").splitlines()
    matches = (SIDECAR_LINE.fullmatch(line.strip()) for line in lines)
    return next((match[1].lower() for match in matches if match), None)
