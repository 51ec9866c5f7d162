"""Whether a model reads a drafted tree as its paths.

Verification needs that: a row that sees the context, its ancestors and itself must have the logits
that the model gives the end of that path.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from core.errors import UserError, first_line
from core.models.layer_kinds import carries_state
from core.models.target import Target, input_device, read_one_token
from core.rounds.draft import Draft

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

# Of the distance between two readings over the spread of the logits. Readings of the same path
# differ by rounding, and where rounding chooses other experts: SmolLM2's by 7e-6 in float32, 0.07
# in bfloat16. Readings of other paths differ by half of the spread or more.
APART = {torch.float32: 0.1, torch.float64: 0.1}
APART_HALF = 0.4


def let_trees_branch(model: PreTrainedModel, config: PreTrainedConfig) -> None:
    """Let drafted trees branch off a model, also off layers that carry a state.

    Raises UserError for a model whose rows cannot be placed in a tree: one that counts positions by
    itself, reads later tokens, or has such layers of a make that is not known.
    """
    kind = type(model).__name__
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise UserError(f"{kind} counts positions by itself, so a drafted tree has no place in it")
    if any(getattr(module, "is_causal", True) is False for module in model.get_decoder().modules()):
        raise UserError(f"{kind} reads the tokens behind a place too, so it cannot write on")
    if carries_state(config):
        from core.models.recurrent import let_states_fork

        let_states_fork(model, config)


def cannot_run(model: PreTrainedModel, error: Exception) -> UserError:
    """An error of a model's first forward, as one sentence."""
    kind = type(model).__name__
    return UserError(f"{kind} does not run on Draftscope's cache and masks: {first_line(error)}")


def check_tree_reading(model: PreTrainedModel) -> None:
    """Check a loaded model on a text of two tokens and a tree of three, in three small forwards.

    Raises UserError for one that does not run, or that reads a root and its second child otherwise
    than the same path as a text: one that attends both ways, or counts positions from elsewhere.
    """
    try:
        read_one_token(model)
        apart = _readings_apart(model)
    except Exception as error:
        raise cannot_run(model, error) from error
    if apart > APART.get(model.dtype, APART_HALF):
        raise UserError(
            f"{type(model).__name__} reads a drafted tree otherwise than the same tokens as a text "
            f"(the logits lie {apart:.0%} of their spread apart), so it cannot verify drafts"
        )


@torch.inference_mode()
def _readings_apart(model: PreTrainedModel) -> float:
    """How far the logits of a path's two rows in a tree lie from those of the path as a text that
    transformers' own code reads, over the spread of the latter (Euclidean norms, the larger)."""
    target, step = Target(model, padded=False), model.config.get_text_config().vocab_size // 7
    first, second, root, child, sibling = (n * step for n in (5, 2, 4, 1, 3))
    target.prefill([first, second], 3)
    tree = replace(
        Draft.chain([root, child, sibling]),
        parents=np.array([-1, 0, 0], np.int32),
        depths=np.array([0, 1, 1], np.int32),
    )
    branched = target.score(tree).logits[[0, 2]].float()
    text = torch.tensor([[first, second, root, sibling]], device=input_device(model))
    plain = model(input_ids=text, use_cache=False).logits[0, 2:].float()
    spread = (plain - plain.mean(-1, keepdim=True)).norm(dim=-1)
    apart = (branched - plain).norm(dim=-1) / spread.clamp(min=torch.finfo(torch.float32).tiny)
    return float(apart.max())
