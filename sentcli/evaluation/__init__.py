"""Scores: of similarity, transfer and retrieval tasks, and of the user's own data. Each is a frozen dataclass.

**From files to scores.** Data is read by `sts_pairs.py`, `transfer_data.py`, `retrieval.py` (with `beir_files.py` and
`known_sets.py`) and `labelled_data.py`; tasks stand in `sts.py`, `transfer.py`, `retrieval_tasks.py` and
`labelled_tasks.py`. `measuring.score_model` scores an `EvaluatedModel` on tasks.

**One table of scores.** A `Task` (`evaluation/evaluated.py`) has a name, a kind, the texts to encode, an identity under
which scores are kept, and a scorer; an `OwnTask` says besides what `evaluate` shows of the user's data. Its `predicted`
is what a model says of each item (similarities of pairs, ranks, hits), of which thresholds and figures are made, too.
It returns a `TaskScore`: metrics by name, the ones that tables show, counts and other details, and what intervals and
comparisons need (samples of the metric, or which answers are right). A `ModelScores` is what one model has under one
protocol: a row of a paper's table. What differs between the kinds of scores (correlations, accuracies, nDCG, recall) is
data, a `ScoreKind`: the main metric, how they are averaged, their scale, their titles. Averages, intervals, paired
tests, `--against`, JSON, console and pages read these. `evaluation/score_json.py` writes scores as JSON, with the kind
and the shown metrics of each task under `scores`; `evaluation/score_files.py` reads a file back, checked, as
`ModelScores`, and one function there tells the kinds in a file of an earlier version.

**Data of one's own.** `io/labelled.py` reads every table of labelled text. `infer_layout` in `io/table_layout.py` is
the one place that says what a table holds, from the names of its columns and then from all values of one of them
(`labelled_values.py`); training, `evaluate`, `data check` and all that takes `--pair-fields` go through it.
`labelled_data.load_tasks` checks tables and retrieval sets and makes tasks of them (`sts.SimilarityTask`,
`labelled_tasks`, `positives`, `retrieval_tasks.RetrievalTask`), for `evaluate` and for a dev set in training, where
`EvaluatedModel.of(encoder)` scores live weights without the cache. A new kind is its columns in `io/labelled_kinds.py`,
a task, a check in `labelled_data` and a `ScoreKind`.

**What may be saved.** `evaluation/variants.py` encodes a set once for each `Encoding` and searches its vectors in each
`Storage` as `retrieve --corpus` would; a `VariantComparison` of these `Variant`s has the halves of the queries, what is
chosen and the Pareto front, and `pages/savings.py` shows it. A new way of keeping vectors is a field of `Storage`, a
new way of encoding an option of `LoadOptions` named in `VariantGrid`.

**A gate.** `evaluation/baseline.py` keeps the scores of tasks with the digest of their identity, and compares later
ones on the same samples; `pages/gate.py` has its options, tables and formats. A `Result` has an exit code for it.
"""
