"""Tests that a read from an object store can be interrupted even if the server does not respond,
and that a pickled loader reads the same samples."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import pytest
from conftest import MINI, needs, ran

#: A web server for the files of a folder. It stops responding once the event `silent` is set.
SERVER = """
import http.server, os, pathlib, signal, sys, threading, time, urllib.parse
import warpfeed

folder, silent = pathlib.Path(sys.argv[1]), threading.Event()
# This limit must be shorter than half a minute, after which a request to a silent server times out.
BOUND = 20

class Files(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_HEAD(self): self.answer(False)
    def do_GET(self): self.answer(True)
    def log_message(self, *_): pass
    def answer(self, body):
        if silent.is_set():
            time.sleep(3600)
        file = folder / urllib.parse.unquote(self.path.lstrip("/"))
        if not file.is_file():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        data, status = file.read_bytes(), 200
        size = len(data)
        if body and "Range" in self.headers:
            start, end = self.headers["Range"].removeprefix("bytes=").split("-")
            data, status = data[int(start) : int(end) + 1], 206
        self.send_response(status)
        self.send_header("ETag", f'"{size}"')
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}/mini.tar"
options = dict(batch_size=4, num_workers=2, augment=warpfeed.Augment.train(32), output="numpy")

def name(task):
    try:
        return (task / "comm").read_text()
    except OSError:
        # The thread has ended after it was listed.
        return ""

def waiting():
    names = [name(task) for task in pathlib.Path("/proc/self/task").iterdir()]
    return [name for name in names if name.startswith(("warpfeed-aside", "warpfeed-wait", "warpfeed-fetch"))]

def none_waits():
    begun = time.monotonic()
    while waiting() and time.monotonic() - begun < BOUND:
        time.sleep(0.02)
    return not waiting()
"""


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns a folder with the shard `mini.tar`."""
    folder = tmp_path_factory.mktemp("served")
    subprocess.run([sys.executable, "-m", "warpfeed", "pack", str(MINI), str(folder / "mini.tar")], check=True)
    return str(folder)


def serving(code: str, folder: str) -> str:
    return ran(SERVER + textwrap.dedent(code), folder, timeout=300)


@needs("linux", sys.platform == "linux")
def test_ctrl_c_while_opening_cancels_pending_requests(shard: str) -> None:
    out = serving(
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        for source in [url, warpfeed.Concat([url, url])]:
            silent.set()
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            begun = time.monotonic()
            try:
                warpfeed.Loader(source, **options)
            except KeyboardInterrupt:
                print("interrupted", time.monotonic() - begun < BOUND, none_waits())
            silent.clear()
        print(len(list(warpfeed.Loader(url, **options))) > 0)
        """,
        shard,
    )
    assert out == "interrupted True True\n" * 2 + "True\n"


@needs("linux", sys.platform == "linux")
def test_ctrl_c_ends_packing_from_a_silent_server(shard: str, tmp_path: pathlib.Path) -> None:
    out = serving(
        f"""
        target = pathlib.Path({str(tmp_path)!r}, "x.lmdb")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        def packing():
            warpfeed.pack(url, target, num_workers=1, progress=lambda *_: silent.set())
        def opening():
            silent.set()
            warpfeed.pack(url, target)
        def splitting():
            silent.set()
            warpfeed.split(url, [0.5, 0.5], seed=1, stratify=True)
        for call in [packing, opening, splitting]:
            signal.setitimer(signal.ITIMER_REAL, 1)
            begun = time.monotonic()
            try:
                call()
            except KeyboardInterrupt:
                print("interrupted", time.monotonic() - begun < BOUND, none_waits(), list(target.parent.iterdir()))
            silent.clear()
        """,
        shard,
    )
    assert out == "interrupted True True []\n" * 3


@needs("linux", sys.platform == "linux")
def test_close_returns_quickly_while_the_server_is_silent(shard: str) -> None:
    out = serving(
        """
        for close in [True, False]:
            loader = warpfeed.Loader(url, **options)
            silent.set()
            batches = iter(loader)
            thread = threading.Thread(target=lambda: next(batches, None) if close else None, daemon=True)
            threading.excepthook = lambda *_: None
            thread.start()
            time.sleep(0.3)
            begun = time.monotonic()
            if close:
                loader.close()
            else:
                del batches, loader
            print(time.monotonic() - begun < BOUND, none_waits())
            silent.clear()
        """,
        shard,
    )
    assert out == "True True\n" * 2


def test_a_pickled_loader_reads_the_same_from_the_server(shard: str) -> None:
    out = serving(
        """
        import pickle, subprocess

        def read(loader):
            return [(list(batch.ids), int(batch.images.sum())) for batch in loader]

        loader = warpfeed.Loader(url, shuffle=True, seed=3, epochs=1, **options)
        child = "import pickle, sys; loader = pickle.loads(sys.stdin.buffer.read()); "
        child += "print([(list(batch.ids), int(batch.images.sum())) for batch in loader])"
        pickled = pickle.dumps(loader)
        done = subprocess.run([sys.executable, "-c", child], input=pickled, capture_output=True, check=True)
        first = read(loader)
        print(len(first) > 1, eval(done.stdout) == first, read(pickle.loads(pickled)) == first)
        """,
        shard,
    )
    assert out == "True True True\n"
