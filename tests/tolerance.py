"""How far two ways to the same number may be apart: what the arithmetic says, and never what one machine has shown.

A rounding to float32, whose numbers have 24 binary digits, changes a number by at most 2**-24 of it. A sum of n
products has n roundings, each of either sign. In any order, and on any processor, it lies within ``8 sqrt(n) 2**-24``
of the true sum with a probability of more than 1 - 1e-13, as a share of the sum of the absolute values of its terms
(Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019, with a
lambda of 8). What is to be equal to more digits is computed in float64.
"""

import math

UNIT = 2.0**-24
"""The greatest relative error of a rounding to float32."""


def rounding(terms, size=1.0):
    """How far two computations of the same sum in float32 may be apart.

    Args:
        terms: how many products are added, one sum after the other, on the longest way from the input to the number.
        size: the sum of the absolute values of the terms, or what bounds it.
    """
    return 2 * 8 * math.sqrt(terms) * UNIT * size


TINY_TERMS = 2 * (4 * 32 + 32 + 64) + 32 + 32
"""The terms on the way through the models of `tests.conftest`: two layers, each with the products of queries, keys,
values and the output (32 wide), of attention over at most 32 tokens and of two linear layers; pooling and length."""
VECTORS = rounding(TINY_TERMS)
"""How far numbers of unit vectors that a tiny model gives in two ways may be apart."""


class Near(float):
    """A similarity of two texts by a tiny model, which equals one that was computed in another way."""

    def __eq__(self, other):
        if not isinstance(other, float):
            return NotImplemented
        return abs(float(self) - other) <= 2 * VECTORS + rounding(32)

    def __ne__(self, other):
        return not self == other

    __hash__ = None
