"""One training run from file names to a finished model folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import set_seed

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.encoder.torch_backend import text_tokenizer
from sentcli.errors import InputError, nearest
from sentcli.evaluation import sts
from sentcli.methods import apply_settings, get_method
from sentcli.report import environment
from sentcli.training import loop
from sentcli.training.data import Corpus, read_corpus
from sentcli.training.run_folder import RunFolder, check_run_folder

if TYPE_CHECKING:
    from sentcli.encoder.tokenizing import TextTokenizer
    from sentcli.methods import Method
    from sentcli.methods.settings import Settings

DEV_TASK = "STSBenchmark"


@dataclass(frozen=True)
class TrainRequest:
    """What the user asked for; None takes the method's own value."""

    method: str
    model: str
    data: list[str]
    output: Path
    pooling: str = "cls"
    text_field: str = "text"
    limit: int | None = None
    eval_data: Path | None = None
    device: str = "auto"
    overwrite: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of `Settings` that were given."""
    overrides: dict[str, str] = field(default_factory=dict)
    """``--set`` values, for fields of the method or of `Settings`."""


@dataclass(frozen=True)
class Prepared:
    """A run whose every input has been read and checked; nothing has been written yet."""

    request: TrainRequest
    method: Method
    settings: Settings
    encoder: SentenceEncoder
    model: loop.TrainingModel
    """Encoder, head and objectives."""
    tokenizer: TextTokenizer
    """Cuts to the training length."""
    start_fingerprint: str
    """Of the start model."""
    corpus: Corpus
    dev: dict[str, list[sts.Pairs]] | None

    @property
    def steps(self) -> int:
        """Optimiser steps of the run."""
        return self.settings.total_steps(len(self.corpus.sentences))


def prepare(request: TrainRequest) -> Prepared:
    """Read and check everything.

    Raises:
        InputError: whatever is wrong with the request, the data or the model.
    """
    method = get_method(request.method)
    method, rest = apply_settings(method, request.overrides)
    settings, rest = apply_settings(method.settings(), rest)
    if rest:
        known = [*asdict(method), *asdict(settings)]
        key = next(iter(rest))
        raise InputError(
            f"--set {key}: {request.method} has no such setting{nearest(key, known)}; one of: {', '.join(known)}"
        )
    settings = replace(settings, **request.settings)
    check_run_folder(request.output, overwrite=request.overwrite)
    _refuse_inside(request.output, [*request.data, request.model, request.eval_data])
    corpus = read_corpus(request.data, text_field=request.text_field, limit=request.limit)
    settings.check(len(corpus.sentences))
    dev = sts.load_tasks(request.eval_data, [DEV_TASK], "dev") if request.eval_data else None
    encoder = SentenceEncoder.load(request.model, device=request.device, precision="fp32", pooling=request.pooling)
    set_seed(settings.seed)  # the head starts at random
    model = loop.TrainingModel(encoder.torch_module, method, encoder.dimension).to(encoder.backend.device)
    tokenizer, _ = text_tokenizer(encoder.hf_tokenizer, encoder.spec, settings.max_length)
    return Prepared(request, method, settings, encoder, model, tokenizer, encoder.fingerprint(), corpus, dev)


def _refuse_inside(output: Path, inputs: list[str | Path | None]) -> None:
    """Refuse an output folder that holds what the run reads: --overwrite would delete it."""
    for name in inputs:
        if name is not None and Path(name).exists() and Path(name).resolve().is_relative_to(output.resolve()):
            raise InputError(f"-o {output} would replace {name}, which this run reads; choose another -o")


def run(prepared: Prepared, observer: loop.Observer | None = None) -> loop.TrainResult:
    """Train and write the model folder.

    Raises:
        SentcliError: if training fails.
    """
    encoder, dev = prepared.encoder, prepared.dev
    folder = RunFolder(prepared.request.output, overwrite=prepared.request.overwrite)
    score = (lambda: sts.evaluate(encoder, dev, "dev").tasks[0].spearman) if dev is not None else None
    result = loop.train(
        prepared.model,
        prepared.tokenizer,
        prepared.settings,
        prepared.corpus.sentences,
        folder,
        score=score,
        observer=observer,
    )
    config = configuration(prepared, result)
    folder.finish(encoder, prepared.model.head, config, model_card(config))
    return result


def configuration(prepared: Prepared, result: loop.TrainResult) -> dict[str, Any]:
    """Return everything that decided the weights, and the outcome."""
    request, encoder = prepared.request, prepared.encoder
    return {
        "method": {"name": request.method, **asdict(prepared.method)},  # type: ignore[call-overload]
        "start_model": {"name": request.model, "fingerprint": prepared.start_fingerprint},
        "encoder": encoder.describe(),
        "settings": asdict(prepared.settings),
        "data": list(prepared.corpus.files),
        "blank_rows": prepared.corpus.blank,
        "results": result.to_dict(),
        "environment": environment(encoder.backend.device, "fp32", prepared.settings.seed),
    }


def model_card(config: dict[str, Any]) -> str:
    """Return the README of the model folder."""
    results, settings = config["results"], config["settings"]
    sentences = sum(entry["sentences"] for entry in config["data"])
    scores = "No dev set was given; these are the last weights."
    if results["best_dev_spearman"] is not None:
        scores = (
            f"STS-B dev Spearman: {results['start_dev_spearman']:.2f} before training, "
            f"{results['best_dev_spearman']:.2f} at step {results['best_step']} (these weights), "
            f"{results['final_dev_spearman']:.2f} at the last step."
        )
    rows = "\n".join(f"| {name} | {value} |" for name, value in {**config["method"], **settings}.items())
    files = "\n".join(
        f"* {entry['file']}: {entry['sentences']} sentences, SHA-256 `{entry['sha256']}`" for entry in config["data"]
    )
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, sentence-similarity, sentcli, {config["method"]["name"]}]
---

# {config["method"]["name"]} on {Path(config["start_model"]["name"]).name}

A sentence encoder trained by sentcli {config["environment"]["sentcli"]} without labels, with the method
{config["method"]["name"]}. Pooling: {config["encoder"]["pooling"]}. The licences of the start model and of the
training text apply.

{scores}

```python
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("PATH").encode(["A sentence.", "Another one."])
```

The head that was used in training is kept in `training_head/` and is not part of the encoder.

## Training

{results["steps"]} steps over {sentences} sentences, {results["sentences_per_second"]:.0f} sentences/s on
{config["environment"]["device"]}.

{files}

| setting | value |
|---|---|
{rows}
"""
