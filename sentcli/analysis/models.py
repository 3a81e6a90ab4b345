"""The models that are analysed: the vectors that they make or have made, and their STS scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import console
from sentcli.analysis.texts import LEAST_ITEMS
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions

if TYPE_CHECKING:
    from sentcli.arrays import AnyArray
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.sts import SimilarityTask
    from sentcli.stores.text_vectors import TextVectors


def named_models(
    names: Sequence[str], load: LoadOptions, *, rerun: bool = False, reused: Iterable[str | None] = ()
) -> list[EvaluatedModel]:
    """Return models, each of which is loaded when something has to be encoded with it.

    Args:
        names: of the models; a folder of runs stands for those in it.
        load: how they are loaded.
        rerun: encode again what was encoded before and is kept.
        reused: the files of texts, whose own vectors are taken where a model has made them.

    Raises:
        InputError: if a model does not exist or is named twice.
    """
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.studies import study_of

    names = study_of(names).models
    check_distinct(names)
    files = [file for file in reused if file is not None]
    return [EvaluatedModel(name, load, rerun=rerun, reused=files) for name in names]


def check_distinct(names: Sequence[str]) -> None:
    """Raise an InputError if a model, run or file of vectors is named more than once."""
    seen = set()
    for name in names:
        if name in seen:
            raise InputError(f"{name} is given twice")
        seen.add(name)


def vectors_of(model: EvaluatedModel, texts: Iterable[str]) -> TextVectors:
    """Return the vectors of texts, from the cache or encoded now, and release the model."""
    texts = list(texts)
    with console.encoding(f"encoding with {model.name}", len(set(texts))) as progress:
        vectors = model.encode(texts, progress)
    model.release()
    return vectors


def stored_vectors(path: Path) -> AnyArray:
    """Return the vectors of a directory or file of ``encode``, or of a ``.npy`` file ``[n, d]``.

    Raises:
        InputError: if there are no vectors or too few; DataError for a damaged file.
    """
    import numpy as np

    from sentcli.io.places import Place
    from sentcli.search.vector_directory import VectorDirectory
    from sentcli.search.vector_file import VectorFile, vectors_in

    if not path.exists():
        raise InputError(f"there is no {path}")
    if path.is_dir():
        if not (path / "manifest.json").exists():
            raise InputError(
                f"{path} is neither a training run (metrics.jsonl) nor a directory of encode (manifest.json)"
            )
        blocks = VectorDirectory.open(path, to_search=False).blocks
    else:
        facts = vectors_in(Place.of(path))
        if facts is None:
            raise InputError(
                f"{path} holds no vectors: give what encode wrote (a directory, .npy, .parquet or .safetensors), or a "
                "training run"
            )
        stored = VectorFile.open(Place.of(path), column=facts.column)
        stored.origin.check_numbers(to_search=False)
        blocks = stored.blocks
    vectors = blocks.arrays[0]  # a single file is mapped into memory as it is
    if len(blocks.arrays) > 1:
        vectors = blocks.take(np.arange(len(blocks)))
    if len(vectors) < LEAST_ITEMS:
        raise InputError(f"{path}: {len(vectors)} vectors; an analysis needs at least {LEAST_ITEMS}")
    return vectors


def read_stsb(data: Path | None, pairs: str | None, split: str) -> SimilarityTask:
    """Read STS-B of a SentEval folder, or a table of pairs, as a task.

    Raises:
        InputError: unless exactly one of `data` and `pairs` is given; DataError for a file that cannot be read.
    """
    from sentcli.data import dataset_path
    from sentcli.evaluation import sts, sts_pairs

    if (data is None) == (pairs is None):
        raise InputError("give --data, a SentEval data/downstream folder, or --pairs, a table of your own")
    if pairs is not None:
        by_name = sts_pairs.read_pairs(pairs)
        return sts.SimilarityTask(Path(pairs).stem, list(chain.from_iterable(by_name.values())))
    assert data is not None
    (task,) = sts.load_similarity_tasks(dataset_path(data), ["STSBenchmark"], split)
    return task


def sts_tasks(data: Path) -> list[SimilarityTask]:
    """Return the seven STS tasks of a SentEval folder, as ``sts-eval`` scores them."""
    from sentcli.data import dataset_path
    from sentcli.evaluation import significance, sts

    return sts.load_similarity_tasks(dataset_path(data), resamples=significance.RESAMPLES)
