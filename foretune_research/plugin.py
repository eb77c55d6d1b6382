"""What this package adds to foretune's tables, by the entry point group ``foretune.plugins``.

Nothing is imported here: a row says where a part is.
"""

from __future__ import annotations

from collections.abc import Mapping

TABLES: Mapping[str, Mapping[str, str]] = {
    "foretune.proposers": {
        "llm-names": "foretune_research.names:NamesProposer",
    },
    "foretune.strategies": {
        "gradient-study": "foretune_research.climbs:GradientStudy",
        "mcts-rollouts": "foretune_research.rollouts:MctsRollouts",
    },
    "foretune.nest_builders": {"logs": "foretune_research.logs:nests_of_logged"},
    "foretune.rankers": {
        "behaviour:variants": "foretune_research.behaviour.ranker:BehaviourVariants",
        "gbdt:variants": "foretune_research.trees:GbdtVariants",
        "gbdt_actions:variants": "foretune_research.trees:GbdtActionVariants",
        "classifier:hf": "foretune_research.hf.classifier:HfClassifier",
        "classifier:variants": "foretune_research.neural:ClassifierVariants",
        "mlp:reference": "foretune_research.neural:MlpReference",
        "mlp:variants": "foretune_research.neural:MlpVariants",
        "mtl_tlp": "foretune_research.neural:MtlTlp",
        "mtl_tlp:reference": "foretune_research.neural:MtlTlpReference",
        "tlp:reference": "foretune_research.neural:TlpReference",
        "tlp:variants": "foretune_research.neural:TlpVariants",
        "tgraph": "foretune_research.tgraph.ranker:TGraphRanker",
        "world:reference": "foretune_research.world.ranker:WorldReference",
        "world:variants": "foretune_research.world.ranker:WorldVariants",
    },
    "foretune.score_sources": {"hf": "foretune_research.hf.scores:HfScores"},
    "foretune.tgraph_configs": {
        "published": "foretune_research.tgraph.config:PublishedConfig",
        "variants": "foretune_research.tgraph.config:VariantsConfig",
    },
    "foretune.transition_configs": {
        "variants": "foretune_research.world.following:TransitionStudyConfig",
    },
    "foretune.world_readers": {"text": "foretune_research.world.reader:TextReader"},
}
"""Entry point group -> name -> ``"module:attribute"``."""
