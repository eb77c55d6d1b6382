"""Options of dataclasses: what is one, what is constant, what files say of either, how many."""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import ClassVar

import pytest

from foretune._options import (
    configured,
    constants,
    option_names,
    refuse_unknown,
    require_types,
    stored_options,
)
from foretune.errors import BadInputError, VersionMismatchError


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
    require_types("part", made)


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
    "foretune.search._gradient_config:GradientConfig",
    "foretune.search.evolutionary:EvolutionConfig",
    "foretune.search.mcts:MctsConfig",
    "foretune.search.proposers.llm:LlmConfig",
    "foretune.tgraph.config:TGraphConfig",
    "foretune.world.transition:TransitionConfig",
)


@pytest.mark.parametrize("place", CONFIGURATIONS)
def test_a_configuration_has_ten_options_at_most(place):
    module, _, name = place.partition(":")
    kind = getattr(importlib.import_module(module), name)
    assert len(dataclasses.fields(kind)) <= 10
