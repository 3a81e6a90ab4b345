"""The README of a trained model's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentcli.training.observer import dev_scores, shown
from sentcli.zoo import find_entry


def model_card(config: dict[str, Any], start: Path) -> str:
    """Return the README of the model folder.

    Args:
        config: of the run.
        start: the folder of the start model, whose licence is taken over.
    """
    results, settings = config["results"], config["settings"]
    sentences = sum(entry["sentences"] for entry in config["data"])
    scores = "No dev set was given; these are the last weights."
    if (dev := dev_scores(results)) is not None:
        scores = f"{dev} (these weights); {shown(dev.metric, dev.final)} at the last step."
    if results.get("held_out_perplexity") is not None:
        scores += f" Perplexity of masked words on held-out text: {results['held_out_perplexity']:.2f}."
    rows = "\n".join(f"| {name} | {value} |" for name, value in [*_flat(config["method"]), *settings.items()])
    first = config.get("first_stage")
    before = f" It was trained with {first['method']} before, from {Path(first['model']).name}." if first else ""
    head = ""
    if settings and config["method"]["head"] != {"kind": "none"}:
        head = "The head that was used in training is kept in `training_head/` and is not part of the encoder."
    files = "\n".join(
        f"* {entry['file']}: {entry['sentences']} rows, SHA-256 `{entry['sha256']}`" for entry in config["data"]
    )
    return f"""---
{_metadata(config, start)}
---

# {config["method"]["name"]} on {Path(config["start_model"]["name"]).name}

A sentence encoder made by sentcli {config["environment"]["sentcli"]} with the method {config["method"]["name"]}:
{config["method"]["title"]}.{before} Pooling: {config["encoder"]["pooling"]}. The licences of the start model and of the
training data apply.

{scores}

```python
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer("PATH").encode(["A sentence.", "Another one."])
```

{head}

## Training

{results["steps"]} steps over {sentences} rows, {results["sentences_per_second"]:.0f} sentences/s on
{config["environment"]["device"]}.

{files}

| setting | value |
|---|---|
{rows}
"""


def _metadata(config: dict[str, Any], start: Path) -> str:
    """Return what the hub reads: base model, licence, data and score, as far as they are known."""
    from huggingface_hub import EvalResult, ModelCardData

    name, dev = config["start_model"]["name"], dev_scores(config["results"])
    entry = find_entry(name)
    licence = _licence(start) if entry is None else entry.licence.lower()
    results = None
    if dev is not None and dev.best is not None:
        results = [
            EvalResult(
                task_type="sentence-similarity",
                dataset_type="dev",
                dataset_name=dev.name,
                metric_type=dev.metric,
                metric_value=dev.best,
            )
        ]
    tags = ["sentence-transformers", "feature-extraction", "sentence-similarity", "sentcli", config["method"]["name"]]
    return ModelCardData(
        base_model=entry.source if entry is not None else None if Path(name).exists() else name,
        license=licence if licence is None or " " not in licence else "other",
        datasets=[entry["file"] for entry in config["data"]] or None,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=tags,
        model_name=f"{config['method']['name']} on {Path(name).name}" if results else None,
        eval_results=results,
    ).to_yaml()


def _licence(folder: Path) -> str | None:
    """Return the licence in the README of a model folder, if it names one."""
    from huggingface_hub import ModelCard

    try:
        licence = ModelCard.load(folder / "README.md").data.license
    except (OSError, ValueError):
        return None
    return licence if isinstance(licence, str) else None


def _flat(method: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the settings of a method's sections with their values, named ``section.setting``."""
    sections = [(name, part) for name, part in method.items() if isinstance(part, dict)]
    return [(f"{section}.{name}", value) for section, part in sections for name, value in part.items()]
