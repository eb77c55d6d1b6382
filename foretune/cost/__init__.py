"""Cost models: how good is a candidate?

``create`` makes one by name, to which options may be added where a trained ranker is behind it
(``world:online=false``); ``register`` or an entry point in the group ``foretune.cost_models`` adds
one. A factory is called as ``factory(rng=..., hardware=..., **options)`` and returns a
``CostModel``. ``foretune.cost.rankers`` does the same for rankers, which are trained once on many
workloads; ``foretune.cost.pretrained`` makes a cost model of one.

``_base`` is the door to cost models. ``random`` and ``gbdt`` know nothing before a run;
``pretrained`` joins a prior (``_prior``, ``_opinions``), what the run corrects and a draft,
``joined_model`` does so for the joined ranker; ``shipped`` finds the weights that come with the
package. ``_ranker`` is the door to rankers, ``rankers`` has them by name, ``_ranker_file`` reads
and writes them. Over tables (``_tables``, ``_table_ranker``): trees, ``gbdt_ranker`` with
``_boosters`` and ``_lambdarank``, and perceptrons, ``mlp_actions`` with ``_perceptrons``,
``_perceptron_training`` and ``_listwise``. Networks (``_neural``, ``_networks``, ``_training``,
``_examples``, ``_heads``, ``_trained``): ``mlp`` and ``tlp``. ``joined`` joins several;
``random_ranker`` is the control. ``world`` and ``behaviour`` are rooms of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._options import refuse_unknown, require_type, split_options
from foretune._registry import Registry
from foretune.cost._base import Abilities, CostModel, Prediction
from foretune.cost._ranker import Needs, Ranker, fitted_scale, fitted_strength, score_group
from foretune.errors import BadInputError, RecordError, unknown_name

if TYPE_CHECKING:
    from foretune.hardware import Hardware

__all__ = [
    "DEFAULT_MODEL",
    "Abilities",
    "CostModel",
    "FloatArray",
    "Needs",
    "Prediction",
    "Ranker",
    "asks_llm",
    "check_name",
    "create",
    "descriptions",
    "fitted_scale",
    "fitted_strength",
    "names",
    "register",
    "score_group",
    "split_name",
    "unregister",
]

_TRAINED = ".npz"
_PRETRAINED = "foretune.cost.pretrained:"
_BEHAVIOUR, _JOINED = "behaviour", "joined"
_BUILTIN: Mapping[str, str] = {
    "behaviour": "foretune.cost.behaviour.model:behaviour",
    "gbdt": f"{_PRETRAINED}gbdt",
    "gbdt:scratch": "foretune.cost.gbdt:GradientBoosting",
    "joined": "foretune.cost.joined_model:joined",
    "mlp": f"{_PRETRAINED}mlp",
    "mlp:formulas": f"{_PRETRAINED}mlp_formulas",
    "random": "foretune.cost.random:RandomModel",
    "tlp": f"{_PRETRAINED}tlp",
    "world": f"{_PRETRAINED}world",
}
DEFAULT_MODEL = "joined"
"""What a run takes when nobody names a cost model."""
_MODELS: Registry[CostModel[Any]] = Registry("cost model", "foretune.cost_models", _BUILTIN)
_OF_PRETRAINED: Mapping[str, type] = {"draft": str, "features": str, "online": bool}
_OF_JOINED: Mapping[str, type] = {"keep": int, "online": bool}
_IN_NAMES: Mapping[str, Mapping[str, type]] = {
    _BEHAVIOUR: {
        "draft": str,
        "online": bool,
        "first": str,
        "keep": int,
        "model": str,
        "scores": str,
    },
    "gbdt": _OF_PRETRAINED,
    "gbdt:scratch": {"features": str},
    _JOINED: _OF_JOINED,
    "mlp": _OF_PRETRAINED,
    "mlp:formulas": _OF_PRETRAINED,
    "tlp": _OF_PRETRAINED,
    "world": _OF_PRETRAINED,
}
"""Options that a model's name may hold, with their types; a name is checked before anything is
loaded. The others are given in Python."""


def create(
    name: str,
    *,
    rng: np.random.Generator | int = 0,
    hardware: Hardware | None = None,
    **options: Any,
) -> CostModel[Any]:
    """Makes the cost model called ``name``.

    Args:
        name: One of ``names()``, or a file that ``foretune train`` wrote, ``FILE.npz``: the trained
            ranker with trees on top of it. Options may be added, as ``split_name`` reads them.
        rng: The model's only source of randomness, or a seed for one.
        hardware: What the candidates will run on, for models that look at it.
        options: Passed to the model as they are; those in the name count less.

    Raises:
        BadInputError: The name is unknown, or the model refuses an option.
        RecordError: The file is damaged or of another version.
        MissingDependencyError: The model needs a package that is not installed.
    """
    check_name(name)
    base, named = split_name(name)
    given = {"rng": np.random.default_rng(rng), "hardware": hardware, **named, **options}
    if base.endswith(_TRAINED):
        from foretune.cost.joined_model import JoinedModel
        from foretune.cost.pretrained import PretrainedModel

        made: Callable[..., CostModel[Any]] = JoinedModel if _is_joined(base) else PretrainedModel
        return made(**{"ranker": Path(base), **given})
    return _MODELS.factory(base)(**given)


def split_name(name: str) -> tuple[str, dict[str, Any]]:
    """The cost model and the options that a name holds behind it.

    Before → after: ``mlp:formulas:online=false`` → ``mlp:formulas`` and ``{"online": False}``. What
    ends in ``.npz`` is a file, whatever else is in its name.

    Raises:
        BadInputError: An option occurs twice.
    """
    return split_options(name, file=_TRAINED)


def check_name(name: str) -> None:
    """Refuses what ``create`` knows no model by.

    Raises:
        BadInputError: The name is unknown, the file is not there, or an option in the name is
            unknown or of another type.
    """
    base, options = split_name(name)
    is_file = base.endswith(_TRAINED)
    if is_file and not Path(base).is_file():
        raise BadInputError(
            f"a cost model {_TRAINED} has to be a file that `foretune train` wrote, but there "
            f"is no {base}: train it, or choose one of `foretune cost-models`"
        )
    if not is_file and base not in names():
        raise unknown_name("cost model", base, [*names(), "default"])
    owner = f"cost model {base!r}"
    allowed = _IN_NAMES.get(base, {})
    if is_file:
        allowed = _OF_JOINED if options and _is_joined(base) else _OF_PRETRAINED
    refuse_unknown(f"the name of {owner}", options, allowed)
    for option, value in options.items():
        require_type(owner, option, value, allowed[option])


def _is_joined(file: str) -> bool:
    """Whether a file of weights holds the joined ranker, which has a cost model of its own.

    What cannot be read is refused by who loads it.
    """
    from foretune.cost._ranker_file import read_name

    try:
        return read_name(Path(file)) == _JOINED
    except RecordError:
        return False


def asks_llm(name: str) -> bool:
    """Whether the cost model called so scores by a language model: ``behaviour:scores=llm``."""
    base, options = split_name(name)
    return base == _BEHAVIOUR and options.get("scores") == "llm"


def names() -> list[str]:
    """Names that ``create`` accepts, sorted."""
    return _MODELS.names()


def descriptions() -> dict[str, str]:
    """Name to one line of text, for listings."""
    return _MODELS.descriptions()


def register(name: str, factory: Callable[..., CostModel[Any]]) -> None:
    """Makes ``factory`` known as ``name`` in this process; a taken name is refused."""
    _MODELS.register(name, factory)


def unregister(name: str) -> None:
    """Takes back what ``register`` added."""
    _MODELS.unregister(name)
