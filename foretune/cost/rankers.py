"""Rankers by name: what orders the programs of a workload after learning from other workloads.

``create`` makes an untrained one, ``load`` reads a trained one, ``load_for_run`` does so beside a
tuning run; ``register`` or an entry point in the group ``foretune.rankers`` adds one. A factory is
called as ``factory(seed=..., **options)`` and returns a ``Ranker``; its ``load`` reads the files
that the ranker saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foretune._registry import Registry
from foretune.cost._ranker import Needs, Ranker
from foretune.cost._ranker_file import read_name
from foretune.errors import BadInputError, ForetuneError, RecordError

_RANKERS: Registry[Ranker] = Registry(
    "ranker",
    "foretune.rankers",
    {
        "behaviour": "foretune.cost.behaviour.ranker:BehaviourRanker",
        "classifier": "foretune.cost.behaviour.classifier:Classifier",
        "gbdt": "foretune.cost.gbdt_ranker:GbdtRanker",
        "gbdt_actions": "foretune.cost.gbdt_ranker:GbdtActionRanker",
        "gbdt_behaviour": "foretune.cost.behaviour.table_rankers:GbdtBehaviourRanker",
        "joined": "foretune.cost.joined:JoinedRanker",
        "mlp": "foretune.cost.mlp:MlpRanker",
        "mlp_actions": "foretune.cost.mlp_actions:MlpActionRanker",
        "mlp_behaviour": "foretune.cost.behaviour.table_rankers:MlpBehaviourRanker",
        "random": "foretune.cost.random_ranker:RandomRanker",
        "tlp": "foretune.cost.tlp:TlpRanker",
        "world": "foretune.cost.world:WorldRanker",
    },
    studied=(
        "behaviour:variants",
        "classifier:hf",
        "classifier:variants",
        "gbdt:variants",
        "gbdt_actions:variants",
        "mlp:reference",
        "mlp:variants",
        "mtl_tlp",
        "mtl_tlp:reference",
        "tgraph",
        "tlp:reference",
        "tlp:variants",
        "world:reference",
        "world:variants",
    ),
)


def create(name: str, *, seed: int = 0, **options: Any) -> Ranker:
    """Makes the untrained ranker called ``name``.

    Args:
        name: One of ``names()``.
        seed: The ranker's only source of randomness.
        options: Passed to the ranker.

    Raises:
        BadInputError: The name is unknown, or the ranker refuses an option.
        MissingDependencyError: The ranker needs a package that is not installed.
    """
    return _RANKERS.factory(name)(seed=seed, **options)


def needs(name: str) -> Needs:
    """What the ranker called ``name`` has to be given.

    Raises:
        BadInputError: The name is unknown.
        MissingDependencyError: The ranker needs a package that is not installed.
    """
    return _needs(_RANKERS.factory(name))


def load(path: Path | str, **parts: Any) -> Ranker:
    """Reads a trained ranker from a file, whichever ranker it is.

    Args:
        path: The file.
        parts: What the ranker's ``load`` takes besides, for example ``threads=1``.

    Raises:
        RecordError: The file cannot be read or is not such a file.
        VersionMismatchError: Written under another schema or feature version.
        BadInputError: It holds a ranker that is not known here, or one that refuses a part.
        MissingDependencyError: The ranker needs a package that is not installed.
    """
    return _read(Path(path), lambda _factory: parts)


def load_for_run(path: Path | str) -> Ranker:
    """``load`` beside a tuning run, with what the ranker needs there (``Needs.in_run``)."""
    return _read(Path(path), lambda factory: _needs(factory).in_run)


def _needs(factory: Any) -> Needs:
    found: Needs = getattr(factory, "needs", Needs())
    return found


def _read(path: Path, parts_of: Callable[[Any], Mapping[str, Any]]) -> Ranker:
    name = read_name(path)
    factory = _RANKERS.factory(name)
    reader = getattr(factory, "load", None)
    if reader is None:
        raise BadInputError(
            f"{path} holds a ranker {name!r}, whose factory cannot load: register the class instead"
        )
    try:
        ranker: Ranker = reader(path, **parts_of(factory))
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"{path} holds a damaged ranker {name!r} ({error!r}): train it again"
        ) from error
    return ranker


def names() -> list[str]:
    """Names that ``create`` accepts, sorted."""
    return _RANKERS.names()


def descriptions() -> dict[str, str]:
    """Name to one line of text, for listings."""
    return {
        name: text + "".join(f" [{k}={v}]" for k, v in _presets(name).items())
        for name, text in _RANKERS.descriptions().items()
    }


def _presets(name: str) -> Mapping[str, Any]:
    """Options that a name stands for."""
    try:
        factory = _RANKERS.factory(name)
    except ForetuneError:
        return {}
    presets: Mapping[str, Any] = getattr(factory, "presets", {})
    return presets


def register(name: str, factory: Callable[..., Ranker]) -> None:
    """Makes ``factory`` known as ``name`` in this process; a taken name is refused."""
    _RANKERS.register(name, factory)


def unregister(name: str) -> None:
    """Takes back what ``register`` added."""
    _RANKERS.unregister(name)
