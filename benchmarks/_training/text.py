"""Text networks: other widths and lengths than those of the catalog, many of them odd or prime."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks._training.parts import VOCABULARY, Call, Definition, decoder, made, text
from foretune.workload.catalog import _definitions as d


def bert_small() -> Definition:
    """BERT small, 512 wide, 77 tokens."""
    sizes = {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}
    return text("BertModel", "BertConfig", 77, num_hidden_layers=2, **sizes)


def distilbert() -> Definition:
    """DistilBERT, 768 wide, 96 tokens, two sentences at once."""
    return text("DistilBertModel", "DistilBertConfig", 96, batch=2, n_layers=2)


def electra_small() -> Definition:
    """ELECTRA small, 256 wide with embeddings of 128, 101 tokens."""
    return text("ElectraModel", "ElectraConfig", 101, num_hidden_layers=2)


def roberta_large() -> Definition:
    """RoBERTa of the large width 1024, 48 tokens."""
    sizes = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}
    return text("RobertaModel", "RobertaConfig", 48, num_hidden_layers=2, **sizes)


def albert_base() -> Definition:
    """ALBERT base: layers share their weights, the tanh form of GELU; 61 tokens."""
    sizes = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    return text("AlbertModel", "AlbertConfig", 61, num_hidden_layers=2, **sizes)


def modernbert() -> Definition:
    """ModernBERT base: gated GELU, rotary positions, local attention; 211 tokens."""
    return text("ModernBertModel", "ModernBertConfig", 211, num_hidden_layers=3, pad_token_id=0,
                bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)  # fmt: skip


def mpnet() -> Definition:
    """MPNet with relative positions, 384 wide, 43 tokens, three sentences at once."""
    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    return text("MPNetModel", "MPNetConfig", 43, batch=3, num_hidden_layers=2, **sizes)


def deberta_v3_small() -> Definition:
    """DeBERTa v2: disentangled attention with gathers, 640 wide, 37 tokens."""
    sizes = {"hidden_size": 640, "num_attention_heads": 10, "intermediate_size": 2560}
    return text("DebertaV2Model", "DebertaV2Config", 37, num_hidden_layers=2,
                relative_attention=True, pos_att_type=["p2c", "c2p"], **sizes)  # fmt: skip


def t5_small() -> Definition:
    """T5 small, encoder of 55 tokens and decoder of 13: relative positions, RMS norm."""
    return _translator(made("T5Model", "T5Config", vocab_size=VOCABULARY, num_layers=2), 55, 13)


def bart_base() -> Definition:
    """BART base, encoder of 70 tokens and decoder of 19: cross attention, GELU."""
    module = made("BartModel", "BartConfig", vocab_size=VOCABULARY, d_model=768, encoder_layers=2,
                  decoder_layers=2, encoder_attention_heads=12, decoder_attention_heads=12,
                  encoder_ffn_dim=3072, decoder_ffn_dim=3072)  # fmt: skip
    return _translator(module, 70, 19)


def _translator(module: Any, read: int, written: int) -> Definition:
    def call(model: Any, source: Tensor, target: Tensor) -> Any:
        return model(input_ids=source, decoder_input_ids=target).last_hidden_state

    return Call(module, call), (d.tokens(read, VOCABULARY), d.tokens(written, VOCABULARY))


def gpt2_medium() -> Definition:
    """GPT-2 medium, 1024 wide, 50 tokens."""
    return decoder("GPT2Model", "GPT2Config", 50, n_embd=1024, n_layer=2, n_head=16)


def gpt_neox() -> Definition:
    """GPT-NeoX (Pythia 410M): parallel residuals, a quarter of each head rotary; 29 tokens."""
    return decoder("GPTNeoXModel", "GPTNeoXConfig", 29, hidden_size=1024, intermediate_size=4096,
                   num_hidden_layers=2, num_attention_heads=16)  # fmt: skip


def qwen2_half_billion() -> Definition:
    """Qwen2 0.5B: 896 wide, gated SiLU of 4864, two of fourteen heads have keys; 33 tokens."""
    return decoder("Qwen2Model", "Qwen2Config", 33, hidden_size=896, intermediate_size=4864,
                   num_hidden_layers=2, num_attention_heads=14, num_key_value_heads=2)  # fmt: skip


def _llama(length: int) -> Definition:
    return decoder("LlamaModel", "LlamaConfig", length, hidden_size=2048, intermediate_size=5632,
                   num_hidden_layers=1, num_attention_heads=32, num_key_value_heads=4)  # fmt: skip


def tinyllama() -> Definition:
    """TinyLlama 1.1B, 2048 wide, grouped queries, 17 tokens."""
    return _llama(17)


def tinyllama_step() -> Definition:
    """TinyLlama 1.1B, one token: matrices of one row."""
    return _llama(1)


def gemma() -> Definition:
    """Gemma-like: 1152 wide, heads of 256 that share one key, gated tanh GELU; 24 tokens."""
    return decoder("GemmaModel", "GemmaConfig", 24, hidden_size=1152, intermediate_size=6912,
                   num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=1,
                   head_dim=256)  # fmt: skip


def opt_350m() -> Definition:
    """OPT 350M: 1024 wide with embeddings of 512, norms behind; 40 tokens."""
    return text(
        "OPTModel",
        "OPTConfig",
        40,
        hidden_size=1024,
        ffn_dim=4096,
        num_hidden_layers=2,
        num_attention_heads=16,
        word_embed_proj_dim=512,
        do_layer_norm_before=False,
    )


def bloom() -> Definition:
    """BLOOM 560M: 1024 wide, biases by distance instead of positions; 36 tokens."""
    return text("BloomModel", "BloomConfig", 36, hidden_size=1024, n_layer=2, n_head=16)


def phi() -> Definition:
    """Phi: 1280 wide, attention and MLP side by side, one layer norm; 7 tokens."""
    return decoder("PhiModel", "PhiConfig", 7, hidden_size=1280, intermediate_size=5120,
                   num_hidden_layers=1, num_attention_heads=20)  # fmt: skip


def qwen3_step() -> Definition:
    """Qwen3 0.6B with norms of queries and keys, one token behind a cache of 130."""
    from transformers import DynamicCache

    module = made("Qwen3Model", "Qwen3Config", vocab_size=VOCABULARY, hidden_size=1024,
                  intermediate_size=3072, num_hidden_layers=1, num_attention_heads=16,
                  num_key_value_heads=8, head_dim=128)  # fmt: skip

    def call(model: Any, token: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Any:
        cache = DynamicCache()
        cache.update(keys, values, 0)
        output = model(input_ids=token, attention_mask=mask, past_key_values=cache, use_cache=True)
        layer = output.past_key_values.layers[0]
        return output.last_hidden_state, layer.keys, layer.values

    cached = d.normal(1, 8, 130, 128)
    mask = torch.ones(1, 131, dtype=torch.int64)
    return Call(module, call, mask), (d.tokens(1, VOCABULARY), cached, cached.clone())


NETWORKS = (
    bert_small, distilbert, electra_small, roberta_large, albert_base, modernbert, mpnet,
    deberta_v3_small, t5_small, bart_base, gpt2_medium, gpt_neox, qwen2_half_billion, tinyllama,
    tinyllama_step, gemma, opt_350m, bloom, phi, qwen3_step,
)  # fmt: skip
