"""Every value of a structured file, set to every kind of value and taken away.

A file is read as a tree of dicts and lists, whatever its format is; the places in it are all its values, those inside
others included. Of a list, the first and the last entry stand for all, and the first of each kind of object; of a table
with many keys, such as a vocabulary, the first and the last key.
"""

import ast
import copy
import hashlib
import json
import struct
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GONE = object()
MANY = 40
"""How many keys a table may have of which each is a place of its own."""


def nested(levels: int = 500) -> Any:
    """Return so many lists in each other."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


KINDS: dict[str, Any] = {
    "gone": GONE,
    "null": None,
    "true": True,
    "false": False,
    "0": 0,
    "-1": -1,
    "2**32": 2**32,
    "1e308": 1e308,
    "NaN": float("nan"),
    "empty text": "",
    "long text": "x" * 10_000,
    "surrogate": "\ud800",
    "list": [1, "a"],
    "empty list": [],
    "object": {"a": 1},
    "empty object": {},
    "500 levels": nested(),
}


def places(value: Any, place: tuple = ()) -> Iterator[tuple]:
    """Yield the place of each value below a value."""
    if isinstance(value, dict):
        keys: list[Any] = list(value) if len(value) <= MANY else [next(iter(value)), list(value)[-1]]
    elif isinstance(value, list):
        first_of_kind: dict[Any, int] = {}
        for number, item in enumerate(value):
            first_of_kind.setdefault(frozenset(item) if isinstance(item, dict) else "other", number)
        keys = sorted({*first_of_kind.values(), *([len(value) - 1] if value else [])})
    else:
        return
    for key in keys:
        yield (*place, key)
        yield from places(value[key], (*place, key))


def changed(tree: Any, place: tuple, kind: str) -> Any:
    """Return a copy of a tree in which one value is of another kind, or gone."""
    tree = copy.deepcopy(tree)
    parent = tree
    for step in place[:-1]:
        parent = parent[step]
    if kind == "gone":
        del parent[place[-1]]
    else:
        parent[place[-1]] = KINDS[kind]
    return tree


# ---------------------------------------------------------------------- formats


class Unwritable(ValueError):
    """A format cannot hold such a value."""


class Json:
    """A JSON file."""

    kinds = tuple(KINDS)

    def read(self, content: bytes) -> Any:
        return json.loads(content)

    def write(self, content: bytes, tree: Any) -> bytes:
        return json.dumps(tree).encode()


class JsonLines(Json):
    """A line of JSON for each entry."""

    def read(self, content: bytes) -> Any:
        return [json.loads(line) for line in content.splitlines()]

    def write(self, content: bytes, tree: Any) -> bytes:
        return b"".join(json.dumps(line).encode() + b"\n" for line in tree)


class Toml(Json):
    """A TOML file, which has no null."""

    kinds = tuple(kind for kind in KINDS if kind != "null")

    def read(self, content: bytes) -> Any:
        return tomllib.loads(content.decode())

    def write(self, content: bytes, tree: Any) -> bytes:
        return "".join(f"{json.dumps(key)} = {self._text(value)}\n" for key, value in tree.items()).encode()

    def _text(self, value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(key)} = {self._text(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            return "[" + ", ".join(map(self._text, value)) + "]"
        return json.dumps(value).replace("NaN", "nan")


class Safetensors(Json):
    """The header of a safetensors file, in whose metadata the settings are JSON as text."""

    def read(self, content: bytes) -> Any:
        (size,) = struct.unpack("<Q", content[:8])
        tree = json.loads(content[8 : 8 + size])
        return _opened(tree, "__metadata__") if "__metadata__" in tree else tree

    def write(self, content: bytes, tree: Any) -> bytes:
        (size,) = struct.unpack("<Q", content[:8])
        header = json.dumps(_closed(tree, "__metadata__")).encode()
        return struct.pack("<Q", len(header)) + header + content[8 + size :]


def _opened(tree: Any, key: str) -> Any:
    """Return a tree in which the texts below a key are the JSON that they hold."""
    values = {}
    for name, text in tree[key].items():
        try:
            values[name] = {"json": json.loads(text)} if text[:1] == "{" else text
        except ValueError:
            values[name] = text
    return {**tree, key: values}


def _closed(tree: Any, key: str) -> Any:
    """Return a tree with texts for what `_opened` has read."""
    if not isinstance(tree.get(key), dict):
        return tree
    is_json = {name: isinstance(value, dict) and "json" in value for name, value in tree[key].items()}
    return {
        **tree,
        key: {name: json.dumps(value["json"]) if is_json[name] else value for name, value in tree[key].items()},
    }


class Npy(Json):
    """The header of a NumPy array."""

    kinds = tuple(kind for kind in KINDS if kind not in ("NaN", "surrogate"))

    def read(self, content: bytes) -> Any:
        (size,) = struct.unpack("<H", content[8:10])
        header = ast.literal_eval(content[10 : 10 + size].decode())
        return {**header, "shape": list(header["shape"])}

    def write(self, content: bytes, tree: Any) -> bytes:
        (size,) = struct.unpack("<H", content[8:10])
        if isinstance(tree.get("shape"), list):
            tree = {**tree, "shape": tuple(tree["shape"])}
        header = repr(tree).encode() + b"\n"
        return content[:8] + struct.pack("<H", len(header)) + header + content[10 + size :]


class Parquet(Json):
    """The metadata of a Parquet file's schema, in which the settings are JSON, and the types of its columns."""

    def read(self, content: bytes) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pq.read_schema(pa.BufferReader(content))
        metadata = {key.decode(): text.decode() for key, text in (schema.metadata or {}).items()}
        return _opened(
            {"metadata": metadata, "columns": {name: str(schema.field(name).type) for name in schema.names}}, "metadata"
        )

    def write(self, content: bytes, tree: Any) -> bytes:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(pa.BufferReader(content))
        metadata = _closed(tree, "metadata").get("metadata")
        columns = tree.get("columns")
        if not isinstance(columns, dict):
            raise Unwritable
        kept = [name for name in table.column_names if name in columns]
        same = {name: columns[name] == str(table.schema.field(name).type) for name in kept}
        try:
            arrays = {name: table[name] if same[name] else pa.array([columns[name]] * len(table)) for name in kept}
            if metadata is not None:
                texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
                metadata = {key: text.encode("utf-8", "surrogatepass") for key, text in texts.items()}
            sink = pa.BufferOutputStream()
            pq.write_table(pa.table(arrays).replace_schema_metadata(metadata), sink)
        except (pa.ArrowException, AttributeError, UnicodeError) as error:
            raise Unwritable from error
        return sink.getvalue().to_pybytes()


class Onnx(Json):
    """The names, sizes and versions of an ONNX graph."""

    kinds = ("gone", "0", "-1", "2**32", "empty text", "long text", "surrogate")

    def read(self, content: bytes) -> Any:
        import onnx

        model = onnx.load_from_string(content)
        ports = {}
        for side in ("input", "output"):
            ports[side] = [
                {
                    "name": port.name,
                    "type": port.type.tensor_type.elem_type,
                    "sizes": [dim.dim_value or dim.dim_param for dim in port.type.tensor_type.shape.dim],
                }
                for port in getattr(model.graph, side)
            ]
        opsets = [{"domain": opset.domain, "version": opset.version} for opset in model.opset_import]
        return {"ir_version": model.ir_version, "opset": opsets, **ports}

    def write(self, content: bytes, tree: Any) -> bytes:
        import onnx
        from onnx import helper

        model = onnx.load_from_string(content)
        try:
            opsets = [helper.make_opsetid(opset["domain"], opset["version"]) for opset in tree["opset"]]
            graph = model.graph
            for side in ("input", "output"):
                ports = [helper.make_tensor_value_info(p["name"], p["type"], p["sizes"]) for p in tree[side]]
                del getattr(graph, side)[:]
                getattr(graph, side).extend(ports)
            del model.opset_import[:]
            model.opset_import.extend(opsets)
            model.ir_version = tree["ir_version"]
            return model.SerializeToString()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unwritable from error


class Numbers(Json):
    """The first whole numbers of a file in 32 bits each, such as the sizes in the header of faiss."""

    kinds = ("0", "-1", "2**32")

    def read(self, content: bytes) -> Any:
        return {f"at {at}": struct.unpack_from("<i", content, at)[0] for at in range(0, 30 * 4, 4)}

    def write(self, content: bytes, tree: Any) -> bytes:
        numbers = [min(number, 2**31 - 1) for number in tree.values()]
        return struct.pack(f"<{len(numbers)}i", *numbers) + content[len(numbers) * 4 :]


FORMATS: dict[str, Any] = {
    ".json": Json(),
    ".jsonl": JsonLines(),
    ".toml": Toml(),
    ".safetensors": Safetensors(),
    ".npy": Npy(),
    ".parquet": Parquet(),
    ".onnx": Onnx(),
    ".faiss": Numbers(),
}


@dataclass(frozen=True)
class Leaf:
    """One value of a file and what it becomes."""

    file: str
    place: tuple
    kind: str

    def __str__(self) -> str:
        return f"{self.file}: {'.'.join(map(str, self.place))} = {self.kind}"

    def spoil(self, folder: Path) -> None:
        """Change the file, and what other files say of its SHA-256, as who means harm would.

        Of faiss's files the checksum stays: its code trusts every size in them, so that the checksum is their form.

        Raises:
            Unwritable: if the format cannot hold such a value.
        """
        path = folder / self.file
        content = path.read_bytes()
        file_format = FORMATS[path.suffix]
        new = file_format.write(content, changed(file_format.read(content), self.place, self.kind))
        path.write_bytes(new)
        if path.suffix == ".faiss":
            return
        old_digest, new_digest = (hashlib.sha256(text).hexdigest() for text in (content, new))
        for other in folder.rglob("*.json"):
            text = other.read_text("utf-8") if other.is_file() and other != path else ""
            if old_digest in text:
                other.write_text(text.replace(old_digest, new_digest), "utf-8")


def leaves(folder: Path, file: str) -> list[Leaf]:
    """Return all changes of a file."""
    path = folder / file
    file_format = FORMATS[path.suffix]
    return [
        Leaf(file, place, kind) for place in places(file_format.read(path.read_bytes())) for kind in file_format.kinds
    ]
