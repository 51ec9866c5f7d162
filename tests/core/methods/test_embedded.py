"""The embedded model with the shipped drafters, through the engine."""

import copy
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from analysis.drafters import wiring
from analysis.drafters.measuring import Kept
from analysis.drafters.signatures import NAMED
from analysis.drafters.wiring import ProbePlan, WiringProbe
from analysis.experiments.tabulate import Text, accepted, observed
from core.decoding.along import Setup, read_along
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.learning.shards import Document
from core.methods.loading import shipped
from core.methods.mtp import MtpOptions
from core.methods.mtp.drafter import MtpDrafter
from core.methods.mtp.model import load_head
from core.methods.mtp.training import fit_projection
from core.methods.registry import choose, find_method
from core.models import embedded
from core.models.fast_layers import use_fast_layers
from core.models.language import final_norm, load_language
from core.models.target import Target
from core.progress import silent
from core.rounds.round import Sampling, new_tokens
from core.verification.sampling import TargetSampler
from tests import ROOT
from tests.helpers import needs
from tests.helpers.timing import amount, usually

pytestmark = pytest.mark.embedded

COUNT = amount(32, 136)
PROMPT = "Explain in detail, step by step, how bread is made and why the dough has to rest."
TEMPERATURES = (0.0, 1.0)
ONCE = (
    ("dflash", 16, 0.0), ("ddtree", 64, 0.0), ("treeflash", 16, 1.0), ("dart", 16, 1.0),
    ("eagle3", 24, 0.0), ("medusa", 16, 0.0), ("hydra", 16, 1.0), ("mtp", 16, 0.0),
)  # fmt: skip
AGAIN = (
    ("ddtree", 16, 1.0), ("treeflash", 16, 0.0), ("dart", 16, 0.0), ("eagle3", 59, 1.0),
    ("medusa", 63, 1.0), ("hydra", 63, 0.0), ("mtp", 32, 1.0),
)  # fmt: skip
ON_TEXTS = ("dflash", "eagle3", "mtp", "caddtree", "treeflash", "dart", "hydra", "medusa")
ON_TEXTS = ON_TEXTS[: amount(4, 8)]
WIRING_PROMPTS = (PROMPT, "Write a Python function that sorts a list, with a docstring.")


@pytest.fixture(scope="module")
def engine():
    try:
        embedded.prepare()
    except UserError as error:
        needs.missing(f"the embedded model cannot be prepared here: {error}")
    return Engine(device="cpu")


@pytest.fixture(scope="module")
def plain(engine):
    """Plain decoding's tokens at each temperature, decoded once."""
    torch.set_num_threads(1)  # module fixtures run before conftest's
    return {t: decoded(engine, "ar", 1, t)[1] for t in TEMPERATURES}


def decoded(engine, method, budget, temperature):
    request = RunRequest(PROMPT, method, budget, COUNT, temperature, seed=3)
    rounds = list(engine.start(request))
    return rounds, new_tokens(rounds)


@pytest.mark.parametrize("temperature", usually((1.0,), TEMPERATURES))
def test_what_follows_from_a_text_is_what_real_runs_do(engine, temperature):
    """Lengths, TVD and coverage of the one table, without the target and with it."""
    language, tokens, sampling = engine.prepare(), amount(6, 20), Sampling(temperature)
    decoders = {name: engine.method(name) for name in ON_TEXTS}
    walks = [
        (each.drafter, [Setup(name, each.builder.for_run(sampling), 16)])
        for name, each in decoders.items()
    ]
    tail = 1 + max(drafter.max_depth for drafter, _ in walks)
    text = Text.written(language, language.encode_chat(PROMPT), tokens, sampling, tail)
    layers = tuple(sorted({layer for drafter, _ in walks for layer in drafter.layers}))
    reading = read_along(Target(language.model, layers, padded=False), text.tokens, text.answer)
    for name, found in accepted(walks, reading, text.end):
        real = observed(engine, RunRequest(PROMPT, name, 16, tokens, temperature))
        assert found.lengths == real.lengths and found.probed == real.probed, name
        assert found.tvd == pytest.approx(real.tvd, abs=1e-3), name
        assert found.coverage == pytest.approx(real.coverage, abs=1e-3), name


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_plain_decoding_equals_the_models_own_forward(engine, plain, temperature):
    """One forward of Hugging Face's over the whole text, without a cache."""
    language, tokens = engine.prepare(), plain[temperature]
    assert len(tokens) == COUNT or tokens[-1] in engine.target(engine.method("ar")).stop_ids
    prompt = language.encode_chat(PROMPT)
    ids = torch.tensor([prompt + tokens])
    count = ids.shape[1]
    lowest = torch.finfo(torch.float32).min
    causal = torch.full((count, count), lowest).triu(1)[None, None]
    with torch.inference_mode():
        logits = language.model(ids, attention_mask=causal, use_cache=False).logits[0]
    sampler, own = TargetSampler(Sampling(temperature, seed=3)), logits[len(prompt) - 1 : -1]
    positions = list(range(len(prompt), len(prompt) + len(tokens)))
    assert sampler.choose(own, positions).tolist() == tokens


@pytest.mark.parametrize(
    ("method", "budget", "temperature"),
    usually(ONCE, (*ONCE, *AGAIN)),
)
def test_every_method_writes_plain_decodings_text(engine, plain, method, budget, temperature):
    info = find_method(method).drafter_info
    assert info is not None and shipped(info.name, engine.prepare().name) is not None
    rounds, tokens = decoded(engine, method, budget, temperature)
    assert tokens == plain[temperature]
    assert len(tokens) >= COUNT - 8, "choose a prompt whose answer is long enough"
    assert len(rounds) < 0.9 * len(tokens), "the shipped drafter must save rounds"


def test_a_run_loads_neither_transformers_nor_torchs_compiler_and_opens_no_socket():
    """They would cost two seconds of a core and 120 MB. Everything a run needs is on the machine:
    Python's own audit events say so."""
    code = (
        "import sys\n"
        "sys.addaudithook(lambda event, _: event.startswith('socket.') and sys.exit(event))\n"
        "from app.cli import main\n"
        "main(['run', 'ddtree', '--prompt', 'Hi', '--max-new-tokens', '3'])\n"
        "from core.decoding.engine import Engine\n"
        "from core.decoding.request import RunRequest\n"
        "engine = Engine(device='cpu')\n"
        "for method in ('dart', 'sps', 'eagle3', 'mtp', 'uno'):\n"
        "    list(engine.start(RunRequest('Hi', method, max_new_tokens=3)))\n"
        "heavy = {'transformers', 'torch._dynamo', 'sympy', 'pandas'} & {*sys.modules}\n"
        "sys.exit(' '.join(heavy) or 0)\n"
    )
    succeeds(code)


def succeeds(code: str) -> None:
    """This program ends without an error in a process of its own."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr


def test_the_light_target_has_transformers_bits(engine):
    language = engine.prepare()
    whole = load_language(device="cpu", fast=False)
    use_fast_layers(whole.model, torch.float32, torch.device("cpu"))
    assert language.tokenizer_hash == whole.tokenizer_hash
    assert all(language.piece(t) == whole.piece(t) for t in range(0, language.vocabulary, 7))
    ids = language.encode_chat(PROMPT)
    assert ids == whole.encode_chat(PROMPT)
    one, other = (Target(each.model, (-1, 14, 29)).prefill(ids, 1) for each in (language, whole))
    assert torch.equal(one.logits, other.logits) and torch.equal(one.features, other.features)


def test_doctor_says_what_memory_takes():
    """Held by part, what a small run took, and a large run computed, near what is measured."""
    code = [sys.executable, "-m", "app", "model", "doctor"]
    out = subprocess.run(code, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    part = out[out.index("\nmemory\n") : out.index("\npresets\n")]
    assert "libraries" in part and "packed" in part and "a token" in part
    assert re.search(r"B = 64: [\d.]+ MB more at most, .*(measured|computed)", part)
    found = re.search(r"B = 1,024: ([\d.]+) MB more at most, .*computed", part)
    assert found and 300 < float(found[1]) < 450


AMONG = ("feature layers", "shifted features", "norms of features", "embedding and feature")
ANSWER = amount(40, 64)  # tokens that the target writes for a probe
PLAN = ProbePlan(ANSWER, 2)


@pytest.fixture(scope="module")
def kept():
    """The texts of the wiring probes, written once."""
    return Kept()


@pytest.fixture
def few(monkeypatch):
    """The mistakes that people make with a head, instead of all."""
    some = tuple(row for row in wiring.MISTAKES if row.mistake in AMONG)
    assert {row.mistake for row in some} == {*AMONG}
    monkeypatch.setattr(wiring, "MISTAKES", some)


@pytest.mark.parametrize(
    "method",
    usually(("mtp",), ("ddtree", "treeflash", "dart", "eagle3", "hydra", "mtp")),
)
def test_no_shipped_drafter_is_accused_of_being_miswired(engine, kept, method, monkeypatch):
    """The mistakes that come late, hundreds of them, are tried on one drafter."""
    if method != "dart":
        early = tuple(row for row in wiring.MISTAKES if not row.late)
        monkeypatch.setattr(wiring, "MISTAKES", early)
    options = {"depth": 4} if method == "mtp" else {}
    language, drafter = engine.prepare(), engine.load_drafter(choose(method, options))
    plan = ProbePlan(ANSWER, 4)
    found = WiringProbe(language, drafter, WIRING_PROMPTS, plan, kept=kept, who=method).run()
    assert found.faults == () and found.configured.tau > 1.2


def test_a_shipped_drafter_with_its_layers_in_reverse_is_told_so(engine, kept, few):
    drafter = copy.copy(engine.load_drafter(choose("eagle3")))
    drafter.layers = drafter.layers[::-1]
    plan = ProbePlan(ANSWER, 4)
    found = WiringProbe(
        engine.prepare(), drafter, WIRING_PROMPTS, plan, kept=kept, who="in reverse"
    ).run()
    assert found.nearest.trial.name == "layers in reverse order"


def hidden_first(drafter, text):
    weight = drafter.model.eh_proj.weight
    weight.data = torch.cat([*reversed(weight.data.chunk(2, 1))], 1)


def one_layer_less(drafter, text):
    drafter.layers = tuple(layer - 1 for layer in drafter.layers)


def given(change):
    """It gets other features than those it is handed."""

    def plant(drafter, text):
        plain = drafter.log_q_at

        def log_q_at(ids, features, roots):
            return plain(ids, change(features, text.norm), roots)

        drafter.log_q_at = log_q_at

    return plant


def late(states=0, tokens=0):
    """Its hidden states, or its tokens, come so much later than they are handed to it."""

    def plant(drafter, text):
        plain = drafter.log_q_at

        def log_q_at(ids, features, roots):
            row = torch.arange(len(ids))
            return plain(
                ids[(row - tokens).clamp(min=0)], features[(row - states).clamp(min=0)], roots
            )

        drafter.log_q_at = log_q_at

    return plant


def fitted(states=0, tokens=0):
    """Its projection learnt the texts by heart, from inputs that are so much late."""

    def plant(drafter, text):
        documents = []
        for reading in text.readings:
            row = torch.arange(len(reading.tokens))
            before, last = reading.states[28], reading.states[29]
            hidden = last[(row - states).clamp(0, len(row) - 1)]
            ids = reading.tokens[(row - tokens).clamp(min=0)].int()
            parts = torch.cat([before, hidden], -1)
            documents.append(Document(ids, reading.answer, parts, ids, ids, (28, 29)))
        fit_projection(drafter.model, drafter.embedding.weight, documents * 100, 29)

    return plant


MISWIRED = {
    "embedding and feature exchanged": hidden_first,
    "layers [28] + 1": one_layer_less,
    "features before the target's final norm": given(lambda x, norm: norm(x)),
    "features through the target's final norm twice": given(lambda x, norm: x / norm.weight),
    "features of the token before": fitted(states=1),
    "tokens one late": fitted(tokens=1),
    "first row without the newest state": late(states=1),
    "first row with another root": late(tokens=1),
}
DEPTHS = {"features through the target's final norm twice": 4}  # less at two than chance may do


@pytest.fixture
def probed(engine, kept, few):
    """The wiring of a copy of the shipped MTP head."""
    language = engine.prepare()

    def probe(name, plant, depth=2):
        texts = [kept.text(language, each, PLAN.new_tokens, silent) for each in WIRING_PROMPTS]
        readings = [kept.passage(language, each) for each in texts]
        head = load_head(language, shipped("mtp", language.name), fast=False)
        drafter = MtpDrafter(head, language.embedding, (29,), MtpOptions(depth))
        with torch.no_grad():
            plant(drafter, SimpleNamespace(readings=readings, norm=final_norm(language)))
        return WiringProbe(language, drafter, WIRING_PROMPTS, PLAN, kept=kept, who=name).run()

    return probe


@pytest.mark.parametrize("name", usually((*MISWIRED,)[:2], MISWIRED))
def test_the_shipped_mtp_head_is_told_how_it_is_miswired(probed, name):
    """As people meet it: the hidden state first, another layer's, normed or not, one token off."""
    found = probed(name, MISWIRED[name], DEPTHS.get(name, 2))
    assert found.verdict == NAMED and len(found.faults) == 1
    assert found.faults[0].startswith(name) and not found.notes


@pytest.mark.thorough
def test_an_mtp_head_beside_its_own_state_is_not_told_and_the_diagnosis_says_so(probed):
    """A healthy head and one that learnt so do alike."""
    for name, plant in (("as it ships", lambda *_: None), ("own state", fitted(states=-1))):
        found = probed(name, plant)
        assert found.nearest is None and not found.faults, name
        assert "cannot be told" in found.notes[-1], name
