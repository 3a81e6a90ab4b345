"""What a user has in an otherwise empty folder, and the commands of the README that begin there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from tests.wheel.environment import ROOT

TINY = "tiny"
"""The folder of a model that the first command of the test trains."""


def write_inputs(work: Path) -> None:
    """Write what a user has: texts, notes, a program, an adapter, and files of kinds that need an extra."""
    work.mkdir()
    (work / "texts.txt").write_text("a man plays\nthe cat sat\na dog ran\n", "utf-8")
    shutil.copy(work / "texts.txt", work / "texts.xlsx")
    word = "1\tcats\tcat\tNOUN\t_\t_\t0\troot\t_\t_"
    (work / "texts.conllu").write_text(f"# text = cats\n{word}\n\n", "utf-8")
    (work / "adapter").mkdir()
    settings = {"peft_type": "LORA", "base_model_name_or_path": TINY}
    (work / "adapter" / "adapter_config.json").write_text(json.dumps(settings), "utf-8")
    (work / "adapter" / "adapter_model.safetensors").touch()
    write_notes(work / "notes")
    shutil.copy(Path(__file__).with_name("project.py"), work)


def write_notes(folder: Path) -> None:
    """Write a folder of Markdown files with enough headings for a set of queries."""
    shutil.copytree(ROOT / "docs" / "start", folder)
    for page in ("encode", "retrieve", "train"):
        shutil.copy(ROOT / "docs" / f"{page}.md", folder)


def first_commands() -> list[str]:
    """Return the commands of the README that come before those of a checkout: pip's, and those of sentcli."""
    start = (ROOT / "README.md").read_text("utf-8").partition("\n## Start\n")[2].partition("make demo")[0]
    blocks = re.findall(r"```bash\n(.*?)```", start, re.DOTALL)
    return [line for line in "".join(blocks).splitlines() if line.startswith(("pip install ", "sentcli "))]
