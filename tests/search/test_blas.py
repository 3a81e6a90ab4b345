"""Which kernels faiss multiplies with, whose choice that is, and that wrong products are found."""

import os
import subprocess
import sys

import numpy as np
import pytest

from sentcli.search import blas
from sentcli.search.faiss_border import require_faiss

NEW = frozenset({"avx2", "fma", "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "amx_tile"})


@pytest.mark.parametrize(
    ("instructions", "kernels"),
    [(NEW, "SkylakeX"), (NEW - {"avx512vl"}, "Haswell"), (frozenset({"sse2"}), None), (frozenset(), None)],
)
def test_kernels_are_those_whose_instructions_there_are(instructions, kernels, monkeypatch):
    monkeypatch.delenv(blas.CORETYPE, raising=False)
    monkeypatch.setattr(blas, "instructions", lambda: instructions)
    with blas.kernels_that_fit():
        assert os.environ.get(blas.CORETYPE) == kernels
    assert blas.CORETYPE not in os.environ  # no worker inherits it


def test_a_users_own_kernels_stay(monkeypatch):
    monkeypatch.setenv(blas.CORETYPE, "Zen")
    monkeypatch.setattr(blas, "instructions", lambda: NEW)
    with blas.kernels_that_fit():
        assert os.environ[blas.CORETYPE] == "Zen"


def test_faiss_runs_kernels_of_this_processor_and_numpy_its_own():
    code = (
        "from sentcli.search import blas; import numpy; from sentcli.search.faiss_border import require_faiss; "
        "own = blas.kernels_of('numpy.libs'); require_faiss(); "
        "print(blas.kernels_of('faiss'), blas.kernels_of('numpy.libs') == own)"
    )
    clean = {name: value for name, value in os.environ.items() if name != blas.CORETYPE}
    done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True)
    kernels, same = done.stdout.split()
    expected = blas.fitting(blas.instructions())
    if expected is None or kernels == "None":
        pytest.skip("no kernels are chosen here")
    assert (kernels, same) == (expected, "True")


def test_wrong_products_are_found():
    faiss = require_faiss()
    assert blas.multiplies_rightly(faiss)

    class Wrong:
        METRIC_INNER_PRODUCT = faiss.METRIC_INNER_PRODUCT

        @staticmethod
        def knn(*arguments, **keywords):
            found, positions = faiss.knn(*arguments, **keywords)
            return np.where(np.arange(len(found))[:, None] == 7, found + 1, found), positions

    assert not blas.multiplies_rightly(Wrong)
