"""A drafter's accuracy by depth: as its training sees it, and as it decodes.

A student is asked as in a step of training: whether its best token is the one it is to learn, given
the text's true tokens before. A drafter is asked round by round, as decoding does: whether it is
the text's own. On one text the two should agree: where they do not, the drafter is fed otherwise
than it was trained, or learns something else than what is served.

Shapes: A anchors, L drafted depths, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.decoding.along import along
from core.drafting.session import Drafter
from core.errors import UserError
from core.files import write_json
from core.learning.corpus import Blocks
from core.learning.shards import Document
from core.learning.student import Student
from core.models.language import Language
from core.rounds.draft import Array
from core.train.simulate import reading_of

FORMAT, VERSION = "draftscope-accuracy", 1
ANCHORS = 16  # of each document
DOCUMENTS = 24  # of each text that a training reports


@dataclass(frozen=True)
class Accuracy:
    """How often the best token was right, by depth, on the text of this name.

    right, seen              over all places
    right_after, seen_after  over the places whose shallower depths were all right
    """

    text: str
    right: tuple[int, ...]
    seen: tuple[int, ...]
    right_after: tuple[int, ...]
    seen_after: tuple[int, ...]

    @staticmethod
    def of(text: str, right: Array, there: Array) -> Accuracy:
        """Counts of bool [A, L]: whether each place was right, and whether the text reaches it."""
        right = right & there
        alive = np.concatenate([np.ones((len(right), 1), bool), right[:, :-1]], 1)
        alive = there & np.logical_and.accumulate(alive, 1)
        sums = (right, there, right & alive, alive)
        return Accuracy(text, *(tuple(each.sum(0).tolist()) for each in sums))

    @property
    def mean(self) -> float:
        """The mean over all places of all depths."""
        return sum(self.right) / max(1, sum(self.seen))

    def to_json(self) -> dict[str, Any]:
        names = ("right", "seen", "right_after", "seen_after")
        return {"text": self.text, **{name: list(getattr(self, name)) for name in names}}


@torch.inference_mode()
def of_student(
    student: Student[Any], documents: Iterable[Document], text: str, anchors: int = ANCHORS
) -> Accuracy:
    """The accuracy as training sees it: anchors spread over each document's answer."""
    head = student.head(torch.arange(len(student.embedding)))
    rng, right, there = torch.Generator().manual_seed(0), list[Array](), list[Array]()
    for document in documents:
        room = len(document) - document.answer - 1
        picks = torch.linspace(0, room - 1, min(anchors, room)).round().long().unique()
        labels = student.labels(Blocks(document, picks + document.answer), 0, rng, student.gamma)
        best = head(student.rows(labels.blocks)).argmax(-1).cpu()
        # a student may learn twice at a depth: the last time as it decodes
        depths = min(student.max_depth, best.shape[1])
        right.append((best == labels.ids[..., 0])[:, -depths:].numpy())
        there.append(labels.blocks.target_probs(depths, 0)[2].numpy())
    return Accuracy.of(text, np.concatenate(right), np.concatenate(there))


@torch.inference_mode()
def of_drafter(
    language: Language, drafter: Drafter, documents: Iterable[Document], text: str
) -> Accuracy:
    """The accuracy as it decodes, at every token of each document's answer.

    Raises UserError for a drafter that does not tell q.
    """
    depths, rows = drafter.max_depth, list[Array]()
    for document in documents:
        roots = iter(range(document.answer, len(document) - 1))
        for at in along(drafter, reading_of(language, drafter, document), roots, 1):
            log_q = at.session.log_q(at.path(depths))
            if log_q is None:
                raise UserError("this drafter does not tell q: its accuracy is not known")
            own = at.path(depths + 1)[1:]
            best = log_q.argmax(-1).cpu().numpy()[: len(own)]
            row = np.zeros((2, depths), bool)
            row[0, : len(best)] = best == np.array(own[: len(best)])
            row[1, : len(own)] = True
            rows.append(row)
    return Accuracy.of(text, *np.stack(rows, 1))


def write_accuracy(path: Path, drafter: str, steps: int, found: Sequence[Accuracy]) -> None:
    """The file that ``report --trained`` reads beside traces."""
    whole = {"format": FORMAT, "version": VERSION, "drafter": drafter, "steps": steps}
    whole["texts"] = [each.to_json() for each in found]
    write_json(path, whole)
