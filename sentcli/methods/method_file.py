"""A method from a user's own file: ``--method FILE.py``.

The file is Python code that is run, so only the command line or a call of `sentcli.train` may name it. It defines
``METHOD = Method(...)``, as the files in `sentcli.methods.papers` do, and may define objectives and modules for the
encoder.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from sentcli.errors import InputError, SentcliError
from sentcli.io.forms import contents
from sentcli.methods import METHODS
from sentcli.methods.method import Method
from sentcli.model.modules import MODULES
from sentcli.objectives import OBJECTIVES

SIGTERM_CODE = 128 + signal.SIGTERM
"""The exit code with which the command line ends after SIGTERM, wherever the signal comes."""
METHOD_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def load_method_file(path: Path) -> Method:
    """Run a file and return its method, which has the file's name and SHA-256.

    Objectives and modules that the file registers replace those of an earlier version of it.

    Raises:
        InputError: if there is no such file, it fails (with the line), it defines no method, or a name exists already.
    """
    try:
        source = contents(path)
    except OSError as error:
        raise InputError(f"--method {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"--method {path}: it is not UTF-8 text") from error
    if "\0" in source:
        raise InputError(f"--method {path}: it holds NUL characters")
    digest_of_path = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
    name = f"sentcli_method_file_{digest_of_path[:16]}"
    _forget(name)
    module = ModuleType(name)
    module.__file__ = str(path.resolve())
    sys.modules[name] = module  # dataclasses look up their module there
    try:
        with naming_the_line(path):
            exec(compile(source, module.__file__, "exec"), module.__dict__)
        method = _method(path, module)
    except BaseException as error:
        _forget(name)
        if isinstance(error, SentcliError):  # any error in the file is an error of the user's input
            raise InputError(str(error)) from error
        raise
    file = {"name": path.name, "sha256": hashlib.sha256(source.encode()).hexdigest()}
    stages = {stage: replace(other, file=file) for stage, other in method.stages.items()}
    return replace(method, file=file, stages=stages)


def _method(path: Path, module: ModuleType) -> Method:
    method = getattr(module, "METHOD", None)
    if not isinstance(method, Method):
        raise InputError(f"--method {path}: it defines no METHOD = Method(...); docs/add-a-method.md has an example")
    if not METHOD_NAME.fullmatch(method.name):
        raise InputError(f"--method {path}: the name {method.name!r}: expected small letters, digits and hyphens")
    if method.name in METHODS:
        raise InputError(f"--method {path}: a method of sentcli is called {method.name}; choose another name")
    return method


def _forget(module: str) -> None:
    """Remove the module, and the objectives and modules that an earlier run of the file has registered."""
    sys.modules.pop(module, None)
    registries: tuple[dict[str, Any], ...] = (OBJECTIVES, MODULES)
    for registry in registries:
        for name, kind in list(registry.items()):
            if kind.__module__ == module:
                del registry[name]


@contextmanager
def naming_the_line(path: Path | None) -> Iterator[None]:
    """Turn an error that the user's file raises inside the block into a message with the file and the line.

    Args:
        path: of the file; None leaves errors as they are.
    """
    if path is None:
        yield
        return
    file_name = str(path.resolve())
    try:
        yield
    except SyntaxError as error:
        if error.filename != file_name:
            raise
        raise InputError(f"{path}, line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        steps = traceback.extract_tb(error.__traceback__)
        lines = [step.lineno for step in steps if step.filename == file_name]
        is_sigterm = isinstance(error, SystemExit) and error.code == SIGTERM_CODE
        if not lines or is_sigterm:
            raise
        place = f"{path}, line {lines[-1]}"
        if isinstance(error, InputError):
            raise InputError(f"{place}: {error}") from error
        if isinstance(error, SentcliError):
            raise SentcliError(f"{place}: {error}") from error
        raise SentcliError(f"{place}: {type(error).__name__}: {error}") from error
