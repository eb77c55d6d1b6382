"""A local model reads the schema off digit by digit or by heads, and can be tuned; made here."""

import importlib.util

import numpy as np
import pytest

for needed in ("torch", "transformers", "tokenizers"):
    pytest.importorskip(needed)

from foretune.cost.behaviour import prompts  # noqa: E402
from foretune.cost.behaviour.ranker import BehaviourRanker  # noqa: E402
from foretune.cost.behaviour.scores import open_source  # noqa: E402
from foretune.describe import METRICS  # noqa: E402
from foretune.describe.text import device_text  # noqa: E402
from foretune.errors import BadInputError, VersionMismatchError  # noqa: E402
from foretune.testing import rankers as suite  # noqa: E402
from foretune_research.distillation import teaching  # noqa: E402
from foretune_research.distillation.teaching import Answered, Question  # noqa: E402
from foretune_research.distillation.tiny import save_small_qwen2  # noqa: E402
from foretune_research.distillation.tuning import TuningConfig, tune  # noqa: E402
from foretune_research.hf.score_model import META, ScoreModel  # noqa: E402
from foretune_research.hf.scores import HfScores  # noqa: E402
from tests.cost.behaviour.behaviour_support import DEVICES, UNSEEN, tiny_nests  # noqa: E402

OWN = np.array(["cpu" in metric.kinds for metric in METRICS])
CORPUS = [
    prompts.instructions(UNSEEN, device_text(UNSEEN)),
    prompts.template("cpu"),
    "Program: arrays A global 8x8 a 8 parallel b 16 vectorized flops unroll",
] * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("qwen2")
    save_small_qwen2(place, CORPUS, vocabulary=800, longest=2048)
    return place


def question(text, device="cpu", **more):
    scores = np.where(OWN, 0.5, np.nan)
    return Question("g", device, "Judge.", text, 1.0, False, more.get("formulas", scores))


def lessons():
    """Programs of two words: the first says whether all scores are high, the second nothing."""
    found = []
    for number in range(32):
        high = number % 2
        text = f"{'aaaa' if high else 'bbbb'} {'cd'[number // 2 % 2]}"
        scores = np.where(OWN, 0.9 if high else 0.2, np.nan)
        scores[OWN] += np.linspace(-0.05, 0.05, OWN.sum())
        found.append(Answered(question(f"{text} {number}"), scores))
    return found


def test_scores_are_numbers_of_the_kind_and_hardly_any_are_tied(folder):
    source = HfScores(folder, threads=1, device="cpu")
    found = source.behaviours(tiny_nests([[2**i, 8] for i in range(9)]), UNSEEN)
    own = found.scores[:, OWN]
    assert ((own >= 0) & (own <= 1)).all() and np.isnan(found.scores[:, ~OWN]).all()
    assert len(np.unique(own[:, 0])) >= 8, "expectations are tied"
    assert np.isnan(found.seconds).all() and not found.limits_s


@pytest.mark.parametrize("readout", ["digits", "heads"])
def test_a_programs_scores_depend_on_nothing_but_program_and_device(folder, readout):
    nests = tiny_nests([[1024, 8], [2, 4], [64, 64]])
    source = HfScores(folder, readout=readout, threads=1, device="cpu")
    together = source.behaviours(nests, UNSEEN).scores
    assert source.counts.answers == 3
    alone = [
        HfScores(folder, readout=readout, threads=1, device="cpu")
        .behaviours(nests.take(np.array([row])), UNSEEN)
        .scores[0]
        for row in range(3)
    ]
    np.testing.assert_allclose(together, alone, atol=2e-5)
    np.testing.assert_array_equal(source.behaviours(nests, UNSEEN).scores, together)
    assert source.counts.cached == 3 and source.counts.answers == 3
    assert (source.behaviours(nests, DEVICES[3]).scores != together)[:, OWN].any()


def test_an_expectation_is_that_of_the_digits(folder):
    """Against the whole text run at once, position by position."""
    import torch

    model = ScoreModel(folder, "digits", "cpu")
    asked = question("a 8 parallel").messages
    found = model.scores([asked], "cpu")[0, OWN]
    digits = torch.tensor(model.digits)
    tokens = list(model.prompt(asked, "cpu"))
    wanted = []

    def likely(tokens):
        with torch.no_grad():
            logits = model.model(torch.tensor([tokens])).logits[0, -1, digits]
        return torch.softmax(logits, 0).double().numpy()

    for piece in model.pieces("cpu")[:-1]:
        tokens += piece
        first = likely(tokens)
        tokens += [model.digits[0], model._dot]
        tenths = likely(tokens)
        tokens.append(model.digits[int(tenths.argmax())])
        hundredths = likely(tokens)
        tokens.append(model.digits[int(hundredths.argmax())])
        whole = first[1] / (first[0] + first[1])
        below = tenths @ np.arange(10) / 10 + hundredths @ np.arange(10) / 100
        wanted.append(min(1.0, whole + (1 - whole) * below))
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_only_the_answer_is_learned(folder):
    model = ScoreModel(folder, "digits", "cpu")
    scores = np.where(OWN, 0.734, np.nan)
    told = model.sequence(question("a 8").lesson, "cpu", scores)
    head = model.prompt(question("a 8").lesson, "cpu")
    assert told.tokens[: len(head)] == head and set(told.labels[: len(head)]) == {-100}
    assert told.labels[len(head) :] == told.tokens[len(head) :]
    text = model.tokenizer.decode(told.tokens[len(head) :])
    assert text.replace("<|end|>", "") == prompts.template("cpu").replace("0.00", "0.73")
    assert len(told.places) == OWN.sum()
    for place in told.places:
        assert told.tokens[place + 1 : place + 5] == model.number(0.734)


def test_a_program_that_is_longer_than_the_model_reads_is_refused(folder):
    model = ScoreModel(folder, "digits", "cpu")
    with pytest.raises(BadInputError, match="reads 2048 tokens"):
        model.scores([question("a 8 " * 2000).messages], "cpu")


def test_numbers_have_two_decimals_and_are_in_range(folder):
    model = ScoreModel(folder, "digits", "cpu")
    for value, text in (
        (0.0, "0.00"),
        (0.996, "1.00"),
        (1.7, "1.00"),
        (-1, "0.00"),
        (0.056, "0.06"),
    ):
        assert model.tokenizer.decode(model.number(value)) == text


@pytest.mark.slow
@pytest.mark.parametrize(("readout", "epochs"), [("digits", 14), ("heads", 6)])
def test_a_tuned_model_says_what_it_was_taught(folder, tmp_path, readout, epochs):
    config = TuningConfig(
        readout=readout, epochs=epochs, batch=8, learning_rate=1e-2, full=True, threads=1
    )
    done = tune(folder, lessons(), tmp_path / "tuned", config)
    assert done.losses[-1] < 0.5 * done.losses[0] and done.answers == 32
    model = ScoreModel(tmp_path / "tuned", device="cpu")
    assert model.readout == readout
    asked = [question(text).lesson for text in ("aaaa c 50", "bbbb c 50", "aaaa d 60", "bbbb d 60")]
    means = np.nanmean(model.scores(asked, "cpu"), axis=1)
    assert min(means[0], means[2]) > max(means[1], means[3]) + 0.02


@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="PEFT is not installed")
def test_lora_tunes_a_small_part_and_is_merged(folder, tmp_path):
    done = tune(
        folder,
        lessons()[:8],
        tmp_path / "tuned",
        TuningConfig(epochs=2, batch=8, learning_rate=5e-3, rank=2, alpha=4, threads=1),
    )
    assert 0 < done.trained < 0.4 * done.total and done.losses[1] < done.losses[0]
    source = open_source("hf", str(tmp_path / "tuned"))
    assert isinstance(source, HfScores)
    assert np.isfinite(source.behaviours(tiny_nests([[8, 8]]), UNSEEN).scores[:, OWN]).all()
    assert not [file.name for file in (tmp_path / "tuned").iterdir() if "adapter" in file.name]


def test_a_ranker_learns_from_the_models_scores(folder):
    made = BehaviourRanker(
        source=HfScores(folder, readout="heads", threads=1, device="cpu"),
        read_nests=suite.nest_batches,
        stage="2",
        rounds=10,
        threads=1,
    )
    groups = [suite.nest_group(shape, 10) for shape in suite.TRAINING_SHAPES[:2]]
    made.fit(groups)
    scores = made.score_group(groups[0])
    assert np.isfinite(scores[[suite.is_legal(p.candidate) for p in groups[0].programs]]).all()
    assert made.scores == "hf" and made._regressors.sources == ["hf"]


def test_a_model_of_other_words_is_refused(folder, tmp_path):
    tune(folder, lessons()[:2], tmp_path / "old", TuningConfig(epochs=1, full=True, threads=1))
    place = tmp_path / "old" / META
    place.write_text(place.read_text().replace('"prompt": 1', '"prompt": 0'))
    with pytest.raises(VersionMismatchError, match="tune the model again"):
        ScoreModel(tmp_path / "old", device="cpu")
    with pytest.raises(BadInputError, match="must be a causal language model"):
        ScoreModel(tmp_path, device="cpu")
    with pytest.raises(BadInputError, match="'words'"):
        ScoreModel(folder, "words", "cpu")


def test_tuning_needs_answers_and_sense(folder, tmp_path):
    with pytest.raises(BadInputError, match="there are none"):
        tune(folder, [], tmp_path / "none")
    for options, told in (({"epochs": 0}, "epochs >= 1"), ({"learning_rate": 0.0}, "rate > 0")):
        with pytest.raises(BadInputError, match=told):
            TuningConfig(**options)


def test_the_whole_pipeline(folder, tmp_path):
    """Programs to questions to answers to a tuned model that scores programs of a ranker."""
    groups = [suite.nest_group(shape, 40) for shape in suite.TRAINING_SHAPES[:2]]
    asked = teaching.questions(groups, per_group=6, read_nests=suite.nest_batches)
    answers, reasons = teaching.kept(teaching.formula_teacher(asked))
    assert len(answers) + sum(reasons.values()) == len(asked)
    config = TuningConfig(readout="heads", epochs=1, batch=6, full=True, threads=1)
    done = tune(folder, answers, tmp_path / "student", config)
    assert np.isfinite(done.losses).all()
    source = HfScores(tmp_path / "student", threads=1, device="cpu")
    rows, nests = suite.nest_batches([p.candidate for p in groups[0].programs])[0]
    assert source.behaviours(nests.take(np.arange(3)), UNSEEN).scores.shape == (3, len(METRICS))
    assert len(rows) >= 3
