"""Operators across passes: what a plan wants is what the pipeline does, and results are equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretune.graph import compile_model, cut, extract
from foretune.graph.prebuilt import kernels_of
from foretune.plans.encode import configurations, graph_of
from foretune.plans.files import identity_of
from foretune.plans.network import PlanNetwork
from foretune.plans.space import PlanSpace
from foretune.workload import load_input
from tests.graph.programs import module_of, relax
from tests.graph.test_algorithms import hardware
from tests.plans import networks

FILE = Path(__file__).with_name("networks.py")


def network(name):
    return PlanNetwork(load_input(f"{FILE}:{name}"), hardware())


@pytest.fixture(scope="module")
def convolutions():
    found = network("convolutions")
    return found, PlanSpace.of(found, "0" * 16)


def walk(found, space, plan):
    tables = {operator.number: operator.table for operator in space.sketch.operators}
    return found.walk(plan.wanted, lambda n, step, path: (step, path) in tables[n])


def test_every_operator_has_the_choices_of_all_passes(convolutions):
    _, space = convolutions
    assert [operator.name.split()[0] for operator in space.sketch.operators] == ["conv2d"] * 4
    steps = [set(places) for places in space.sketch.places]
    assert steps[0] == {"layouts", "algorithms", "packed-weights", "fusion"}
    assert steps[3] == {"layouts", "packed-weights", "fusion"}
    for operator in space.sketch.operators:
        for path in operator.paths:
            chosen = dict(path)
            assert ("algorithms" in chosen or "packed-weights" in chosen) == (
                chosen["layouts"] == "channels last"
            )
            assert ("packed-weights" in chosen) == (
                chosen["layouts"] == "channels last"
                and chosen.get("algorithms", "direct") == "direct"
            )


def test_the_default_plan_is_the_networks_without_a_plan(convolutions):
    found, space = convolutions
    simplified, done = walk(found, space, space.default)
    expected = extract(found.model, hardware())
    assert [w.key for w in cut(simplified).workloads] == [w.key for w in expected.workloads]
    assert {k: dict(v) for k, v in simplified.plan.items()} == expected.plan
    assert not done.strangers


def test_what_a_plan_wants_is_done_for_the_operator_it_is_wanted_for(convolutions):
    """But for what a neighbour's layout leaves no choice about."""
    found, space = convolutions
    for plan in space.sample(np.random.default_rng(3), 12):
        _, done = walk(found, space, plan)
        for operator, path in zip(space.sketch.operators, plan.paths, strict=True):
            taken = done.paths.get(operator.number, ())
            assert taken in (path, path[:-1])
            assert taken == path or path[-1][0] == "fusion"


def test_a_choice_of_one_operator_leaves_the_others_as_they_are(convolutions):
    """The weights of the second and third convolution are the same tensor."""
    found, space = convolutions
    for at, operator in enumerate(space.sketch.operators):
        wanted = {operator.number: {"layouts": "as written"}}
        _, done = walk(found, space, _with(space, wanted))
        for other, operator_ in enumerate(space.sketch.operators):
            expected = "as written" if at == other else "channels last"
            assert dict(done.paths[operator_.number])["layouts"] == expected


def _with(space, wanted):
    paths = [o.path(wanted.get(o.number, {})) for o in space.sketch.operators]
    return space.candidate(
        {"sketch": space.sketch.key, "decisions": list(space.sketch.decisions_of(paths))}
    )


def test_every_plan_computes_the_same(convolutions):
    found, space = convolutions
    expected = compile_model(found.model, hardware(), {}).run(found.model.examples)
    for plan in space.sample(np.random.default_rng(7), 2):
        simplified, _ = walk(found, space, plan)
        artifact = compile_model(found.model, hardware(), {}, cut(simplified))
        for ours, theirs in zip(artifact.run(found.model.examples), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_plan_goes_into_the_pipeline_as_an_ordinary_one(convolutions):
    found, space = convolutions
    (plan,) = space.sample(np.random.default_rng(9), 1)
    simplified, _ = walk(found, space, plan)
    given = extract(found.model, hardware(), plan=simplified.plan)
    assert [w.key for w in given.workloads] == [w.key for w in cut(simplified).workloads]


def test_a_network_without_choices_has_one_plan():
    space = PlanSpace.of(network("nothing"), "0" * 16)
    assert space.size == 1
    assert not space.sketch.variables


def test_kernels_of_a_network_are_its_programs_without_views(convolutions):
    found, space = convolutions
    simplified, _ = walk(found, space, space.default)
    extraction = cut(simplified)
    assert set(extraction.functions) <= set(kernels_of(extraction))


def test_a_network_is_a_graph_with_columns_of_tpugraphs(convolutions):
    from foretune.tgraph import COLUMNS

    found, space = convolutions
    graph = graph_of(found.begun.module)
    assert graph.features.shape == (len(graph.opcode), 140)
    assert np.isfinite(graph.features).all()
    assert (graph.edges[:, 0] > graph.edges[:, 1]).all()
    assert graph.features[:, 0].sum() == 1
    assert identity_of(graph) == identity_of(graph_of(network("convolutions").begun.module))

    def column(name, node):
        return graph.features[node, COLUMNS.index(name)]

    nodes = graph.calls[[operator.node for operator in space.sketch.operators]]
    assert (graph.opcode[nodes] == 26).all()
    first, last = nodes[0], nodes[-1]
    assert [column(f"shape_dimensions_{i}", first) for i in range(5)] == [1, 16, 12, 12, 0]
    assert column("shape_dimensions_product", first) == 16 * 144
    assert column("shape_element_type_is_f32", first) == 1
    assert [column(f"window_size_{i}", first) for i in range(3)] == [3, 3, 0]
    assert column("window_padding_low_1", first) == 1
    assert column("window_size_product", last) == 1
    assert column("convolution_dim_numbers_kernel_input_feature_dim", first) == 1
    assert column("feature_group_count", first) == 1
    assert [column(f"layout_minor_to_major_{i}", first) for i in range(6)] == [3, 2, 1, 0, -1, -1]


def test_axes_without_a_column_are_left_out(rng):
    """Configurations have numbers from -1 to 5, whatever the rank."""
    x = rng.normal(size=(1, 2, 1, 2, 1, 2, 3)).astype("float32")
    graph = graph_of(module_of(relax.op.nn.relu, x))
    columns = graph.features[graph.calls[0], -6:]
    assert columns.tolist() == [5, 4, 3, 2, 1, 0]
    assert graph.layouts.max() == 5


def test_a_plan_is_numbers_for_each_operator(convolutions):
    found, space = convolutions
    graph = graph_of(found.begun.module)
    written = space.uniform({"layouts": "as written", "fusion": "alone"})
    plain = space.uniform({"algorithms": "direct", "packed-weights": "plain"})
    rows = configurations(graph, [space.default, written, plain])
    assert rows.shape == (3, 4, 18)
    assert rows[0, 0, :12].tolist() == [1, 3, 2, 0, -1, -1] * 2
    assert rows[1, 0].tolist() == [3, 2, 1, 0, -1, -1] * 2 + [-1, -1, 0, -1, -1, -1]
    assert rows[2, 0, 12:].tolist() == [0, 0, 1, -1, -1, -1]
    assert rows[0, 3, 12:].tolist() == [-1, 1, 1, -1, -1, -1]
    assert rows.min() >= -1
    assert rows.max() <= 5
    many = space.sample(np.random.default_rng(0), 50)
    distinct = {row.tobytes() for row in configurations(graph, many)}
    assert len(distinct) == len(many)


def test_a_kernel_stays_the_same_where_other_kernels_need_more_room():
    rng = np.random.default_rng(0)

    def make(emit, x):
        for _ in range(2):
            weights = relax.const(rng.normal(size=(256, 256)).astype("float32"), "float32")
            x = emit(relax.op.nn.relu(emit(relax.op.matmul(x, weights))))
        return x

    model = load_input(f"{FILE}:product")
    found = PlanNetwork(replace(model, module=networks._main(make, 8, 256)), hardware())
    simplified, _ = found.walk({})
    own = cut(simplified)
    assert own.between == 1 << 20
    again = cut(simplified, own.between)
    assert [w.key for w in again.workloads] == [w.key for w in own.workloads]
    far = cut(simplified, 64 << 20)
    assert far.between == 64 << 20
    assert not {w.key for w in far.workloads} & {w.key for w in own.workloads}
