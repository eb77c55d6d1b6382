"""A small causal language model with random weights and a tokenizer of its own, made on the spot.

Large enough for every path that a real one takes; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def save_small_qwen2(
    folder: Path | str,
    corpus: Sequence[str],
    *,
    width: int = 32,
    layers: int = 2,
    vocabulary: int = 600,
    longest: int = 4096,
    seed: int = 0,
) -> None:
    """Writes a randomly initialised Qwen2 and its tokenizer as transformers saves them.

    Every digit is a token, as of the published models.

    Args:
        folder: Made if it is not there.
        corpus: Texts that the tokenizer learns words from.
        width: Of hidden states, a multiple of 4.
        layers: How many.
        vocabulary: Tokens at most.
        longest: Tokens of a text at most.
        seed: Of the weights.

    Raises:
        ModuleNotFoundError: PyTorch, transformers or tokenizers is not installed.
    """
    import tokenizers
    import torch
    import transformers

    own = tokenizers.Tokenizer(tokenizers.models.BPE())
    own.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.Punctuation(),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    own.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    own.train_from_iterator(list(corpus), trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|end|>")
    config = transformers.Qwen2Config(
        vocab_size=len(fast),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=longest,
        bos_token_id=None,
        eos_token_id=fast.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
