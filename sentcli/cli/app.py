"""The application with all its commands."""

# isort: off
from sentcli.cli.base import app, register

from sentcli.cli import train, encode, index, export
from sentcli.verbs.sts_eval import sts_eval
from sentcli.verbs.senteval import senteval
from sentcli.verbs.retrieve import retrieve
# isort: on

for verb in (sts_eval, senteval, retrieve):
    register(verb)

from sentcli.cli import data, doctor  # noqa: E402

__all__ = ["app", "data", "doctor", "encode", "export", "index", "train"]
