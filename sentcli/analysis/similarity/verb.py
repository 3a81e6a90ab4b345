"""``analyze similarity``: its options, and the path from them to the page."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from sentcli.analysis.folder import check_folder, write_folder
from sentcli.analysis.models import named_models, read_stsb
from sentcli.analysis.options import AnalysedModels, Data, Load, Output, PairsFile, Rerun, Split
from sentcli.analysis.similarity.pairs import GoldPairs
from sentcli.bounds import Overwrite
from sentcli.command.declaration import verb
from sentcli.command.result import Result
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.pages.names import short_names


@verb("similarity")
def similarity(
    output: Output,
    model: AnalysedModels = None,
    data: Data = None,
    pairs: PairsFile = None,
    split: Split = "test",
    top: Annotated[int, Ge(1)] = 10,
    load: Load = LoadOptions(),
    rerun: Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Cosine against gold score of sentence pairs, and the pairs that a model sees otherwise.

    Draws every pair of STS-B's test split, or of a table of yours, by gold score
    and cosine (miCSE, fig. 7), and the density of the cosines in each fifth of
    the gold scores. Lists the pairs whose ranks by cosine and by gold score
    differ most, and least. Says how far the cosines follow length, the first
    word, function words and other words.

    Args:
        top: Pairs to list, of those with the greatest and with the smallest disagreement.

    \b
    Examples:
      sentcli analyze similarity -m minilm -m runs/simcse --data downstream -o similarity
      sentcli analyze similarity -m runs/simcse --pairs pairs.tsv --top 30 -o own
    """  # noqa: D301
    from sentcli.analysis.similarity.sections import sections

    check_folder(output, overwrite=overwrite)
    if not model:
        raise InputError("give models (-m) whose cosines are to be compared with gold scores")
    models = named_models(model, load, rerun=rerun)
    task = read_stsb(data, pairs, split)
    gold_pairs = GoldPairs(task, split if data else "", str(pairs or data), top)
    names = short_names(evaluated.name for evaluated in models).shown
    reports = [gold_pairs.measure(evaluated, names[evaluated.name]) for evaluated in models]
    return write_folder("similarity", output, sections(gold_pairs), reports)
