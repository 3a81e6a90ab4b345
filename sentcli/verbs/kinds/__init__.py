"""The kinds of ``analyze``: a file for each, with its options, its tables and its figures."""

ANALYSES = {
    "geometry": "geometry:geometry",
    "map": "map:map_",
    "similarity": "similarity:similarity",
    "attention": "attention:attention",
    "objectives": "objectives:objectives",
    "low-shot": "sweeps:low_shot",
    "sweep": "sweeps:sweep",
    "compare": "compare:compare",
    "duplicates": "duplicates:duplicates",
}
"""The ``module:function`` of each kind of analysis."""
