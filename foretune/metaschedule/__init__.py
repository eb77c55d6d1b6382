"""Adapters to and from TVM MetaSchedule."""

from foretune.metaschedule._peer import (
    PEERS,
    PeerError,
    PeerOptions,
    PeerResult,
    PeerTrial,
    peer_options,
    run_peer,
)

__all__ = [
    "PEERS",
    "PeerError",
    "PeerOptions",
    "PeerResult",
    "PeerTrial",
    "peer_options",
    "run_peer",
]
