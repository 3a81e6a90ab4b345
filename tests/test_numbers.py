"""What is kept of vectors and scores is keyed by a number that has to be raised when they move."""

from tests.numbers import changes, code_digest


def test_no_module_that_decides_vectors_and_scores_has_changed_unsaid():
    assert list(changes()) == []


def test_comments_docstrings_and_types_move_no_number():
    one = code_digest('def twice(x: int) -> int:\n    """Double."""\n    return 2 * x  # exact\n')
    assert one == code_digest("def twice(x):\n    return 2 * x\n")
    assert one != code_digest("def twice(x):\n    return 3 * x\n")
