"""A short run through everything that another version of a library may change, in one process.

What it finds is JSON; two environments find the same where their libraries compute the same.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PAGES = ("encode", "retrieve", "train")
QUERIES = ["how are texts that are too long cut", "vectors in a directory of shards", "resumed after an interruption"]
STEMS = ["Waves interfere with each other.", "The interval is open.", "It was internationally known."]
"""Sentences with words of which pystemmer 3.0 leaves another stem than 3.1."""


def sections() -> list[str]:
    """Return paragraphs of the documentation, of very different lengths."""
    pages = [(ROOT / "docs" / f"{page}.md").read_text("utf-8") for page in PAGES]
    blocks = [" ".join(block.split()) for page in pages for block in page.split("\n\n")]
    return list(dict.fromkeys(block for block in blocks if block))[:60]


def write_models(folder: Path) -> None:
    """Write what the pinned versions make and every other environment opens: exports, tiny models, tables."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel

    import sentcli
    from tests.conftest import save_backbone
    from tests.io.test_sheets import xlsx

    common: dict[str, Any] = {"pooling": "cls", "torch_weights": False, "verify": False, "quiet": True}
    sentcli.export("minilm", output=folder / "cls", **common)
    sentcli.export("minilm", output=folder / "cls-int8", precision="int8", **common)
    save_backbone(folder / "tiny")
    save_backbone(folder / "albert", kind="albert")
    adapted = LoraConfig(target_modules=["query", "value"], init_lora_weights=False)
    get_peft_model(AutoModel.from_pretrained(folder / "tiny"), adapted).save_pretrained(folder / "adapter")
    xlsx(folder / "table.xlsx", [["id", "text"], ["a", "the cat sat"], ["b", "a dog ran"]])
    words = ["1\tcats\tcat\tNOUN\t_\t_\t2\tnsubj\t_\t_", "2\trun\trun\tVERB\t_\t_\t0\troot\t_\t_"]
    (folder / "trees.conllu").write_text("\n".join(["# text = cats run", *words, "", ""]), "utf-8")


class Smoke:
    """The parts of the run; each returns what has to be the same in every environment."""

    def __init__(self, models: Path, work: Path) -> None:
        self.models, self.work, self.texts = models, work, sections()
        self.table, self.lines = work / "texts.csv", work / "texts.txt"
        self.lines.write_text("\n".join(self.texts) + "\n", "utf-8")
        with self.table.open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            writer.writerow(["id", "text", "part", "added", "code"])
            for number, text in enumerate(self.texts):
                writer.writerow([f"p{number}", text, number % 3, f"2024-01-{number % 28 + 1:02d}", f"{number % 7:03d}"])

    def parts(self) -> dict[str, Callable[[], Any]]:
        """Return the parts by their names."""
        from sentcli.analysis.attention.trees import read_conllu

        return {
            "torch": lambda: self._encode("minilm", "torch"),
            "onnx": lambda: self._encode("minilm", "onnx"),
            "onnx, earlier export": lambda: self._encode(self.models / "cls", "onnx"),
            "onnx, earlier export in int8": lambda: self._encode(self.models / "cls-int8", "onnx"),
            "openvino, earlier export": lambda: self._encode(self.models / "cls", "openvino"),
            "openvino, new export in int8": self.quantised,
            "onnx, new export, traced": self.traced,
            "adapter": lambda: self._encode(self.models / "adapter", "torch"),
            "train": self.trained,
            "xlsx": lambda: self._converted(self.models / "table.xlsx"),
            "trees": lambda: read_conllu(self.models / "trees.conllu").texts,
            "csv to Parquet": lambda: self._converted(self.table),
            "bm25": self.searched_by_words,
            "wrong condition": self.refused,
            "hnsw": self.searched_by_index,
            "milvus": lambda: self.counted(f"milvus:{self.work / 'rows.db'}"),
            "lance": lambda: self.counted(f"lance:{self.work / 'rows'}"),
            "figure": self.drawn,
        }

    def quantised(self) -> Any:
        """Export a tiny model in int8 for OpenVINO, which verifies it; its ranges depend on nncf's version."""
        import sentcli

        tiny, target = str(self.models / "tiny"), self.work / "openvino"
        done = sentcli.export(tiny, output=target, precision="int8", runtime="openvino", quiet=True)
        return done.to_dict()["results"]["precision"]

    def traced(self) -> Any:
        """Export an architecture whose graph is not written but traced by torch's exporter."""
        import sentcli

        target = self.work / "traced"
        sentcli.export(str(self.models / "albert"), output=target, verify=False, quiet=True)
        return self._encode(target, "onnx")

    def refused(self) -> Any:
        """Say what is wrong with a condition, and where."""
        from sentcli.errors import InputError

        messages = []
        for condition in ("part = 'a", "part like '1%'", "part = id"):
            try:
                self._hits(str(self.table), QUERIES, search="bm25", where=condition)
            except InputError as error:
                messages.append(str(error).replace(str(self.work), ""))
        return messages

    def trained(self) -> Any:
        """Train a step, save and load."""
        import sentcli

        settings: dict[str, Any] = {"method": "simcse", "batch_size": 8, "max_steps": 1, "log_to": "tensorboard"}
        target = self.work / "trained"
        sentcli.train(output=target, model="minilm", data=str(self.lines), device="cpu", quiet=True, **settings)
        return self._encode(target, "torch")

    def searched_by_words(self) -> Any:
        """Search a table, and a directory with an index of words."""
        import sentcli

        lines, folder = self.work / "stems.txt", self.work / "words"
        lines.write_text("\n".join(STEMS), "utf-8")
        sentcli.encode(str(lines), output=str(folder), model="minilm", quiet=True)
        sentcli.index(str(folder), type="bm25", language="english", quiet=True)
        stems = self._hits(str(folder), ["interf", "interv", "intern"], search="bm25")
        return [stems, self._hits(str(self.table), QUERIES, search="bm25", language="english")]

    def searched_by_index(self) -> Any:
        """Search a directory through HNSW of faiss."""
        import sentcli

        folder = str(self.work / "vectors")
        sentcli.encode(str(self.table), output=folder, model="minilm", quiet=True)
        sentcli.index(folder, type="hnsw", quiet=True)
        return self._hits(folder, QUERIES)

    def counted(self, address: str) -> Any:
        """Count the rows of a collection that meet a condition."""
        import sentcli

        place = {"corpus": address, "collection": "rows"}
        sentcli.index(str(self.table), to=address, collection="rows", model="minilm", quiet=True)
        return sentcli.retrieve(**place, count_by="part", where="part >= 1", quiet=True).to_dict()["counts"]

    def drawn(self) -> Any:
        """Draw the neighbours that two models share, with a colour bar."""
        import sentcli

        folder, models = self.work / "figures", ["minilm", str(self.models / "cls")]
        done = sentcli.analyze("compare", texts=str(self.lines), model=models, output=folder, quiet=True)
        results = [one["results"] for one in done.to_dict()]
        return {"files": sorted(path.name for path in folder.iterdir()), "results": results}

    def _encode(self, model: str | Path, backend: str) -> Any:
        from sentcli import SentenceEncoder

        encoder = SentenceEncoder.load(str(model), backend=backend, device="cpu")
        return encoder.encode(self.texts, batch_tokens=2048).tolist()

    def _converted(self, table: Path) -> Any:
        import pyarrow.parquet

        import sentcli

        target = self.work / f"{table.name}.parquet"
        sentcli.encode(str(table), output=str(target), model="minilm", quiet=True)
        rows = pyarrow.parquet.read_table(target).drop_columns(["embedding"])
        kinds = {field.name: str(field.type) for field in rows.schema}
        return {"kinds": kinds, "rows": [[str(value) for value in row.values()] for row in rows.to_pylist()]}

    def _hits(self, corpus: str, queries: list[str], **options: Any) -> Any:
        import sentcli

        done = sentcli.retrieve(corpus=corpus, query=queries, top_k=5, quiet=True, **options)
        return [[[hit["id"], hit["score"]] for hit in one["hits"]] for one in done.to_dict()["results"]]


def main() -> None:
    """Run all parts, and write what each found, or its error, with its seconds."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("models", type=Path, help="the folder of `write_models`")
    parser.add_argument("work", type=Path, help="a folder for files and for results.json")
    parser.add_argument("--write-models", action="store_true")
    given = parser.parse_args()
    given.work.mkdir(parents=True)
    if given.write_models:
        write_models(given.models)
    results: dict[str, dict[str, Any]] = {}
    for name, part in Smoke(given.models, given.work).parts().items():
        began = time.perf_counter()
        try:
            result = {"found": part()}
        except Exception:  # of any library: the table of results says where
            result = {"error": traceback.format_exc()}
        results[name] = {**result, "seconds": time.perf_counter() - began}
    (given.work / "results.json").write_text(json.dumps(results), "utf-8")


if __name__ == "__main__":
    main()
