"""The kinds of ``analyze``, each a file or a folder of this package with its options, its numbers and its figures."""

ANALYSES = {
    "geometry": "geometry.verb:geometry",
    "map": "map.verb:map_",
    "similarity": "similarity.verb:similarity",
    "attention": "attention.verb:attention",
    "objectives": "objectives.verb:objectives",
    "low-shot": "sweeps.low_shot:low_shot",
    "sweep": "sweeps.sweep:sweep",
    "compare": "compare.verb:compare",
    "duplicates": "duplicates:duplicates",
}
"""The ``module:function`` of each kind of analysis."""
