"""Work on the machines of a Ray cluster: an optional extra, ``pip install 'foretune[cluster]'``.

- ``_address``: what ``--cluster`` says.
- ``_cluster``: the connection, its nodes, and calls that survive the loss of a node.
- ``_ray``: the one place that imports Ray.

Who builds programs there is a transport (``measure/transport/ray.py``); timing stays on devices,
one program at a time on each.
"""

from foretune.cluster._address import ClusterAddress, parse_cluster
from foretune.cluster._cluster import (
    Cluster,
    LostError,
    Node,
    on_node,
    open_cluster,
    require_processor,
)
from foretune.cluster._ray import is_lost, ray

__all__ = [
    "Cluster",
    "ClusterAddress",
    "LostError",
    "Node",
    "is_lost",
    "on_node",
    "open_cluster",
    "parse_cluster",
    "ray",
    "require_processor",
]
