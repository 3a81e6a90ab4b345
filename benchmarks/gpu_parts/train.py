"""Training a model of BERT-base's shape against sentence-transformers' trainer, and each method against SimCSE."""

from collections.abc import Callable
from contextlib import contextmanager

from speed_row import ratio
from train_speed import LENGTH, Ours, Peer, Setup

from gpu_parts.material import base_model, texts
from gpu_parts.sheet import Setting, Sheet, free_memory, in_turn, peak, speed
from sentcli.errors import SentcliError
from sentcli.model.surgery import layer_list

METHODS = ("informin-cl", "micse", "esimcse", "infocse", "is-bert", "whitenedcse", "ct", "mirror-bert", "mlm")


def run(setting: Setting, sheet: Sheet) -> None:
    """Add the rows of training."""
    base = base_model(setting)
    for batch, steps in ((64, 100), (512, 20)):
        against_peer(setting, sheet, base, batch, setting.size(steps, 2))
    of_methods(setting, sheet, base)


def against_peer(setting: Setting, sheet: Sheet, model: str, full_batch: int, steps: int) -> None:
    """Add SimCSE and MultipleNegativesRanking on the same rows, with the model's own pooling."""
    half, batch = setting.half, setting.size(full_batch, full_batch // 16)
    setup = Setup(model, setting.device, batch, half, own_pooling=True, peer_bf16=half == "bf16")
    columns = [texts(setting, batch * steps)]
    sides = {"sentcli": (Ours(columns, setup), batch * steps)}
    title = f"train SimCSE, BERT-base, {half}, batch {batch}, {LENGTH} tokens"
    try:
        sides["peer"] = (Peer(columns, setup), batch * steps)
    except ImportError as error:
        sheet.lacks(f"{title}, sentence-transformers", error)
    times = in_turn(sides, setting.runs, own_seconds)
    memory = peak(setting, sides["sentcli"][0])
    against = ""
    if "peer" in times:
        of_peer = ratio(times, "peer", "sentcli")
        against = f"{of_peer} x sentence-transformers"
        sheet.add(f"{title}, sentence-transformers", speed(times["peer"], "sentences"))
        sheet.cells[f"train {half}, {full_batch}, x sentence-transformers"] = of_peer
    sheet.add(f"{title}, sentcli", speed(times["sentcli"], "sentences"), against, "", memory)
    free_memory()


def own_seconds(side: Callable[[], float]) -> float:
    """Train, and return the seconds of the training alone."""
    return side()


def of_methods(setting: Setting, sheet: Sheet, model: str) -> None:
    """Add the step of each method against SimCSE's, and against SimCSE's times its passes through the encoder."""
    batch, steps = setting.size(64, 8), setting.size(15, 2)
    columns, count = [texts(setting, batch * steps)], batch * steps
    setup = {"model": model, "device": setting.device, "batch": batch, "precision": setting.half, "own_pooling": True}
    simcse = Ours(columns, Setup(**setup))
    with counted_passes(simcse) as passes:
        simcse()
    of_simcse = passes[0]
    for name in METHODS[: setting.size(len(METHODS), 2)]:
        try:
            ours = Ours(columns, Setup(**setup, method=name))
            with counted_passes(ours) as passes:
                ours()
        except SentcliError as error:
            sheet.lacks(f"train {name}", error)
            continue
        times = in_turn({"simcse": (simcse, count), "method": (ours, count)}, min(setting.runs, 2), own_seconds)
        more = passes[0] / of_simcse
        slower = sum(times["method"]) / sum(times["simcse"])
        against = f"{slower:.2f} x the step of SimCSE, which is {slower / more:.2f} x its {more:.2f} times the passes"
        sheet.add(f"train {name}, batch {batch}", speed(times["method"], "sentences"), against)
        del ours
        free_memory()


@contextmanager
def counted_passes(ours: Ours):
    """Yield a list with one number: how many rows have gone through all layers, a third of one without a gradient.

    A pass backward takes as long as two forward. Rows that layers outside the encoder see count, too, if they are of
    the same kind.
    """
    import torch

    backbone = ours.run.model.encoder.backbone
    layers = layer_list(backbone)[1]
    found = [0.0]

    def count(module, given, output) -> None:
        rows = (output[0] if isinstance(output, tuple) else output).shape[0]
        found[0] += rows / len(layers) * (1.0 if torch.is_grad_enabled() else 1 / 3)

    same_kind = (module for module in ours.run.model.modules() if isinstance(module, type(layers[0])))
    hooks = [module.register_forward_hook(count) for module in same_kind]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
