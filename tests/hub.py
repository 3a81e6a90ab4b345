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
    """Status and headers of the next answers."""
    cuts: int = 0
    """How many of the next downloads of large files end in the middle."""
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
        hub, cut = self.hub, False
        if hub.cuts and self.command == "GET" and len(body) > LARGE:
            hub.cuts, cut = hub.cuts - 1, True
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        if not path.startswith("/api/models/") and "/resolve/" not in path:  # the library asks about itself
            self.answer(404, b"{}")
            return
        hub.requests.append((self.command, path))
        if hub.faults:
            status, headers = hub.faults.pop(0)
            self.answer(status, b"{}", **headers)
        elif path.startswith("/api/models/"):
            owner, name, _, revision = path.removeprefix("/api/models/").split("/", 3)
            self.describe(f"{owner}/{name}", revision)
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

    def describe(self, repository, revision):
        if (found := self.version(repository, revision)) is not None:
            commit, files = found
            siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
            facts = {
                "id": repository,
                "modelId": repository,
                "sha": commit,
                "private": False,
                "tags": [],
                "siblings": siblings,
            }
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
