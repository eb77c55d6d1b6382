"""Files of TpuGraphs: all that they may look like, and a defined answer to what they may not."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.tgraph import LayoutGraph, TileGraph, read_graph, read_graphs
from tests.tgraph.made import Arrays, layout_arrays, tile_arrays, write


def test_a_layout_file_is_read(tmp_path):
    made = layout_arrays(1)
    graph = read_graph(write(tmp_path / "net.npz", made))
    assert isinstance(graph, LayoutGraph)
    assert graph.name == "net"
    np.testing.assert_array_equal(graph.nodes.features, made["node_feat"])
    np.testing.assert_array_equal(graph.nodes.opcode, made["node_opcode"])
    np.testing.assert_array_equal(graph.nodes.edges, made["edge_index"])
    np.testing.assert_array_equal(graph.configurable, made["node_config_ids"])
    rows = np.arange(len(graph.configurations))
    np.testing.assert_array_equal(graph.configurations.features(rows), made["node_config_feat"])
    np.testing.assert_array_equal(graph.runtime, made["config_runtime"])


def test_a_tile_file_is_read_and_run_times_are_relative(tmp_path):
    made = tile_arrays(1)
    made["config_runtime_normalizers"] = np.arange(1, 13) * 100
    graph = read_graph(write(tmp_path / "kernel.npz", made))
    assert isinstance(graph, TileGraph)
    np.testing.assert_array_equal(graph.configurations, made["config_feat"])
    expected = made["config_runtime"] / made["config_runtime_normalizers"]
    np.testing.assert_allclose(graph.runtime, expected)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "float32", "float64"])
def test_stored_types_vary(dtype, tmp_path):
    made = layout_arrays(1)
    kinds = {
        "node_feat": "float64",
        "node_opcode": dtype,
        "edge_index": dtype,
        "node_config_ids": dtype,
        "node_config_feat": dtype,
        "config_runtime": "float64" if dtype.startswith("float") else "int32",
    }
    varied = {key: made[key].astype(kinds.get(key, made[key].dtype)) for key in made}
    varied["node_config_feat"] = np.asfortranarray(varied["node_config_feat"])
    plain = read_graph(write(tmp_path / "plain.npz", made))
    other = read_graph(write(tmp_path / "other.npz", varied))
    assert isinstance(plain, LayoutGraph)
    assert isinstance(other, LayoutGraph)
    np.testing.assert_array_equal(other.configurations.codes, plain.configurations.codes)
    np.testing.assert_array_equal(other.configurations.keys, plain.configurations.keys)
    np.testing.assert_array_equal(other.nodes.edges, plain.nodes.edges)
    np.testing.assert_array_equal(other.runtime, plain.runtime)


def test_graphs_of_a_folder_are_called_by_their_way(tmp_path):
    write(tmp_path / "b" / "net.npz", layout_arrays(1))
    write(tmp_path / "a" / "net.npz", layout_arrays(2))
    assert [graph.name for graph in read_graphs(tmp_path)] == ["a/net", "b/net"]


def test_columns_may_be_others(tmp_path):
    made = layout_arrays(1)
    made["node_feat"] = made["node_feat"][:, :70]
    assert read_graph(write(tmp_path / "net.npz", made)).nodes.features.shape[1] == 70


def test_official_test_files_tell_no_run_times(tmp_path):
    for made in (layout_arrays(1), tile_arrays(1)):
        made["config_runtime"] = np.zeros_like(made["config_runtime"])
        assert read_graph(write(tmp_path / "net.npz", made)).runtime is None


def test_a_graph_without_edges_and_one_with_a_single_configuration_are_graphs(tmp_path):
    made = layout_arrays(1, configurations=1)
    made["edge_index"] = np.empty((0, 2), dtype=np.int64)
    graph = read_graph(write(tmp_path / "net.npz", made))
    assert len(graph.configurations) == 1
    assert len(graph.nodes.edges) == 0


def _without(key: str) -> Callable[[Arrays], None]:
    return lambda made: made.__delitem__(key)


def _set(key: str, value: Any) -> Callable[[Arrays], None]:
    return lambda made: made.update({key: np.asarray(value)})


def _change(key: str, at: Any, value: Any) -> Callable[[Arrays], None]:
    def change(made: Arrays) -> None:
        changed = made[key].astype(np.float64)
        changed[at] = value
        made[key] = changed

    return change


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        *((_without(key), f"lacks {key}") for key in layout_arrays() if key.startswith("node_o")),
        (_without("node_feat"), "lacks node_feat"),
        (_without("edge_index"), "lacks edge_index"),
        (_without("node_config_ids"), "lacks node_config_ids"),
        (_without("node_config_feat"), "lacks config_feat"),
        (_without("config_runtime"), "lacks config_runtime"),
        (_set("node_feat", np.zeros((0, 140))), "at least one node"),
        (_set("node_feat", np.zeros((12, 0))), "at least one node and one column"),
        (_set("node_feat", np.zeros(12)), "must have shape"),
        (_change("node_feat", (0, 3), np.nan), "finite numbers"),
        (_change("node_feat", (0, 3), np.inf), "finite numbers"),
        (_set("node_feat", np.array([["a"] * 140] * 12)), "values of type"),
        (_set("node_feat", np.zeros((12, 140), dtype=complex)), "values of type"),
        (_set("node_opcode", np.zeros(3)), "must have shape"),
        (_change("node_opcode", 0, 128), "numbers from 0 to 127"),
        (_change("node_opcode", 0, -1), "numbers from 0 to 127"),
        (_change("node_opcode", 0, 1.5), "whole numbers"),
        (_change("edge_index", (0, 0), 12), "numbers from 0 to 11"),
        (_change("edge_index", (0, 0), -1), "numbers from 0 to 11"),
        (_set("edge_index", np.zeros((2, 5))), "must have shape"),
        (_set("node_config_ids", np.empty(0)), "configurable nodes, but has none"),
        (_set("node_config_ids", [1, 1, 4, 7]), "one occurs twice"),
        (_change("node_config_ids", 0, 99), "numbers from 0 to 11"),
        (_set("node_config_ids", [1, 4]), "must have shape"),
        (_set("node_config_feat", np.zeros((60, 4, 6))), "must have shape"),
        (_set("node_config_feat", np.zeros((0, 4, 18))), "at least one configuration"),
        (_change("node_config_feat", (0, 0, 0), 6), "whole numbers from -1 to 5"),
        (_change("node_config_feat", (0, 0, 0), 0.5), "whole numbers from -1 to 5"),
        (_change("node_config_feat", (0, 0, 0), np.nan), "whole numbers from -1 to 5"),
        (_set("config_runtime", np.ones(3)), "must have shape"),
        (_change("config_runtime", 0, -5), "holds -5"),
        (_change("config_runtime", 0, np.nan), "finite numbers"),
        (_change("config_runtime", 0, 0), "1 of 60 are zero"),
    ],
)
def test_a_bad_layout_file_is_refused(spoil, said, tmp_path):
    made = layout_arrays(1)
    spoil(made)
    path = write(tmp_path / "bad.npz", made)
    with pytest.raises(BadInputError, match=said) as error:
        read_graph(path)
    assert "bad.npz" in str(error.value)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_without("config_runtime_normalizers"), "lacks config_runtime_normalizers"),
        (_change("config_runtime_normalizers", 0, 0), "positive numbers"),
        (_set("config_feat", np.zeros((12, 7))), "must have shape"),
        (_change("config_feat", (0, 0), np.nan), "finite numbers"),
        (_change("config_runtime", 0, 0), "1 of 12 are zero"),
    ],
)
def test_a_bad_tile_file_is_refused(spoil, said, tmp_path):
    made = tile_arrays(1)
    spoil(made)
    with pytest.raises(BadInputError, match=said):
        read_graph(write(tmp_path / "bad.npz", made))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_file_that_is_cut_short_is_refused(share, tmp_path):
    whole = write(tmp_path / "whole.npz", layout_arrays(1)).read_bytes()
    path = tmp_path / "cut.npz"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(BadInputError, match="copy it again"):
        read_graph(path)


def test_an_array_that_is_shorter_than_it_says_is_refused(tmp_path):
    made = layout_arrays(1)
    path = write(tmp_path / "net.npz", made)
    member = io.BytesIO()
    np.save(member, made["node_config_feat"])
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "short.npz", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data[:-30] if name.startswith("node_config_feat") else data)
    with pytest.raises(BadInputError, match="node_config_feat"):
        read_graph(tmp_path / "short.npz")


def test_damaged_bytes_are_refused(tmp_path):
    path = write(tmp_path / "net.npz", layout_arrays(1))
    data = bytearray(path.read_bytes())
    at = data.index(b"node_config_feat.npy") + 200
    data[at : at + 20] = bytes(20)
    path.write_bytes(data)
    with pytest.raises(BadInputError, match=r"copy it again|whole numbers"):
        read_graph(path)


def test_pickled_objects_are_refused(tmp_path):
    made = layout_arrays(1)
    made["node_feat"] = np.array([{"a": 1}] * 12, dtype=object)
    with pytest.raises(BadInputError, match="node_feat"):
        read_graph(write(tmp_path / "bad.npz", made))


@pytest.mark.parametrize("data", [b"", b"no zip file", b"PK\x03\x04"])
def test_what_is_no_npz_file_is_refused(data, tmp_path):
    path = tmp_path / "bad.npz"
    path.write_bytes(data)
    with pytest.raises(BadInputError, match=r"readable as \.npz"):
        read_graphs(path)


def test_places_without_graphs_are_refused(tmp_path):
    with pytest.raises(BadInputError, match="there is no file or folder"):
        read_graphs(tmp_path / "nowhere")
    with pytest.raises(BadInputError, match="has none: give another"):
        read_graphs(tmp_path)
    with pytest.raises(BadInputError, match=r"readable as \.npz"):
        read_graphs(Path(__file__))


def test_two_kinds_are_refused(tmp_path):
    write(tmp_path / "a.npz", layout_arrays(1))
    write(tmp_path / "b.npz", tile_arrays(1))
    with pytest.raises(BadInputError, match=r"a \(layout\) and b \(tile\)"):
        read_graphs(tmp_path)
