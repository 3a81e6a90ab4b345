"""Programs that open what sentcli writes, each with its own versions of libraries laid over this environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "programs"
HTTP = ("httpx==0.28.1", "httpcore==1.0.9", "h11==0.16.0", "anyio==4.11.0", "sniffio==1.3.1")
OVERLAYS = {
    "nothing": (),
    "optimum": (
        "sentence-transformers==5.7.0", "transformers==4.57.6", "tokenizers==0.22.2", "huggingface_hub==0.36.0",
        "datasets==4.4.1", "optimum==2.1.0", "optimum-onnx==0.1.0", *HTTP,
    ),
    "optimum-intel": (
        "transformers==5.5.4", "tokenizers==0.22.2", "huggingface_hub==1.21.0", "datasets==4.4.1", "optimum==2.3.0",
        "optimum-intel==2.2.0", *HTTP,
    ),
    "light": (
        "fastembed==0.9.1", "light-embed==1.0.9", "txtai==9.14.0", "loguru==0.7.3", "mmh3==5.2.0",
        "py-rust-stemmers==0.1.5", "pillow==12.0.0", "msgpack==1.1.2",
    ),
}  # fmt: skip
"""What is laid over this environment, by name: sentence-transformers' onnx backend wants transformers below 5."""


@pytest.fixture(scope="session")
def overlay(tmp_path_factory):
    """A function that installs an overlay once, and returns its folder; it skips the test where it cannot."""
    made = {}

    def install(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("overlay") / name
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *OVERLAYS[name]]
            done = subprocess.run(command, capture_output=True, text=True, check=False) if OVERLAYS[name] else None
            made[name] = folder if done is None or done.returncode == 0 else f"pip: {done.stderr[-300:]}"
        if isinstance(made[name], str):
            pytest.skip(made[name])
        return made[name]

    return install


@pytest.fixture
def consume(overlay, tmp_path):
    """A function that runs a program on a folder and texts, and returns its vectors ``[n, dim]``."""

    def run(program, over, folder, texts, *arguments):
        path, vectors = tmp_path / "texts.json", tmp_path / "vectors.npy"
        path.write_text(json.dumps(texts))
        environment = {**os.environ, "PYTHONPATH": str(overlay(over)), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, PROGRAMS / program, folder, path, vectors, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return np.load(vectors)

    return run


def npm_installed(folder, package):
    """Install a package of npm into a folder; skips where there is no npm."""
    (folder / "package.json").write_text('{"name": "consumer", "private": true}')
    # without its scripts, one of which would fetch libraries for GPUs
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", package]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"npm cannot be run: {error}")
    if done.returncode != 0:
        pytest.skip(f"npm: {done.stderr[-300:]}")


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """The program that uses transformers.js, in a folder that has it."""
    folder = tmp_path_factory.mktemp("node")
    npm_installed(folder, "@huggingface/transformers@4.3.1")
    program = "with_transformers_js.mjs"
    (folder / program).write_text((PROGRAMS / program).read_text())
    return folder / program


@pytest.fixture(scope="session")
def pyright(tmp_path_factory):
    """Run pyright in its strict mode on a program; return what it says of each line."""
    folder = tmp_path_factory.mktemp("pyright")
    npm_installed(folder, "pyright@1.1.414")
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')

    def check(name, program):
        (folder / name).write_text(program)
        command = ["node", "node_modules/pyright/index.js", "--pythonpath", sys.executable, "--outputjson", name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return json.loads(done.stdout)["generalDiagnostics"]

    return check
