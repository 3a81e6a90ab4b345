"""``adapt``: a better model for one's own corpus, or the start if none is shown to be better."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from sentcli import console
from sentcli.adapting.options import AdaptOptions
from sentcli.bounds import Holds, Overwrite
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.machine import environment
from sentcli.model.options import Model

KEPT = 3
"""The exit code where the start is kept."""


@verb("adapt", common="corpus output model dev test keep write_with teacher budget json")
def adapt(
    corpus: Annotated[list[str], Holds.TEXT_FILE, Flag(metavar="CORPUS...", positional=True)],
    output: Annotated[Path, Flag("-o", metavar="DIR")],
    model: Model,
    options: Annotated[AdaptOptions, Group("Adaptation")] = AdaptOptions(),
    device: Annotated[str, Flag(panel="Model")] = "auto",
    resume: bool = False,
    overwrite: Overwrite = False,
) -> Result:
    """Fit a model to your own documents, and take it only if it finds more.

    Queries are made of the documents (titles, headings, questions), or written by a
    model. Weights of the tokens by how rare they are, and a few trainings with mined
    hard negatives, compete on queries that were held out, the worse half of the
    trainings ends early, and the best one meets the start on other queries, which
    chose nothing. DIR holds it only if the 95 % interval of its gain
    lies above 0 there, and if it loses no more than --allow on --keep; else DIR
    holds the start, and the exit code is 3.

    Args:
        corpus: Tables, folders of Markdown or text files, or folders in BEIR layout.
        output: The folder of the model.
        device: auto, cpu, cuda, cuda:1, mps.
        resume: Go on after an interruption.

    \b
    Examples:
      sentcli adapt articles.csv -m minilm -o articles-model
      sentcli adapt docs/ -m minilm -o docs-model --dev judged-a --test judged-b --budget 1h
      sentcli adapt docs/ -m minilm -o docs-model --keep sts-dev.csv --allow 0.5
      sentcli adapt docs/ -m minilm -o docs-model --write-with http://localhost:8080/v1#name
      sentcli adapt docs/ -m minilm -o docs-model --teacher bge-large --budget 2h
    """  # noqa: D301
    from sentcli.adapting.adapt import adapt_model as run

    clock = Clock()
    done = run(corpus, model, output, options, device=device, resume=resume, overwrite=overwrite)
    protocol: dict[str, Any] = {"corpus": corpus, **asdict(options)}
    facts = environment(device, "fp32", options.seed)
    record = Record("adapt", model, protocol, {"output": str(output), **done.to_dict()}, facts, clock.seconds)
    verdict = done.verdict
    if done.material.test.trust:
        console.note(done.material.test.trust)
    tables = [done.contest.table(verdict.gain.metric), verdict.table()]
    exit_code = 0 if verdict.adopted else KEPT
    return Result.of(record, tables, verdict=verdict.sentence, exit_code=exit_code)
