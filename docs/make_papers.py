"""Write docs/papers.md from models/papers: ``python docs/make_papers.py``; with ``--check``, fail if it is stale.

Both fail if a command does not parse, a setting, method, recipe or sweep of it does not exist, a printed row is not in
models/, or a file of results is missing.
"""

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from sentcli.cli.app import app
from sentcli.data.registry import find_data_set as find_set
from sentcli.evaluation.papers import Item, load_paper, paper_names
from sentcli.evaluation.published import find_published
from sentcli.methods.recipes import load_recipe
from sentcli.model.spec import check_pooling
from sentcli.pages.paper_page import paper_page
from sentcli.pages.write import render
from sentcli.training.options import DataOptions, MethodOptions, SweepOptions, TrainingOptions
from sentcli.training.planned import sweep_of
from sentcli.training.request import AUTO, TrainRequest
from sentcli.training.sweep import request_at

DOCS = Path(__file__).parent
FIRST = "After this page you can repeat a table or a figure of five papers, or know what is missing for it."


def check(item: Item) -> None:
    """Check what an item names.

    Raises:
        Exception: click's, for a command that does not parse.
        SentcliError: for a setting, a method, a recipe, a sweep or a printed row that does not exist.
        FileNotFoundError: for a file of results.
    """
    for command in item.commands:
        verb, values = parsed(command)
        if verb == "train":
            check_training(values)
        if verb == "get":
            for name in values["names"]:
                find_set(name)
        if values.get("pooling"):
            check_pooling(values["pooling"])
        if values.get("against"):
            find_published(values["against"])
    for name in item.printed:
        find_published(name)
    for name in item.results:
        if not (DOCS.parent / name).is_file():
            raise FileNotFoundError(f"no file {name}")


def parsed(line: str) -> tuple[str, dict[str, Any]]:
    """Return the verb of a command line and the values of its options, without running it."""
    (program, *words), command, name = shlex.split(line), get_command(app), ""
    if program != "sentcli":
        raise ValueError(f"{program} is not sentcli")
    while hasattr(command, "get_command"):
        name, *words = words
        command = command.get_command(None, name)
        if command is None:
            raise ValueError(f"no command {name}")
    with command.make_context(name, words) as context:
        return name, {key: None if value == [] else value for key, value in context.params.items()}


def check_training(values: dict[str, Any]) -> None:
    """Check the settings of a training, and those of each run of a sweep."""

    def options(kind: Any) -> Any:
        return kind(**{field.name: values[field.name] for field in dataclasses.fields(kind)})

    changes, training, reading = (options(kind) for kind in (MethodOptions, TrainingOptions, DataOptions))
    recipe = None if changes.recipe is None else load_recipe(changes.recipe)
    request = TrainRequest(
        method=values["method"] or (recipe.method if recipe else ""),
        model=values["model"] or (recipe.model if recipe else ""),
        files=[],
        output=values["output"],
        stage=changes.stage or (recipe.stage if recipe else None),
        pooling=values["pooling"] or (recipe and recipe.pooling) or AUTO,
        after=changes.after,
        data=reading,
        assignments=[*changes.assignments, *training.assignments],
        recipe=recipe,
    )
    for point in sweep_of(options(SweepOptions), dataclasses.replace(reading, hold_out=None), []).points or [{}]:
        request_at(request, point, request.output)


def page() -> str:
    """Return the page, after checking all that it names."""
    papers = [load_paper(name) for name in paper_names()]
    for paper in papers:
        for item in paper.item:
            try:
                check(item)
            except Exception as error:  # also click's own, or those of the copy of click inside newer releases of typer
                message = getattr(error, "format_message", error.__str__)()
                sys.exit(f"models/papers/{paper.name}.toml: {item.name}: {message}")
    heading, rest = render(paper_page(papers, "The papers' tables"), ".md").split("\n", 1)
    return f"{heading}\n\n{FIRST}\n{rest}"


if __name__ == "__main__":
    target = DOCS / "papers.md"
    if "--check" in sys.argv:
        if target.read_text("utf-8") != page():
            sys.exit("docs/papers.md is stale: run 'python docs/make_papers.py'")
    else:
        target.write_text(page(), "utf-8")
