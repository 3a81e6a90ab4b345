"""What a user asks of one training run, before anything is read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError
from sentcli.io.labelled_kinds import DATA_KINDS
from sentcli.io.labelled_records import columns_of
from sentcli.io.sources import open_source
from sentcli.io.table_layout import infer_layout
from sentcli.methods import METHODS, Method, configure, get_method
from sentcli.methods.views import VIEWS, LabelledPairs
from sentcli.model.options import BackendName
from sentcli.model.spec import check_pooling
from sentcli.training.data import Subset
from sentcli.training.options import DataOptions, EvaluationOptions, LogOptions
from sentcli.training.pairs import layout_of, negatives_of

if TYPE_CHECKING:
    from sentcli.io.labelled_kinds import Kind, Layout
    from sentcli.methods.recipes import Recipe

AUTO = "auto"
OWN_POOLING = "own"
"""The values of ``--pooling`` in training that name no pooling: that of the model or of the method, and the model's."""
_BEFORE_PREFIX = "before."
"""The beginning of the keys of ``--set`` that are settings of the method of ``--after``."""


@dataclass(frozen=True)
class TrainRequest:
    """One run as the user asked for it; None stands for the method's own value."""

    method: str | Method
    """A method's name, or the method that a user's own file defines."""
    model: str
    files: list[str]
    """The training data, as `open_source` takes them."""
    output: Path
    stage: str | None = None
    pooling: str = AUTO
    """A value of ``--pooling``, as `choose_pooling` takes it."""
    after: str | None = None
    """A method that is trained first, on the sentences of the pairs."""
    first_stage: dict[str, Any] | None = None
    """The method, model and given settings of the training that `after` asked for, for the record."""
    device: str = "auto"
    data: DataOptions = field(default_factory=DataOptions)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)
    log: LogOptions = field(default_factory=LogOptions)
    assignments: list[tuple[str, Any]] = field(default_factory=list)
    """Settings of the method and of the training by name, as `configure` takes them; later ones win."""
    recipe: Recipe | None = None
    """A recipe, whose settings are applied before `assignments`."""
    teachers: tuple[str, ...] = ()
    """Models, or files of vectors, that give the targets of the training."""
    teacher_backend: BackendName = "auto"
    """What teachers that are here run on; ``torch`` writes no export of a model that is not kept."""
    learns_from_itself: bool = False
    """Whether a teacher may be the start model itself."""

    @property
    def own_assignments(self) -> list[tuple[str, Any]]:
        """The settings of `method`."""
        return [(key, value) for key, value in self.assignments if not key.startswith(_BEFORE_PREFIX)]

    @property
    def first_assignments(self) -> list[tuple[str, Any]]:
        """The settings of the method of `after`, whose keys begin with ``before.`` in `assignments`."""
        return [
            (key.removeprefix(_BEFORE_PREFIX), value)
            for key, value in self.assignments
            if key.startswith(_BEFORE_PREFIX)
        ]

    def configured(self) -> Method:
        """Return the method with the settings of the recipe and then with `assignments`.

        Raises:
            InputError: for a setting that does not exist or a value that is not allowed.
        """
        method = self.default_method()
        if self.recipe is not None:
            try:
                method = configure(method, self.recipe.assignments)
            except InputError as error:
                raise InputError(f"recipe {self.recipe.name}: {error}") from error
        if self.after is not None:
            if method.views.reads != "scores":
                raise InputError(f"--after goes with pairs, as of --method sts-regression, not with {method.name}")
            get_method(self.after, None)
        elif self.first_assignments:
            key, _ = self.first_assignments[0]
            raise InputError(f"before.{key} is a setting of --after, which is missing")
        method = configure(method, self.own_assignments)
        if self.pooling not in (AUTO, OWN_POOLING):
            check_pooling(self.pooling)
        return method

    def default_method(self) -> Method:
        """Return the method with its defaults for this data and for the views of the settings.

        Names of columns and values of the data tell whether it is labelled.

        Raises:
            InputError: if the data is labelled and the method cannot learn from it; it names the methods that can.
        """
        method = get_method(self.method, self.stage)
        takes_text = method.fit is None and method.views.reads == "sentences" and self.data.text_of is None
        layout = self.layout(method)
        if takes_text and layout is not None and layout.kind in ("pairs", "triplets"):
            return method.on_texts(self._labelled_pairs())
        if method.views.reads == "pairs" and layout is not None and method.takes(layout.kind):
            return replace(method, views=self._labelled_pairs())
        settings: dict[str, Any] = {}
        if self.recipe is not None:
            settings.update(self.recipe.assignments)
        settings.update(self.assignments)
        views = settings.get("views")
        if layout is not None and views is None:
            is_plain = takes_text and self.without_labels(layout)
            if not is_plain and not method.takes(layout.kind):
                needs = f"{method.name} needs {method.needs}; {methods_that_take(layout.kind)}"
                raise InputError(f"{self.files[0]} holds {layout.holds}, and {needs}")
        if views is None or not takes_text or not self.files:
            return method
        kind = VIEWS.get(str(views))
        if kind is None or not kind.different_texts():
            return method
        return method.on_texts(kind())

    def _labelled_pairs(self) -> LabelledPairs:
        """Return the views of the data, which are anchors, positives and as many negatives as a file has columns of."""
        return LabelledPairs(negatives=negatives_of(self.files, self.data.pair_fields, self.evaluation.kind))

    def layout(self, method: Method) -> Layout | None:
        """Return what the data holds, if it is a labelled table whose labels the method would meet."""
        if method.fit is not None or self.data.text_of is not None:
            return None
        files, fields = self.files, self.data.pair_fields
        if files and method.views.reads == "classed-pairs":
            return infer_layout(open_source(files[0]), kind="classed-pairs", fields=fields)
        if files and method.views.reads == "labels" and fields is not None:
            return infer_layout(open_source(files[0]), kind="labels", fields=fields)
        return layout_of(files, fields, self.evaluation.kind)

    def without_labels(self, layout: Layout) -> bool:
        """Return whether the texts of a labelled table are read as plain text: ``--text-field`` is one of them."""
        if not DATA_KINDS[layout.kind].has_values or self.data.pair_fields is not None:
            return False
        return self.data.text_field in columns_of(open_source(self.files[0]))

    def subset(self, seed: int) -> Subset:
        """Return which rows are trained on: those that the options say, else the recipe's.

        Args:
            seed: of the training, which a recipe may draw the rows by.

        Raises:
            InputError: for a value that is out of bounds.
        """
        data = self.data
        recipe = self.recipe
        limit = data.limit
        subset_seed = data.subset_seed
        if recipe is not None:
            if subset_seed is None:
                subset_seed = seed if recipe.subset_seed == "seed" else recipe.subset_seed
            if limit is None and data.fraction is None:
                limit = recipe.limit
        return Subset(limit, data.fraction, subset_seed)


def methods_that_take(kind: Kind | None) -> str:
    """Return a clause that names the methods that learn from a kind of table, or from text if it is None."""
    names = [name for name, method in METHODS.items() if method.takes(kind)]
    return f"what learns from it: {', '.join(names)}"


def methods_for(data: list[str], fields: str | None, kind: Kind | None) -> str:
    """Return a sentence that says what the first file of the data holds, and which methods learn from it."""
    layout = layout_of(data, fields, kind)
    if layout is None:
        return f"{data[0]} holds text without labels; {methods_that_take(None)}"
    return f"{data[0]} holds {layout.holds}; {methods_that_take(layout.kind)}"
