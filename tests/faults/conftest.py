"""What the scenes of the faults read, made once."""

import os
from pathlib import Path

import pytest

from tests.faults.scenes import SCENES, write_scene_files
from tests.training.test_checkpoints import interrupted


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """A folder with what all scenes read."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    folder, before = tmp_path_factory.mktemp("scenes"), Path.cwd()

    def invoke(*arguments, check=None):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert check is None or result.exit_code == check, result.stderr
        return result

    os.chdir(folder)
    try:
        write_scene_files(folder, invoke)
        with pytest.MonkeyPatch.context() as patch:
            resume = next(scene for scene in SCENES if scene.name == "resume a training").command
            interrupted(patch, invoke, 3, *resume.removesuffix(" --resume").split())
    finally:
        os.chdir(before)
    return folder
