"""Names of runs in tables, and which runs write the same text: read off their headers."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import takewhile
from typing import Any

from core.chat import openings
from core.methods.method import shown_name
from core.methods.registry import deciding_budget
from core.rounds.round import Sampling
from core.traces.schema import Header

_OWN = frozenset({  # settings that make no other method, or that a label says in its own words
    "budget", "seed", "temperature", "top_k", "top_p", "max_new_tokens", "max_tokens",
    "min_tokens", "length", "timed", "prompt_tokens", "request", "tag", "source", "times",
    "options", "sampling", "graph",
})  # fmt: skip
SEVERAL = 4  # runs of a method: words of which each of more has its own are names of the runs
LONGEST = 60  # characters of a label
OF_TARGETS = ("target", "dtype", "version")  # settings that are of the target and its engine
DEFAULT = "default"  # a checkpoint that nobody named: the preset's, or the one that ships


def method_labels(headers: Mapping[str, Header]) -> dict[str, str]:
    """A label for each run: method, the budget where it decides what is drafted, and of the rest
    what its method's runs differ in.

    Tables over methods put runs with one label together; these differ in the prompt and seed.
    Labels that only shortening would make the same are numbered.
    """
    apart, labels = set_apart(headers), {}
    for name, header in headers.items():
        setting = _setting(header)
        words = [setting["method"], *([f"B={setting['B']}"] if "B" in setting else []), apart[name]]
        labels[name] = " ".join(" ".join(words).split())
    short = _shortened(dict.fromkeys(labels.values()))
    return {name: short[label] for name, label in labels.items()}


def set_apart(headers: Mapping[str, Header]) -> dict[str, str]:
    """Say what tells each run from the others of its method beside the budget: "drafter=mine T=1".

    Where nothing does it is "".
    """
    settings = settings_of(headers)
    _shorten_checkpoints(list(settings.values()))
    shared: dict[str, set[tuple[str, str]]] = {}  # by method: what all of its runs have
    for setting in settings.values():
        items, method = set(setting.items()), setting["method"]
        shared[method] = shared.get(method, items) & items
    return {
        name: " ".join(
            f"{k}={v}" for k, v in setting.items()
            if k not in ("method", "B") and (k, v) not in shared[setting["method"]]
        )
        for name, setting in settings.items()
    }  # fmt: skip


def split_by(headers: Mapping[str, Header]) -> list[str]:
    """A sentence for each setting that gives a method more than ``SEVERAL`` labels: it may be the
    request's, and no setting of the method."""
    values: dict[tuple[str, str], set[str]] = {}
    for header in headers.values():
        setting = _setting(header)
        for key in dict(_others(header)).keys() & setting.keys():
            values.setdefault((setting["method"], key), set()).add(setting[key])
    return [
        f"{key} has {len(found)} values among the runs of {method}, and splits them: if it is the "
        'request\'s, record it as settings={"request": …}'
        for (method, key), found in sorted(values.items())
        if len(found) > SEVERAL
    ]


def settings_of(headers: Mapping[str, Header]) -> dict[str, dict[str, str]]:
    """All that makes two runs two methods, by name, as text; the weights among it."""
    words = _words(headers)
    return {name: _setting(header) | words[name] for name, header in headers.items()}


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings without nesting: "speculative.rule" and its value."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _others(header: Header) -> Iterator[tuple[str, Any]]:
    """The settings of other engines' runs, which have no options."""
    own = {name: value for name, value in header.settings.items() if name not in _OWN}
    return ((k, v) for k, v in flat(own) if k.rpartition(".")[2] not in _OWN and v is not None)


def _words(headers: Mapping[str, Header]) -> dict[str, dict[str, str]]:
    """The settings in words or lists of another engine's runs, as its rule of verification, by run;
    without those that name the single runs of a method."""
    found: dict[str, dict[str, str]] = {}
    runs: Counter[str] = Counter()
    values: dict[tuple[str, str], set[str]] = {}
    for name, header in headers.items():
        runs[header.method] += 1
        found[name] = {
            key: str(value) for key, value in _others(header)
            if not isinstance(value, int | float)
        }  # fmt: skip
        for key, value in found[name].items():
            values.setdefault((header.method, key), set()).add(value)
    return {
        name: {
            key: value for key, value in words.items()
            if not len(values[headers[name].method, key]) == runs[headers[name].method] > SEVERAL
        }
        for name, words in found.items()
    }  # fmt: skip


def _shorten_checkpoints(settings: Sequence[dict[str, str]]) -> None:
    """Leave out the hash of weights where the checkpoint's name says it, and the folders that all
    the checkpoints of a method lie in."""
    weights: dict[tuple[str, str], set[str]] = {}
    folders: dict[str, set[str]] = {}
    for each in settings:
        key = each["method"], each["drafter"]
        weights.setdefault(key, set()).add(each["weights"])
        folders.setdefault(each["method"], set()).add(each["drafter"])
    for each in settings:
        if len(weights[each["method"], each["drafter"]]) == 1:
            del each["weights"]
        names = folders[each["method"]]
        if len(names) > 1:
            parts = zip(*(name.split("/")[:-1] for name in names), strict=False)
            shared = sum(1 for _ in takewhile(lambda at: len(set(at)) == 1, parts))
            each["drafter"] = "/".join(each["drafter"].split("/")[shared:])


def _shortened(labels: Iterable[str]) -> dict[str, str]:
    """Each label in at most ``LONGEST`` characters, and no two the same."""
    found: dict[str, str] = {}
    used: set[str] = set()
    for label in sorted(labels, key=lambda label: len(label) > LONGEST):  # whole ones as they are
        short, number = label[:LONGEST].rstrip(), 1
        while short in used:
            number += 1
            ending = f" #{number}"
            short = label[: LONGEST - len(ending)].rstrip() + ending
        used.add(short)
        found[label] = short
    return found


def _setting(header: Header) -> dict[str, str]:
    """List the settings that make two runs two methods, as text."""
    settings, method = header.settings, header.method
    found = {"method": shown_name(method)}
    if (size := budget(header)) is not None:
        found["B"] = str(size)
    options = settings.get("options")
    for key, value in options.items() if isinstance(options, Mapping) else ():
        found[str(key)] = str(value)
    for key, value in _others(header):
        if isinstance(value, int | float):
            found.setdefault(key, str(value))
    rule = sampling(header)
    told = temperature(header) is not None
    found |= {"T": f"{rule.temperature:g}" if told else "not told"}
    found |= {"target": str(header.model.get("name", ""))}
    found |= {"top-k": str(rule.top_k), "top-p": str(rule.top_p)}
    found |= {"dtype": header.dtype, "version": _version(header)}
    drafter = {key: str(value) for key, value in header.drafter.items()}
    named = drafter.get("checkpoint") or drafter.get("name")
    digest = drafter.get("sha256") or drafter.get("revision", "")
    if "kind" in drafter:
        found["kind"] = drafter["kind"]
    return found | {"drafter": named or (DEFAULT if digest else ""), "weights": digest}


def budget(header: Header) -> int | None:
    """The draft budget, where it decides what is drafted."""
    told = header.settings.get("budget"), header.drafter.get("depths")
    return deciding_budget(header.method, *told, chain=header.drafter.get("chain") is True)


def _version(header: Header) -> str:
    """Of the engine that the method is named after, where the trace tells it: "vLLM eagle3"."""
    engine = header.method.partition(" ")[0].lower()
    told = (v for name, v in header.libraries.items() if name.partition("-")[0] == engine)
    return str(next(told, ""))


def sampling(header: Header) -> Sampling:
    """The sampling of the target's own tokens; at temperature 0 nothing else decides, and all other
    fields have their defaults. A denoising run has it among its settings."""
    raw = header.settings.get("sampling", header.settings)
    raw = raw if isinstance(raw, Mapping) else {}
    temperature = known_number(raw.get("temperature"))
    if not temperature:
        return Sampling()
    seed = raw.get("seed", header.seed)
    return Sampling(
        temperature,
        top_k=int(known_number(raw.get("top_k"))),
        top_p=known_number(raw.get("top_p")) or 1.0,
        seed=seed if type(seed) is int else header.seed,
    )


def temperature(header: Header) -> float | None:
    """Of the sampling of the target's own tokens; None where the header does not tell it."""
    told = header.settings.get("sampling", header.settings)
    value = told.get("temperature") if isinstance(told, Mapping) else None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return sampling(header).temperature if is_number else None


def _rule(header: Header) -> dict[str, Any] | None:
    """The sampling of the target's own tokens; None where the header does not tell it."""
    return None if temperature(header) is None else asdict(sampling(header))


def known_number(value: Any) -> float:
    """A number that a trace holds; 0 for anything else."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if known and abs(value) < 1e9 else 0.0


def text_key(header: Header) -> str:
    """Short name of the text that a whole run was asked for: runs with one key write the same text,
    however they draft, where drafting is lossless token for token. Other rules of sampling, a seed
    that a trace does not tell, and near ties make it another (``comparison`` compares the texts).

    Target, tokenizer, prompt, token limit and sampling decide it; so do dtype and kind of device,
    since the two best tokens may nearly tie; and of a denoising run its blocks and steps.
    """
    settings = header.settings
    parts = [
        header.model.get("name"),
        header.model.get("revision"),
        header.tokenizer_hash,
        header.prompt_text,
        header.prompt_ids,
        _rule(header),
        token_limit(header),
        header.dtype,
        header.device.partition(":")[0],
        [settings.get(name) for name in ("block", "pace", "ahead", "go_on")],
    ]
    return _key(parts)


def asked_key(header: Header) -> str:
    """Short name of what a run was asked: runs with one key differ in target, precision, engine or
    drafting, so their texts may part."""
    return _key([header.prompt_ids, _rule(header), token_limit(header)])


def prompt_keys(headers: Iterable[Header]) -> list[str]:
    """Short names of runs' prompts: runs with one key differ in the rest, the seed too. The turns
    of one conversation have one key."""
    every = list(headers)
    first = openings(header.prompt_text for header in every)
    of_text = {header.prompt_text: header for header in every}

    def begin(header: Header) -> Header:
        opening = first[header.prompt_text]
        return header if opening == header.prompt_text else of_text[opening]

    return [_key([h.tokenizer_hash, h.prompt_text, h.prompt_ids]) for h in map(begin, every)]


def _key(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12]


def token_limit(header: Header) -> Any:
    """The most new tokens the text may have; a denoising run calls it the text's length."""
    return header.settings.get("max_new_tokens", header.settings.get("length"))
