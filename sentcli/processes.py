"""Several processes that train together.

``torchrun`` and ``accelerate launch`` start them and tell each its number; everything they share goes through here.
Without a launcher there is one process, and every function here leaves its argument as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.nn  # must be imported before a group is made: its default arguments would keep the group
from torch import Tensor
from torch.nn import functional

from sentcli.devices import choose_device
from sentcli.errors import SentcliError

T = TypeVar("T")
BUCKET = 2**24
"""Gradients, in numbers, that are averaged in one message."""
PATIENCE = timedelta(hours=1)
"""How long a process waits for the others, for example while the first one scores the dev set."""

LOST = ("Connection closed by peer", "Connection reset", "Broken pipe", "gloo")
"""Parts of the error messages that mean that another process has ended."""


def launched() -> int:
    """Return how many processes the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1") or 1)


def process_count() -> int:
    """Return how many processes train together."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return 1


def rank() -> int:
    """Return the number of this process, from 0."""
    if process_count() < 2:
        return 0
    return dist.get_rank()


def is_first() -> bool:
    """Tell whether this process is the first, which writes the files and prints."""
    return rank() == 0


@contextmanager
def joined_processes(device: str = "auto") -> Iterator[str]:
    """Join the processes that the launcher started, and yield the device of this one.

    Raises:
        InputError: if this machine has fewer GPUs than processes.
        SentcliError: in all of them if one has failed; the first that notices prints the reason, the others nothing.
    """
    if launched() < 2:
        yield device
        return
    if device in ("auto", "cuda") and torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(choose_device(device))
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    dist.init_process_group(backend, timeout=PATIENCE)
    try:
        yield device
    except Exception as error:
        raise _one_message(error) from error
    finally:
        # the group's threads must end here: a thread that frees a tensor while the interpreter ends aborts the process
        with suppress(Exception):
            dist.destroy_process_group()


class _SilentError(SentcliError):
    """Ends a process without a message, because another process prints it."""


def _one_message(error: Exception) -> Exception:
    """Return the exception to end this process with, so that only one process prints a message."""
    if isinstance(error, _SilentError):
        return error
    try:
        store = dist.distributed_c10d._get_default_store()
        is_first_failure = store.add("sentcli/failed", 1) == 1
    except Exception:  # the process that kept the store is gone
        is_first_failure = True
    if not is_first_failure:
        return _SilentError("")
    if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and any(w in str(error) for w in LOST)):
        return SentcliError(
            f"process {rank()} of {process_count()}: another process of this training has ended, so it cannot go on; "
            "start it again with --resume"
        )
    return error


def agree(value: T) -> T:
    """Return the first process's value in all of them."""
    if process_count() == 1:
        return value
    holder: list[Any] = [value]
    dist.broadcast_object_list(holder, src=0)
    return holder[0]


def everywhere(work: Callable[[], T]) -> T:
    """Call a function in all processes; if it fails in one, all end, with the message of the first that failed."""
    if process_count() == 1:
        return work()
    result: T | None = None
    failure: Exception | None = None
    try:
        result = work()
    except Exception as error:
        failure = error
    sent_failure = failure
    if failure is not None and not isinstance(failure, SentcliError):  # perhaps it cannot be pickled
        sent_failure = SentcliError(f"{type(failure).__name__}: {failure}")
    failures = gathered(sent_failure)
    first_failed = None
    for number, other_failure in enumerate(failures):
        if other_failure is not None:
            first_failed = number
            break
    if first_failed is None:
        return result  # type: ignore[return-value]
    if failure is not None and rank() == first_failed:
        raise failure
    silent = _SilentError("")
    silent.exit_code = getattr(failures[first_failed], "exit_code", 1)
    raise silent


def gathered(value: T) -> list[T]:
    """Return the values of all processes in the order of their numbers."""
    values: list[Any] = [value] * process_count()
    if process_count() > 1:
        dist.all_gather_object(values, value)
    return values


def gather(rows: Tensor) -> Tensor:
    """Stack the rows of all processes in the order of their numbers; gradients flow back to where they came from."""
    if process_count() == 1:
        return rows
    return _Gather.apply(rows)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """Sends all rows to all processes; the gradient of a row is the sum of its gradients in all processes."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.count = len(rows)
        rows = rows.contiguous()
        parts = [torch.empty_like(rows) for _ in range(process_count())]
        dist.all_gather(parts, rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total[rank() * ctx.count :][: ctx.count]


def over_all_rows(function: Callable[[Tensor], Tensor], vectors: Tensor) -> Tensor:
    """Apply a function of a whole batch to the rows ``[m, B, d]`` of all processes; return those of this process."""
    if process_count() == 1:
        return function(vectors)
    count = vectors.shape[1]
    all_rows = gather(vectors.transpose(0, 1)).transpose(0, 1)
    return function(all_rows)[:, rank() * count : (rank() + 1) * count]


def same(tensor: Tensor) -> Tensor:
    """Return the first process's tensor in all of them."""
    if process_count() > 1:
        dist.broadcast(tensor, src=0)
    return tensor


def widest(ids: Tensor) -> Tensor:
    """Pad ``[B, T]`` to the longest T of all processes with -1."""
    if process_count() == 1:
        return ids
    width = torch.tensor(ids.shape[1], device=ids.device)
    dist.all_reduce(width, dist.ReduceOp.MAX)
    return functional.pad(ids, (0, int(width) - ids.shape[1]), value=-1)


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace every gradient by its mean over all processes."""
    if process_count() == 1:
        return
    bucket: list[Tensor] = []
    size = 0
    for parameter in parameters:
        if parameter.grad is not None:
            bucket.append(parameter.grad)
            size += parameter.grad.numel()
            if size >= BUCKET:
                _average(bucket)
                bucket, size = [], 0
    if bucket:
        _average(bucket)


def _average(gradients: list[Tensor]) -> None:
    flat = torch.cat([grad.flatten() for grad in gradients])
    dist.all_reduce(flat)
    flat /= process_count()
    for grad, part in zip(gradients, torch.split(flat, [grad.numel() for grad in gradients]), strict=True):
        grad.copy_(part.view_as(grad))
