"""``analyze map``: its options, and the texts and models that they name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from sentcli.analysis.folder import check_folder, write_folder
from sentcli.analysis.map.texts import read_map_texts
from sentcli.analysis.models import named_models
from sentcli.analysis.options import INPUT, AnalysedModels, AnalysedTextField, Limit, Load, Output, Rerun
from sentcli.bounds import Holds, Overwrite
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Result
from sentcli.errors import InputError
from sentcli.io.in_memory import frame_index
from sentcli.io.sources import title_of
from sentcli.model.options import LoadOptions
from sentcli.pages.names import short_names

if TYPE_CHECKING:
    import pandas as pd


@verb("map", common="texts output model clusters perplexity whiten pooling text_field label_field limit overwrite json")
def map_(
    texts: Annotated[str, Holds.TEXT_FILE, Flag(metavar="TEXTS", positional=True)],
    output: Output,
    model: AnalysedModels = None,
    text_field: AnalysedTextField = "text",
    id_field: Annotated[str | None, Holds.WORDS, Flag(metavar="COLUMN", panel=INPUT)] = None,
    label_field: Annotated[str | None, Holds.WORDS, Flag(metavar="COLUMN", panel=INPUT)] = None,
    limit: Limit = 2000,
    clusters: Annotated[int, Ge(2)] = 10,
    perplexity: Annotated[float, Ge(1)] = 30,
    neighbours: Annotated[int, Ge(1)] = 10,
    whiten: Annotated[str | None, Flag(metavar="zca|groups:N")] = None,
    positives: Annotated[int | None, Ge(2)] = None,
    seed: Annotated[int, Ge(0), Le(2**32 - 1)] = 42,
    load: Load = LoadOptions(),
    rerun: Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Texts on a plane, with their clusters: one map for each model.

    Places texts by t-SNE and colours them by their cluster (k-means of the
    vectors), as InforMin-CL's fig. 2 has it; clusters are matched between models
    and named by the words that set them apart. Measures how much of the
    neighbourhoods the map keeps, and how many neighbours models share. --whiten
    sets whitened vectors beside them (WhitenedCSE, fig. 1).

    Args:
        texts: Texts, one a line or a row of a table; or vectors that encode wrote (a directory or file), without -m.
        id_field: Column of a table that holds the id: id, else _id, else the row number.
        label_field: Column of a table with labels: clusters are compared with them, and up to 12 of them are colours.
        clusters: k of k-means.
        perplexity: Neighbours that t-SNE attends to.
        neighbours: Nearest texts and points that are compared.
        positives: Points of each text: vectors in training mode, which dropout makes differ, whitened each by itself.
        whiten: A second map of each model: all columns whitened together, or in N shuffled groups (WhitenedCSE).
        seed: Seed of the texts that are drawn, of clusters, map and groups of columns.

    \b
    Examples:
      sentcli analyze map sentences.txt -m minilm -m runs/simcse -o map
      sentcli analyze map news.csv --text-field title --label-field topic -m minilm -o news
      sentcli analyze map sentences.txt -m runs/simcse --whiten groups:128 -o whitened
      sentcli analyze map batch.txt -m runs/simcse --positives 3 --whiten groups:128 -o spread
      sentcli analyze map documents.parquet -o map
    """  # noqa: D301
    from sentcli.analysis.map.layout import MapSettings
    from sentcli.analysis.map.maps import Maps
    from sentcli.analysis.map.sections import sections
    from sentcli.analysis.map.whitening import Whitening

    check_folder(output, overwrite=overwrite)
    settings = MapSettings(clusters, perplexity, seed, neighbours)
    whitening = None
    if whiten is not None:
        whitening = Whitening.parse(whiten)
    models = named_models(model or [], load, rerun=rerun, reused=[texts])
    inputs = read_map_texts(texts, text_field, id_field, label_field, limit, seed)
    if not models and inputs.vectors is None:
        raise InputError("give models (-m) to map the texts with, or vectors that encode wrote instead of texts")
    if positives is not None:
        if inputs.vectors is not None:
            raise InputError("--positives encodes texts several times: give a file of texts")
        inputs = inputs.with_positives(positives)
    title = title_of(texts)
    if len(inputs.texts) < clusters:
        raise InputError(f"--clusters {clusters}: {title} has only {len(inputs.texts)} distinct texts")
    maps = Maps(inputs, settings, whitening)
    names = short_names(evaluated.name for evaluated in models).shown
    records_by_name = {}
    if inputs.vectors is not None and not any(evaluated.has_made(texts) for evaluated in models):
        file_name = Path(title).name
        records_by_name[file_name] = maps.add(file_name)
    for evaluated in models:
        name = names[evaluated.name]
        records_by_name[name] = maps.add(name, evaluated)
    whitened = f" Whitened: {whitening.title}, with the statistics of these texts." if whitening else ""
    note = (
        f"{inputs.sample.words} of {title}.{inputs.repeated} t-SNE of unit vectors, perplexity "
        f"{maps.perplexity:g}; k-means with {clusters} clusters; seed {seed}.{whitened}"
    )
    records = []
    for name, record in records_by_name.items():
        shared_neighbours = {"shared_neighbours": maps.shared_with(name)}
        records.append(replace(record, results={**record.results, **shared_neighbours}))
    index = frame_index(texts)

    def frame() -> pd.DataFrame:
        return maps.placed(inputs.every_row(), index)

    return write_folder("map", output, sections(maps, note), records, make_frame=frame)
