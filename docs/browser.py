"""Chromium without a window, over the pipe of its DevTools protocol: pictures of pages, at any width and theme."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
TALLEST = 12_000
"""The greatest height of a picture in pixels; the rest of a longer page is left out."""
UNFOLD = """for (const part of document.querySelectorAll('details')) part.open = true;
new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"""
"""JavaScript that opens what is folded, and waits until it is drawn."""


class Browser:
    """A running Chromium with one page.

    Args:
        read: the descriptor of its answers.
        write: the descriptor of its commands.
    """

    def __init__(self, read: int, write: int) -> None:
        self.answers, self.commands, self.number = os.fdopen(read, "rb"), os.fdopen(write, "wb"), 0
        self.session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        answer = self._next(lambda each: each.get("id") == self.number)
        if "error" in answer:
            sys.exit(f"chromium: {method}: {answer['error']['message']}")
        return answer["result"]

    def _next(self, awaited: Any) -> dict[str, Any]:
        """Return the next message that is awaited; others are passed over."""
        buffer = bytearray()
        while byte := self.answers.read(1):
            if byte != b"\0":
                buffer += byte
                continue
            message = json.loads(buffer)
            if awaited(message):
                return message
            buffer.clear()
        sys.exit("chromium ended before it answered")

    def picture(self, page: Path, target: Path, width: int, theme: str, part: str = "html") -> int:
        """Write a picture of a page, whose folded sections are open, as PNG.

        Args:
            page: an HTML file.
            target: the PNG file.
            width: of the window in pixels.
            theme: light or dark.
            part: the selector of the element that is shown; by default the whole page.

        Returns:
            How many pixels the page is wider than the window, which no page should be.
        """
        feature = {"name": "prefers-color-scheme", "value": theme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page.resolve().as_uri())
        self._next(lambda each: each.get("method") == "Page.loadEventFired")
        self.call("Runtime.evaluate", expression=UNFOLD, awaitPromise=True)
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        box = f"JSON.stringify(document.querySelector({json.dumps(part)}).getBoundingClientRect())"
        shown = json.loads(self.call("Runtime.evaluate", expression=box)["result"]["value"])
        clip = {key: shown[key] for key in ("x", "y", "width", "height")}
        if part == "html":
            clip = {"x": 0, "y": 0, "width": width, "height": size["height"]}
        clip |= {"height": min(clip["height"], TALLEST), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        target.write_bytes(base64.b64decode(shot["data"]))
        return int(size["width"]) - width


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium, which ends with the block."""
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        sys.exit(f"there is no chromium on this machine (tried {', '.join(NAMES)}): install it to take pictures")
    (commands_read, commands_write), (answers_read, answers_write) = os.pipe(), os.pipe()

    def at_3_and_4() -> None:
        read, write = os.dup(commands_read), os.dup(answers_write)
        os.dup2(read, 3)
        os.dup2(write, 4)

    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        process = subprocess.Popen(
            [program, *options, f"--user-data-dir={profile}"],
            preexec_fn=at_3_and_4,
            close_fds=False,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands_read)
        os.close(answers_write)
        try:
            running = Browser(answers_read, commands_write)
            yield running
            running.session = ""
            running.call("Browser.close")
        finally:
            process.terminate()
            process.wait()
