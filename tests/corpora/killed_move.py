"""``python -m tests.corpora.killed_move STEP before|behind WORDS...``: a command that is killed at a step of a move."""

import os
import signal
import sys

from sentcli.cli import main
from sentcli.corpora import directory_move
from sentcli.io.folder import Folder

step, when, *words = sys.argv[1:]
owner = Folder if hasattr(Folder, step) else directory_move
function = getattr(owner, step)


def ends(*arguments, **options):
    """Take the step, or not, and end."""
    if when == "behind":
        function(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)


setattr(owner, step, ends)
sys.argv = ["sentcli", *words]
main()
