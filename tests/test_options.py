"""Options of dataclasses: what is one, what is constant, what files say of either, how many."""

from __future__ import annotations

import dataclasses
import importlib
import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest

from foretune._options import (
    Bounds,
    Count,
    OneOf,
    configured,
    constants,
    option_names,
    refuse_unknown,
    require_options,
    split_options,
    stored_options,
)
from foretune.cost._neural import NeuralConfig
from foretune.errors import BadInputError, VersionMismatchError
from foretune.measure._device import Patience
from foretune.search import BatchPolicy


@dataclass(frozen=True)
class Product:
    steps: int = 3
    mixed: ClassVar[bool] = False
    sizes: ClassVar[tuple[int, ...]] = (1, 2)


@dataclass(frozen=True)
class Study(Product):
    mixed: bool = True


def test_a_class_variable_is_a_constant_and_a_subclass_can_make_an_option_of_it():
    assert option_names(Product) == ("steps",)
    assert constants(Product) == {"mixed": False, "sizes": (1, 2)}
    assert set(option_names(Study)) == {"steps", "mixed"}
    assert constants(Study) == {"sizes": (1, 2)}
    assert Study().mixed and not Product().mixed


def test_a_constant_is_not_configured():
    made, rest = configured(Product, "part", {"steps": 4, "mixed": True, "other": 1})
    assert made == Product(4)
    assert rest == {"mixed": True, "other": 1}
    assert configured(Study, "study", {"mixed": False})[0].mixed is False
    require_options("part", made)


def test_who_gives_a_constant_hears_which_package_has_it():
    with pytest.raises(BadInputError, match="'mixed': it is one of the package foretune_research"):
        refuse_unknown("part", {"mixed": 1}, option_names(Product), constants(Product))
    with pytest.raises(BadInputError, match="'others': choose from steps"):
        refuse_unknown("part", {"others": 1}, option_names(Product), constants(Product))
    refuse_unknown("part", {"steps": 1}, option_names(Product), constants(Product))


def test_a_file_from_when_a_constant_was_an_option_is_read():
    stored = {"steps": 5, "mixed": False, "sizes": [1, 2]}
    assert stored_options(constants(Product), "file", stored) == {"steps": 5}
    assert stored_options(constants(Study), "file", stored) == {"steps": 5, "mixed": False}


@pytest.mark.parametrize("stored", [{"mixed": True}, {"sizes": [1, 3]}])
def test_a_file_with_another_value_belongs_to_the_research_package(stored):
    with pytest.raises(VersionMismatchError, match=r"file: .* foretune_research"):
        stored_options(constants(Product), "file", stored)


@dataclass(frozen=True)
class Bounded:
    steps: Annotated[int, Bounds(ge=1)] = 3
    share: Annotated[float, Bounds(gt=0, le=1)] = 0.5
    most: Annotated[int | None, Bounds(lt=100)] = None
    least: Count | None = None
    width: Annotated[int, Bounds(ge=16, multiple_of=16)] = 32
    price: Annotated[float, Bounds(ge=0, finite=True)] = 0.0
    style: Annotated[str, OneOf(("short", "long"))] = "short"

    def __post_init__(self) -> None:
        require_options("part", self)


def test_what_fields_declare_is_checked() -> None:
    assert Bounded(steps=1, share=1.0, most=99, width=16, style="long").most == 99
    assert configured(Bounded, "part", {"share": 1}) == (Bounded(share=1), {})


@dataclass(frozen=True)
class Wider(Bounded):
    steps: int = 5
    style: Annotated[str, OneOf(("wide",))] = "wide"


def test_a_subclass_with_another_default_keeps_the_bounds_and_may_change_them() -> None:
    assert Wider().steps == 5
    with pytest.raises(BadInputError, match="`steps >= 1` must hold, but got steps=0"):
        Wider(steps=0)
    with pytest.raises(BadInputError, match="unknown style of part 'short': choose one of wide"):
        Wider(style="short")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("steps", 0, "part: `steps >= 1` must hold, but got steps=0: give another steps"),
        ("steps", 1.5, "part: steps must be int, but got 1.5"),
        ("steps", True, "part: steps must be int, but got True"),
        ("share", 0.0, "part: `0 < share <= 1` must hold, but got share=0.0: give another share"),
        ("share", float("nan"), "part: `0 < share <= 1` must hold, but got share=nan"),
        ("least", 0, "part: `least >= 1` must hold, but got least=0"),
        ("most", 100, "part: `most < 100` must hold, but got most=100"),
        ("price", math.inf, "part: `price >= 0, and finite` must hold, but got price=inf"),
        ("width", 40, "part: `width >= 16 and width % 16 == 0` must hold, but got width=40"),
        ("style", "wide", "unknown style of part 'wide': choose one of long, short"),
    ],
)
def test_what_is_refused_says_rule_name_value_and_remedy(option: str, value: Any, message: str):
    with pytest.raises(BadInputError) as refused:
        Bounded(**{option: value})
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("mcts", ("mcts", {})),
        ("mcts:depth=4:wide=false", ("mcts", {"depth": 4, "wide": False})),
        ("mcts:depth=4:llm", ("mcts", {"depth": 4, "proposer": "llm"})),
        ("mcts:weights=/a/b.npz", ("mcts", {"weights": "/a/b.npz"})),
        ("mcts:note=a=b", ("mcts", {"note": "a=b"})),
        ("depth=4", ("depth=4", {})),
    ],
)
def test_options_behind_a_name(name: str, parts: tuple[str, dict[str, Any]]) -> None:
    assert split_options(name, alone="proposer") == parts


def test_words_of_a_name_and_files_stay_whole() -> None:
    assert split_options("mlp:formulas:online=false") == ("mlp:formulas", {"online": False})
    file = "runs/a:b=1/mlp.npz"
    assert split_options(file, file=".npz") == (file, {})
    assert split_options(f"{file}:online=true", file=".npz") == (file, {"online": True})


@pytest.mark.parametrize("name", ["mcts:depth=4:depth=5", "mcts:llm:proposer=random"])
def test_an_option_that_stands_twice_behind_a_name_is_refused(name: str) -> None:
    with pytest.raises(BadInputError, match=rf"'{name}' gives '\w+' twice: leave one"):
        split_options(name, alone="proposer")


CONFIGURATIONS = (
    "foretune.cost._boosters:GbdtRankerConfig",
    "foretune.cost._perceptrons:PerceptronConfig",
    "foretune.cost.behaviour.classifier:ClassifierConfig",
    "foretune.cost.behaviour.regressor:RegressorConfig",
    "foretune.cost.gbdt:GbdtConfig",
    "foretune.cost.mlp:MlpConfig",
    "foretune.cost.tlp:TlpConfig",
    "foretune.cost.world.learning:WorldConfig",
    "foretune.llm._endpoint:EndpointConfig",
    "foretune.llm._usage:SessionConfig",
    "foretune.measure.policy:LabelPolicy",
    "foretune.measure.policy:MeasurePolicy",
    "foretune.search._gradient_config:GradientConfig",
    "foretune.search.evolutionary:EvolutionConfig",
    "foretune.search.mcts:MctsConfig",
    "foretune.search.proposers.llm:LlmConfig",
    "foretune.tgraph.config:TGraphConfig",
    "foretune.world._transition_config:TransitionConfig",
)


@pytest.mark.parametrize("place", CONFIGURATIONS)
def test_a_configuration_has_ten_options_at_most(place):
    module, _, name = place.partition(":")
    kind = getattr(importlib.import_module(module), name)
    assert len(dataclasses.fields(kind)) <= 10


def test_configurations_have_less_than_110_options_in_all():
    """Inherited ones, and those of which only the default is another, are counted once."""
    own: dict[str, set[str]] = {}
    for place in CONFIGURATIONS:
        module, _, name = place.partition(":")
        kind = getattr(importlib.import_module(module), name)
        of_bases = {n for base in kind.__bases__ if base is not object for n in option_names(base)}
        own[place] = set(option_names(kind)) - of_bases
    for base in NeuralConfig, BatchPolicy, Patience:
        own[base.__name__] = set(option_names(base))
    assert sum(map(len, own.values())) < 110
