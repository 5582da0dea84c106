"""Serves the files of a folder over HTTP and S3: nginx sends the objects, and this process lists them.

Buckets are the folders in ROOT. Signatures are not checked, and the server is read-only.
"""

from __future__ import annotations

import argparse
import bisect
import http.server
import pathlib
import signal
import socket
import subprocess
import time
import urllib.parse
from xml.sax.saxutils import escape

#: Maximum number of keys per response, as on S3.
PAGE = 1000
#: A character that sorts after every character of a key.
END = chr(0x10FFFF)

NGINX = """
daemon off;
# The buckets may be in a folder that only root can read.
user root;
worker_processes {processes};
worker_rlimit_nofile 40000;  # more than the size of `open_file_cache`
pid {work}/nginx.pid;
error_log {work}/error.log;
events {{ worker_connections 8192; }}
http {{
  log_format line '$msec $request_method $status $body_bytes_sent $uri';
  access_log {work}/access.log line;
  client_body_temp_path {work}; proxy_temp_path {work}; fastcgi_temp_path {work};
  uwsgi_temp_path {work}; scgi_temp_path {work};
  sendfile on; tcp_nopush on; keepalive_requests 1000000; keepalive_timeout 300;
  open_file_cache max=20000 inactive=600s;
  server {{
    listen {address}:{port} backlog=1024;
    root {root};
    error_page 418 = @list;
    location / {{ if ($args ~ "list-type=2") {{ return 418; }} }}
    location @list {{ proxy_pass http://127.0.0.1:{lister}; }}
  }}
}}
"""


def etag(path: pathlib.Path) -> str:
    """Returns nginx's ETag of a file."""
    status = path.stat()
    return f"{int(status.st_mtime):x}-{status.st_size:x}"


class Buckets:
    def __init__(self, root: pathlib.Path) -> None:
        self.keys: dict[str, tuple[list[str], list[str]]] = {}
        for bucket in sorted(path for path in root.iterdir() if path.is_dir()):
            keys = sorted(str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file())
            self.keys[bucket.name] = (keys, [self.entry(bucket / key, key) for key in keys])

    def entry(self, path: pathlib.Path, key: str) -> str:
        return (
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-25T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{etag(path)}&quot;</ETag><Size>{path.stat().st_size}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
        )

    def list(self, bucket: str, query: dict[str, str]) -> str:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        page = min(PAGE, int(query.get("max-keys", PAGE)))
        contents, folders, last, is_truncated = [], [], after, False
        keys, entries = self.keys.get(bucket, ([], []))
        # If the last page ended with a folder, skip everything in it.
        start = after + END if delimiter and after.endswith(delimiter) else after
        index = max(bisect.bisect_left(keys, prefix), bisect.bisect_right(keys, start))
        while index < len(keys) and keys[index].startswith(prefix):
            if len(contents) + len(folders) == page:
                is_truncated = True
                break
            key = keys[index]
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if end < 0:
                contents.append(entries[index])
                last, index = key, index + 1
            else:
                last = key[: end + len(delimiter)]
                folders.append(f"<CommonPrefixes><Prefix>{escape(last)}</Prefix></CommonPrefixes>")
                index = bisect.bisect_left(keys, last + END, index)
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if is_truncated else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><MaxKeys>{page}</MaxKeys>"
            f"<KeyCount>{len(contents) + len(folders)}</KeyCount><IsTruncated>{str(is_truncated).lower()}</IsTruncated>"
            f"{token}{''.join(contents)}{''.join(folders)}</ListBucketResult>"
        )


def lister(root: pathlib.Path) -> http.server.ThreadingHTTPServer:
    buckets = Buckets(root)

    class Lists(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # noqa: N802
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
            text = buckets.list(url.path.strip("/"), query).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 1024

        def handle_error(self, *_: object) -> None:
            pass  # the client disconnected before the end of the response

    return Server(("127.0.0.1", 0), Lists)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path, help="folder of the buckets")
    parser.add_argument("work", type=pathlib.Path, help="folder for the configuration and logs of nginx")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--processes", type=int, default=1, help="number of nginx processes")
    parser.add_argument("--nginx", default="nginx", help="nginx program (measured with Debian's 1.22.1)")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    server = lister(options.root)
    config = NGINX.format(
        work=work, address=options.address, port=options.port, root=options.root.resolve(), lister=server.server_port,
        processes=options.processes,
    )  # fmt: skip
    (work / "nginx.conf").write_text(config)
    nginx = subprocess.Popen([options.nginx, "-p", work, "-e", work / "error.log", "-c", work / "nginx.conf"])
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        while nginx.poll() is None:
            try:
                socket.create_connection((options.address, options.port), 1).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        if nginx.poll() is not None:
            raise SystemExit("nginx has ended; see its message above")
        # Load the files into the page cache: the benchmark measures the link, not the disk.
        for path in options.root.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    while file.read(1 << 24):
                        pass
        print("ready", flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        nginx.terminate()
        nginx.wait()


if __name__ == "__main__":
    main()
