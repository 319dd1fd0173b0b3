import hashlib
import os
import random
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fairtopk.data.download import (
    Download,
    download,
    published_md5,
)
from fairtopk.errors import InputError

HOME = "https://example.org/films"
BODY = random.Random(7).randbytes(1_000_000)
MD5 = hashlib.md5(BODY).hexdigest()
HALF = 500_000
HANGS = 600.0  # seconds after which something is taken to hang, on any machine


@dataclass
class Site:
    """What a server publishes as films.zip, how it behaves, and what it was asked for."""

    body: bytes = BODY
    sidecar: str | None = f"MD5 (films.zip) = {MD5}\n"
    sidecar_status: int = 200
    knows_ranges: bool = True
    tells_length: bool = True
    changed: float | None = 1_500_000_000  # Last-Modified
    shift: int = 0  # how far from the asked start an answer to Range begins
    cut_after: int | None = None  # bytes of a body after which the connection breaks
    may_hang_up: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    bytes_sent: int = 0  # of films.zip
    url: str = ""


class Handler(BaseHTTPRequestHandler):
    def __init__(self, site: Site, *args: object) -> None:
        self.site = site
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        site, wanted = self.site, self.headers["Range"]
        site.asked.append((self.path, wanted))
        if self.path == "/films.zip.md5" and site.sidecar is not None:
            return self.answer(site.sidecar_status, site.sidecar.encode())
        if self.path != "/films.zip":
            return self.answer(404, b"not here")
        if wanted is None or not site.knows_ranges or self.has_changed():
            return self.answer(200, site.body)
        start, size = int(wanted.removeprefix("bytes=").removesuffix("-")), len(site.body)
        if start >= size:
            return self.answer(416, b"", content_range=f"bytes */{size}")
        start += site.shift
        content_range = f"bytes {start}-{size - 1}/{size}"
        return self.answer(206, site.body[start:], content_range=content_range)

    def has_changed(self) -> bool:
        known = self.headers["If-Range"]
        return known is not None and known != self.last_modified()

    def last_modified(self) -> str | None:
        changed = self.site.changed
        return formatdate(changed, usegmt=True) if changed is not None else None

    def answer(self, status: int, body: bytes, content_range: str | None = None) -> None:
        self.send_response(status)
        if self.site.tells_length:
            self.send_header("Content-Length", str(len(body)))
        if content_range is not None:
            self.send_header("Content-Range", content_range)
        if (changed := self.last_modified()) is not None:
            self.send_header("Last-Modified", changed)
        self.end_headers()
        sent = body
        if self.path == "/films.zip":
            sent = body[: self.site.cut_after]
            self.site.bytes_sent += len(sent)
        with suppress(ConnectionError):  # a client may hang up
            self.wfile.write(sent)
        self.site.may_hang_up.wait(HANGS)

    def log_message(self, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    site = Site()
    site.may_hang_up.set()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, site)) as server:
        site.url = f"http://127.0.0.1:{server.server_port}/films.zip"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data" / "films.zip"


def fetch(site: Site, target: Path, *, md5: str | None = MD5) -> Download:
    return download(site.url, target, home=HOME, md5=md5, timeout=HANGS)


def part_of(target: Path) -> Path:
    return target.with_name("films.zip.part")


def leave_part(target: Path, content: bytes) -> None:
    target.parent.mkdir()
    part_of(target).write_bytes(content)


def files_beside(target: Path) -> list[str]:
    return sorted(file.name for file in target.parent.iterdir())


def test_a_file_is_fetched_whole_with_its_checksum_beside_it(site: Site, target: Path) -> None:
    assert fetch(site, target) == Download(target, MD5, verified=True)
    assert target.read_bytes() == BODY
    assert files_beside(target) == ["films.zip", "films.zip.md5"]
    assert site.asked == [("/films.zip", None)]


def test_progress_rises_to_the_total(site: Site, target: Path) -> None:
    calls: list[tuple[int, int | None]] = []
    download(site.url, target, home=HOME, md5=MD5, progress=lambda *call: calls.append(call))
    done = [call[0] for call in calls]
    assert len(calls) > 1
    assert done == sorted(done)
    assert {call[1] for call in calls} == {len(BODY)}
    assert done[-1] == len(BODY)


def test_without_a_length_the_total_is_unknown(site: Site, target: Path) -> None:
    site.tells_length = False
    totals: set[int | None] = set()
    download(site.url, target, home=HOME, md5=MD5, progress=lambda _, total: totals.add(total))
    assert totals == {None}
    assert target.read_bytes() == BODY


def test_a_part_is_completed_with_the_missing_bytes_only(site: Site, target: Path) -> None:
    leave_part(target, BODY[:HALF])
    calls: list[tuple[int, int | None]] = []
    download(site.url, target, home=HOME, md5=MD5, progress=lambda *call: calls.append(call))
    assert target.read_bytes() == BODY
    assert site.asked == [("/films.zip", f"bytes={HALF}-")]
    assert site.bytes_sent == len(BODY) - HALF
    assert calls[0][0] > HALF
    assert calls[-1] == (len(BODY), len(BODY))


def test_a_server_that_ignores_ranges_is_read_from_the_start(site: Site, target: Path) -> None:
    leave_part(target, BODY[:HALF])
    site.knows_ranges = False
    fetch(site, target)
    assert target.read_bytes() == BODY
    assert site.bytes_sent == len(BODY)


def test_a_complete_part_is_not_fetched_again(site: Site, target: Path) -> None:
    leave_part(target, BODY)
    fetch(site, target)
    assert target.read_bytes() == BODY
    assert site.bytes_sent == 0


def test_a_part_that_is_too_long_is_thrown_away(site: Site, target: Path) -> None:
    leave_part(target, BODY + b"of an older version")
    fetch(site, target)
    assert target.read_bytes() == BODY
    assert [wanted for _, wanted in site.asked] == [f"bytes={len(BODY) + 19}-", None]


def test_an_answer_that_starts_elsewhere_is_not_appended(site: Site, target: Path) -> None:
    leave_part(target, BODY[:HALF])
    site.shift = -1
    fetch(site, target, md5=None)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("md5", [MD5, None])
def test_a_cut_connection_keeps_the_part_and_the_next_call_goes_on(
    site: Site, target: Path, md5: str | None
) -> None:
    site.sidecar = None
    site.cut_after = HALF
    message = f"{site.url} broke off after 500,000 bytes (connection closed); run the same "
    with pytest.raises(InputError, match=re.escape(message)):
        fetch(site, target, md5=md5)
    assert files_beside(target) == ["films.zip.part"]
    assert part_of(target).read_bytes() == BODY[:HALF]

    site.cut_after = None
    fetch(site, target, md5=md5)
    assert target.read_bytes() == BODY
    assert site.asked[-1] == ("/films.zip", f"bytes={HALF}-")
    assert site.bytes_sent == len(BODY)


def test_a_connection_that_falls_silent_keeps_the_part(
    monkeypatch: pytest.MonkeyPatch, site: Site, target: Path
) -> None:
    opened: list[socket.socket] = []
    connect = socket.create_connection

    def create_connection(*given: Any, **named: Any) -> socket.socket:
        opened.append(connect(*given, **named))
        return opened[-1]

    def lose_patience(done: int, total: int | None) -> None:
        if done == HALF:  # the server says no more
            opened[-1].settimeout(0.01)

    monkeypatch.setattr(socket, "create_connection", create_connection)
    site.cut_after = HALF
    site.may_hang_up.clear()
    with pytest.raises(InputError, match=r"broke off after 500,000 bytes \(timed out\); run"):
        download(site.url, target, home=HOME, md5=MD5, progress=lose_patience, timeout=HANGS)
    site.may_hang_up.set()
    assert part_of(target).read_bytes() == BODY[:HALF]


def test_an_interrupt_keeps_the_part(site: Site, target: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(site.url, target, home=HOME, md5=MD5, progress=interrupt)
    assert files_beside(target) == ["films.zip.part"]
    kept = part_of(target).read_bytes()
    assert kept
    assert BODY.startswith(kept)


def test_without_a_checksum_the_part_of_an_older_version_is_not_continued(
    site: Site, target: Path
) -> None:
    site.sidecar = None
    site.cut_after = HALF
    with pytest.raises(InputError, match="broke off"):
        fetch(site, target, md5=None)
    site.cut_after, site.body, site.changed = None, BODY[::-1], 1_600_000_000
    fetch(site, target, md5=None)
    assert target.read_bytes() == BODY[::-1]


def test_a_wrong_checksum_leaves_nothing_behind(site: Site, target: Path) -> None:
    site.sidecar = f"{'0' * 32}  films.zip\n"
    with pytest.raises(InputError, match=f"MD5 {MD5} instead of {'0' * 32} and was deleted"):
        fetch(site, target, md5=None)
    assert files_beside(target) == []


def test_a_file_that_is_there_makes_no_request(site: Site, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(BODY)
    assert fetch(site, target, md5=MD5.upper()) == Download(target, MD5, verified=True)
    assert site.asked == []


def test_a_published_checksum_is_remembered_for_the_next_call(site: Site, target: Path) -> None:
    first = fetch(site, target, md5=None)
    assert first == Download(target, MD5, verified=True)
    site.asked.clear()
    assert fetch(site, target, md5=None) == first
    assert site.asked == []


def test_a_damaged_file_is_replaced(site: Site, target: Path) -> None:
    fetch(site, target, md5=None)
    target.write_bytes(BODY[:HALF])
    assert fetch(site, target, md5=None).verified
    assert target.read_bytes() == BODY


def test_a_damaged_file_stays_until_the_new_one_is_complete(site: Site, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"older")
    site.cut_after = HALF
    with pytest.raises(InputError, match="broke off"):
        fetch(site, target)
    assert target.read_bytes() == b"older"


def test_without_a_sidecar_the_file_is_unverified(site: Site, target: Path) -> None:
    site.sidecar = None
    assert fetch(site, target, md5=None) == Download(target, MD5, verified=False)
    assert files_beside(target) == ["films.zip"]
    site.asked.clear()
    assert not fetch(site, target, md5=None).verified
    assert site.asked == []


def test_a_sidecar_that_is_gone_does_not_speak_for_a_new_file(site: Site, target: Path) -> None:
    fetch(site, target, md5=None)
    target.write_bytes(b"damaged")
    site.body, site.sidecar = BODY[::-1], None
    assert not fetch(site, target, md5=None).verified
    assert files_beside(target) == ["films.zip"]


@pytest.mark.parametrize(
    "text",
    [
        f"MD5 (films.zip) = {MD5}\n",
        f"{MD5}  films.zip\n",
        f"{MD5} *films.zip\r\n",
        MD5,
        f"\n{MD5.upper()}\tfilms.zip",
    ],
)
def test_a_sidecar_may_have_either_usual_form(site: Site, text: str) -> None:
    site.sidecar = text
    assert published_md5(site.url, home=HOME) == MD5


@pytest.mark.parametrize("text", ["", f"<a href='/{MD5}.css'>Welcome</a>", MD5 + "0", MD5[1:]])
def test_a_page_without_a_checksum_is_no_sidecar(site: Site, text: str) -> None:
    site.sidecar = text
    assert published_md5(site.url, home=HOME) is None


def test_a_failing_sidecar_is_not_taken_for_an_absent_one(site: Site, target: Path) -> None:
    site.sidecar_status = 503
    message = f"cannot reach {site.url}.md5 (HTTP 503 Service Unavailable); download films.zip "
    with pytest.raises(InputError, match=re.escape(message)):
        fetch(site, target, md5=None)
    assert not target.exists()


def test_a_file_that_is_not_published_says_where_to_get_it(site: Site, target: Path) -> None:
    url = site.url.replace("films", "songs")
    sentence = (
        f"cannot reach {url} (HTTP 404 Not Found); "
        f"download songs.zip yourself from {HOME} and pass it with --from"
    )
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        download(url, target, home=HOME, md5=MD5)
    assert files_beside(target) == []


@pytest.mark.parametrize("md5", [MD5, None])
def test_an_unreachable_server_gives_one_sentence(
    site: Site, target: Path, md5: str | None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(InputError) as caught:
        download(f"http://127.0.0.1:{port}/films.zip", target, home=HOME, md5=md5)
    assert re.fullmatch(
        rf"cannot reach http://127.0.0.1:{port}/films.zip(.md5)? \(Connection refused\); "
        rf"download films.zip yourself from {HOME} and pass it with --from",
        str(caught.value),
    )
    assert not target.exists()


def test_an_unknown_host_gives_one_sentence(
    monkeypatch: pytest.MonkeyPatch, site: Site, target: Path
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(InputError, match=r"zip \(Name or service not known\); download films"):
        download("http://nowhere.invalid/films.zip", target, home=HOME, md5=MD5)


def test_a_silent_server_is_given_up(site: Site, target: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/films.zip"
        with pytest.raises(InputError, match=r"cannot reach .* \(timed out\); download"):
            download(url, target, home=HOME, md5=MD5, timeout=0.1)


def test_a_folder_that_cannot_be_made_gives_one_sentence(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        InputError, match=r"^cannot read or write .*films.zip \(.*\); check its"
    ):
        fetch(site, tmp_path / "file" / "films.zip")


def test_a_link_where_the_part_grows_is_not_followed(site: Site, target: Path) -> None:
    target.parent.mkdir()
    theirs = target.with_name("theirs")
    theirs.write_bytes(BODY[:HALF])
    part_of(target).symlink_to(theirs)
    assert fetch(site, target).path.read_bytes() == BODY
    assert theirs.read_bytes() == BODY[:HALF]


@pytest.mark.parametrize("suffix", ["", ".part", ".md5"])
def test_a_pipe_in_the_place_of_a_file_is_refused(
    site: Site, target: Path, suffix: str
) -> None:
    target.parent.mkdir()
    os.mkfifo(target.with_name(f"{target.name}{suffix}"))
    with pytest.raises(InputError, match="is a pipe, and only regular files are read"):
        fetch(site, target)


@pytest.mark.parametrize("tells_length", [True, False])
def test_a_file_past_the_bound_is_not_fetched(
    site: Site, target: Path, monkeypatch: pytest.MonkeyPatch, tells_length: bool
) -> None:
    site.tells_length = tells_length
    monkeypatch.setattr("fairtopk.data.download.MOST_DOWNLOAD", HALF)
    with pytest.raises(
        InputError, match=r"is larger than 0\.0005 GB, the most that is fetched"
    ):
        fetch(site, target)
    assert not target.exists()
