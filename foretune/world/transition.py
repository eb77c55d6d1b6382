"""The transition model: where in the space of states a program ends, from its actions alone.

Idea: a state is a point on a sphere (``foretune.world.encoder``) and an action moves it. The state
of the untransformed program is moved by one action of a candidate after the other; where it ends
stands for the program that nobody has made. Three networks, which start from different weights, say
by their spread how sure that is.

Symbols: z_t the encoded state after t actions, p_t the predicted one; T the actions of a path;
K the actions in a window that is learned from. One step is ``foretune.world._dynamics.Step``, the
loss ``foretune.world._losses.rollout_loss``.

Source: Pan et al., Toward Compiler World Models, 2026, section 3.4. What is ours:

- An action is its text (the paper's) and its numbers, so that a factor that was never seen is near
  to those beside it.
- Windows grow in training, from one action over eight to whole paths, and at last only the end
  counts: at inference paths are longer than the paper's windows.
- Margins that no prediction could keep are lowered (``attainable``).
- States are read at the size of actions (``scaled``).
- The initial state can come in again, at every step or at the end (``joins``), and factors of tiles
  can be given as shares of the extent (``relative``), which only the initial state tells then.
- Sequences that begin alike are rolled out once as far as they are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array, Float32Array, IntArray
from foretune._model_file import Arrays, check
from foretune.errors import BadInputError, RecordError
from foretune.world._action_inputs import PARTS, ActionInputs
from foretune.world._part import Part, require
from foretune.world._paths import NUMBERS, ActionTable, Paths, Plan, TransitionEpoch
from foretune.world._transition_config import (
    JOINED_SCHEMA,
    JOINS,
    SCHEMA,
    TransitionConfig,
    restored,
)

if TYPE_CHECKING:
    import torch

    from foretune.world._dynamics import Member

__all__ = [
    "NUMBERS",
    "SCHEMA",
    "ActionTable",
    "Paths",
    "TransitionConfig",
    "TransitionEpoch",
    "TransitionModel",
    "train_transition",
]


class TransitionModel(Part):
    """Initial states and actions to predicted terminal states; made by ``train_transition``.

    An action of a kind that was not in training is taken for an action of unknown kind with its
    numbers: its text is not looked at.

    Attributes:
        config: What was chosen.
        history: The epochs of training, member by member; empty after ``load``.
        mean_terminal: The mean of the terminal states of training, of length 1 and shape (d,): the
            prediction of who knows nothing.
        threads: Threads PyTorch may use here; None: as many as it would otherwise.
    """

    def __init__(
        self,
        config: TransitionConfig,
        inputs: ActionInputs,
        members: Sequence[Member],
        mean_terminal: Float32Array,
        *,
        history: Sequence[TransitionEpoch] = (),
        device: str | None = None,
        threads: int | None = None,
    ) -> None:
        from foretune._torch import choose_device

        self.config = config
        self.history = tuple(history)
        self.mean_terminal = mean_terminal
        self.threads = threads
        self._inputs = inputs
        self._device = choose_device(device)
        self._members = [member.to(self._device).eval() for member in members]

    @property
    def dimension(self) -> int:
        """Numbers of a state."""
        return len(self.mean_terminal)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of actions that are known."""
        return self._inputs.kinds

    @classmethod
    def joined(cls, models: Sequence[TransitionModel]) -> TransitionModel:
        """The members of models as one.

        Args:
            models: At least one, trained alike on paths with one table of actions.
        """
        first = models[0]
        mean = np.mean([model.mean_terminal for model in models], axis=0)
        return cls(
            replace(first.config, members=sum(model.config.members for model in models)),
            first._inputs,
            [member for model in models for member in model._members],
            (mean / max(float(np.linalg.norm(mean)), 1e-6)).astype(np.float32),
            history=[epoch for model in models for epoch in model.history],
            device=str(first._device),
            threads=first.threads,
        )

    def rollout(
        self,
        states: Float32Array,
        table: ActionTable,
        actions: IntArray,
        lengths: IntArray,
        start: IntArray | None = None,
    ) -> Float32Array:
        """Predicted terminal states, float32 of shape (members, n, d), of length 1.

        Sequences that begin alike are rolled out once as far as they are alike.

        Args:
            states: Encoded initial states, float32 of shape (m, d), or (d,) for one.
            table: Distinct actions.
            actions: Rows of the table, integers of shape (n, T).
            lengths: Actions of each sequence, shape (n,), at most T; what is behind is not looked
                at.
            start: Which of the initial states each begins with, shape (n,); None: the first.

        Raises:
            BadInputError: Shapes or rows do not fit.
        """
        import torch

        from foretune._torch import limited_threads

        states = np.atleast_2d(np.asarray(states, dtype=np.float32))
        actions, lengths = np.asarray(actions), np.asarray(lengths)
        start = np.zeros(len(actions), dtype=np.int64) if start is None else np.asarray(start)
        self._check(states, table, actions, lengths, start)
        plan = Plan.of(start, actions, lengths)
        ends = np.zeros((len(self._members), len(actions), self.dimension), dtype=np.float32)
        with limited_threads(self.threads), torch.inference_mode():
            inputs = self._inputs.of(table, self.config.action_embedding, self._device)
            first = torch.from_numpy(states).to(self._device)
            for out, member in zip(ends, self._members, strict=True):
                out[:] = member.rolled(first, inputs, plan, len(actions)).cpu().numpy()
        return ends

    def smooth_rollout(
        self, state: Float32Array, steps: ActionTable, at: IntArray, numbers: torch.Tensor
    ) -> torch.Tensor:
        """What ``rollout`` predicts of sequences that differ in numbers only, with gradients.

        Args:
            state: The encoded initial state of all, float32 of shape (d,).
            steps: The T actions of the sequence, in order.
            at: Which of these have numbers of their own in each of n sequences, shape (V,).
            numbers: Those of ``ActionTable``, whole or not, shape (n, V, 8).

        Returns:
            Shape (members, n, d), of length 1, in the type and on the device of the weights.

        Raises:
            BadInputError: Texts or the state were encoded by something else.
        """
        import torch

        from foretune.world._dynamics import Inputs

        self._check(state[None], steps, at[None], np.array([len(at)]), np.zeros(1, np.int64))
        n = len(numbers)
        weight = self._members[0].embedding.kind.weight
        fixed = self._inputs.of(steps, self.config.action_embedding, self._device)
        own = self._inputs.varied(
            fixed.rows(torch.from_numpy(at).to(self._device)),
            numbers.transpose(0, 1).to(self._device),
        )
        kind, texts, scaled = (torch.cat(each) for each in zip(fixed, own, strict=True))
        actions = Inputs(kind, texts.to(weight), scaled.to(weight))
        runs = [(step, 1) for step in range(len(steps))]
        for place, step in enumerate(at.tolist()):
            runs[step] = (len(steps) + place * n, n)
        first = torch.from_numpy(state[None]).to(weight)
        ends = [member.followed(first, actions, runs) for member in self._members]
        return torch.stack([end.expand(n, -1) for end in ends])

    def _check(
        self,
        states: Float32Array,
        table: ActionTable,
        actions: IntArray,
        lengths: IntArray,
        start: IntArray,
    ) -> None:
        if states.shape[1] != self.dimension:
            raise BadInputError(
                f"states must have {self.dimension} numbers, but have {states.shape[1]}: encode "
                "them with the encoder that the model came with"
            )
        if actions.ndim != 2 or not len(actions) == len(lengths) == len(start):
            raise BadInputError(
                f"n sequences must be actions of shape (n, T) and n lengths, but got shapes "
                f"{actions.shape} and {lengths.shape}: fill up shorter sequences"
            )
        used = actions[np.arange(actions.shape[1]) < lengths[:, None]]
        for name, rows, there in (
            ("lengths", lengths, actions.shape[1] + 1),
            ("start", start, len(states)),
            ("actions", used, len(table)),
        ):
            if len(rows) and not 0 <= rows.min() <= rows.max() < there:
                raise BadInputError(
                    f"{name} must be from 0 to {there - 1}, but got {rows.min()} to {rows.max()}: "
                    "sequences, table and states belong to one another"
                )

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        """All of the model as a JSON object and arrays, to be stored in a file of one's own."""
        from foretune.world._weights import weights_of

        config = self.config.to_json()
        meta = {"schema": self.config.schema, "config": config, "kinds": self.kinds}
        arrays: Arrays = {
            "mean_terminal": self.mean_terminal,
            "shift": self._inputs.shift,
            "factor": self._inputs.factor,
        }
        for number, member in enumerate(self._members):
            named = weights_of(member).items()
            arrays |= {f"member{number}/{name}": weight for name, weight in named}
        return meta, arrays

    @classmethod
    def restore(
        cls,
        meta: Mapping[str, Any],
        arrays: Mapping[str, Array],
        *,
        device: str | None = None,
        threads: int | None = None,
    ) -> TransitionModel:
        """What ``dump`` gave becomes a model that answers alike.

        Raises:
            VersionMismatchError: Written under another schema.
            RecordError: Something is missing or does not fit.
            MissingDependencyError: PyTorch is not installed.
        """
        known = meta.get("schema") == JOINED_SCHEMA
        check("the transition model", meta, schema=JOINED_SCHEMA if known else SCHEMA)
        require("torch")
        from foretune.world._weights import with_weights

        try:
            config = restored(meta["config"])
            inputs = ActionInputs(
                tuple(meta["kinds"]), arrays["shift"], arrays["factor"], config.relative
            )
            mean = arrays["mean_terminal"]
            members = []
            for number in range(config.members):
                prefix = f"member{number}/"
                weights = {
                    name.removeprefix(prefix): weight
                    for name, weight in arrays.items()
                    if name.startswith(prefix)
                }
                member = _member(config, inputs, len(mean), 0)
                with_weights(member, weights)
                members.append(member)
        except (KeyError, TypeError, ValueError, RuntimeError, BadInputError) as error:
            raise RecordError(
                f"a stored transition model is damaged ({error}): train it again"
            ) from error
        return cls(config, inputs, members, mean, device=device, threads=threads)


def _member(config: TransitionConfig, inputs: ActionInputs, dimension: int, seed: int) -> Member:
    from foretune._torch import seeded
    from foretune.world._dynamics import Member

    texts, numbers = PARTS[config.action_embedding]
    columns = (inputs.text_columns * texts, NUMBERS * numbers)
    tuned, joined = JOINS[config.joins]
    with seeded(seed):
        return Member(
            *columns,
            len(inputs.kinds),
            dimension,
            initial=config.initial,
            scaled=config.scaled,
            tuned=tuned,
            joined=joined,
        )


def train_transition(
    paths: Paths,
    config: TransitionConfig | None = None,
    *,
    validation: Paths | None = None,
    choose: bool = True,
    number: int = 0,
    seed: int = 0,
    device: str | None = None,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> TransitionModel:
    """A transition model trained on paths.

    Args:
        paths: What to learn from. Their states are frozen: an encoder that could move them would
            make them all alike.
        config: What the model is and how it is trained.
        validation: Paths of other workloads, whose numbers of actions are rows of a table of their
            own. With them, each network keeps the weights of the epoch, among those of whole
            paths, that ended nearest; without, those of the last.
        choose: If not, the weights are those of the last epoch with validation paths, too.
        number: Of the first network, in what is told of epochs.
        seed: Of weights, order and negatives. The same seed, paths, threads and processor give the
            same model.
        device: PyTorch's name of a device; None: a CUDA device where there is one.
        threads: Threads PyTorch may use here and in the model; None: as many as it would.
        progress: Called with one line of text per epoch and network.

    Raises:
        BadInputError: There is no path, validation paths do not fit, the device is not there, or
            the weights grew without bound.
        MissingDependencyError: PyTorch is not installed.
    """
    config = config or TransitionConfig()
    if not len(paths):
        raise BadInputError(
            "transition model: at least 1 path must be there, but got 0: give trajectories"
        )
    require("torch")
    from foretune._torch import choose_device
    from foretune.world import _training

    inputs = ActionInputs.fitted(paths.actions, config.relative)
    where = choose_device(device)
    sides = [
        _training.Side(side, inputs.of(side.actions, config.action_embedding, where))
        for side in (paths, validation)
        if side is not None and len(side)
    ]
    terminal = paths.states[paths.terminal].mean(axis=0)
    mean = terminal / max(float(np.linalg.norm(terminal)), 1e-6)
    members, history = [], []
    for at in range(config.members):
        member = _member(config, inputs, paths.states.shape[1], seed + at).to(where)
        history += _training.follow(
            member,
            sides,
            config,
            choose=choose,
            number=number + at,
            seed=seed + at,
            threads=threads,
            say=progress,
        )
        members.append(member)
    return TransitionModel(
        config,
        inputs,
        members,
        mean.astype(np.float32),
        history=history,
        device=device,
        threads=threads,
    )
