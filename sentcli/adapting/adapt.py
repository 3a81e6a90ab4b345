"""One adaptation from a corpus to a folder that holds a better model, or the start."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sentcli import console
from sentcli.adapting.candidates import candidates_for
from sentcli.adapting.contest import Contest, best_of, choose_candidate, weight
from sentcli.adapting.folder import ADAPT_RESULTS_FILE, begin, work_folder
from sentcli.adapting.material import Material, choosing_set, in_memory, read_material
from sentcli.adapting.options import AdaptOptions
from sentcli.adapting.plan import PLAN_FILE, Costs, Plan, TimeBudget, make_plan, require_verdict
from sentcli.adapting.token_weights import powers_for
from sentcli.adapting.verdict import START, Verdict
from sentcli.adapting.work import VERDICT_PRECISION, Work
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.evaluation.baseline import compare_scores
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask
from sentcli.evaluation.labelled_data import load_tasks
from sentcli.evaluation.retrieval_tasks import RetrievalTask
from sentcli.evaluation.score_kinds import SCORE_KINDS
from sentcli.evaluation.significance import RESAMPLES
from sentcli.io.atomic import replacing
from sentcli.io.digests import json_digest
from sentcli.io.forms import write_json
from sentcli.io.served import Served
from sentcli.model.options import LoadOptions
from sentcli.remaining import duration
from sentcli.training.teachers import open_teacher

_FORMAT = 4
"""Changes when an unfinished adaptation of an earlier version cannot go on."""
ALLOWED_SHARE = 0.01
"""The share of the highest score that may be lost of what is kept, where nothing else is said."""


@dataclass(frozen=True)
class Adaptation:
    """The result of `adapt_model`."""

    verdict: Verdict
    contest: Contest
    plan: Plan
    material: Material
    mined: dict[str, Any]
    """How many rows were mined, and what fell, by the model that mined."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **self.verdict.to_dict(),
            "candidates": self.contest.to_list(),
            "steps": self.plan.steps,
            "made_queries": len(self.material.queries),
            "structures": self.material.structures,
            "near_copies_left_out": self.material.left_out,
            "sets": self.material.sources,
            "trust": self.material.test.trust,
            "mined": self.mined,
        }


def adapt_model(
    corpus: Sequence[str],
    model: str,
    output: Path,
    options: AdaptOptions,
    *,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
) -> Adaptation:
    """Train candidates on a corpus, and write the best one if it is shown to find more, else the start.

    Args:
        corpus: the documents, as ``data make-set`` takes them.
        model: the start.
        output: the folder of the model.
        options: what it learns from, is chosen by and is judged by.
        device: as ``--device``.
        resume: go on with an unfinished adaptation.
        overwrite: replace an output that exists.

    Raises:
        InputError: if the corpus gives no queries, a set cannot judge, or the budget is too small.
    """
    _check_start(model)
    reads = [model, options.dev, options.test, options.keep, options.teacher, options.write_with]
    of_work = work_folder(output, corpus, reads, resume=resume, overwrite=overwrite)
    with of_work as folder, console.resumable(output):
        result = _adapted(corpus, model, folder, options, device)
        taken = result.contest.best.model if result.verdict.adopted else model
        _write(output, taken, result.to_dict())
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _adapted(corpus: Sequence[str], model: str, folder: Path, options: AdaptOptions, device: str) -> Adaptation:
    """Train candidates in a folder, and judge the best one."""
    clock = TimeBudget.of(options.seconds)
    kept_tasks = _watched(options.keep)
    if options.teacher is not None:
        open_teacher(options.teacher, device)
    material = read_material(corpus, options, folder)
    work = Work(model, material, folder, device, options.teacher, options.seed)
    start = work.model(model, VERDICT_PRECISION)
    identity = json_digest([_FORMAT, start.load().fingerprint(), material.digest, _choices(material, options)])
    costs = Costs.of_encoding(work)
    require_verdict(costs, material, clock)
    begin(folder, identity)
    known_hits = EvaluatedModel(model, LoadOptions(device=device))
    dev = RetrievalTask.of_own("dev", choosing_set(material.dev, known_hits, options.seed), 0)
    test = RetrievalTask.of_own("test", in_memory(material.test), RESAMPLES)
    candidates = candidates_for(start, has_teacher=options.teacher is not None)
    powers = powers_for(start.load())
    start.release()
    choosing = len(dev.data.ids)
    a_weighting = costs.of([], 0, material, 0) + costs.document * choosing
    untrained = weight(work, powers, dev, lambda: clock.left >= a_weighting)
    if (folder / PLAN_FILE).is_file():
        plan = Plan.read(folder)
    else:
        base = best_of(untrained).model
        has_untrained = len(untrained) > 1
        plan = make_plan(work, base, candidates, choosing, costs, clock, has_untrained=has_untrained)
        plan.write(folder)
    if plan.candidates:
        takes = duration(plan.seconds)
        console.note(f"{len(plan.candidates)} candidates, {plan.steps} steps in each of two stages: about {takes}")
    contest = choose_candidate(work, untrained, candidates, plan, dev)
    verdict = _judged(work, contest, test, kept_tasks, options)
    return Adaptation(verdict, contest, plan, material, work.mined)


def _watched(keep: str | None) -> list[OwnTask]:
    """Return the set of general similarity on which the model may not fall; none if it was not given.

    Raises:
        InputError: if it holds several sets.
    """
    if keep is None:
        console.warn("no set of general similarity is watched: --keep SET, such as STS-B, guards against its loss")
        return []
    tasks = list(load_tasks([keep]))
    if len(tasks) > 1:
        raise InputError(
            f"--keep {keep} holds several sets: {', '.join(task.name for task in tasks)}; name one of them"
        )
    return tasks


def _check_start(model: str) -> None:
    """Refuse a start whose weights are not here."""
    if Served.parse(model) is not None:
        raise InputError(f"-m {model} is served: its weights are not here to be adapted")


def _choices(material: Material, options: AdaptOptions) -> dict[str, Any]:
    """Return every choice that decides what is trained, and by what it is chosen and judged."""
    choices = asdict(options)
    for name in ("dev", "test", "keep", "budget"):
        del choices[name]
    return {**choices, "dev": material.dev.digest, "test": material.test.digest}


def _judged(
    work: Work, contest: Contest, test: RetrievalTask, kept_tasks: Sequence[OwnTask], options: AdaptOptions
) -> Verdict:
    """Compare the best candidate with the start on the queries that chose nothing, and on what is to be kept."""
    best = contest.best
    tasks = [test, *kept_tasks]
    before = work.score(work.start, tasks)
    of_changed = work.score(contest.best_change.model, tasks)
    met = compare_scores(before[0], of_changed[0])
    now = of_changed
    if best.name == START:
        now = before
    gain = compare_scores(before[0], now[0])
    kept = None
    if kept_tasks:
        allow = options.allow
        if allow is None:
            allow = ALLOWED_SHARE * SCORE_KINDS[before[1].kind].highest
        kept = compare_scores(before[1], now[1], allow)
    tried = len({entrant.name for entrant in contest.entrants}) - 1
    name = best.name
    if 0 < best.share < 1:
        name = f"{best.name}, {best.share:g} of the way"
    return Verdict(name, gain, len(test.data.queries), kept, tried, met.difference.smallest or 0.0)


def _write(output: Path, model: str, results: dict[str, Any]) -> None:
    """Write a model and the results, whole or not at all."""
    encoder = SentenceEncoder.load(model, backend="torch", device="cpu", precision="fp32")
    with replacing(output) as temporary:
        encoder.save(temporary)
        write_json(temporary / ADAPT_RESULTS_FILE, results)
