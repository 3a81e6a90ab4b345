"""Test sets out of a corpus: what in its structure can stand for a query, what people judged, what a model wrote."""
