"""Each drafter's method written out: log q from the weights alone, token by token.

``eagle2`` and others like it give log q [V] after a path that begins with the root; ``dart`` and
others log q [L, V] of all depths after a root. A text's tokens [n] and features [n, F·h] are given.
"""

import math
from functools import cache
from operator import mul

import numpy as np
import torch

from core.models.adapter import PARTS
from core.models.layers import Rope
from tests.helpers import toys
from tests.helpers.drafter_reference import (
    mlp,
    norm,
    residual_rows,
    rotate,
    slow_attention,
    slow_layers,
    written_out,
)


def eagle2(drafter, tokens, features, path):
    """log q [V] after a path that begins with the root, as ``eagle3``."""
    config, eps = drafter.model.config, drafter.model.config.rms_norm_eps
    w = {n.removeprefix("midlayer."): t for n, t in drafter.model.state_dict().items()}
    whole = [*tokens, *path]
    embedded = toys.model().get_input_embeddings().weight
    keys, values, out = [], [], None
    for i in range(len(whole) - 1):
        feature = features[i] if i < len(tokens) else out
        x = w["fc.weight"] @ torch.cat([embedded[whole[i + 1]], feature]) + w.get("fc.bias", 0)
        x = x + slow_attention(config, w, x, keys, values, i)
        out = x + mlp(norm(x, w["post_attention_layernorm.weight"], eps), w)
    head = toys.model().get_output_embeddings().weight
    return (head @ out / drafter.options.temperature).log_softmax(-1)


def eagle3(drafter, tokens, features, path):
    """log q [V] after a path that begins with the root: a chain of rows, one at a time.

    tokens [n] and features [n, F·h] are the context's. Row i joins the feature of token i with the
    embedding of token i + 1; after the context the features are the last layer's own.
    """
    config, eps = drafter.model.config, drafter.model.config.rms_norm_eps
    w = drafter.model.state_dict()
    if config.norm_before_fc:
        features = norm(features, w["input_norm.weight"], eps)
    if config.fc_norm:
        parts = features.chunk(features.shape[1] // config.hidden_size, 1)
        parts = [norm(part, w[f"fc_norm.{i}.weight"], eps) for i, part in enumerate(parts)]
        features = torch.cat(parts, 1)
    given = features @ w["fc.weight"].T
    whole = [*tokens, *path]
    embedded = toys.model().get_input_embeddings().weight[torch.tensor(whole)]
    kept, out = [([], []) for _ in range(config.num_hidden_layers)], None  # each layer's
    for i in range(len(whole) - 1):
        x = given[i] if i < len(tokens) else out
        x = slow_layers(config, w, x, embedded[i + 1], kept, i, len(tokens))
        last = norm(x, w["norm.weight"], eps)
        out = last if config.norm_output else x
    logits = drafter.head.weight @ last / drafter.options.temperature
    if drafter.covered is None:
        return logits.log_softmax(-1)
    found = torch.full((toys.VOCABULARY,), -math.inf, dtype=logits.dtype)
    found[drafter.covered.ids] = logits.log_softmax(-1)
    return found


def peagle(drafter, tokens, features, root):
    """log q [L, V] after a root: every row of the text and the block in its turn.

    tokens [n] and features [n, F·h] are the context's. Row i joins feature i with the embedding of
    token i + 1; behind the root the feature is the learned one and the token the mask.
    """
    model, config = drafter.model, drafter.model.config
    w, eps, depths = model.state_dict(), config.rms_norm_eps, drafter.max_depth
    given = torch.cat([features, w["mask_hidden"][0].expand(depths - 1, -1)])
    if config.norm_before_fc:
        given = norm(given, w["input_norm.weight"], eps)
    if config.fc_norm:
        parts = [norm(p, w[f"fc_norm.{i}.weight"], eps) for i, p in enumerate(given.chunk(3, 1))]
        given = torch.cat(parts, 1)
    given = given @ w["fc.weight"].T
    ids = [*tokens[1:], root, *[config.mask_token_id] * (depths - 1)]
    table = w.get("embed_tokens.weight", toys.model().get_input_embeddings().weight)
    kept, found = [([], []) for _ in range(config.num_hidden_layers)], []
    for i, token in enumerate(ids):
        x = given[i]
        x = slow_layers(config, w, x, table[token], kept, i, len(tokens))
        found.append(drafter.head.weight @ norm(x, w["norm.weight"], eps))
    logits = torch.stack(found[-depths:]) / drafter.options.temperature
    if drafter.covered is None:
        return logits.log_softmax(-1)
    whole = torch.full((depths, toys.VOCABULARY), -math.inf, dtype=logits.dtype)
    whole[:, drafter.covered.ids] = logits.log_softmax(-1)
    return whole


def dart_rows(config, w, features, next_embeddings):
    """methods.md word by word: rows for the head from a whole prefix, one head and row at a time.

    features [n, 3h] of the prefix's tokens, next_embeddings [n, h] of the tokens after them.
    """
    eps, width, masks = config.rms_norm_eps, config.head_dim, config.draft_length
    hidden, count = config.hidden_size, len(features)
    share = config.num_attention_heads // config.num_key_value_heads
    layer = {k.removeprefix("midlayer."): v for k, v in w.items()}
    x = features @ w["fc.weight"].T
    embedded = norm(next_embeddings, layer["input_layernorm.weight"], eps)
    prefix = torch.cat([embedded, norm(x, layer["hidden_norm.weight"], eps)], 1)
    inputs = torch.cat([prefix, layer["mask_rep"].repeat(masks, 1)])
    residual = torch.cat([x, layer["mask_rep"][:hidden].repeat(masks, 1)])
    rows = count + masks
    out = torch.zeros(rows, config.num_attention_heads, width, dtype=x.dtype)
    for head in range(config.num_attention_heads):
        at = slice(head * width, (head + 1) * width)
        kv = slice(head // share * width, (head // share + 1) * width)
        query = inputs @ layer["self_attn.q_proj.weight"][at].T
        key = inputs @ layer["self_attn.k_proj.weight"][kv].T
        value = inputs @ layer["self_attn.v_proj.weight"][kv].T
        query = torch.stack([rotate(q, i, config.rope) for i, q in enumerate(query)])
        key = torch.stack([rotate(k, i, config.rope) for i, k in enumerate(key)])
        for row in range(rows):  # strictly causal: a row sees itself and what stands before
            seen = slice(0, row + 1)
            weights = (query[row] @ key[seen].T / math.sqrt(width)).softmax(-1)
            out[row, head] = weights @ value[seen]
    x = residual + out.flatten(1) @ layer["self_attn.o_proj.weight"].T
    x = x[count - 1 :]
    x = x + mlp(norm(x, layer["post_attention_layernorm.weight"], eps), layer)
    return norm(norm(x, w["norm.weight"], eps), w["norm.weight"], eps)  # twice, as released


def dart(drafter, tokens, features, root):
    """log q [L, V] in float64; what the head does not cover is impossible."""
    owner = toys.model()
    after = torch.tensor([*tokens[1:], root])
    embedded = owner.get_input_embeddings().weight[after]
    rows = dart_rows(drafter.model.config, drafter.model.state_dict(), features, embedded)
    log_q = (rows @ drafter.head.weight.T / drafter.temperature).log_softmax(-1)
    if drafter.covered is None:
        return log_q
    whole = torch.full((len(rows), toys.VOCABULARY), -torch.inf, dtype=log_q.dtype)
    whole[:, drafter.covered.ids] = log_q
    return whole


def silu(x):
    return x / (1 + (-x).exp())


def medusa(drafter, tokens, features, root):
    """log q [L, V] of each head's blocks on the last hidden state alone."""
    w, rows = drafter.model.state_dict(), []
    for depth in range(drafter.max_depth):
        x = features[-1]
        for layer in range(2):
            name = f"{depth}.{layer}.linear."
            x = x + silu(w[f"{name}weight"] @ x + w[f"{name}bias"])
        head = w.get(f"{depth}.2.weight", toys.model().lm_head.weight)
        rows.append((head @ x).log_softmax(-1))
    return torch.stack(rows)


def hydra(drafter, tokens, features, path):
    """log q [V] of the head of a path's depth."""
    w, embedding = drafter.model.state_dict(), toys.model().get_input_embeddings().weight
    name = f"hydra_mlp.{len(path) - 1}.0."
    x, kept = torch.cat([features[-1], *embedding[torch.tensor(path)]]), features[-1]
    if drafter.model.config.res_connection:
        kept = w[name + "res_connection.weight"] @ x + w[name + "res_connection.bias"]
    x = kept + silu(w[name + "linear.weight"] @ x + w[name + "linear.bias"])
    head = w.get(f"hydra_lm_head.{len(path) - 1}.weight", toys.model().lm_head.weight)
    return (head @ x).log_softmax(-1)


BEFORE = {"dspark": toys.dspark_drafter, "dflash2": toys.dflash2_drafter,
         "xpress": toys.xpress_drafter, "domino": toys.domino_drafter}  # fmt: skip
SOME = list(range(0, 48, 2))
NEIGHBOURS = Rope(500.0, neighbours=True)


class BlockBefore:
    """One block after a context of features [T, F·h], every number from the weights themselves."""

    def __init__(self, drafter, features, root):
        self.config, self.w = drafter.model.config, drafter.model.state_dict()
        ids = [root, *[47] * (self.config.block_size - 1)]
        owner = toys.model()
        block = owner.get_input_embeddings().weight[torch.tensor(ids)].clone()
        if self.config.mask_embedding:
            block[1:] = self.w["mask_embedding"]
        self.block = rows = written_out(self.config, self.w, features, block)
        self.rows = rows[len(rows) - drafter.max_depth :]
        self.logits = self.rows @ owner.get_output_embeddings().weight.T
        self.embedding = owner.get_input_embeddings().weight
        self.covered = drafter.covered and drafter.covered.ids
        self.temperature = drafter.temperature

    def plain(self, depth):
        return self.scored(self.logits[depth], 0)

    def scored(self, logits, bias):
        """log q [V] of a row's logits over all tokens and a bias over the covered ones."""
        if self.covered is None:
            return ((logits + bias) / self.temperature).log_softmax(-1)
        found = torch.full_like(logits, -math.inf)
        part = (logits[self.covered] + bias) / self.temperature
        found[self.covered] = part.log_softmax(-1)
        return found

    def xpress(self, depth, path):
        """``path`` begins with the token before the root."""
        w = {n.removeprefix("refiner_head."): t for n, t in self.w.items()}
        first = len(self.block) - len(self.rows)  # the row that predicts the first token
        known, row = path if first else path[1:], depth + first
        mean = w["down_g.weight"] @ (sum(self.block) / len(self.block))
        joined = [
            w["in_proj.weight"] @ torch.cat(
                [w["down_h.weight"] @ self.block[j], mean, w["token_embed.weight"][known[j]]]
            )
            for j in range(row + 1)
        ]  # fmt: skip
        x = joined[row] + sum(w["mix_l"][:, row, j] * joined[j] for j in range(row + 1))
        gate = w["mlp_gate.weight"] @ x
        inner = gate / (1 + (-gate).exp()) * (w["mlp_up.weight"] @ x)
        x = x + w["mlp_down.weight"] @ inner
        return self.scored(self.logits[depth], w["readout.weight"] @ x)

    def domino(self, depth, path):
        if depth < self.config.pure_draft_prefix_len:
            return self.plain(depth)
        inputs, own = (self.w[f"prefix_gru.weight_{n}_l0"] for n in ("ih", "hh"))
        state = torch.zeros(own.shape[1], dtype=own.dtype)
        for token in path[1 : depth + 2]:  # from the root on
            a, b = (inputs @ self.embedding[token]).chunk(3), (own @ state).chunk(3)
            reset, keep = (1 / (1 + (-(a[i] + b[i])).exp()) for i in (0, 1))
            state = (1 - keep) * torch.tanh(a[2] + reset * b[2]) + keep * state
        x = self.w["embed_proj.0.weight"] @ torch.cat([self.rows[depth], state])
        own = self.w["embed_proj.2.weight"] @ (x / (1 + (-x).exp()))
        return self.scored(self.logits[depth], own)

    def dspark(self, depth, path):
        before = path[depth + 1]
        known = self.w["markov_head.markov_w1.weight"][before]
        if self.config.markov_head_type == "rnn":
            weight, own = (self.w[f"markov_head.joint_proj.{n}"] for n in ("weight", "bias"))
            state = torch.zeros_like(known)
            for at, token in enumerate(path[1 : depth + 2]):
                one = self.w["markov_head.markov_w1.weight"][token]
                x = weight @ torch.cat([state, one, self.rows[at]]) + own
                keep, new, known = x.chunk(3)
                state = keep.sigmoid() * state + (-keep).sigmoid() * new.tanh()
            known = known.tanh()
        if self.config.markov_head_type == "gated":
            weight, own = (self.w[f"markov_head.gate_proj.{n}"] for n in ("weight", "bias"))
            x = [*self.rows[depth], *known]
            known = torch.stack(
                [
                    k / (1 + (-sum(map(mul, row, x)) - c).exp())
                    for k, row, c in zip(known, weight, own, strict=True)
                ]
            )
        bias = [known @ row for row in self.w["markov_head.markov_w2.weight"]]
        return self.scored(self.logits[depth], torch.stack(bias))

    def confidence(self, depth, before):
        parts = [self.rows[depth]]
        if self.config.confidence_head_with_markov:
            parts.append(self.w["markov_head.markov_w1.weight"][before])
        weight, bias = (self.w[f"confidence_head.proj.{n}"] for n in ("weight", "bias"))
        return 1 / (1 + math.exp(-float(weight[0] @ torch.cat(parts) + bias[0])))

    def dflash2(self, depth, path):
        before = path[depth + 1]
        w = {n.removeprefix("candidate_selector."): t for n, t in self.w.items()}
        best = self.logits[depth].argsort(descending=True)[: self.config.selector_top_k]
        gate = w["predecessor_codebook"][before] * (
            w["hidden_projection.weight"] @ self.rows[depth]
        )
        found = torch.full_like(self.logits[depth], -math.inf)
        scores = [self.logits[depth, b] + gate @ w["successor_codebook"][b] for b in best]
        found[best] = (torch.stack(scores) / self.temperature).log_softmax(-1)
        return found


# Waves of 6, 63, 628 and 6283 positions: one kept, one between, two slowed eightfold.
SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = Rope.of({"rope_theta": 10000.0, "rope_scaling": SCALING})
CHANGES = [
    ("dspark", {}),
    ("dspark", {"sample_from_anchor": False, "confidence_head_with_markov": False}),
    ("dspark", {"sliding": (True, False), "window": 5}),
    ("dspark", {"markov_head_type": "gated"}),
    ("dspark", {"markov_head_type": "rnn"}),
    ("dspark", {"of_root": True, "window": 3, "sliding": (True, False), "causal": False}),
    ("xpress", {}),
    ("xpress", {"sample_from_anchor": True, "ids": SOME, "logit_scale": 0.25}),
    ("domino", {"pure_draft_prefix_len": 1, "attention_sink_bias": True, "rope": NEIGHBOURS}),
    ("domino", {"sample_from_anchor": True, "attention_value_scale": 0.5, "mask_embedding": True}),
    ("dflash2", {}),
    ("dflash2", {"temperature": 0.5, "conv_kernel_size": 3, "conv_group_size": 16}),
    ("dflash2", {"sliding": (False, True), "window": 2048, "causal": None, "selector_top_k": 48}),
]


def dflash(drafter, tokens, features, root):
    """log q [L, V] of the rows of a block after the root."""
    block = BlockBefore(drafter, features, root)
    return torch.stack([block.plain(depth) for depth in range(drafter.max_depth)])


def treeflash_rows(drafter, features, root):
    """The backbone's residual stream at the L drafted depths, from the whole context."""
    config = drafter.model.config
    embedding = toys.model().get_input_embeddings().weight
    block = embedding[[root] + [config.mask_token_id] * (config.block_size - 1)]
    return residual_rows(config, drafter.model.state_dict(), features, block)[1:]


def treeflash(drafter, h, before=None, temperature=1.0):
    """log q [V] from one residual row, or log q′ given the token before it.

    h′ = h + d(silu(g)·u), [u, g] = ug([norm(embedding, ε = 1e-6) ; final norm of h]).
    """
    owner, config = toys.model(), drafter.model.config
    w, final = drafter.conditioner.model.ar_approximation.state_dict(), drafter.model.norm.weight
    normed = norm(h, final, config.rms_norm_eps)
    if before is not None:
        embedded = owner.get_input_embeddings().weight[before]
        embedded = norm(embedded, w["norm.weight"], 1e-6)
        both = w["ug.weight"] @ torch.cat([embedded, normed]) + w["ug.bias"]
        u, g = both.chunk(2)
        normed = norm(h + w["d.weight"] @ (silu(g) * u), final, config.rms_norm_eps)
    logits = owner.get_output_embeddings().weight @ normed
    return (logits / temperature).log_softmax(-1)


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def uno_rows(embedded, adapted, sees, tensors, scale, family="llama"):
    """The toy target's log-probabilities [T, V] of rows ``embedded`` [T, h]: those ``adapted``
    have b @ a besides, and row t attends to where ``sees`` [T, T] says."""
    model = toys.reference(family)
    config, decoder = model.config, model.model
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    count, x = len(embedded), embedded
    cos, sin = (part[0] for part in decoder.rotary_emb(x[None], torch.arange(count)[None]))

    def product(number, part, rows):
        at = getattr(getattr(decoder.layers[number], PARTS[part]), part)
        out = rows @ at.weight.T
        a, b = (tensors[f"layers.{number}.{part}.{half}"] for half in "ab")
        return out + scale * (rows @ a.T @ b.T) * adapted[:, None]

    for number, layer in enumerate(decoder.layers):
        h = layer.input_layernorm(x)
        q, k, v = (product(number, f"{name}_proj", h) for name in "qkv")
        q, k, v = (
            y.view(count, n, -1).transpose(0, 1) for y, n in ((q, heads), (k, groups), (v, groups))
        )
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k, v = (y.repeat_interleave(heads // groups, 0) for y in (k, v))
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~sees, -torch.inf).softmax(-1)
        x = x + product(number, "o_proj", (weights @ v).transpose(0, 1).reshape(count, -1))
        h = layer.post_attention_layernorm(x)
        gate, up = product(number, "gate_proj", h), product(number, "up_proj", h)
        x = x + product(number, "down_proj", torch.nn.functional.silu(gate) * up)
    return model.lm_head(decoder.norm(x)).log_softmax(-1)


def uno(drafter, text, root, depth=5, family="llama"):
    known, places = len(text) + 1, drafter.masks
    table = toys.reference(family).get_input_embeddings().weight
    if drafter.config.mask_token_id is None:
        drawn = np.random.default_rng(known).integers(1, toys.VOCABULARY, places)
        guesses = table[torch.from_numpy(drawn)]
    else:
        guesses = toys.UNO_MASK.expand(places, -1)
    embedded = torch.cat([table[torch.tensor([*text, root])], guesses])
    adapted = torch.arange(known + places) >= known
    sees = torch.ones(known + places, known + places, dtype=torch.bool).tril()
    if not drafter.config.causal:
        sees[known:, known:] = True
    if window := getattr(toys.reference(family).config, "sliding_window", None):
        at = torch.arange(known + places)
        sees &= at > at[:, None] - window
    tensors, scale = toys.uno_tensors(family=family), drafter.config.scale
    rows = uno_rows(embedded, adapted, sees, tensors, scale, family)
    return rows[known - 1 : known - 1 + depth]


@cache
def draft_model():
    """The draft model, with transformers' own attention."""
    model = toys._make("llama", 0, toys.VOCABULARY, "eager").double()
    model.load_state_dict(toys.draft_model().state_dict())
    return model


@cache
def fresh(*path):
    """log q [d, V] after every token of a path, by a forward of the draft model without a cache."""
    with torch.inference_mode():
        return (
            draft_model()(torch.tensor([path]), use_cache=False).logits[0].float().log_softmax(-1)
        )
