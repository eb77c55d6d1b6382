"""The language model of the first stage, on a model made here."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from foretune.cost import rankers, score_group
from foretune.errors import BadInputError, MissingDependencyError
from foretune.testing import rankers as suite

for needed in ("torch", "transformers", "peft", "tokenizers"):
    pytest.importorskip(needed)

from foretune_research.hf.classifier import HfClassifier, prefix_text  # noqa: E402

SMALL = {"rank": 4, "alpha": 8, "dropout": 0.0, "max_length": 1024, "threads": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A randomly initialised Qwen2 of two layers and its tokenizer, without a filler of its own."""
    import tokenizers
    import torch
    import transformers

    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    own.train_from_iterator([prefix_text(None, "cpu")] * 2, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|end|>")
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("qwen2")
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def make(folder, **options):
    return HfClassifier(model=folder, read_nests=suite.nest_batches, **{**SMALL, **options})


@pytest.fixture(scope="module")
def trained(folder):
    ranker = make(folder, epochs=1)
    ranker.fit(suite.training_groups(24)[:2])
    return ranker


def test_an_untrained_one_has_no_opinion(folder):
    assert (score_group(make(folder), suite.nest_group((64, 64, 64), 3)) == 0).all()


def test_scores_are_numbers_for_what_can_be_applied(trained):
    group = suite.nest_group((128, 128, 128), 20)
    scores = score_group(trained, group)
    legal = np.array([suite.is_legal(program.candidate) for program in group.programs])
    assert scores.dtype == np.float64
    assert np.isfinite(scores[legal]).all() and np.isnan(scores[~legal]).all()
    assert len(np.unique(scores[legal])) > legal.sum() / 2


def test_what_fills_up_has_no_part_and_the_prefix_is_read_once(trained):
    """Short and long texts in one batch, behind a kept prefix, score as whole texts alone do."""
    import torch

    tuned = trained._tuned
    prefix = prefix_text(None, "cpu")
    texts = ["a 8\n", "a 8\n b 16 parallel\n" * 5, "a 64 vectorized\n"]
    with torch.inference_mode():
        alone = [
            tuned._model(torch.tensor([tuned._tokens(prefix, text)])).logits.item()
            for text in texts
        ]
    together = tuned.scores([(prefix, text) for text in texts])
    assert np.allclose(together, alone, atol=1e-5)
    assert len({round(score, 6) for score in alone}) == 3


def test_it_learns_which_programs_are_good(folder):
    ranker = make(folder, epochs=14, learning_rate=5e-3, loss="rank", batch=5)
    group = suite.nest_group((64, 64, 64), 14)
    ranker.fit([group])
    assert suite.pair_accuracy(score_group(ranker, group), group.seconds) > 0.65


@pytest.mark.parametrize("loss", ["bce", "rank"])
def test_other_losses_train_too(folder, loss):
    ranker = make(folder, epochs=1, loss=loss, sampling="good_borderline_bad")
    ranker.fit(suite.training_groups(8)[:2])
    assert np.isfinite(score_group(ranker, suite.nest_group((64, 64, 64), 3))).any()


def test_only_the_base_is_not_trained_and_only_the_rest_is_kept(trained, folder, tmp_path):
    path = tmp_path / "classifier.npz"
    trained.save(path)
    names = set(trained._tuned.weights())
    assert any("lora_A" in name for name in names) and any("score" in name for name in names)
    assert not any("embed_tokens" in name for name in names)
    read = HfClassifier.load(path, read_nests=suite.nest_batches, threads=1, device="cpu")
    group = suite.nest_group((128, 128, 128), 6)
    assert np.allclose(score_group(read, group), score_group(trained, group), equal_nan=True)
    assert (read.scale, read.strength) == (trained.scale, trained.strength)
    assert isinstance(rankers.load(path), HfClassifier)


def test_another_model_is_refused(trained, folder, tmp_path):
    import transformers

    path = tmp_path / "classifier.npz"
    trained.save(path)
    other = tmp_path / "other"
    config = transformers.Qwen2Config.from_pretrained(folder)
    config.num_hidden_layers = 1
    config.layer_types = config.layer_types[:1]
    transformers.Qwen2ForCausalLM(config).save_pretrained(other)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(other)
    with pytest.raises(BadInputError, match="1 layers of 32"):
        HfClassifier.load(path, model=str(other))


def test_the_prefix_holds_the_role_the_device_and_the_criteria():
    from foretune.hardware import device_of

    device = device_of(suite.NEST_HARDWARE)
    text = prefix_text(device, "cpu")
    assert "good" in text and device.name in text and "lane_efficiency_score" in text
    assert text.endswith("Program:\n")
    assert device.name not in prefix_text(device, "cpu", name=False)


def test_a_prompt_longer_than_allowed_is_cut_at_its_end(trained):
    tuned, prefix = trained._tuned, prefix_text(None, "cpu")
    whole = tuned._tokens(prefix, "a 8\n" * 2000)
    assert len(whole) == SMALL["max_length"]
    assert whole[: len(tuned._prefix(prefix))] == tuned._prefix(prefix)


def test_a_prefix_without_room_for_a_program_is_refused(folder):
    ranker = make(folder, max_length=128, epochs=1)
    with pytest.raises(BadInputError, match="max_length >= "):
        ranker.fit(suite.training_groups(8)[:1])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"loss": "hinge"}, "mse"),
        ({"sampling": "good_only"}, "good_borderline_bad"),
        ({"max_length": 3}, "max_length"),
        ({"width": 3}, "width"),
        ({"model": ""}, "model=FOLDER"),
    ],
)
def test_what_makes_no_sense_is_refused(folder, options, complaint):
    with pytest.raises(BadInputError, match=complaint):
        HfClassifier(**{"model": folder, **options})


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="causal language model"):
        make(str(tmp_path), epochs=1).fit(suite.training_groups(8)[:1])


def test_without_the_package_it_says_how_to_install_it(monkeypatch, folder):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "peft" else find(name, *a)
    )
    with pytest.raises(MissingDependencyError, match=r"foretune\[torch,models\]"):
        make(folder)
