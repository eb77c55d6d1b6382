"""Adapters both ways: our cost models and strategies inside TVM's tuner, TVM's tuner as a peer.

``_spaces`` and ``_match`` turn spaces, records and traces into ours and back. ``_cost_model``,
``_strategy`` and ``_our_space`` are the parts across the border; ``_peer`` runs TVM's own tuner, in
``_child``.
"""

from foretune.metaschedule._cost_model import TvmCostModel, as_cost_model, measure_candidate
from foretune.metaschedule._match import (
    FrozenSketch,
    ScheduledCandidate,
    candidate_of_schedule,
    candidate_of_trace,
    frozen_candidate,
    match_trace,
    trace_json,
)
from foretune.metaschedule._peer import (
    PEERS,
    PeerError,
    PeerOptions,
    PeerResult,
    PeerTrial,
    peer_options,
    run_peer,
    run_peer_on_model,
)
from foretune.metaschedule._strategy import as_search_strategy

__all__ = [
    "PEERS",
    "FrozenSketch",
    "PeerError",
    "PeerOptions",
    "PeerResult",
    "PeerTrial",
    "ScheduledCandidate",
    "TvmCostModel",
    "as_cost_model",
    "as_search_strategy",
    "candidate_of_schedule",
    "candidate_of_trace",
    "frozen_candidate",
    "match_trace",
    "measure_candidate",
    "peer_options",
    "run_peer",
    "run_peer_on_model",
    "trace_json",
]
