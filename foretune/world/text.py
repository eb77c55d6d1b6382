"""Actions as text: what models read of their words.

An action names a block by its place in the untransformed program and an axis by its place in the
block: ``split k0.1 4 32``.

Paper: the compiler world model (arXiv 2606.09312) takes the action tuple as it is. Here it is
canonical, so that a model cannot learn names and an unseen workload has no unseen words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from foretune.space import Action

TEXT_VERSION = 1
"""Number of the notation, and of that of programs (``foretune_research.world.text``). Raised
whenever either changes, or what counts as a step does."""

_VENDOR = "meta_schedule."
_TVM_LOOP = re.compile(r"(.*?)(_fused)?(?:_(\d+))?", re.DOTALL)


def action_text(action: Action, axes: Mapping[str, Sequence[str]]) -> str:
    """The canonical text of an action: kind, blocks and loops by place, numbers as they are.

    Before → after, where ``C`` is the first block and ``j`` its second axis: ``split(C.j, 4, 32)``
    → ``split k0.1 4 32``; ``reorder(C.i.0, C.j.0)`` → ``reorder k0.0.0 .1.0``, which leaves out a
    block that is the one before. Where TVM gives a loop's name only, ``*`` stands for the block.

    Args:
        action: From ``Candidate.actions``, or a step of a trajectory.
        axes: Block -> names of its loops in the untransformed program (``Sketch.axes``). A name
            that is not in there stays.
    """
    blocks = {block: at for at, block in enumerate(axes)}
    words = [action.kind]
    last = ""
    for argument in action.args:
        if not isinstance(argument, str):
            words.append(f"{argument:.4g}" if isinstance(argument, float) else str(argument))
            continue
        word = "+".join(_place(part, blocks, axes) for part in argument.split("+"))
        block, dot, rest = word.partition(".")
        words.append(f".{rest}" if dot and block == last else word)
        last = block
    return " ".join(words)


def _place(name: str, blocks: Mapping[str, int], axes: Mapping[str, Sequence[str]]) -> str:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        block = ".".join(parts[:end])
        if block in blocks:
            rest = parts[end:]
            if rest and rest[0] in axes[block]:
                rest[0] = str(list(axes[block]).index(rest[0]))
            return ".".join([f"k{blocks[block]}", *rest])
    return _loop_of_tvm(name, axes) or name.removeprefix(_VENDOR)


def _loop_of_tvm(name: str, axes: Mapping[str, Sequence[str]]) -> str:
    """With k the third axis of any block ``k_1`` → ``*.2.1``; empty if no block has such an axis.

    A fused loop is called by its first axis: ``k_j_fused_1`` → ``*.2+.1``.
    """
    for own in axes.values():
        if name in own:
            return f"*.{list(own).index(name)}"
    matched = _TVM_LOOP.fullmatch(name)
    assert matched is not None
    base, fused, level = matched.groups("")
    for own in axes.values():
        for at, axis in enumerate(own):
            if base == axis or (fused and base.startswith(f"{axis}_")):
                return f"*.{at}{'+' if fused else ''}{'.' if level else ''}{level}"
    return ""
