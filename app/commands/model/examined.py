"""One preset, folder or repository under ``model doctor``: as which it opens, and what it needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.numbers import size
from app.commands.common import find_preset
from app.terminal import console, one_line, quiet_libraries
from core.files import cache_root
from core.models.hub import WEIGHTS
from core.models.presets import Preset

if TYPE_CHECKING:
    from core.methods.fetch import Needs
    from core.methods.opening import Opening, OpeningDrafter
    from core.models.outline import Outline, TargetMemory

BUDGETS = (8, 16, 64)  # of the drafts whose states are told
TEXT = 1000  # tokens of a text whose memory is told


def examine(name: str) -> int:
    """Print it. Exit code 1 for what does not open. Raises UserError for a name that is nothing, or
    whose config cannot be read."""
    preset = find_preset(name)
    quiet_libraries()
    from core.methods.fetch import needs
    from core.methods.opening import Opening, opening

    devices, out = tuple(_devices()), console()
    found = Opening()
    if not preset.diffusion:
        found = opening(name, *(device.dtype for device in devices))
    out.print(one_line(f"{name} · {preset.about}" if preset.about else name, 200), style="bold")
    lines = [*_opens(found), *_memory(found, preset, devices)]
    folder = preset.target.folder
    if folder is not None and not any(folder.glob(WEIGHTS[0])):
        lines.append("its weights are not here: the folder holds no .safetensors file")
    elif not found.refused or preset.drafters:
        disk = needs(preset)
        what = "target" if found.target or preset.drafters or not found.drafters else "drafter"
        lines += [*_parts(disk, what), _disk(disk)]
    for line in lines:
        out.print(f"  {line}", soft_wrap=True)
    return int(bool(found.refused))


# ── what it opens as ─────────────────────────────────────────────────────────────────────────────


def _opens(found: Opening) -> Iterator[str]:
    if found.target is not None:
        yield _target(found.target)
    for drafter in found.drafters:
        yield _drafter(drafter)
    for sentence in found.refused:
        yield one_line(f"does not open: {sentence}", 600)
    if found.head:
        yield one_line(f"does not open as a drafter: {found.head}", 600)
    for part in found.unknown:
        yield f"{part}: unknown whether it opens, the hub does not answer"


def _target(target: Outline) -> str:
    carrying = f", {target.carrying} of them carry a state" if target.carrying else ""
    stored = f", stored in {target.stored}" if target.stored else ""
    return (
        f"opens as a target: {target.architecture}, {target.layers} layers{carrying}, hidden size "
        f"{target.hidden_size:,}, vocabulary {target.vocabulary:,}{stored}"
    )


def _drafter(drafter: OpeningDrafter) -> str:
    """Its kind, and the target that it is for, as far as its config says."""
    wanted = [f"{what} {size:,}" for what, size in drafter.of_target.items()]
    for_target = f"for a target of {', '.join(wanted) or 'a size that its tensors tell'}"
    if drafter.apart:
        for_target = "a model of its own, for any target that shares tokens with it"
    depths = "" if drafter.depths is None else f"; drafts {drafter.depths} tokens at most"
    facts = f"{_reads(drafter)}{depths}{_covers(drafter)}"
    return f"opens as a drafter: {drafter.kind}, {for_target}{facts}"


def _reads(drafter: OpeningDrafter) -> str:
    if not drafter.layers:
        return ""
    if drafter.count is not None and drafter.layers == (drafter.count - 1,):
        return "; reads after the target's last layer"
    numbers = [str(layer) for layer in drafter.layers if layer >= 0]  # −1: the embedding
    layers = ("after layer " if len(numbers) == 1 else "after layers ") + ", ".join(numbers)
    embedding = "the embedding" if -1 in drafter.layers else ""
    read = " and ".join(filter(None, (embedding, layers if numbers else "")))
    of = "" if drafter.count is None else f" if the target has {drafter.count} (it depends on that)"
    return f"; reads {read}{of}"


def _covers(drafter: OpeningDrafter) -> str:
    if drafter.covers is not None:
        return f"; drafts {drafter.covers:,} of the target's tokens"
    unknown = "; how many of the target's tokens it has is known once both tokenizers are here"
    return unknown if drafter.apart else ""


# ── memory ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Device:
    """``dtype``: torch's type of the numbers that it computes in; ``memory`` in bytes, if known."""

    name: str
    dtype: Any
    memory: int | None

    @property
    def numbers(self) -> str:
        return str(self.dtype).removeprefix("torch.")


def _devices() -> Iterator[Device]:
    """The devices that are here; ``auto`` takes the first."""
    import torch

    from core.models.language import compute_dtype

    for index in range(torch.cuda.device_count()):
        where = torch.device("cuda", index)
        memory = torch.cuda.get_device_properties(index).total_memory
        yield Device(str(where), compute_dtype(where), memory)
    yield Device("cpu", compute_dtype(torch.device("cpu")), memory_of("SC_PHYS_PAGES"))


def _memory(found: Opening, preset: Preset, devices: tuple[Device, ...]) -> Iterator[str]:
    """The memory on the devices that are here, in what each computes in."""
    target = found.target
    for device in devices if target or not found.drafters else ():
        if target is not None:
            kept = target.memory[device.dtype]
            yield _of_target(kept.weights, device, kept.token)
        elif preset.parameters:
            yield _of_target(preset.parameters * device.dtype.itemsize, device, None)
        elif not found.refused:
            yield f"memory: unknown, the target's size is not known ({device.name})"
    yield from (_of_drafter(drafter, devices[0]) for drafter in found.drafters)
    if target is not None and target.carrying:
        yield from _of_states(target, target.memory[devices[0].dtype])


def _of_target(weights: int, device: Device, token: int | None) -> str:
    room = f" of {size(device.memory)}" if device.memory else ""
    short = " – too little" if device.memory and weights > device.memory else ""
    text = "" if token is None else f", and {size(TEXT * token)} for {TEXT:,} tokens of text"
    return (
        f"memory on {device.name}: {size(weights)}{room} for weights in {device.numbers}"
        f"{text}{short}"
    )


def _of_drafter(drafter: OpeningDrafter, device: Device) -> str:
    if drafter.parameters is None:
        return f"memory of {drafter.kind}: unknown, its tensors tell"
    weights = size(drafter.parameters * device.dtype.itemsize)
    return f"memory of {drafter.kind} on {device.name}: {weights} for weights in {device.numbers}"


def _of_states(target: Outline, memory: TargetMemory) -> Iterator[str]:
    """Say what a drafted tree costs where layers carry a state."""
    from core.models.recurrent import KEPT, fork_is_kept

    yield (
        f"slow: a tree forks the states of {target.carrying} layers depth by depth, one batched "
        "step a level in each, where other layers take it at once; CUDA graphs are off"
    )
    if (state := memory.state) is None:
        yield "memory of forked states: unknown"
        return
    copies = {budget: budget + 1 for budget in BUDGETS}  # the root has one, too
    kept = {budget: state * n for budget, n in copies.items() if fork_is_kept(state, n)}
    told = [f"{size(kept[b])} for {b} nodes" for b in BUDGETS if b in kept]
    one = state // target.carrying
    told += [f"at most {size(one * copies[b])} for {b} nodes" for b in BUDGETS if b not in kept]
    yield f"memory of forked states, {size(state)} a copy: {', '.join(told)}"
    if len(kept) < len(BUDGETS):
        yield (
            f"at most: past {size(KEPT)} one layer's states are held at a time, and the steps of "
            "the accepted path are made again"
        )


def memory_of(pages: str) -> int | None:
    """Bytes of so many pages of memory, if the system says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf(pages)
    except (ValueError, OSError, AttributeError):
        return None


# ── disk ─────────────────────────────────────────────────────────────────────────────────────────


def _parts(found: Needs, target: str) -> Iterator[str]:
    """``target``: what the first part is called."""
    for part in found.parts:
        what = target if part is found.parts[0] else part.what
        known = "size unknown: the hub cannot be asked" if part.size is None else size(part.size)
        yield f"{what} {one_line(part.source, 200)}: {known}" + (", here" if part.here else "")


def _disk(found: Needs) -> str:
    free = free_disk()
    if found.missing is None:
        known = sum(part.size or 0 for part in found.parts if not part.here)
        return f"disk: at least {size(known)} to fetch, {size(free)} free"
    short = " – too little" if found.missing > free else ""
    return f"disk: {size(found.missing)} to fetch, {size(free)} free{short}"


def free_disk() -> int:
    """Bytes free where the cache is, or will be."""
    root = cache_root().absolute()
    return shutil.disk_usage(next(p for p in (root, *root.parents) if p.exists())).free
