"""What is asked of a run, checked before anything takes time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune import cost, search
from foretune.cost import CostModel
from foretune.errors import BadInputError
from foretune.hardware import Devices, Hardware, described_by, probe
from foretune.measure import DeviceAddress, MeasurePolicy, Measurer, place_of
from foretune.tuning.events import Progress
from foretune.tuning.experience import require_journals
from foretune.tuning.measurers import devices_for
from foretune.tuning.plan_search import PlanSearch
from foretune.tuning.task import resolve_names

if TYPE_CHECKING:
    from foretune.graph import Plan
    from foretune.llm import Session
    from foretune.records import Store
    from foretune.space import Candidate

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Files:
    """Where a run keeps what it finds, and what it learns from; see ``foretune.tune``.

    Attributes:
        work_dir, fresh, output, learn_from, store: As given.
    """

    work_dir: str | Path | None = None
    fresh: bool = False
    output: str | Path | None = None
    learn_from: Sequence[str | Path] = ()
    store: Store | None = None

    def check(self) -> None:
        """Refuses directories without a journal, an artifact that would replace other files, and
        the name of a store in the place of one.

        Raises:
            BadInputError: The message says which.
        """
        from foretune.graph import require_free

        named: object = self.store
        if isinstance(named, (str, os.PathLike)):
            raise BadInputError(
                f"`store` must be an open store or None, but got store={os.fspath(named)!r}: open "
                "it with foretune.records.open_store, and close it afterwards"
            )
        require_journals(self.learn_from, self.work_dir if self.fresh else None)
        if self.output is not None:
            require_free(Path(self.output))


@dataclass(frozen=True)
class Choices:
    """What is chosen about a network as a whole.

    Attributes:
        without: Names of passes over the graph that do not run.
        plan: What is chosen for some operators.
        planning: How a plan is searched; None where none is.
    """

    without: Collection[str] = ()
    plan: Plan | None = None
    planning: PlanSearch | None = None

    @classmethod
    def of(
        cls,
        without: Collection[str],
        plan: Plan | None,
        plan_trials: int,
        plan_model: str | Path | None,
        progress: Progress | None,
    ) -> Choices:
        """Checks and reads them; see ``foretune.tune``.

        Raises:
            BadInputError: A pass is unknown, or the search for a plan makes no sense.
            RecordError: ``plan_model`` cannot be read.
        """
        from foretune.graph import require_passes

        require_passes(without)
        return cls(without, plan, PlanSearch.asked_for(plan_trials, plan_model, plan, progress))


@dataclass(frozen=True)
class Method:
    """Who proposes candidates, and who says which of them are worth it.

    Attributes:
        strategy: Its name.
        options: Of the strategy, with the language model where that proposes.
        cost_model: Its name, or the model.
        model_name: What results call it.
        seed: Seeds everything random.
        llm: The language model; None without one.
    """

    strategy: str
    options: Mapping[str, Any]
    cost_model: str | CostModel[Candidate]
    model_name: str
    seed: int
    llm: Session | None = None

    @classmethod
    def of(
        cls,
        strategy: str,
        cost_model: str | CostModel[Candidate],
        options: Mapping[str, Any],
        seed: int,
        llm: Session | None,
    ) -> Method:
        """Checks what was given; see ``foretune.tune``.

        Raises:
            BadInputError: A name is unknown, an option is refused, the seed is negative, or a
                language model is missing.
        """
        named = cost_model if isinstance(cost_model, str) else "default"
        strategy, model_name = resolve_names(strategy, named)
        if seed < 0:
            raise BadInputError(f"`seed >= 0` must hold, but got seed={seed}: pass another one")
        if not isinstance(cost_model, str):
            model_name = type(cost_model).__name__
        scored = isinstance(cost_model, str) and cost.asks_llm(model_name)
        checked = strategy_options(strategy, options, has_llm=llm is not None, scored=scored)
        if scored and llm is None:
            raise BadInputError(
                f"the cost model {model_name!r} asks a language model for scores, but there is "
                "none: give one with --llm, for example --llm "
                "qwen2.5-coder@http://localhost:11434/v1, or with llm= in Python"
            )
        if llm is not None and (not scored or _proposes(strategy, checked)):
            checked["llm"] = llm
        return cls(strategy, checked, cost_model, model_name, seed, llm)

    def model(self, hardware: Hardware) -> CostModel[Candidate]:
        """The cost model, made if need be."""
        if not isinstance(self.cost_model, str):
            return self.cost_model
        asked = {"llm": self.llm} if cost.asks_llm(self.model_name) else {}
        return cost.create(self.model_name, rng=self.seed, hardware=hardware, **asked)


@dataclass(frozen=True)
class Machine:
    """What is tuned for, and who measures.

    Attributes:
        hardware: As far as it is known.
        probe: Asks the machine at hand once more; None where the hardware was given.
        addresses: Of devices elsewhere.
        measurer: Given; None for one that is made for the hardware.
        policy: How such a one measures.
        cluster: Address of the cluster that builds; None for this machine.
    """

    hardware: Hardware
    probe: Callable[..., Hardware] | None = None
    addresses: Sequence[DeviceAddress] = ()
    measurer: Measurer | None = None
    policy: MeasurePolicy | None = None
    cluster: str | None = None

    @classmethod
    def of(
        cls,
        target: str | Hardware | None,
        threads: int | None,
        devices: Devices | None,
        remote: Sequence[str],
    ) -> Machine:
        """Looks at the machine, or asks for the devices; see ``foretune.tune``.

        Raises:
            BadInputError: Target and threads contradict each other, or a device cannot be asked.
        """
        named = None
        if isinstance(target, Hardware):
            hardware = target
            _require_threads(threads, hardware)
        else:
            named = partial(probe, target, threads=threads)
            hardware = named()
        hardware = with_sheet(hardware, devices)
        addresses = devices_for(remote, hardware, target is None)
        if not addresses:
            return cls(hardware, named)
        return cls(replace(hardware, place=place_of(addresses)), addresses=addresses)

    def with_peak(self) -> Hardware:
        """The hardware with its measured peak, where that can be had."""
        if self.probe is None:
            return self.hardware
        return replace(self.probe(measure=True), device=self.hardware.device)


def _require_threads(threads: int | None, hardware: Hardware) -> None:
    if threads is not None and threads != hardware.threads:
        raise BadInputError(
            f"`threads` must be those of the hardware where `target` is one, but got "
            f"threads={threads} and a target of {hardware.threads}: leave threads out, or pass "
            f"dataclasses.replace(hardware, threads={threads})"
        )


def with_sheet(hardware: Hardware, devices: Devices | None) -> Hardware:
    """The hardware with the data sheet that a user's file has of it."""
    if devices is None:
        return hardware
    described = described_by(hardware, devices)
    if described.device is None:
        logger.warning(
            "the file of devices has none that is called %r, as this hardware is: add that to the "
            "aliases of one of them",
            hardware.name,
        )
    return described


def strategy_options(
    strategy: str, options: Mapping[str, Any], has_llm: bool, scored: bool = False
) -> dict[str, Any]:
    """Options of a strategy, checked before anything takes time.

    Before → after: with a language model and no proposer, ``{}`` → ``{"proposer": "llm"}``.

    Args:
        strategy: A name ``foretune strategies`` lists; options in it count, too.
        options: Those that stand beside the name.
        has_llm: Whether there is a language model.
        scored: Whether the cost model asks it: then it proposes only where that is said.

    Raises:
        BadInputError: An option is unknown, of a wrong type, makes no sense, or contradicts another
            one or the language model.
        RecordError: An option names a file that cannot be read.
    """
    given = dict(options)
    if "llm" in given:
        raise BadInputError(
            "a language model is no option of a strategy: give it with --llm, or with llm= in "
            "Python"
        )
    base, named = search.split_name(strategy)
    proposer = given.get("proposer", named.get("proposer"))
    if has_llm and proposer is None and not scored:
        proposer = given["proposer"] = "llm"
        try:
            search.check(base, {"proposer": "llm"})
        except BadInputError as error:
            raise BadInputError(
                f"a language model proposes edits of programs, but {error}: choose the strategy "
                "mcts or evolutionary, or leave the language model out"
            ) from error
    search.check(strategy, given)
    asked = search.proposers.asks_llm(proposer)
    if has_llm and not asked and not scored:
        raise BadInputError(
            f"a language model is for the proposer 'llm', but the proposer is {proposer!r}: leave "
            "one of them out, or choose the cost model behaviour:scores=llm"
        )
    if asked and not has_llm:
        raise BadInputError(
            f"the proposer {proposer!r} needs a language model, but there is none: give one with "
            "--llm, for example --llm qwen2.5-coder@http://localhost:11434/v1, or with llm= in "
            "Python"
        )
    return given


def _proposes(strategy: str, options: Mapping[str, Any]) -> bool:
    """Whether the proposer is a language model."""
    named = search.split_name(strategy)[1]
    return search.proposers.asks_llm(options.get("proposer", named.get("proposer")))
