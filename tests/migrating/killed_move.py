"""``python -m tests.migrating.killed_move MODULE:NAME before|behind WORDS...``: a command that is killed at a step."""

import os
import signal
import sys
from importlib import import_module

from sentcli.cli import main

step, when, *words = sys.argv[1:]
module, _, path = step.partition(":")
owner = import_module(module)
*parents, name = path.split(".")
for parent in parents:
    owner = getattr(owner, parent)
function = getattr(owner, name)


def ends(*arguments, **options):
    """Take the step, or not, and end."""
    if when == "behind":
        function(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)


setattr(owner, name, ends)
sys.argv = ["sentcli", *words]
main()
