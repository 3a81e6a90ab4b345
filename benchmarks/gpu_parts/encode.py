"""Encoding against the card alone, sentence-transformers and onnxruntime, in each precision, in one process."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from speed_row import ratio

from gpu_parts.material import base_model, mixed_lengths, texts
from gpu_parts.sheet import Setting, Sheet, free_memory, in_turn, peak, rate, speed
from sentcli import SentenceEncoder
from sentcli.errors import SentcliError
from sentcli.model.flat_attention import forcing
from sentcli.zoo import resolve

PRECISIONS = ("fp32", "bf16", "fp16")
LENGTH = 256
BUDGET = {"fp32": 65_536, "bf16": 131_072, "fp16": 131_072}
"""Tokens of a batch that lies on the device."""


def run(setting: Setting, sheet: Sheet) -> None:
    """Add the rows of encoding."""
    products(setting, sheet)
    found = texts(setting, setting.size(16_000, 40))
    folder = str(resolve(setting.model)[0])
    positions = json.loads((Path(folder) / "config.json").read_text("utf-8"))["max_position_embeddings"]
    length = min(LENGTH, positions)
    tokenizers_alone(folder, found, length, sheet)
    for precision in PRECISIONS:
        compare(setting, sheet, "MiniLM", folder, found, precision, length=length, peer=precision != "fp16")
    base = base_model(setting)
    for precision in PRECISIONS[:2]:
        compare(setting, sheet, "BERT-base", base, found[: max(len(found) // 16, 4)], precision, peer=True)
    mixed = mixed_lengths(setting, setting.size(300, 10))
    for precision in PRECISIONS[:2]:
        compare(setting, sheet, "BERT-base, 16 to 512 tokens", base, mixed, precision, length=512)
    for precision in ("fp32", "fp16"):
        by_onnxruntime(setting, sheet, folder, found[:8000], precision)
    profile(setting, sheet, folder, found)


def products(setting: Setting, sheet: Sheet) -> None:
    """Add what the device reaches in products of large matrices."""
    import torch

    size = setting.size(8192, 64)
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        one = torch.randn(size, size, device=setting.device, dtype=dtype)
        times = in_turn({"products": (lambda one=one: one @ one, 2 * size**3)}, setting.runs)
        value = f"{rate(times['products']) / 1e12:,.1f}"
        sheet.add(f"products {precision}", f"{value} TFLOP/s")
        sheet.cells[f"{precision} products, TFLOP/s"] = value


def tokenizers_alone(folder: str, found: list[str], length: int, sheet: Sheet) -> None:
    """Add the speed of the tokenizer on the processor, and the length of the texts."""
    tokenizer = tokenizer_of(folder, length)
    times = in_turn({"tokens": (lambda: tokenizer.encode_batch_fast(found), len(found))}, 1)
    mean = np.mean([len(one.ids) for one in tokenizer.encode_batch_fast(found)])
    sheet.add("tokenizers alone", speed(times["tokens"], "texts"), f"{mean:.1f} tokens in the mean")


def tokenizer_of(folder: str, length: int):
    """Return the tokenizer of a folder, which cuts and does not pad."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.no_padding()
    return tokenizer


def compare(setting, sheet, name, folder, found, precision, *, length=LENGTH, peer=False) -> None:
    """Add the rows of one model in one precision: on the card alone, sentcli, and perhaps sentence-transformers."""
    title = f"{name} {precision}"
    if not setting.computes_in(precision):
        sheet.lacks(title, f"{setting.device} has no instructions for {precision}")
        return
    options = {"device": setting.device, "backend": "torch", "max_length": length}
    ours = SentenceEncoder.load(folder, precision=precision, **options)
    memory = peak(setting, lambda: ours.encode(found))  # before others take some
    with forcing(None):
        padded = SentenceEncoder.load(folder, precision=precision, **options)
    sides = {
        "card alone": (on_the_card(setting, folder, found, precision, length), len(found)),
        "sentcli": (lambda: ours.encode(found), len(found)),
        "sentcli, padded": (lambda: padded.encode(found), len(found)),
    }
    if name == "MiniLM" or ours.backend.batches != "flat":
        del sides["sentcli, padded"]
    if peer:
        try:
            sides["peer"], batch = best_peer(setting, folder, found[: max(len(found) // 4, 1000)], precision)
        except ImportError as error:
            sheet.lacks(f"{title}, sentence-transformers", error)
    times = in_turn(sides, setting.runs)
    sheet.add(f"{title}, batches on the card alone", speed(times["card alone"], "texts"))
    if "sentcli, padded" in times:
        flat = f"flat is {ratio(times, 'sentcli, padded', 'sentcli')} x this"
        sheet.add(f"{title}, sentcli, padded batches", speed(times["sentcli, padded"], "texts"), flat)
    of_card = ratio(times, "card alone", "sentcli")
    against = f"{of_card} x card alone"
    if "peer" in times:
        of_peer = ratio(times, "peer", "sentcli")
        against += f"; {of_peer} x sentence-transformers, batch {batch}"
        sheet.cells.setdefault(f"encode {precision}, x sentence-transformers", of_peer)  # of MiniLM, which comes first
    few = found[:2000]
    exact = SentenceEncoder.load(folder, precision="fp32", **options).encode(few)
    cosine = cosines(ours.encode(few), exact)
    sheet.add(f"{title}, sentcli", speed(times["sentcli"], "texts"), against, cosine, memory)
    if name == "MiniLM":
        sheet.cells[f"encode {precision}, x the card alone"] = of_card
    free_memory()


def best_peer(
    setting: Setting, folder: str, found: list[str], precision: str
) -> tuple[tuple[Callable[[], object], int], int]:
    """Return the side of sentence-transformers at the faster one of two batch sizes, and that size."""
    import torch
    from sentence_transformers import SentenceTransformer

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    peer = SentenceTransformer(folder, device=setting.device, model_kwargs={"dtype": dtype})

    def side(batch: int) -> tuple[Callable[[], object], int]:
        return lambda: peer.encode(found, batch_size=batch, show_progress_bar=False), len(found)

    times = in_turn({str(batch): side(batch) for batch in (256, 1024)}, 1)
    batch = int(min(times, key=lambda size: times[size][0]))
    return side(batch), batch


def on_the_card(
    setting: Setting, folder: str, found: list[str], precision: str, length: int
) -> Callable[[], np.ndarray]:
    """Return the work that bounds padded encoding: the transformers model on sorted batches that lie on the device."""
    import torch
    from transformers import AutoModel

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    model = AutoModel.from_pretrained(folder, attn_implementation="sdpa", dtype=dtype).to(setting.device).eval()
    rows = sorted((one.ids for one in tokenizer_of(folder, length).encode_batch_fast(found)), key=len, reverse=True)
    batches, start = [], 0
    while start < len(rows):
        width = len(rows[start])
        batch = [torch.tensor(row) for row in rows[start : start + max(BUDGET[precision] // width, 1)]]
        ids = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in batch], batch_first=True)
        batches.append((ids.to(setting.device), mask.to(setting.device)))
        start += len(batch)

    @torch.inference_mode()
    def work() -> np.ndarray:
        vectors = []
        for ids, mask in batches:
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask[..., None].to(states.dtype)
            vectors.append(torch.nn.functional.normalize(((states * weights).sum(1) / weights.sum(1)).float()))
        return torch.cat(vectors).cpu().numpy()

    return work


def cosines(vectors: np.ndarray, exact: np.ndarray) -> str:
    """Return the least and the mean cosine of the rows of two arrays."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(exact, axis=1)
    found = np.einsum("nd,nd->n", vectors, exact) / lengths
    return f"{found.min():.5f} least, {found.mean():.6f} mean"


def by_onnxruntime(setting: Setting, sheet: Sheet, folder: str, found: list[str], precision: str) -> None:
    """Add the row of sentcli on onnxruntime."""
    title = f"MiniLM {precision}, sentcli on onnxruntime"
    try:
        import onnxruntime
    except ImportError:
        sheet.lacks(title, "onnxruntime is not installed")
        return
    if setting.on_gpu and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        sheet.lacks(title, "onnxruntime-gpu is not installed")
        return
    try:
        began = time.perf_counter()
        ours = SentenceEncoder.load(folder, device=setting.device, backend="onnx", precision=precision)
        loaded = time.perf_counter() - began
        times = in_turn({"onnx": (lambda: ours.encode(found), len(found))}, 1)
    except SentcliError as error:
        sheet.lacks(title, error)
        return
    few = found[:2000]
    exact = SentenceEncoder.load(folder, device=setting.device, backend="torch").encode(few)
    sheet.add(title, speed(times["onnx"], "texts"), f"loaded in {loaded:.1f} s", cosines(ours.encode(few), exact))


def profile(setting: Setting, sheet: Sheet, folder: str, found: list[str]) -> None:
    """Add the share of time in which the GPU is busy, and the kernels that take most of it."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity

    if not setting.on_gpu:
        sheet.lacks("profile", "there is no GPU")
        return
    ours = SentenceEncoder.load(folder, device=setting.device, backend="torch", precision=setting.half)
    found = found[:10_000]
    ours.encode(found)
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as recorded:
        began = time.perf_counter()
        ours.encode(found)
        taken = time.perf_counter() - began
    kernels = [event for event in recorded.events() if event.device_type == DeviceType.CUDA]
    spans = sorted((event.time_range.start, event.time_range.end, event.name) for event in kernels)
    busy, until, of_kernel = 0.0, 0.0, {}
    for start, end, name in spans:  # kernels may overlap
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
        of_kernel[name] = of_kernel.get(name, 0.0) + end - start
    largest = sorted(of_kernel, key=of_kernel.__getitem__, reverse=True)[:5]
    total = sum(of_kernel.values()) or 1.0
    listed = "; ".join(f"{of_kernel[name] / total:.0%} {name[:60]}" for name in largest)
    sheet.add(f"MiniLM {setting.half}, GPU busy", f"{busy / 1e6 / taken:.0%} of {taken:.2f} s", listed)
