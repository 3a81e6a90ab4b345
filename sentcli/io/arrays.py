"""Read arrays of NumPy from files of others, with one kind of error for whatever is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, one_line
from sentcli.io.atomic import regular
from sentcli.io.places import Place

Array = npt.NDArray[Any]


def mapped_array(file: Path | Place) -> Array:
    """Map an ``.npy`` file.

    Raises:
        FileNotFoundError: if it is missing.
        DataError: if it is no regular file, is no array, or is shorter than its header says.
    """
    place = Place.of(file)
    try:
        regular(place.path)
        array = np.load(place.path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError("it is an .npz file of several arrays")
        return array
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError, TypeError, OverflowError, SyntaxError, RecursionError, KeyError) as error:
        raise DataError(place.name, f"not a NumPy array: {one_line(error)}") from error


def read_tensors(path: Path) -> dict[str, Array]:
    """Read a small safetensors file without torch.

    Raises:
        InputError: if the file is missing or damaged, or holds numbers of a type that NumPy does not have.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        regular(path)
        return load_file(path)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing") from error
    except (SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
        raise InputError(f"{path} is damaged: {one_line(error)}") from error
