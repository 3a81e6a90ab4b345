"""How far to trust a test set, by what its queries are made of."""

from __future__ import annotations

from sentcli.testset.documents import STRONG
from sentcli.testset.queries import QuerySet

NOT_ASKED = (
    "it chooses among encoders, not between them and a search by words, and does not say how well search answers what "
    "people ask"
)


def trust_in(query_set: QuerySet) -> str:
    """Return a sentence that says what a set of these queries tells, and what it does not."""
    structures = {query.structure for query in query_set.queries}
    what = " and ".join(sorted(structures))
    if structures == {"given"}:
        return "Nobody has judged its documents yet."
    if structures == {"judged"}:
        queries = len(query_set.queries)
        return f"People judged documents for {queries} queries: what else a model finds counts as not relevant."
    if structures == {"written"}:
        return f"A model wrote its queries: {NOT_ASKED}."
    if structures <= set(STRONG):
        return f"Its queries are made of the documents ({what}): {NOT_ASKED}."
    return (
        f"Its queries are words of the documents themselves ({what}), which favours models that find the same words: "
        "it may choose a bad model, and does not say how well search works for what people ask."
    )
