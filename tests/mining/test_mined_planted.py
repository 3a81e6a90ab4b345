"""What passes of planted false negatives with the defaults: at most 2 % of copies, paraphrases and hidden documents."""

import pytest

from benchmarks.mining import copies, hidden, paraphrases, passed, vectors_of
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.mining.options import MiningOptions

DEFAULTS = MiningOptions()
MOST = 0.02


@pytest.fixture(scope="module")
def model(minilm):
    return EvaluatedModel(minilm)


@pytest.mark.deep
@pytest.mark.parametrize("ranks", ["1-50", DEFAULTS.ranks])
def test_copies_of_positives_do_not_pass(data, model, ranks):
    planted = copies(data, queries=40, others=300)
    found = passed(planted, model, MiningOptions(ranks=ranks))
    assert planted.count > 300 and found.rows > 30
    assert found.passed <= MOST * min(planted.count, found.negatives)


@pytest.mark.deep
@pytest.mark.parametrize("halves", [False, True])
def test_paraphrases_do_not_pass(data, model, halves):
    planted = paraphrases(data, halves=halves, count=1500)
    found = passed(planted, model, DEFAULTS)
    assert planted.count > 900 and found.rows > 900
    assert found.passed <= MOST * planted.count


@pytest.mark.deep
def test_few_judged_documents_pass_and_the_filters_are_why(data, model):
    planted = hidden(data, "cranfield")
    vectors = vectors_of(planted, model)
    found = passed(planted, model, DEFAULTS, vectors)
    assert planted.count > 1000 and found.rows > 90
    assert found.passed <= MOST * planted.count
    without = passed(planted, model, MiningOptions(apart=False, below=1, ranks="1-50"), vectors)
    assert found.passed / found.negatives < 0.5 * without.passed / without.negatives
