"""A digest of code tells when vectors and scores may have moved; ``make check`` compares those of all modules."""

from tests.numbers import code_digest


def test_comments_docstrings_and_types_move_no_number():
    one = code_digest('def twice(x: int) -> int:\n    """Double."""\n    return 2 * x  # exact\n')
    assert one == code_digest("def twice(x):\n    return 2 * x\n")
    assert one != code_digest("def twice(x):\n    return 3 * x\n")
