"""Command lines in processes of their own that need not start from nothing.

A process that has loaded torch, transformers and the command line forks one for each call, which is as alone as one
that was started: with its own environment, folder, signals and exit code. What is read of the environment while
modules are imported is that of the tests.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["sentcli.cli.app", "sentcli.training.run", "sentcli.verbs.train_runs", "transformers.models.bert.modeling_bert"]
)


NONE: Mapping[int, int] = {}


def leave_writing_to_the_system() -> None:
    """Wait for no disk in this process, as nothing that a test writes has to outlast the machine."""
    os.fsync = lambda handle: None


class Forked:
    """``python -m MODULE ARGUMENTS`` in a forked process, with the interface of `subprocess.Popen`.

    `limits` are those of `resource.setrlimit` that it gets.
    """

    def __init__(
        self, module: str, *arguments, env: Mapping[str, str] | None = None, cwd=None, limits: Mapping[int, int] = NONE
    ) -> None:
        self._said = tempfile.TemporaryDirectory(prefix="sentcli-test-said-")
        words = [module, *map(str, arguments)]
        call = words, {**os.environ, **(env or {})}, str(Path(cwd or ".").resolve()), self._said.name, dict(limits)
        self._process = CONTEXT.Process(target=_run, args=call)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; it is killed when the time is over."""
        self._process.join(timeout)
        if self.returncode is None:
            self.send_signal(signal.SIGKILL)
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self.returncode

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end and return what it wrote to standard output and standard error."""
        self.wait(timeout)
        out, err = (Path(self._said.name, name).read_text("utf-8") for name in ("1", "2"))
        return out, err


def _run(words: list[str], env: dict[str, str], cwd: str, said: str, limits: dict[int, int]) -> None:
    """Be the process: take over its environment, folder and streams, and run the module."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    leave_writing_to_the_system()
    for number in (1, 2):
        os.dup2(os.open(Path(said, str(number)), os.O_CREAT | os.O_WRONLY), number)
    sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - as long as the process
    sys.argv = words
    if limits:
        import resource  # which Windows lacks

        sys.dont_write_bytecode = True  # of a file that may not grow, half would be kept
        for kind, limit in limits.items():
            resource.setrlimit(kind, (limit, limit))
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # a forked process of multiprocessing ends without
        sys.stdout.flush()
        sys.stderr.flush()
