"""Hidden states that a trainer or an engine kept: the same numbers as with the whole target."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from analysis.collected.calibrate import CalibrationPlan, calibrate, given_texts
from analysis.collected.collect import CollectionPlan, collect, source_of
from analysis.collected.given import Answer
from analysis.drafters.diagnosis import diagnose
from analysis.drafters.measuring import AnsweredPrompt, Kept, dumped, measure, passage_of
from analysis.drafters.trials import Trial
from analysis.drafters.wiring import ProbePlan
from app import cli
from core.decoding.dumps import dump_files, read_dump, reading_of
from core.decoding.engine import Engine
from core.errors import UserError
from core.methods.registry import choose
from core.models.language import last_layer
from tests.helpers.sentences import is_one_sentence
from tests.helpers.toys_on_disk import BYTES, save_toys

PROMPT, COUNT = list(b"the cat"), 64


class Place:
    """A target and drafters on disk, and a text of it with the states that its drafter reads."""

    def __init__(self, folder):
        target, drafter = save_toys(folder)
        self.whole = Engine(str(target), "cpu", str(drafter))
        self.ends = Engine(str(target), "cpu", str(drafter), ends=True)
        self.drafter = self.whole.load_drafter(choose("ddtree"))
        rng = np.random.default_rng(3)  # not the target's own text: any will do
        self.answer = rng.integers(0, BYTES - 1, COUNT).tolist()
        language = self.whole.prepare()
        self.passage = passage_of(language, PROMPT, self.answer)
        assert self.passage.before is not None
        kept = [self.passage.states[layer] for layer in self.drafter.layers]
        self.file = folder / "hs_0.safetensors"
        states = torch.stack([*kept, self.passage.before], 1)
        save_file({"token_ids": self.passage.tokens, "hidden_states": states}, self.file)

    @property
    def given(self) -> Answer:
        return Answer(tuple(self.answer), self.file.name, False, "d")

    def reading(self):
        language = self.ends.prepare()
        return reading_of(read_dump(self.file), language, self.drafter.layers, answer=len(PROMPT))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("dumps"))


def test_the_ends_say_of_the_kept_states_what_the_target_says(place):
    kept = place.reading()
    torch.testing.assert_close(kept.p, place.passage.p, atol=1e-5, rtol=1e-4)
    last = last_layer(place.ends.prepare().model)
    for layer in (-1, last, *place.drafter.layers):
        torch.testing.assert_close(kept.states[layer], place.passage.states[layer])
    with pytest.raises(UserError, match="run no text"):
        place.ends.target(place.ends.load(choose("ddtree")))


def test_a_collection_is_that_of_the_whole_target_but_for_its_tail(place, tmp_path):
    plan = CollectionPlan(COUNT, 48, given=place.given)
    made = []
    for name, engine, kept in (("a", place.whole, None), ("b", place.ends, place.reading())):
        source = source_of(engine, ["ddtree"], {})
        made.append(collect(source, PROMPT, tmp_path / f"{name}.safetensors", plan, kept=kept))
    one, other = made
    assert one.end == other.end and one.header.given.off == other.header.given.off
    assert one.header.given.log_p == pytest.approx(other.header.given.log_p, abs=1e-5)
    assert one.arrays.keys() == other.arrays.keys()
    count = one.end - one.answer - 1
    drafter = "ddtree" if "ddtree.ids" in one.arrays else "dflash"
    for ids, logs in (("target.ids", "target.log_p"), (f"{drafter}.ids", f"{drafter}.log_q")):
        mine, theirs = (made.arrays[logs][:count] for made in (one, other))
        np.testing.assert_allclose(mine, theirs, atol=1e-4)
        # Two whose values are within rounding may have each other's rank; the last has no next.
        gaps = np.diff(-mine, axis=-1, prepend=-np.inf, append=np.inf)
        told = np.minimum(gaps[..., :-1], gaps[..., 1:]) > 2e-4
        told[..., -1] = False
        same = one.arrays[ids][:count] == other.arrays[ids][:count]
        assert same[told].all() and told.mean() > 0.5
    assert other.tokens.tolist() == [*PROMPT, *place.answer]


def test_calibration_along_the_kept_text_is_that_of_the_probe(place, tmp_path):
    source = source_of(place.ends, ["ddtree"], {})
    plan = CalibrationPlan(12, 1, 1, COUNT)
    table = calibrate(source, [PROMPT], tmp_path, plan, given=[place.given], kept=[place.reading])
    assert set(table["series"]) == {"dflash"} and set(table["continuations"]) == {1}
    places = np.array(sorted(set(table["position"]))) - len(PROMPT)
    far = measure(place.drafter, place.passage, Trial("", "as configured"), places).tvd
    for row, at in enumerate(places):
        own = table[table["position"] == at + len(PROMPT)].drop_duplicates("depth")
        np.testing.assert_allclose(own["tvd"], far[row, : len(own)], atol=1e-5)
    assert "hs_0.safetensors, 64 tokens" in given_texts(tmp_path)[0]


def test_a_kept_text_is_followed_no_further_than_a_stop_token(place, tmp_path):
    """Behind it nobody drafts: no anchor stands there, and p after it counts nowhere."""
    source, end = source_of(place.ends, ["ddtree"], {}), 20
    facts = SimpleNamespace(**vars(source.facts) | {"stop_ids": frozenset({place.answer[end]})})
    first = place.answer.index(place.answer[end])
    given = {"given": [place.given], "kept": [place.reading]}
    table = calibrate(
        replace(source, facts=facts), [PROMPT], tmp_path, CalibrationPlan(12, 1, 1, COUNT), **given
    )
    reached = table["position"] - len(PROMPT) + table["depth"] - 1  # p stands after this token
    assert table["depth"].max() > 1 and reached.max() == first - 1


def test_a_diagnosis_is_that_of_the_whole_target_without_what_was_not_kept(place):
    language, plan = place.ends.prepare(), ProbePlan(COUNT, 1)
    parts = (place.drafter.layers, COUNT, None, len(PROMPT))
    names, kept = dumped(language, [place.file], *parts)
    found = diagnose(place.ends, "ddtree", names, plan, lambda *_: None, kept=kept).wiring
    text = AnsweredPrompt("given", tuple(PROMPT), tuple(place.answer))
    whole = Kept({("given", COUNT): text})
    wanted = diagnose(place.whole, "ddtree", ["given"], plan, lambda *_: None, kept=whole).wiring
    np.testing.assert_allclose(found.configured.tvd, wanted.configured.tvd, atol=1e-5)
    tried, all_tried = ({each.trial.name for each in w.mistakes} for w in (found, wanted))
    assert tried < all_tried and "no chat template" not in tried
    assert "layers in reverse order" in tried


def bad(tmp_path, **changed):
    tensors = {"token_ids": torch.arange(40), "hidden_states": torch.zeros(40, 3, 24)}
    file = tmp_path / "hs.safetensors"
    save_file({n: t for n, t in (tensors | changed).items() if t is not None}, file)
    return file


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"token_ids": None}, "holds no token_ids and hidden_states"),
        ({"token_ids": torch.arange(39)}, "39 tokens and 3 states of 40"),
        ({"hidden_states": torch.zeros(40, 24)}, "its shapes are not"),
        ({"token_ids": torch.zeros(40)}, "its shapes are not"),
        ({"token_ids": torch.arange(40) + 10_000}, "holds tokens that the target"),
        ({"hidden_states": torch.zeros(40, 3, 7)}, "states of 7 numbers"),
        ({"hidden_states": torch.zeros(40, 9, 24)}, "name them as they were given to vLLM"),
        ({"hidden_states": torch.zeros(40, 0, 24)}, "40 tokens and 0 states"),
    ],
)
def test_files_that_hold_something_else_are_one_sentence(place, tmp_path, changed, says):
    width = place.ends.prepare().model.config.hidden_size
    sized = {
        name: tensor.new_zeros(*tensor.shape[:2], width)
        if tensor is not None and tensor.ndim == 3 and tensor.shape[2] == 24
        else tensor
        for name, tensor in ({"hidden_states": torch.zeros(40, 3, 24)} | changed).items()
    }
    with pytest.raises(UserError, match=says):
        found = read_dump(bad(tmp_path, **sized))
        reading_of(found, place.ends.prepare(), place.drafter.layers, answer=7)


def test_layers_are_named_in_the_numbers_of_vllm(place):
    """Its number i is the output of layer i − 1, and 0 the embedding."""
    named = [layer + 1 for layer in place.drafter.layers]
    dump, language = read_dump(place.file), place.ends.prepare()
    found = reading_of(dump, language, named=named, answer=7)
    torch.testing.assert_close(found.states, place.reading().states | found.states)
    with pytest.raises(UserError, match="not of"):
        reading_of(dump, language, named=[*named, 1, 2], answer=7)
    with pytest.raises(UserError, match="no answer begins"):
        reading_of(dump, language, place.drafter.layers, answer=len(dump.tokens))
    with pytest.raises(UserError, match="does not tell where the answer begins"):
        reading_of(replace(dump, tokens=dump.tokens * 0), language, place.drafter.layers)


def test_files_that_could_run_code_are_refused(tmp_path):
    for path in (tmp_path / "data_0.ckpt", tmp_path):
        (tmp_path / "data_0.ckpt").write_bytes(b"x")
        with pytest.raises(UserError, match="can run code"):
            dump_files([path])
    with pytest.raises(UserError, match="there is no file"):
        read_dump(tmp_path / "none.safetensors")


def test_commands_take_the_files_in_place_of_a_target(place, tmp_path, capsys):
    words = ["--model", place.ends.model, "--drafter", str(place.file.parent / "drafter")]
    words += ["--states", str(place.file), "--begins", str(len(PROMPT)), "--device", "cpu"]
    out = tmp_path / "c.safetensors"
    assert cli.main(["collect", "ddtree", "--out", str(out), "--width", "48", *words]) == 0
    assert "the text is given, not written here: hs_0.safetensors" in capsys.readouterr().err
    assert cli.main(["collect", "ddtree", "--out", str(out), "--width", "48", *words]) == 0
    assert cli.main(["whatif", str(out), "--methods", "ddtree", "--budget", "4"]) == 0
    capsys.readouterr()
    table = ["calibrate", "ddtree", "--out", str(tmp_path / "t"), "--anchors", "6", *words]
    assert cli.main(table) == 0
    assert "dflash" in (shown := capsys.readouterr().out) and "marginal" not in shown
    assert cli.main(["diagnose", "ddtree", "--stride", "1", *words]) in (0, 1, 3)
    assert "chat templates" in capsys.readouterr().err
    for more in (["--prompt", "x"], ["--layers", "1", "2", "3", "4", "5", "6", "7"]):
        assert cli.main(["diagnose", "ddtree", *words, *more]) == 2
        assert is_one_sentence(capsys.readouterr().err)
    assert cli.main(["diagnose", "ddtree", *words[:4], "--begins", "3"]) == 2
