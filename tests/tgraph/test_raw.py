"""Raw protobufs: what is encoded here equals what the data set's own extractor made."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.tgraph import COLUMNS, LayoutGraph, TileGraph, read_graphs
from foretune.tgraph._hlo_features import encode_module, layout_features
from foretune.tgraph._hlo_messages import message
from foretune.tgraph.opcodes import OPCODES

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def official() -> dict[str, Any]:
    with np.load(DATA / "unet_3d.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("raw") / "unet_3d.pb"
    path.write_bytes(lzma.decompress((DATA / "unet_3d.pb.xz").read_bytes()))
    return path


@pytest.fixture(scope="module")
def encoded(raw: Path) -> LayoutGraph:
    (graph,) = read_graphs(raw)
    assert isinstance(graph, LayoutGraph)
    return graph


@pytest.mark.parametrize("column", range(140), ids=COLUMNS)
def test_every_column_equals_the_official_one(column, official, encoded):
    # Where there is no axis, official files have 0, which is an axis, and ours -1.
    ours = np.maximum(encoded.nodes.features, 0) if column >= 134 else encoded.nodes.features
    np.testing.assert_array_equal(ours[:, column], official["node_feat"][:, column])


def test_operations_edges_and_configurable_nodes_equal_the_official_ones(official, encoded):
    np.testing.assert_array_equal(encoded.nodes.opcode, official["node_opcode"])
    np.testing.assert_array_equal(encoded.nodes.edges, official["edge_index"])
    np.testing.assert_array_equal(encoded.configurable, official["node_config_ids"])


def test_runs_that_failed_are_left_out(raw, encoded):
    data = message("ModuleTuningData")()
    data.ParseFromString(raw.read_bytes())
    kept = [run for run in data.runs if not run.error]
    assert 0 < len(encoded.configurations) == len(kept) <= len(data.runs)
    first = np.array(layout_features(kept[0].module_config.layout_config))
    np.testing.assert_array_equal(encoded.configurations.features(np.array([0]))[0], first)
    assert encoded.runtime is not None
    assert encoded.runtime[0] == kept[0].profile.compute_time_ns


def test_operations_have_their_official_numbers():
    known = {"abs": 1, "convolution": 26, "dot": 34, "reshape": 75, "trace": 97, "while": 102}
    assert known.items() <= OPCODES.items()
    assert OPCODES["tan"] == len(OPCODES) == 120


def kernels(default: bool = True, instructions: int = 2) -> Any:
    """Two kernels, each a parameter that is copied, with two tiles."""
    data = message("TuningData")()
    for kernel in range(2):
        one = data.modules.add()
        one.module.name = f"copy.{kernel}"
        computation = one.module.computations.add(id=1, root_id=11)
        for number, opcode in list(enumerate(("parameter", "copy", "no-such")))[:instructions]:
            added = computation.instructions.add(id=10 + number, opcode=opcode)
            added.shape.element_type = 11
            added.shape.dimensions.extend([4, 5])
            added.shape.layout.minor_to_major.extend([1, 0])
            if number:
                added.operand_ids.extend([10, 10])
        for tile in range(2):
            run = one.runs.add(is_default=default and tile == 0)
            run.op_config.tile_size_config.output_bounds.extend([2 + tile, 5])
            run.profile.compute_time_ns = 1000 * (tile + 1)
    return data


def test_kernels_become_tile_graphs(tmp_path):
    path = tmp_path / "kernels.pb"
    path.write_bytes(kernels().SerializeToString())
    graphs = read_graphs(path)
    assert [graph.name for graph in graphs] == ["copy.0", "copy.1"]
    graph = graphs[0]
    assert isinstance(graph, TileGraph)
    assert graph.runtime is not None
    assert graph.runtime.tolist() == [1.0, 2.0]
    assert graph.configurations[1, 8:16].tolist() == [3, 5, 0, 0, 0, 0, 8, 15]
    # The product of nothing is 0 in tiles, and 1 in nodes.
    assert graph.configurations[1, 7] == 0
    assert graph.nodes.features[0, COLUMNS.index("window_size_product")] == 1
    assert graph.nodes.edges.tolist() == [[1, 0]]
    assert graph.nodes.features[:, COLUMNS.index("is_root")].tolist() == [0, 1]


def test_an_operation_that_nobody_knows_is_number_0():
    module = kernels(instructions=3).modules[0].module
    assert encode_module(module)[1].tolist() == [63, 27, 0]


def test_edges_lead_to_the_result_of_a_computation_that_is_called():
    module = message("Module")(name="calls")
    inner = module.computations.add(id=1, root_id=2)
    inner.instructions.add(id=1, opcode="parameter")
    inner.instructions.add(id=2, opcode="negate").operand_ids.append(1)
    outer = module.computations.add(id=5, root_id=9, name="while_body")
    outer.instructions.add(id=9, opcode="call").called_computation_ids.append(1)
    _, _, edges, splits = encode_module(module)
    assert edges.tolist() == [[1, 0], [2, 1]]
    assert splits.tolist() == [0, 3]


def test_a_product_that_does_not_fit_wraps_around_as_official_ones_do():
    module = kernels().modules[0].module
    del module.computations[0].instructions[0].shape.dimensions[:]
    module.computations[0].instructions[0].shape.dimensions.extend([2**32, 2**32, 1])
    assert encode_module(module)[0][0, COLUMNS.index("shape_dimensions_product")] == 0


def _cut(data: Any) -> bytes:
    done: bytes = data.SerializeToString()
    return done[:-5]


def _without_default() -> bytes:
    done: bytes = kernels(default=False).SerializeToString()
    return done


def _with_a_gap() -> bytes:
    data = kernels()
    data.modules[0].module.computations[0].instructions[1].operand_ids.append(99)
    done: bytes = data.SerializeToString()
    return done


def _without_instructions() -> bytes:
    data = kernels()
    del data.modules[0].module.computations[:]
    done: bytes = data.SerializeToString()
    return done


def _network(ids: list[int], nodes: int) -> bytes:
    data = message("ModuleTuningData")()
    data.module.CopyFrom(kernels().modules[0].module)
    data.config_index_to_node.extend(ids)
    run = data.runs.add()
    run.profile.compute_time_ns = 5
    for _ in range(nodes):
        run.module_config.layout_config.nodes.add().tensors.add().dims.extend([1, 0])
    done: bytes = data.SerializeToString()
    return done


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "raw file of TpuGraphs"),
        (b"\xff\xfe no protobuf", "raw file of TpuGraphs"),
        (_cut(kernels()), "raw file of TpuGraphs"),
        (_without_default(), "default tile"),
        (_with_a_gap(), "refers to instruction or computation 99"),
        (_without_instructions(), "must have instructions"),
        (_network([], 0), "configurable nodes, but has none"),
        (_network([7], 1), "7 is none of its 2"),
        (_network([1, 1], 2), "one occurs twice"),
        (_network([1], 2), "a layout for each of 1 configurable"),
    ],
)
def test_what_is_no_raw_file_is_refused(data, said, tmp_path):
    path = tmp_path / "bad.pb"
    path.write_bytes(data)
    with pytest.raises(BadInputError, match=said) as error:
        read_graphs(path)
    assert str(path) in str(error.value)


def test_a_network_of_two_nodes_is_read(tmp_path):
    path = tmp_path / "good.pb"
    path.write_bytes(_network([1], 1))
    (graph,) = read_graphs(path)
    assert isinstance(graph, LayoutGraph)
    features = graph.configurations.features(np.array([0]))[0, 0]
    assert features.tolist() == [1, 0, *[-1] * 16]
