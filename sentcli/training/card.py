"""The model card of a trained folder, ``README.md``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.methods.citations import citation
from sentcli.model import cards
from sentcli.model.spec import EncoderSpec
from sentcli.printable import safe
from sentcli.training.departures import departure_source, in_words
from sentcli.training.observer import collapse, dev_scores, score_text

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from sentcli.training.request import TrainRequest

_SENTENCE_TRANSFORMERS_CODE = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("OWNER/NAME")  # or this folder
vectors = model.encode([{sentences}])
print(model.similarity(vectors, vectors))"""
OURS = """from sentcli import SentenceEncoder

encoder = SentenceEncoder.load("OWNER/NAME")  # or this folder
vectors = encoder.encode([{sentences}])
print(encoder.similarity(vectors, vectors))"""
OF_PAIRS = """from sentence_transformers import CrossEncoder

scores = CrossEncoder("OWNER/NAME").predict([("A sentence.", "Another one.")])"""


def program(encoder: SentenceEncoder) -> str:
    """Return a program that compares three sentences, and what it prints."""
    spec = encoder.local.spec
    if spec.scores_pairs:
        return OF_PAIRS
    template = _SENTENCE_TRANSFORMERS_CODE if spec.is_sentence_transformers else OURS
    sentences = ", ".join(f'"{sentence}"' for sentence in cards.SHOWN)
    text = template.format(sentences=sentences)
    if spec.stated_similarity not in ("cosine", "dot"):
        return text
    vectors = encoder.encode(list(cards.SHOWN), prompt=spec.usual_prompt)
    return f"{text}\n{cards.printed_similarities(vectors, spec.stated_similarity)}"


def model_card(config: dict[str, Any], encoder: SentenceEncoder, request: TrainRequest) -> str:
    """Return the README of the model folder.

    Args:
        config: of the run, as ``sentcli.json`` keeps it.
        encoder: the trained model, in the folder of the start model, whose licence and languages are taken over.
        request: of the run.
    """
    start = encoder.local.spec
    kind = "cross-encoder" if start.scores_pairs else "sentence encoder"
    results = config["results"]
    settings = config["settings"]
    method = config["method"]
    sentences = 0
    lines = []
    for entry in config["data"]:
        sentences += entry["sentences"]
        lines.append(f"* {safe(entry['file'])}: {entry['sentences']} rows, SHA-256 `{entry['sha256']}`")
    files = "\n".join(lines)
    rows = "\n".join(f"| {name} | {value} |" for name, value in _settings(method, settings).items())
    head = ""
    if settings and method["head"] != {"kind": "none"}:
        head = "The head that was used in training is kept in `training_head/` and is not part of the encoder."
    limits = ""
    if start.is_static:
        limits = " A text is the mean of the vectors of its tokens, so that the order of its words counts for nothing."
    citing = ""
    cited = citation(method["name"])
    if cited:
        citing = f"{cards.CITATION}\n```bibtex\n{cited}\n```\n"
    departing = in_words(config["departures"], departure_source(method["recipe"], method["title"]))
    if departing:
        departing = f" The run {departing}."
    name = config["start_model"]["name"]
    return f"""---
{_head(config, start, request)}
---

# {method["name"]} on {Path(name).name}

A {kind} made by sentcli {config["environment"]["sentcli"]} with the method {method["name"]}:
{method["title"]}.{_origin(config)} Pooling: {config["encoder"]["pooling"]}. The licences of the start model and of the
training data apply.

{_scores_in_words(results)}{limits}

```python
{program(encoder)}
```

{head}

## Training

{results["steps"]} steps of {settings.get("batch_size", sentences)} rows; the files have {sentences}.
{results["sentences_per_second"]:.0f} sentences/s on {config["environment"]["device"]}.{departing}

{files}

| setting | value |
|---|---|
{rows}
{citing}"""


def _settings(method: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the parts of a method, as ``PART.NAME``, and then those of the training."""
    named = {}
    for part, values in method.items():
        if isinstance(values, dict):
            for name, value in values.items():
                named[f"{part}.{name}"] = value
    return named | settings


def _origin(config: dict[str, Any]) -> str:
    """Return sentences on the training that came before and on the commit of the start model, if there are any."""
    text = ""
    first = config.get("first_stage")
    if first:
        text += f" It was trained with {first['method']} before, from {Path(first['model']).name}."
    revision = config["start_model"].get("revision")
    if revision:
        text += f" The start model is its commit {revision}."
    return text


def _scores_in_words(results: dict[str, Any]) -> str:
    """Return sentences on the scores of a run on its dev set and on held-out text."""
    text = "No dev set was given; these are the last weights."
    teacher = results.get("teacher_dev")
    dev = dev_scores(results)
    if dev is not None:
        text = f"{safe(str(dev))} (these weights); {score_text(dev.metric, dev.final)} at the last step."
        if dev.best_step == 0 < results["steps"]:
            text = f"No step was better than the start, so these are the weights of the start model. {text}"
    if dev is not None and teacher is not None:
        text += f" The teacher has {score_text(dev.metric, teacher)} there."
    collapsed = results.get("collapsed_step")
    if collapsed is not None:
        text += f" The training {collapse(collapsed)}."
    if results.get("held_out_perplexity") is not None:
        text += f" Perplexity of masked words on held-out text: {results['held_out_perplexity']:.2f}."
    return text


def _head(config: dict[str, Any], start: EncoderSpec, request: TrainRequest) -> str:
    """Return what the hub reads: base model, licence, language, data and scores, as far as they are known."""
    method = config["method"]["name"]
    library = "sentence-transformers" if start.is_sentence_transformers or start.scores_pairs else "sentcli"
    tags = cards.PAIR_TAGS if start.scores_pairs else cards.TAGS
    return cards.card_head(
        cards.start_facts(request.model, start.folder),
        library=library,
        tags=[*tags, method],
        title=f"{method} on {Path(config['start_model']['name']).name}",
        data_sets=cards.data_sets_of(request.files),
        scores=_scores(config["results"]),
        pairs=start.scores_pairs,
    )


def _scores(results: dict[str, Any]) -> list[EvalResult]:
    """Return the scores of a run for the hub's index: on the dev set, on STS tasks and on transfer tasks."""
    scores = []
    dev = dev_scores(results)
    if dev is not None and dev.best is not None:
        scores.append(_score("dev", safe(dev.name), dev.metric, dev.best))
    for task, value in (results.get("sts") or {}).items():
        scores.append(_score("test", task, "spearman", value))
    for task, values in (results.get("senteval") or {}).items():
        scores.append(_score("test", task, "accuracy", values["accuracy"]))
    return scores


def _score(split: str, task: str, metric: str, value: float) -> EvalResult:
    from huggingface_hub import EvalResult

    return EvalResult(
        task_type="sentence-similarity" if metric != "accuracy" else "text-classification",
        dataset_type=split,
        dataset_name=task,
        dataset_split=split,
        metric_type=metric,
        metric_value=value,
    )
