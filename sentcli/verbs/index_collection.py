"""``index --to``: a corpus goes into a collection of a database; and ``--check`` of one that is there."""

from __future__ import annotations

from dataclasses import replace

from sentcli import console
from sentcli.command.result import Clock, Record, Result, failed, kept_if_interrupted
from sentcli.io.dataset import CANARIES
from sentcli.machine import environment
from sentcli.model.options import LoadOptions
from sentcli.search.options import CorpusOptions, SearchOptions
from sentcli.search.recall import recall_table
from sentcli.stores.checking import check_index, check_model
from sentcli.stores.opening import open_corpus
from sentcli.stores.updating import CollectionUpdating


def write_collection(updating: CollectionUpdating) -> Result:
    """Write rows into a collection, and say how many."""
    clock = Clock()
    begun = Record("index", environment=environment("cpu", "fp32"))
    with kept_if_interrupted(begun, clock, updating.so_far):
        update = updating.run()
    counts, record = update.counts, update.record
    facts = "".join(f", {name} {value}" for name, value in update.facts.items())
    console.note(
        f"{update.title}: {counts['written']:,} rows written, {counts['encoded']:,} texts encoded, "
        f"{counts['unchanged']:,} were there, "
        f"{counts['deleted']:,} deleted; it has {counts['rows']:,}{facts}"
    )
    protocol = {key: getattr(record, key) for key in ("kind", "similarity", "efforts", "language", "dimension")}
    protocol |= record.settings
    protocol.pop(CANARIES, None)
    precision = "int8" if update.in_int8 else "fp32"
    database = updating.database
    of_collection = {"to": updating.options.to, "collection": database.name, "kind": record.kind}
    tables = []
    if record.recall is not None:
        tables.append(recall_table(record.kind, record.recall))
    written = replace(
        begun,
        model=update.model,
        protocol=protocol,
        results={**of_collection, "recall": record.recall, **update.facts, **counts},
        environment=environment("cpu", precision, revision=record.settings.get("revision")),
        seconds=clock.seconds,
    )
    return Result.of(written, tables)


def compare_collection(updating: CollectionUpdating) -> Result:
    """Say what writing into a collection would change."""
    clock = Clock()
    results = {"to": updating.options.to, "collection": updating.database.name, **updating.dry_run()}
    facts = environment("cpu", "fp32")
    return Result.of(Record("index", "", {"dry_run": True}, results, facts, clock.seconds))


def check_collection(
    options: CorpusOptions, model: str | None, load: LoadOptions, doc_prompt: str | None, target: float
) -> Result:
    """Measure the index of a collection as it is, and compare its vectors with those of a model.

    Args:
        options: the collection, and the fields of one that another program has made.
        model: the name of the model; None takes the one that the collection names, if it does.
        load: how the model is loaded.
        doc_prompt: the text in front of each document; None takes the model's own.
        target: the recall that is aimed at.
    """
    clock = Clock()
    with open_corpus(options, SearchOptions(), load) as corpus:
        recall = check_index(corpus, target)
        results = {"index": corpus.title, "rows": len(corpus), "recall": recall, "vectors_of": None}
        tables = []
        if recall is not None:
            as_it_is = {**recall, "chosen": recall["present"]}
            tables.append(recall_table(recall["kind"], as_it_is))
        facts = environment("cpu", "fp32")
        begun = Record("index", model or "", {"check": True, "target": target}, results, facts)
        made_by, problem = check_model(corpus, model, load, doc_prompt)
        record = replace(
            begun, model=made_by, results={**results, "vectors_of": made_by or None}, seconds=clock.seconds
        )
        if problem is not None:
            unlike = replace(begun, seconds=clock.seconds)
            raise failed(Result.of(unlike, tables), problem)
    return Result.of(record, tables)
