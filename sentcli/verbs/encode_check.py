"""``encode --check``: verify what `encode` or `export` wrote, and with a model whether it makes the same vectors."""

from __future__ import annotations

from dataclasses import replace

from sentcli import console
from sentcli.command.result import Clock, Record, Result, failed
from sentcli.model.options import LoadOptions


def check_vectors(name: str, model: str | None, options: LoadOptions, prompt: tuple[str | None, str | None]) -> Result:
    """Verify a directory of shards, a file of vectors or an export, and with a model whether it makes the same vectors.

    Raises:
        SentcliError: if something is wrong; its outcome becomes the JSON.
    """
    from sentcli.stores.verifying import ANOTHER_MODEL, kinship_of, verify_vectors

    clock = Clock()
    verified = verify_vectors(name)
    record = Record("encode", verified.model, results=verified.results, seconds=clock.seconds)
    if verified.problem is not None:
        verified.problem.outcome = Result.of(record)
        raise verified.problem
    for note in verified.notes:
        console.note(note)
    if model is None:
        return Result.of(record)
    kinship, sentence = kinship_of(name, verified, model, options, prompt)
    record = replace(record, results={**verified.results, "model_is": kinship}, seconds=clock.seconds)
    message = f"{model} and the model of {name}: {sentence}"
    if kinship in ANOTHER_MODEL:
        raise failed(Result.of(record), f"{message}; their vectors do not compare")
    console.note(message)
    return Result.of(record)
