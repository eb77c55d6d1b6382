"""The state encoder: what it gives, ignores, cuts and refuses, and what a file gives back."""

from __future__ import annotations

import importlib.util
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune._model_file import read_model, write_model
from foretune.errors import (
    BadInputError,
    MissingDependencyError,
    RecordError,
    VersionMismatchError,
)
from foretune_research.world._tokenizer import (
    batches,
    numbered_tokens,
    tokens_of,
    train_tokenizer,
    windows,
)
from foretune_research.world.encoder import StateEncoder, encoder_config
from tests.research.world import small_programs as small

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from foretune_research.world._backbones import number_features  # noqa: E402 - needs PyTorch


@pytest.fixture(scope="module")
def encoder():
    return small.encoder(window=32, stride=16, windows=4)


@given(
    length=st.integers(1, 2000),
    size=st.integers(1, 300),
    share=st.floats(0.01, 1.0),
    most=st.integers(1, 20),
)
def test_windows_cover_a_text_or_spread_over_it(length, size, share, most):
    stride = max(1, int(size * share))
    found = windows(length, size, stride, most)
    assert 1 <= len(found) <= most
    assert all(0 < w.stop - w.start <= size for w in found)
    assert [w.start for w in found] == sorted({w.start for w in found})
    assert found[0].start == 0
    if len(windows(length, size, stride, 10**6)) <= most:
        assert set().union(*(range(w.start, w.stop) for w in found)) == set(range(length))
        assert all(b.start - a.start == stride for a, b in itertools.pairwise(found))
    elif most > 1:
        assert found[-1].stop == length


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 200))
def test_batches_hold_every_piece_once_and_fill_up_the_rest(lengths, budget):
    pieces = [np.full(length, number + 1) for number, length in enumerate(lengths)]
    seen = []
    for at, rows, counts in batches(pieces, 0, budget):
        assert rows.size <= budget or len(rows) == 1
        for piece, row, count in zip(at.tolist(), rows, counts.tolist(), strict=True):
            assert row[:count].tolist() == pieces[piece].tolist()
            assert not row[count:].any()
            seen.append(piece)
    assert sorted(seen) == list(range(len(pieces)))


def test_what_programs_repeat_becomes_few_tokens_and_anything_can_be_written():
    tokenizer = train_tokenizer(small.texts(60), 600)
    known, foreign = tokens_of(tokenizer, [small.texts(1, seed=9)[0], "λ(\u2603) {}\n\t~"])
    assert len(known) < 0.7 * len(small.texts(1, seed=9)[0])
    assert len(foreign) > 0
    assert train_tokenizer(small.texts(60), 600).to_str() == tokenizer.to_str()


def test_a_number_is_one_token_whatever_it_is():
    tokenizer = train_tokenizer(small.texts(60), 600)
    known, unseen, mark = numbered_tokens(
        tokenizer, ["b0:16x96 i1=32", "b0:17x99991 i1=7", "b0:#x96 i1=32"]
    )
    first = tokenizer.get_vocab_size()
    assert (known[known >= first] - first).tolist() == [16, 96, 32]
    assert (unseen[unseen >= first] - first).tolist() == [17, 99991, 7]
    assert known[known < first].tolist() == unseen[unseen < first].tolist()
    assert mark.max() < first


def test_like_numbers_are_read_alike():
    values = torch.tensor([0, 1, 96, 97, 192, 2**50])
    features = number_features(values)
    assert torch.isfinite(features).all()
    assert features[:, 0].tolist() == sorted(features[:, 0].tolist())
    apart = torch.cdist(features, features)
    assert apart[apart > 0].min() > 0.01
    # 192 has one factor of two more than 96, 97 has none.
    assert features[[2, 3, 4], 1].tolist() == pytest.approx([5 / 4, 0, 6 / 4])


def test_states_have_length_one_and_depend_on_the_text_alone(encoder):
    some = small.texts(30, seed=1)
    states = encoder.encode(some)
    assert states.dtype == np.float32
    assert states.shape == (30, 16)
    assert np.linalg.norm(states, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert np.array_equal(states, encoder.encode(some))
    alone = np.concatenate([encoder.encode([text]) for text in some])
    assert alone == pytest.approx(states, abs=1e-5)
    twice = encoder.encode([some[0], *some[:3], some[0]])
    assert np.array_equal(twice[0], twice[1])
    assert twice == pytest.approx(states[[0, 0, 1, 2, 0]], abs=1e-5)


def test_no_texts_give_no_states(encoder):
    assert encoder.encode([]).shape == (0, 16)
    assert encoder.pooled([]).shape == (0, encoder.width)


def test_pooled_is_the_mean_over_the_tokens_of_all_windows(encoder):
    text = small.texts(1, seed=5)[0] + "\n" + small.texts(1, seed=6)[0]
    (ids,) = encoder.tokens([text])
    cut = windows(len(ids), 32, 16, 4)
    assert len(cut) > 2
    sums, count = np.zeros(encoder.width), 0
    for window in cut:
        row = torch.from_numpy(ids[window])[None]
        with torch.inference_mode():
            hidden = encoder.network.backbone(row, torch.ones_like(row, dtype=torch.bool))
        sums += hidden[0].numpy().sum(axis=0)
        count += row.shape[1]
    assert encoder.pooled([text])[0] == pytest.approx(sums / count, abs=1e-5)


def test_a_text_beyond_the_cap_is_read_to_its_end(encoder):
    lines = ["for i0=2 i1=4"] * 100
    long, other = "\n".join(lines), "\n".join([*lines[:-1], "for i0=96 i1=96"])
    (ids,) = encoder.tokens([long])
    assert len(ids) > 32 + 3 * 16
    a, b = encoder.encode([long, other])
    assert np.linalg.norm(a) == pytest.approx(1.0, abs=1e-5)
    assert np.linalg.norm(a - b) > 1e-4


def test_an_empty_text_is_refused(encoder):
    with pytest.raises(BadInputError, match="text 1 of 2"):
        encoder.encode(["for i0=1", ""])


def test_a_file_gives_back_the_same_encoder(encoder, tmp_path):
    path = tmp_path / "encoder.npz"
    encoder.save(path)
    again = StateEncoder.load(path, **small.ON_CPU)
    some = small.texts(20, seed=2)
    assert again.config == encoder.config
    assert np.array_equal(again.encode(some), encoder.encode(some))
    assert np.array_equal(again.pooled(some), encoder.pooled(some))


def test_the_same_seed_makes_the_same_encoder_and_leaves_pytorch_alone():
    some = small.texts(5)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    states = small.encoder().encode(some)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(small.encoder().encode(some), states)
    other = StateEncoder.fresh(small.texts(40), encoder_config(**small.TINY), seed=4)
    assert not np.allclose(other.encode(some), states, atol=1e-2)


def test_another_schema_or_a_damaged_file_is_refused(encoder, tmp_path):
    path = tmp_path / "encoder.npz"
    meta, arrays = encoder.dump()
    write_model(path, {**meta, "schema": "foretune.state-encoder/0"}, arrays)
    with pytest.raises(VersionMismatchError, match="state-encoder/1"):
        StateEncoder.load(path)
    for broken in ({"tokenizer": "{}"}, {"architecture": {}}, {"config": {"depth": 3}}):
        write_model(path, {**meta, **broken}, arrays)
        with pytest.raises(RecordError, match="damaged"):
            StateEncoder.load(path)
    write_model(path, meta, dict(list(arrays.items())[1:]))
    with pytest.raises(RecordError, match="damaged"):
        StateEncoder.load(path)
    path.write_bytes(b"no such file")
    with pytest.raises(RecordError, match="not a part"):
        StateEncoder.load(path)


def test_what_is_stored_is_plain_data(encoder, tmp_path):
    path = tmp_path / "encoder.npz"
    encoder.save(path)
    meta, arrays = read_model(path, "an encoder")
    assert json.loads(json.dumps(meta)) == meta
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float16)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "bert"}, "choose one of codebert, compact"),
        ({"depth": 3}, "unknown option of the compact encoder 'depth'"),
        ({"heads": 3}, "heads divides width"),
        ({"window": 16, "stride": 16}, "stride <= window"),
        ({"dimension": 0}, "dimension >= 1"),
        ({"dropout": 1.0}, "dropout < 1"),
        ({"vocabulary": 100}, "vocabulary >= 257"),
        ({"layers": 0}, "layers >= 1"),
        ({"windows": 0}, "windows >= 1"),
    ],
)
def test_values_that_make_no_sense_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        encoder_config(**options)


def test_an_unknown_device_is_refused():
    with pytest.raises(BadInputError, match="device 'nowhere'"):
        StateEncoder.fresh(small.texts(3), encoder_config(**small.TINY), device="nowhere")


@pytest.mark.parametrize("package", ["torch", "tokenizers"])
def test_a_missing_package_is_named_with_its_remedy(encoder, package, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == package else found(n))
    with pytest.raises(MissingDependencyError, match=f"needs {package}.*pip install"):
        StateEncoder.fresh(small.texts(3))
    with pytest.raises(MissingDependencyError, match=f"needs {package}.*pip install"):
        StateEncoder.restore(*encoder.dump())


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A model of CodeBERT's architecture and files, tiny and with random weights."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import ByteLevelBPETokenizer

    folder = tmp_path_factory.mktemp("codebert")
    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(small.texts(40), 320, special_tokens=marks, show_progress=False)
    tokenizer.save_model(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 40}))
    torch.manual_seed(0)
    transformers.RobertaModel(
        transformers.RobertaConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=42,
            type_vocab_size=1,
        )
    ).save_pretrained(folder)
    return folder


def codebert(folder, **options):
    sizes = {"window": 40, "stride": 20, "windows": 3, "dimension": 8, **options}
    config = encoder_config("codebert", source=str(folder), **sizes)
    return StateEncoder.fresh([], config, **small.ON_CPU)


def test_codebert_reads_what_the_published_model_reads(published):
    from transformers import AutoTokenizer, RobertaModel

    encoder = codebert(published)
    short = "for i0=2"
    tokens = AutoTokenizer.from_pretrained(published)(short, return_tensors="pt")
    model = RobertaModel.from_pretrained(published, add_pooling_layer=False).eval()
    with torch.inference_mode():
        expected = model(**tokens).last_hidden_state[0].mean(dim=0).numpy()
    # Weights are kept in 16 bits.
    assert encoder.pooled([short])[0] == pytest.approx(expected, abs=1e-2)


def test_codebert_cuts_long_texts_and_reads_back_without_its_source(published, tmp_path):
    encoder = codebert(published)
    some = [*small.texts(4), "for i0=2"]
    states = encoder.encode(some)
    assert states.shape == (5, 8)
    assert np.linalg.norm(states, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert np.concatenate([encoder.encode([t]) for t in some]) == pytest.approx(states, abs=1e-5)
    path = tmp_path / "encoder.npz"
    encoder.save(path)
    meta, arrays = read_model(path, "an encoder")
    meta["config"]["source"] = "gone"
    again = StateEncoder.restore(meta, arrays, **small.ON_CPU)
    assert np.array_equal(again.encode(some), states)


def test_a_window_longer_than_the_published_model_reads_is_refused(published):
    with pytest.raises(BadInputError, match="window <= 40"):
        codebert(published, window=41)


def test_a_source_that_is_no_model_is_refused(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(BadInputError, match="source must be a folder"):
        codebert(tmp_path)
