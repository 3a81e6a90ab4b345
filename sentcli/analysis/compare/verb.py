"""``analyze compare``: its options, and the sections of its page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from sentcli import console
from sentcli.analysis.folder import analysis_record, check_folder, write_folder
from sentcli.analysis.models import check_distinct, named_models, stored_vectors, vectors_of
from sentcli.analysis.options import INPUT, AnalysedTextField, Limit, Load, Output, Rerun, Seed
from sentcli.analysis.texts import read_distinct_texts
from sentcli.bounds import Holds, Overwrite
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Result
from sentcli.errors import InputError
from sentcli.io.sources import title_of
from sentcli.model.options import LoadOptions
from sentcli.pages.names import short_names


@verb("compare")
def compare(
    texts: Annotated[str, Holds.TEXT_FILE, Flag(metavar="FILE", panel=INPUT)],
    output: Output,
    sides: Annotated[list[str] | None, Flag(metavar="[A] [B]", positional=True)] = None,
    model: Annotated[list[str] | None, Holds.MODEL, Flag("-m")] = None,
    text_field: AnalysedTextField = "text",
    limit: Limit = 50_000,
    seed: Seed = 0,
    neighbours: Annotated[int, Ge(1)] = 10,
    top: Annotated[int, Ge(1)] = 10,
    load: Load = LoadOptions(),
    rerun: Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Texts whose nearest neighbours differ most between two models.

    Finds the nearest texts of every text by cosine in both models, counts those
    that are the same, and lists the texts that changed most with the neighbours
    of both models side by side, and those that changed least. Neighbours are
    compared, not vectors: the models may differ in their dimensions.

    Args:
        texts: Texts, one a line or a row of a table; of vectors, those that they were made of.
        sides: Two models; or vectors of the texts: a .npy file, a directory of encode.
        model: The same as A and B: a model or vectors.
        neighbours: Nearest texts of each text that are compared.
        top: Texts to list, of the most and of the least changed.

    \b
    Examples:
      sentcli analyze compare minilm runs/simcse --texts sentences.txt -o compare
      sentcli analyze compare old.npy new.npy --texts sentences.txt --neighbours 5 -o versions
      sentcli analyze compare minilm encoded/ --texts docs.parquet --text-field body -o compare
    """  # noqa: D301
    from sentcli.analysis.compare.neighbourhoods import compare_neighbours as compare_vectors
    from sentcli.analysis.compare.sections import ComparedNeighbours
    from sentcli.evaluation.studies import study_of
    from sentcli.search.vector_file import holds_vectors

    check_folder(output, overwrite=overwrite)
    names = study_of([*(sides or []), *(model or [])]).models
    if len(names) != 2:
        raise InputError(f"compare needs two models or vectors, and {len(names)} were given: A B, or -m A -m B")
    check_distinct(names)
    on_disk = []
    model_names = []
    for name in names:
        if (Path(name) / "manifest.json").is_file() or holds_vectors(name):
            on_disk.append(name)
        else:
            model_names.append(name)
    models = {evaluated.name: evaluated for evaluated in named_models(model_names, load, rerun=rerun, reused=[texts])}
    stored = {name: stored_vectors(Path(name)) for name in on_disk}
    rows = read_distinct_texts(texts, text_field, limit, seed=seed)
    for name, vectors in stored.items():
        if len(vectors) != rows.total:
            counts = f"{len(vectors):,} vectors, {title_of(texts)} has {rows.total:,} texts"
            raise InputError(f"{name} has {counts}: not the same texts")
    lines = rows.texts
    positions = [row.position for row in rows.first.values()]
    clock = Clock()
    both = []
    for name in names:
        if name in stored:
            both.append(stored[name][positions])
        else:
            both.append(vectors_of(models[name], lines).vectors_of(lines))
    with console.working(f"neighbours of {len(lines):,} texts"):
        compared = compare_vectors(both[0], both[1], neighbours)
    short = short_names(names).shown
    comparison = ComparedNeighbours(compared, (short[names[0]], short[names[1]]), lines, top)
    records = []
    for side, name in enumerate(names):
        protocol = {
            "kind": "compare",
            "compared_with": names[1 - side],
            "similarity": "cosine",
            "neighbours": compared.k,
            **asdict(rows.sample),
        }
        records.append(analysis_record(name, protocol, comparison.results(side), clock, models.get(name)))
    note = f"{rows.sample.words} of {title_of(texts)}; their {compared.k} nearest others by cosine."
    return write_folder("compare", output, comparison.sections(note), records)
