"""``sentcli index``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sentcli.cli import indexing, options
from sentcli.cli.base import command
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

INPUT, INDEX = "Input", "Index"
WORDS = "bm25"


@command("index")
def index(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="A directory that encode wrote, or files of text, which are encoded into -o first.",
            show_default=False,
        ),
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            metavar="KIND",
            help="flat (exact), hnsw, ivf, ivfpq, sq8, bm25, or a faiss factory string such as IVF4096,Flat.",
            rich_help_panel=INDEX,
        ),
    ] = "flat",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="For files of text: the directory to encode into.", show_default=False
        ),
    ] = None,
    model: options.OptionalModel = None,
    recall: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=1,
            help="Recall@10 against exact search to aim at: the search parameter is the smallest that reaches it.",
            rich_help_panel=INDEX,
        ),
    ] = 0.95,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=N",
            help="A parameter of faiss: efConstruction, efSearch or nprobe; the last two instead of --recall.",
            rich_help_panel=INDEX,
        ),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Measure with these queries, instead of rows of the corpus.", rich_help_panel=INDEX
        ),
    ] = None,
    similarity: Annotated[
        Literal["cosine", "dot"], typer.Option(help="Of query and document.", rich_help_panel=INDEX)
    ] = "cosine",
    file_rows: Annotated[
        int | None,
        typer.Option(min=1, help="Rows in one file of the index; default: about 4 GiB.", rich_help_panel=INDEX),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="Of bm25: english, or another that Snowball stems, or none.", show_default=False, rich_help_panel=INDEX
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Build nothing: compare the indexes of INPUT with their checksums.")
    ] = False,
    text_field: Annotated[str, typer.Option(help="Column that holds the text.", rich_help_panel=INPUT)] = "text",
    id_field: Annotated[
        str | None,
        typer.Option(help="Column that holds the id: id, else _id, else the row number.", rich_help_panel=INPUT),
    ] = None,
    append: Annotated[
        bool,
        typer.Option("--append", help="Add the rows of INPUT to the directory and its index.", rich_help_panel=INPUT),
    ] = False,
    query_prompt: options.QueryPrompt = None,
    doc_prompt: options.DocPrompt = None,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Build an index over encoded text once, for `retrieve --corpus` to use.

    The index stands beside the vectors, its recall@10 against exact search is
    measured and kept. The same command again adds rows that came since, and
    goes on where it was interrupted.

    \b
    Examples:
      sentcli index documents.jsonl -o documents -m minilm --type hnsw
      sentcli retrieve -m minilm --corpus documents --query "how do I resume"
      sentcli index more.jsonl -o documents -m minilm --type hnsw --append
      sentcli index documents --type ivfpq --recall 0.98 --queries questions.txt -m minilm
      sentcli index documents --type bm25
    """  # noqa: D301
    given = dict(_setting(one) for one in settings or [])
    folder = Path(inputs[0]) if len(inputs) == 1 and Path(inputs[0]).is_dir() else None
    _check_usage(folder, output, check=check, append=append, fields=[text_field != "text", id_field is not None])
    if kind == WORDS:
        _only_vectors({"--set": given, "--queries": queries, "--file-rows": file_rows, "--query-prompt": query_prompt})
    elif language is not None:
        raise InputError("--language goes with --type bm25")
    if check:
        indexing.check(Path(inputs[0]), json)
        return
    text = indexing.Text(inputs, text_field, id_field, doc_prompt, append=append, overwrite=overwrite)

    def load() -> SentenceEncoder | None:
        return options.load(model, backend, precision, device, pooling, None, max_length) if model is not None else None

    if kind == WORDS:
        indexing.index_words(text, folder, output, load, language or "english", json)
        return
    from sentcli.search.index import Wanted

    wanted = Wanted(kind, similarity, query_prompt, given, file_rows, recall, overwrite=overwrite)
    indexing.index_vectors(text, folder, output, load, wanted, queries, json)


def _check_usage(folder: Path | None, output: Path | None, *, check: bool, append: bool, fields: list[bool]) -> None:
    if check and folder is None:
        raise InputError("--check reads the indexes of a directory, and builds nothing: name the directory alone")
    if folder is None and output is None:
        raise InputError("give a directory that encode wrote, or files of text with -o DIR")
    if folder is not None and output is not None:
        raise InputError("-o DIR goes with files of text; the index of a directory stands in it")
    if folder is not None and (append or any(fields)):
        raise InputError("--append, --text-field and --id-field go with files of text, not with a directory")


def _only_vectors(options: dict[str, object]) -> None:
    if given := [name for name, value in options.items() if value]:
        raise InputError(f"{given[0]} is of vectors; --type bm25 has none")


def _setting(text: str) -> tuple[str, int]:
    key, equals, value = text.partition("=")
    if not equals or not value.isascii() or not value.isdigit() or int(value) < 1:
        raise InputError(f"--set {text}: expected KEY=N with a whole number, such as efConstruction=200")
    return key.strip(), int(value)
