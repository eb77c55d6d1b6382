"""The whole network: proven before the first trial, timed as it is deployed after the last.

Tuning kernels pays only if the network that they make up works and is faster. Hence the order:

1. *Proof.* The network is compiled with default schedules, run, compared with the original on two
   inputs, and timed beside it. What cannot work is refused here, before a trial is spent.
2. *Tuning*, of kernels.
3. *Conclusion.* The network with the best kernels is compiled, timed beside the proven one and the
   original, in alternating rounds of child processes, compared on all inputs, and shipped if it is
   right and no slower than the proven one. Otherwise the proven one is.
4. *Improvement.* What is shipped so far is saved. Then contenders of the chosen kernels are tried
   in the network, and it is shipped with those that are faster, all of them, if that pays and is
   right.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretune.errors import UnsupportedModelError, last_line
from foretune.hardware import Hardware, usable_cores, why_not_here
from foretune.tuning.compiled import (
    Compiled,
    alternating,
    compile_default,
    running_compiled,
    running_original,
)
from foretune.tuning.contenders import (
    TRYING_S,
    Contender,
    faster_ones,
    most_contenders,
    try_in_network,
)
from foretune.tuning.network import DEFAULT, NOTHING, TUNED, Network

if TYPE_CHECKING:
    from foretune.engines import EngineResult
    from foretune.graph import Artifact, Extraction, InputSet, Verification
    from foretune.space import Candidate
    from foretune.workload import Model

logger = logging.getLogger(__name__)

_FIRST = 2
"""Inputs of the first comparison: the model's examples, and random ones."""
_CALLS = 3
_TIMING_S = 12.0
"""Seconds that the rounds of the conclusion may take, about."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 9
_BISECTING_S = 60.0
"""Seconds that looking for the first operator that differs may take."""
_MORE_INPUTS_S = 10.0
"""Further inputs are compared before the first trial where that takes less."""


class Proof:
    """A network that works with default schedules, and what is shipped of it in the end.

    Args:
        model: The network.
        hardware: What it is compiled for.
        extraction: How it was taken apart.
        began: ``time.perf_counter`` when the proof began, the taking apart included.
        earlier_s: Seconds that proving it with another plan took.

    Raises:
        UnsupportedModelError: It cannot be compiled, or what was compiled computes something else;
            the message names the operators.
    """

    def __init__(
        self,
        model: Model,
        hardware: Hardware,
        extraction: Extraction,
        began: float,
        earlier_s: float = 0.0,
    ) -> None:
        from foretune.graph import verification_inputs

        self.model = model
        self.hardware = hardware
        self.extraction = extraction
        self.default: Artifact = compile_default(model, hardware, extraction)
        self.default.link()
        self.compiled_s = time.perf_counter() - began
        self.network = Network(
            passes=self.default.manifest["passes"],
            plan=self.default.manifest["plan"],
            proof_s=earlier_s,
        )
        self.saved: Path | None = None
        self.inputs = verification_inputs(model)
        self._checks: list[Verification] = []
        self._comparing_s = 0.0
        self.runs_here = why_not_here(hardware) is None
        if self.runs_here:
            self._run()
        self._spend(began)

    def save(self, output: Path, replacing: bool = False) -> None:
        """Writes the proven network where the artifact is wanted: what a killed run leaves.

        A tuned artifact of this network that is there stays, unless ``replacing``.
        """
        if replacing:
            self.default.save(output)
        elif self.default.save_unless_tuned(output) is not None:
            return
        self.saved = output

    def compare_more(self, allowed_s: float | None) -> None:
        """Compares the proven network on all inputs, unless that takes long.

        Args:
            allowed_s: Seconds that it may take; None for those that are usual.

        Raises:
            UnsupportedModelError: It computes something else.
        """
        began = time.perf_counter()
        expected_s = len(self.inputs[_FIRST:]) * self._each_s()
        most_s = _MORE_INPUTS_S if allowed_s is None else min(_MORE_INPUTS_S, allowed_s)
        if self.runs_here and expected_s <= most_s:
            self._check(self.inputs)
            self._spend(began)

    def reserve_s(self, most_s: float = math.inf) -> float:
        """Seconds that ``conclude`` and ``improve`` will take, about.

        Args:
            most_s: That it may take.
        """
        if not self.runs_here:
            return 1.5 * self.compiled_s
        return self._usual_s() + (self._trying_s() if self.can_try(most_s) else 0.0)

    def can_try(self, most_s: float = math.inf) -> bool:
        """Whether contenders can be tried in the network, ``improve``, within these seconds."""
        short = most_contenders(self.network.default_s or 0.0) > 0
        here = self.runs_here and self.hardware.has_cores and short
        return here and self._usual_s() + self._trying_s() <= most_s

    def _usual_s(self) -> float:
        return 1.5 * self.compiled_s + 6.0 + len(self.inputs) * self._each_s() + _TIMING_S

    def _trying_s(self) -> float:
        return 3.0 * self.compiled_s + TRYING_S + _TIMING_S + len(self.inputs) * self._each_s()

    def _each_s(self) -> float:
        """Seconds that comparing takes for each of the inputs, about."""
        if self.network.original_s is None:
            return self._comparing_s  # of ONNX's reference, for example, which takes its time
        return (self.network.default_s or 0.0) + self.network.original_s

    def conclude(
        self,
        chosen: Mapping[str, Candidate],
        hurried: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> Artifact | None:
        """Compiles the tuned network and decides what is shipped; ``network`` tells it.

        Args:
            chosen: Workload key to candidate. Empty if nothing was tuned.
            hurried: As few rounds of timing as will do.
            say: Called with a line of text when a step begins.

        Returns:
            What is shipped; None if the network with default schedules, which is left, is wrong on
            inputs that it was not compared on before.
        """
        began = time.perf_counter()
        say = say or (lambda _line: None)
        try:
            tuned = self._tuned(chosen, say)
            if tuned is None:
                left = self._complete()
                if left is not None and not hurried and self.runs_here:
                    say("timing the network beside the original")
                    self._time({DEFAULT: self.default}, hurried)
                return left
            return self._decide(tuned, hurried, say)
        finally:
            self._spend(began)

    def improve(
        self,
        shipped: Artifact,
        chosen: Mapping[str, Candidate],
        others: Sequence[Contender],
        say: Callable[[str], None] | None = None,
    ) -> Artifact:
        """The network with the contenders that are faster in it, if that is proven to pay.

        Args:
            shipped: What ``conclude`` returned.
            chosen: As given to it.
            others: What may be faster in the network than some of the chosen; none if ``can_try``
                says no.
            say: Called with a line of text when a step begins.

        Returns:
            ``shipped`` where the default ships, or nothing is faster.
        """
        others = others[: most_contenders(self.network.tuned_s or 0.0)]
        if self.network.shipped != TUNED or not self.runs_here or not others:
            return shipped
        began = time.perf_counter()
        say = say or (lambda _line: None)
        say(f"trying {len(others)} contenders in the compiled network")
        try:
            tried = try_in_network(self.model, self.hardware, self.extraction, chosen, others)
            self.network = replace(self.network, tried=tried)
            better = faster_ones(tried)
            return self._better({**chosen, **better}, shipped, say) if better else shipped
        except Exception as error:  # compilers and kernels raise what they like
            logger.warning("contenders were not tried in the network: %s", last_line(error))
            return shipped
        finally:
            self._spend(began)

    def _better(
        self, chosen: Mapping[str, Candidate], shipped: Artifact, say: Callable[[str], None]
    ) -> Artifact:
        """The network with other candidates, if it is faster than what ships, and right."""
        from foretune.engines import compare
        from foretune.graph import take_sample, verify

        artifact = self._tuned(chosen, say)
        assert artifact is not None, "something was chosen"
        say("timing it beside the one without them")
        before, after = "before", "after"
        results = compare(
            self.model,
            {before: shipped, after: artifact},
            [],
            threads=self._threads,
            rounds=self._rounds(2),
        )
        readings = (results[before].readings, results[after].readings)
        if not all(readings):
            return shipped
        ratios = np.divide(*readings)
        if np.quantile(ratios, 0.25) <= 1:
            return shipped  # not beyond what readings vary
        check = verify(Compiled(artifact, self.model), self.model, inputs=self.inputs)
        if not check.ok:
            logger.warning("contenders stay out of the network: %s", check.message)
            return shipped
        self._note(artifact, check)
        self.network = replace(self.network, tried_gain=float(np.median(ratios)))
        artifact.sample = take_sample(self.inputs[0], check.tolerance)
        return artifact

    def _tuned(
        self, chosen: Mapping[str, Candidate], say: Callable[[str], None]
    ) -> Artifact | None:
        from foretune.graph import compile_model

        if not chosen:
            return None
        say("compiling the tuned network")
        artifact = compile_model(self.model, self.hardware, chosen, self.extraction)
        artifact.link()
        return artifact

    def _decide(
        self, tuned: Artifact, hurried: bool, say: Callable[[str], None]
    ) -> Artifact | None:
        from foretune.graph import take_sample, verify

        if not self.runs_here:
            self.network = replace(self.network, shipped=TUNED, passes=tuned.manifest["passes"])
            return tuned
        say("timing the tuned network beside the default and the original")
        # First in processes of their own: what dies there is never run in this one.
        fault = self._time({DEFAULT: self.default, TUNED: tuned}, hurried)
        if not fault:
            say("comparing the tuned network with the original")
            try:
                check = verify(Compiled(tuned, self.model), self.model, inputs=self.inputs)
            except UnsupportedModelError as error:
                self.network = replace(self.network, fault=str(error))
                return self._complete()
            if check.ok:
                self._note(tuned, check)
                self.network = replace(self.network, shipped=TUNED)
                # Only now: it holds what these comparisons were judged by.
                tuned.sample = take_sample(self.inputs[0], check.tolerance)
                return tuned
            fault = f"it differs from the original: {check.message}"
            self.network = replace(self.network, fault=fault, wrong=True)
        return self._complete()

    def _run(self) -> None:
        self._check(self.inputs[:_FIRST])
        self._time_alone()
        self._take_sample()

    def _take_sample(self) -> None:
        """Inputs and the original's outputs go with the artifact, for ``foretune run``."""
        from foretune.graph import take_sample

        self.default.sample = take_sample(self.inputs[0], self.network.tolerance or 0.0)

    def _complete(self) -> Artifact | None:
        """The proven network, compared on the inputs that it was not compared on before.

        None if it is wrong.
        """
        if self.runs_here:
            try:
                self._check(self.inputs[_FIRST:])
            except UnsupportedModelError as error:
                self.network = replace(self.network, shipped=NOTHING, fault=str(error), wrong=True)
                return None
        return self.default

    def _check(self, inputs: Sequence[InputSet]) -> None:
        """Compares the proven network on some of the inputs, each of them once."""
        from foretune.graph import merged, verify

        done = {name for check in self._checks for name in (*check.inputs, *check.left_out)}
        for given in inputs:
            if given.name in done:
                continue
            began = time.perf_counter()
            with running_original(self.model):
                given.expected()
            check = verify(Compiled(self.default, self.model), self.model, inputs=[given])
            self._comparing_s = time.perf_counter() - began
            self._checks.append(check)
            self._note(self.default, merged(self._checks))
            if not check.ok:
                raise UnsupportedModelError(
                    f"{self.model.name}, compiled with default schedules, differs from the "
                    f"original: {self._bisected(given) or check.message}; please report this"
                )

    def _note(self, artifact: Artifact, check: Verification) -> None:
        """Keeps what a comparison said of what may ship, in the artifact's manifest, too."""
        passes = artifact.manifest["passes"]
        self.network = replace(self.network.checked(check), passes=passes)
        artifact.manifest["verification"] = check.to_json()

    def _bisected(self, given: InputSet) -> str:
        """Which operator is the first that differs; empty where that cannot be found out."""
        from foretune.graph import first_difference

        try:
            difference = first_difference(
                self.model, self.hardware, given.arrays, called=given.name, seconds=_BISECTING_S
            )
        except Exception as error:  # parts of a network may fail where the whole one did not
            logger.info("the first operator that differs was not found: %s", error)
            return ""
        return "" if difference is None else difference.describe()

    def _time_alone(self) -> None:
        """Times original and default, one after the other, in this process."""
        from foretune.engines import time_original

        with running_original(self.model):
            original, original_s = time_original(self.model, self._threads)
        with running_compiled(self.model):
            readings = self.default.time(self.model.examples, repeats=_CALLS)
        self.network = replace(
            self.network,
            original=original,
            original_s=original_s,
            default_s=float(np.median(readings)),
        )

    def _time(self, artifacts: Mapping[str, Artifact], hurried: bool) -> str:
        """Times artifacts and the original, interleaved; what keeps the tuned one from shipping."""
        from foretune.engines import compare

        name = self.network.original
        saved = self._default_file()

        def timed(default: Artifact | Path) -> dict[str, EngineResult]:
            return compare(
                self.model,
                {**artifacts, DEFAULT: default},
                [name] if name else [],
                threads=self._threads,
                rounds=_FEWEST_ROUNDS if hurried else self._rounds(len(artifacts)),
            )

        results = timed(saved or self.default)
        if saved is not None and self._default_file() is None:
            results = timed(self.default)  # another tuner has replaced the file meanwhile
        medians = {name: result.median for name, result in results.items()}
        if name in results and medians[name] is None:
            logger.warning(
                "the original was timed before tuning only, not beside it: %s fails in a process "
                "of its own (%s)", name, results[name].error,
            )  # fmt: skip
        if medians[DEFAULT] is None:
            # Without a compiler, or room for files, for example.
            logger.warning("timed in one process, not in several: %s", results[DEFAULT].error)
            medians |= alternating(artifacts, self.model, _FEWEST_ROUNDS)
        elif results.get(TUNED) is not None and medians[TUNED] is None:
            fault = f"it could not be timed: {results[TUNED].error}"
            self.network = replace(self.network, fault=fault)
            return fault
        self.network = replace(
            self.network,
            original_s=medians.get(name) or self.network.original_s,
            default_s=medians[DEFAULT],
            tuned_s=medians.get(TUNED),
        )
        default_s, tuned_s = medians[DEFAULT], medians.get(TUNED)
        if default_s is not None and tuned_s is not None and tuned_s > default_s:
            self.network = replace(self.network, fault="it is slower than the default")
        return self.network.fault

    def _default_file(self) -> Path | None:
        """Where the proven network lies, if it still does: another tuner may save there, too."""
        if self.saved is not None and self.default.is_saved_at(self.saved):
            return self.saved
        return None

    @property
    def _threads(self) -> int:
        """Threads that the original is given: beside a GPU every core."""
        return self.hardware.threads if self.hardware.has_cores else usable_cores()

    def _rounds(self, artifacts: int) -> int:
        default_s = self.network.default_s or 0.0
        each = 0.1 * (artifacts + 1) + 4 * (default_s + 2 * (self.network.original_s or 0.0))
        return max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, int(_TIMING_S / each)))

    def _spend(self, began: float) -> None:
        spent = self.network.proof_s + time.perf_counter() - began
        self.network = replace(self.network, proof_s=spent)
