"""Trained rankers that come with the package, and which hardware they are for.

Weights lie in ``foretune/cost/weights`` as ``NAME-KIND.npz``: ``KIND`` is the kind of target they
are for, ``NAME`` one of ``joined`` (the default; its trees on decisions are read by the cost model
``gbdt``, and draft for models that read programs), ``behaviour``, ``classifier``, ``mlp``, ``tlp``
and ``world``.
"""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import TYPE_CHECKING

from foretune.cost import rankers
from foretune.cost._ranker import Ranker
from foretune.cost.joined import JoinedRanker
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.hardware import Hardware

DEFAULT = "default"

_DEFAULT_MEMBER = "gbdt_actions"
"""The member of the joined ranker that the default is where it has no file of its own."""
_ARCHITECTURE = "x86_64"
"""Of the processors that the weights for CPUs were trained on."""
_SUFFIX = ".npz"


def shipped(name: str, kind: str) -> Ranker | None:
    """The trained ranker called ``name`` that comes with the package; None if there is none.

    The default is read from the file of the joined ranker, so that it is there once.

    Args:
        name: ``"joined"``, ``"default"``, ``"behaviour"``, ``"mlp"``, ``"tlp"``, ``"world"``...
        kind: Kind of target that it is for, as ``Hardware.kind``.

    Raises:
        RecordError: The file is damaged or of another version.
        MissingDependencyError: The ranker needs a package that is not installed.
    """
    weights = importlib.resources.files("foretune.cost") / "weights"
    own = weights / f"{name}-{kind}{_SUFFIX}"
    if own.is_file():
        with importlib.resources.as_file(own) as path:
            return rankers.load_for_run(path)
    joined = weights / f"{JoinedRanker.name}-{kind}{_SUFFIX}"
    if name != DEFAULT or not joined.is_file():
        return None
    with importlib.resources.as_file(joined) as path:
        return JoinedRanker.load_member(path, _DEFAULT_MEMBER)


def trained(ranker: Ranker | Path | str, kind: str) -> Ranker:
    """A trained ranker: the one given, one from a file, or one that comes with the package.

    Args:
        ranker: The ranker, a file (``.npz``), or a name as ``shipped`` takes it.
        kind: Kind of target that weights of the package are to be for.

    Raises:
        BadInputError: There are no such weights.
        RecordError: The file cannot be read, is damaged, or is of another version.
    """
    if isinstance(ranker, Ranker):
        return ranker
    if isinstance(ranker, Path) or ranker.endswith(_SUFFIX):
        return rankers.load_for_run(ranker)
    made = shipped(ranker, kind)
    if made is None:
        raise BadInputError(
            f"no trained weights {ranker!r} for targets of kind {kind!r} come with this "
            "installation: train some with `foretune train` and give the file, or choose the cost "
            "model 'gbdt'"
        )
    return made


def is_known(hardware: Hardware) -> bool:
    """Whether a ranker finds what it looks at: with a factor unknown, 0, it would only guess."""
    factors = (hardware.simd_bits, hardware.l1_bytes, hardware.l2_bytes)
    return not hardware.has_cores or (min(factors) > 0 and of_known_architecture(hardware))


def of_known_architecture(hardware: Hardware) -> bool:
    """Whether weights of the package have learned from such processors; of GPUs there is no say."""
    triple = str(json.loads(hardware.target).get("mtriple", _ARCHITECTURE))
    return not hardware.has_cores or triple.startswith(_ARCHITECTURE)
