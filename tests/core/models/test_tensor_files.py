"""Safetensors files as others publish them, read as the library reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.errors import UserError
from core.methods.eagle3 import model as eagle3
from core.models.checkpoint import DTYPES, read_shapes, read_state, read_tensor
from core.models.checkpoint import WithHead as Loaded
from core.tensor_files import open_tensors
from tests.helpers import toys

FLOAT = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def written(path: Path, header: object, data: bytes = b"", blanks: int = 0) -> Path:
    head = (header if isinstance(header, bytes) else json.dumps(header).encode()) + b" " * blanks
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)
    return path


def raw(tensor: torch.Tensor) -> list[int]:
    return tensor.contiguous().view(torch.uint8).flatten().tolist()


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_is_read_as_the_library_reads_it(name: str, tmp_path: Path):
    kind, path = DTYPES[name], tmp_path / "model.safetensors"
    some = torch.arange(96, dtype=torch.uint8).reshape(6, 16) % (2 if name == "BOOL" else 97)
    save_file({"a": some.view(kind), "b": torch.ones(3), "none": torch.zeros(0, 4)}, path)
    theirs, ours = load_file(path), read_state(tmp_path)
    assert json.loads(path.read_bytes()[8:].split(b"}}")[0] + b"}}")["a"]["dtype"] == name
    assert ours.keys() == theirs.keys()
    for key, tensor in theirs.items():
        assert (ours[key].dtype, ours[key].shape) == (tensor.dtype, tensor.shape)
        assert tensor.numel() == 0 or raw(ours[key]) == raw(tensor)


# Those of safetensors that torch has not, and one that nobody has yet.
STRANGE = [
    ("F6_E2M3", [4], 3), ("F6_E3M2", [2, 2], 3), ("F4", [3, 2, 1], 3), ("INT3X", [5], 2),
    ("", [1], 1), ("Q4_K", [256], 144), ("\x1b[2J", [1], 1),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "shape", "size"), STRANGE)
def test_a_tensor_of_an_unknown_type_keeps_no_other_from_being_read(kind, shape, size, tmp_path):
    odd = {"dtype": kind, "shape": shape, "data_offsets": [8, 8 + size]}
    path = written(tmp_path / "model.safetensors", {"a": FLOAT, "odd": odd}, bytes(8 + size))
    with open_tensors(path, "a file") as opened:
        assert read_tensor(opened, "a").tolist() == [0, 0]
        with pytest.raises(UserError, match="holds numbers of the type") as error:
            read_tensor(opened, "odd")
    assert "\x1b" not in str(error.value)
    assert read_shapes(tmp_path) == {"a": (2,), "odd": tuple(shape)}


def test_what_a_drafter_s_folder_holds_beside_it_is_not_read(tmp_path: Path):
    """A copy of the target's head takes a gigabyte, in a type that may be unknown."""
    made = toys.eagle_drafter().model
    eagle3.save(Loaded(made, None, None), tmp_path, False)
    path = tmp_path / "model.safetensors"
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header, data = json.loads(path.read_bytes()[8 : 8 + length]), path.read_bytes()[8 + length :]
    end = len(data)
    odd = {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [end, end + 3]}
    written(path, header | {"verifier_lm_head.weight": odd}, data + bytes(3))
    found = eagle3.FORM.load_model(tmp_path, torch.float32, "cpu")
    assert [*found.state_dict()] == [*made.state_dict()]


SOUND: list[tuple[object, bytes, int]] = [
    ({"a": FLOAT}, bytes(8), 0),
    ({"a": FLOAT}, bytes(8), 4000),
    ({"a": FLOAT, "__metadata__": None}, bytes(8), 0),
    ({"a": FLOAT, "__metadata__": {"format": "pt"}}, bytes(8), 7),
    ({"a": FLOAT, "z": {"dtype": "BF16", "shape": [3, 0], "data_offsets": [8, 8]}}, bytes(8), 0),
    ({"z": {"dtype": "I8", "shape": [0], "data_offsets": [0, 0]}, "a": FLOAT}, bytes(8), 0),
    ({"a": FLOAT, "one": {"dtype": "I64", "shape": [], "data_offsets": [8, 16]}}, bytes(16), 0),
    (b'\n{ "a" :{"shape":[2],\t"data_offsets":[0,8],"dtype":"F32"}}', bytes(8), 1),
]


@pytest.mark.parametrize(("header", "data", "blanks"), SOUND)
def test_a_sound_header_is_read(header: Any, data: bytes, blanks: int, tmp_path: Path):
    path = written(tmp_path / "t.safetensors", header, data, blanks)
    with open_tensors(path, "a file") as opened:
        assert {n: read_tensor(opened, n).numel() for n in opened.entries}["a"] == 2


WRONG: list[tuple[object, bytes]] = [
    ({"a": FLOAT, "b": FLOAT | {"data_offsets": [4, 12]}}, bytes(12)),  # they overlap
    ({"a": FLOAT, "b": FLOAT}, bytes(8)),  # the same bytes twice
    ({"a": FLOAT, "b": FLOAT | {"data_offsets": [12, 20]}}, bytes(20)),  # a hole
    ({"a": FLOAT | {"data_offsets": [8, 0]}}, bytes(8)),
    ({"a": FLOAT | {"dtype": "F64"}}, bytes(8)),  # a type that lies
    ({"a": FLOAT | {"shape": [2**40, 2**40]}}, bytes(8)),
    ({"a": FLOAT | {"shape": [-1, -2]}}, bytes(8)),
    ({"a": FLOAT | {"data_offsets": [0, 2**63]}}, bytes(8)),
    ({"a": FLOAT}, bytes(9)),  # bytes of nobody
    ({"a": FLOAT}, bytes(7)),
    ({"a": FLOAT, "__metadata__": {"x": 1}}, bytes(8)),
    ([], b""),
    (b"", b""),
    (b"[" * 100_000, b""),
]


@pytest.mark.parametrize(("header", "data"), WRONG)
def test_a_header_that_lies_is_one_sentence(header: Any, data: bytes, tmp_path: Path):
    path = written(tmp_path / "t.safetensors", header, data)
    with pytest.raises(UserError, match=r"t.safetensors is not a file, or is damaged$"):  # noqa: SIM117
        with open_tensors(path, "a file"):
            pass


@pytest.mark.parametrize("data", [b"", b"\x08", bytes(7), (1 << 62).to_bytes(8, "little")])
def test_a_file_that_ends_before_its_header_is_one_sentence(data: bytes, tmp_path: Path):
    (tmp_path / "t.safetensors").write_bytes(data)
    with pytest.raises(UserError, match=r"is not a file, or is damaged$"):  # noqa: SIM117
        with open_tensors(tmp_path / "t.safetensors", "a file"):
            pass


def test_no_tensor_is_held_twice(tmp_path: Path):
    """The memory that torch has at once while a file is read: that of its tensors."""
    save_file({f"{n}": torch.ones(1000, 1000) for n in range(6)}, tmp_path / "model.safetensors")
    with torch.profiler.profile(profile_memory=True) as seen:
        state = read_state(tmp_path)
    results: Any = seen.profiler and seen.profiler.kineto_results
    changes = [e for e in results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(changes, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    assert sum(tensor.nbytes for tensor in state.values()) == most == 24_000_000
