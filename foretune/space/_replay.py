"""Replaying sketches through TVM: the one place of this room where programs are transformed.

TVM state (the parsed program, the post-processors, the instructions of a sketch) is costly to make
and cannot travel between processes. It is therefore derived from text on first use and kept per
process in bounded caches: a candidate that arrives by pickle replays like one made here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.errors import IllegalCandidateError, last_line
from foretune.space import _products
from foretune.space.decision import Choice, Decision, Variable
from foretune.space.trace import plain

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Schedule

_SEED = 1
"""Replays are deterministic; a schedule wants a seed all the same."""


@dataclass(frozen=True)
class Program:
    """The untransformed module of a workload and the post-processors of its target."""

    module: IRModule
    postprocessors: tuple[Any, ...]

    def schedule(self) -> Schedule:
        """A fresh schedule of the untransformed module."""
        from foretune import _tvm

        return _tvm.Schedule(self.module, seed=_SEED, debug_mask="none", error_render_level="none")


@functools.lru_cache(maxsize=64)
def program(module_json: str, target_json: str) -> Program:
    """The program of a workload, given the texts that identify it."""
    from foretune import _tvm

    module, target = _tvm.load_json(module_json), _tvm.Target(json.loads(target_json))
    if _products.product_of(module, target) is not None:
        return Program(module, _products.postprocessors(module_json))
    context = _tvm.make_context(module, target, space_generator="post-order-apply")
    return Program(module, tuple(context.space_generator.postprocs or ()))


class Template:
    """The instructions of a sketch as TVM objects, ready to be joined with decisions.

    Args:
        base: The program the sketch belongs to.
        trace: The trace, with some legal decision for every sampling instruction: as JSON text, or
            as the schedule that it was written from, which saves parsing.
        variables: The decision variables.
        positions: For each variable, the instruction it belongs to.
    """

    def __init__(
        self,
        base: Program,
        trace: str | Schedule,
        variables: Sequence[Variable],
        positions: Sequence[int],
    ) -> None:
        from foretune import _tvm

        if isinstance(trace, str):
            schedule = base.schedule()
            _tvm.Trace.apply_json_to_schedule(json.loads(trace), schedule)
        else:
            schedule = trace
        made = schedule.trace
        self.instructions = [inst for inst in made.insts if inst.kind.name != "EnterPostproc"]
        self.frozen = {
            index: decision
            for index, inst in enumerate(self.instructions)
            if (decision := made.get_decision(inst)) is not None
        }
        self.base = base
        self.positions = tuple(positions)
        self._annotated = {
            at: [_with_value(self.instructions[at], v) for v in variable.values]
            for variable, at in zip(variables, positions, strict=True)
            if isinstance(variable, Choice) and at not in self.frozen
        }

    def trace(self, decisions: Sequence[Decision], stop: int | None = None) -> Any:
        """The TVM trace of the sketch with these decisions.

        Args:
            decisions: One per variable.
            stop: Only instructions before this one, if given.
        """
        from foretune import _tvm

        chosen: dict[int, Any] = dict(self.frozen)
        instructions: list[Any] = list(self.instructions)
        for at, decision in zip(self.positions, decisions, strict=True):
            if at in self._annotated:
                assert isinstance(decision, int)
                instructions[at] = self._annotated[at][decision]
            else:
                chosen[at] = list(decision) if isinstance(decision, tuple) else decision
        kept = instructions[:stop]
        return _tvm.Trace(
            [inst for inst in kept if inst is not None],
            {kept[at]: decision for at, decision in chosen.items() if at < len(kept)},
        )

    def replay(
        self, decisions: Sequence[Decision], before: Callable[[Any, Schedule], None] | None = None
    ) -> Schedule:
        """Applies the trace and checks that TVM kept every decision.

        Args:
            decisions: One per variable.
            before: Called before each instruction, with it and the schedule as it is then.

        Raises:
            IllegalCandidateError: TVM refused an instruction or changed a decision.
        """
        schedule = self.base.schedule()

        def look(instruction: Any, _inputs: Any, _attributes: Any, decision: Any) -> Any:
            assert before is not None
            before(instruction, schedule)
            return decision

        provider = {} if before is None else {"decision_provider": look}
        try:
            self.trace(decisions).apply_to_schedule(schedule, remove_postproc=True, **provider)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise IllegalCandidateError(
                f"every instruction must apply, but TVM refused decisions {list(decisions)!r}: "
                f"{last_line(error)}"
            ) from error
        self._check_kept(schedule, decisions)
        return schedule

    def _check_kept(self, schedule: Schedule, decisions: Sequence[Decision]) -> None:
        trace = schedule.trace
        kept = [
            plain(decision)
            for inst in trace.insts
            if (decision := trace.get_decision(inst)) is not None
        ]
        asked: dict[int, Any] = {at: plain(d) for at, d in self.frozen.items()}
        for at, decision in zip(self.positions, decisions, strict=True):
            if at not in self._annotated:
                asked[at] = plain(decision)
        wanted = [asked[at] for at in sorted(asked)]
        if kept != wanted:
            raise IllegalCandidateError(
                f"TVM must keep every decision, but it changed {wanted!r} to {kept!r}: "
                "sample or mutate through the space"
            )

    def apply(self, decisions: Sequence[Decision]) -> Schedule:
        """``replay`` and the target's post-processors.

        Raises:
            IllegalCandidateError: As ``replay``, or a post-processor rejected the program.
        """
        schedule = self.replay(decisions)
        schedule.enter_postproc()
        for postprocessor in self.base.postprocessors:
            try:
                accepted = bool(postprocessor.apply(schedule))
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                raise IllegalCandidateError(
                    f"post-processors must apply, but {_name(postprocessor)} raised on "
                    f"{list(decisions)!r}: {last_line(error)}"
                ) from error
            if not accepted:
                raise IllegalCandidateError(
                    f"post-processors must accept the program, but {_name(postprocessor)} "
                    f"rejected {list(decisions)!r}: try another candidate"
                )
        return schedule


def _with_value(instruction: Any, value: int) -> Any:
    # 0 stands for "without": TVM's own "off" value (-1) makes its post-processor loop for ever.
    if value == 0:
        return None
    inputs = [instruction.inputs[0], value]
    return type(instruction)(
        instruction.kind, inputs, list(instruction.attrs), list(instruction.outputs)
    )


def _name(postprocessor: Any) -> str:
    return str(postprocessor).rsplit(".", 1)[-1]
