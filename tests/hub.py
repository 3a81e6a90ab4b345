"""A stand-in for the hub: what huggingface_hub asks for when it fetches a model, over HTTP."""

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

CODES = {401: "RepoNotFound", 403: "GatedRepo"}
LARGE = 5000
"""Of files with more bytes, downloads can be cut."""


@dataclass
class Hub:
    """Repositories with their revisions, and what the next answers shall be instead."""

    url: str = ""
    versions: dict = field(default_factory=dict)
    """Commit and files by (repository, revision)."""
    refused: dict = field(default_factory=dict)
    """Status by repository."""
    faults: list = field(default_factory=list)
    """Status and headers of the next answers; None is the true one."""
    cuts: int = 0
    """How many of the next downloads of large files end in the middle."""
    empty: bool = False
    """Whether every download of a large file ends before its first byte."""
    requests: list = field(default_factory=list)
    """Method and path of each request."""
    ranges: list = field(default_factory=list)
    """Where downloads went on."""

    def put(self, repository, files, *revisions):
        """Publish files, by name or of a folder, as what these revisions name, or else `main`; return the commit."""
        if not isinstance(files, dict):
            files = {
                path.relative_to(files).as_posix(): path.read_bytes() for path in files.rglob("*") if path.is_file()
            }
        content = "".join(f"{name} {hashlib.sha1(data).hexdigest()}" for name, data in sorted(files.items()))
        commit = hashlib.sha1(f"{repository} {content}".encode()).hexdigest()
        for revision in (*(revisions or ("main",)), commit):
            self.versions[repository, revision] = commit, files
        return commit

    def fetched(self):
        """The names of the files that were downloaded."""
        return sorted(
            {path.split("/", 5)[5] for method, path in self.requests if method == "GET" and "/resolve/" in path}
        )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *arguments):
        pass

    def answer(self, status, body=b"", **headers):
        hub, part = self.hub, len(body)
        if self.command == "GET" and len(body) > LARGE and status < 300:
            part = 0 if hub.empty else len(body) // 2 if hub.cuts else part
            hub.cuts = max(hub.cuts - 1, 0)
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:part])
            self.close_connection = part < len(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        if not path.startswith("/api/models/") and "/resolve/" not in path:  # the library asks about itself
            self.answer(404, b"{}")
            return
        hub.requests.append((self.command, path))
        fault = hub.faults.pop(0) if hub.faults else None
        if fault is not None:
            status, headers = fault
            self.answer(status, b"{}", **headers)
        elif path.startswith("/api/models/"):
            owner, name, asked, revision = path.removeprefix("/api/models/").split("/", 3)
            self.describe(f"{owner}/{name}", asked, revision)
        else:
            owner, name, _, commit, file = path.removeprefix("/").split("/", 4)
            self.send(f"{owner}/{name}", commit, file)

    def version(self, repository, revision):
        hub = self.hub
        if repository in hub.refused:
            status = hub.refused[repository]
            self.answer(status, b"{}", X_Error_Code=CODES.get(status, ""))
        elif not any(known == repository for known, _ in hub.versions):
            self.answer(404, b"{}", X_Error_Code="RepoNotFound")
        elif (repository, revision) not in hub.versions:
            self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
        else:
            return hub.versions[repository, revision]
        return None

    def describe(self, repository, asked, revision):
        if (found := self.version(repository, revision)) is None:
            return
        commit, files = found
        if asked == "tree":
            facts = [{"type": "file", "oid": "0" * 40, "size": len(data), "path": name} for name, data in files.items()]
        else:
            siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
            facts = {"id": repository, "modelId": repository, "sha": commit, "private": False, "tags": []}
            facts["siblings"] = siblings
        self.answer(200, json.dumps(facts).encode(), Content_Type="application/json")

    def send(self, repository, revision, name):
        if (found := self.version(repository, revision)) is None:
            return
        commit, files = found
        if name not in files:
            self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
            return
        data = files[name]
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X_Repo_Commit": commit, "Accept_Ranges": "bytes"}
        if (wanted := self.headers.get("Range")) is None:
            self.answer(200, data, **headers)
            return
        start = int(wanted.removeprefix("bytes=").split("-")[0])
        self.hub.ranges.append(start)
        self.answer(206, data[start:], **headers, Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")


def serve():
    """Start a hub; return it with its server."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OfHub", (Handler,), {"hub": hub}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    return hub, server
