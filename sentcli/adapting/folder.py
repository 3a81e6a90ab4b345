"""The folder beside the output in which an adaptation works, and which a later command may go on with."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sentcli.adapting.plan import PLAN_FILE
from sentcli.errors import InputError
from sentcli.io.atomic import OwnFiles, check_kept, check_output, locked
from sentcli.io.forms import read_json, write_json
from sentcli.model.saving import MODEL_FILES

ADAPT_RESULTS_FILE = "adapt.json"
"""The results, in the folder of the model."""
ADAPTED = OwnFiles((*MODEL_FILES, ADAPT_RESULTS_FILE), markers=(ADAPT_RESULTS_FILE,))
BEGUN_FILE = "begun.json"
"""The file of an adaptation that can go on: the digest of its start, documents, sets and options."""
OWN_NAMES = (
    BEGUN_FILE,
    PLAN_FILE,
    "made-*",
    "documents.jsonl",
    "weighted-*",
    "rows-*.jsonl",
    "rows-*.json",
    "measured",
    "reading",
    "first-*",
    "second-*",
    "between-*",
    ".*",
)
"""The names in the folder of the work; those that begin with a dot are of files that are not whole."""


@contextmanager
def work_folder(
    output: Path, corpus: Iterable[str], reads: Iterable[str | None], *, resume: bool, overwrite: bool
) -> Iterator[Path]:
    """Yield the folder of the work beside an output, which no other process has meanwhile.

    What stands in it before `begin` is of an adaptation of which nothing is known: it is made anew.

    Args:
        output: the folder of the model, which stays as it is.
        corpus: the documents, whose folders may not hold the output.
        reads: what else is read, and may not lie in the output.
        resume: accept the folder of an unfinished adaptation, and go on with it.
        overwrite: accept an output that exists, and begin anew unless `resume` is given, too.

    Raises:
        InputError: if there is an output or an unfinished adaptation and no flag says what to do with it, if another
            process works in the folder, or if something that is read would be replaced.
    """
    corpus = list(corpus)
    check_kept(output, [*corpus, *reads])
    _refuse_inside(output, corpus)
    if resume and not overwrite and (output / ADAPT_RESULTS_FILE).is_file():
        raise InputError(
            f"{output} is finished, and {ADAPT_RESULTS_FILE} in it says what was found; --overwrite adapts anew"
        )
    check_output(output, overwrite=overwrite, folder=True, own=ADAPTED)
    output = output.resolve()
    folder = output.with_name(f"{output.name}.adapting")
    message = f"another process adapts to {output}: wait for it, or choose another -o"
    with locked(folder.with_name(f".{folder.name}.lock"), message):
        begun = (folder / BEGUN_FILE).is_file()
        if begun and not resume and not overwrite:
            raise InputError(
                f"{folder} holds an unfinished adaptation: --resume goes on with it, --overwrite starts anew"
            )
        if not begun or not resume:
            _clear(folder)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            yield folder
        except InputError:
            if not (folder / BEGUN_FILE).is_file():
                _clear(folder)
            raise


def begin(folder: Path, identity: str) -> None:
    """Note that the work in a folder can go on, or find that it is the same that was begun there.

    Args:
        folder: of the work.
        identity: a digest of start, documents, sets and options.

    Raises:
        InputError: if another work was begun there.
    """
    path = folder / BEGUN_FILE
    if not path.is_file():
        write_json(path, {"identity": identity})
    elif read_json(path) != {"identity": identity}:
        raise InputError(f"{folder} is the work of another model, corpus or option: --overwrite starts anew")


def _refuse_inside(output: Path, corpus: Iterable[str]) -> None:
    """Refuse an output inside a folder of documents: what is written would be among the documents of the next run."""
    for name in corpus:
        path = Path(name)
        if path.is_dir() and output.resolve().is_relative_to(path.resolve()):
            raise InputError(f"{output} lies in {name}, whose files are the documents; choose an output outside of it")


def _clear(folder: Path) -> None:
    """Delete the folder of an adaptation.

    Raises:
        InputError: if it holds something else.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, and the folder of the work has this name; choose another -o")
    for path in folder.iterdir():
        if not any(map(path.match, OWN_NAMES)):
            raise InputError(f"{folder} holds {path.name}, which no adaptation has written; choose another -o")
    shutil.rmtree(folder)
