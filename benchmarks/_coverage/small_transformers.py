"""Model types of transformers, small: what kind of input each takes and what its size needs.

A configuration is shrunk by the names of its fields (``_SMALL``), in nested configurations too;
what a type needs beyond that stands beside its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim"), 64),
    **dict.fromkeys(("intermediate_size", "d_ff", "d_inner", "n_inner", "ffn_dim"), 96),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim", "ffn_hidden_size"), 96),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    "num_key_value_heads": 2,
    "head_dim": 16,
    "d_head": 16,
    "d_kv": 16,
    "vocab_size": 120,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "projection_dim": 32,
    "image_size": 64,
}
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def _as_they_are(types: str) -> dict[str, dict[str, Any]]:
    return {name: {} for name in types.split()}


TYPES: dict[str, dict[str, dict[str, Any]]] = {
    "encoder": {
        **_as_they_are(
            "bert camembert data2vec-text distilbert ernie ibert layoutlm megatron-bert mpnet "
            "roberta splinter xlm-roberta"
        ),
        "albert": {"embedding_size": 32},
        "big_bird": {"attention_type": "original_full"},
        "canine": {"num_hash_buckets": 64, "local_attention": False},
        "convbert": {"embedding_size": 64},
        "deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        "electra": {"embedding_size": 32},
        "esm": {"vocab_size": 120, "mask_token_id": 4, "position_embedding_type": "rotary"},
        "fnet": {"type_vocab_size": 2},
        "funnel": {"block_sizes": [1, 1], "block_repeats": [1, 1]},
        "mobilebert": {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
        "modernbert": {"local_attention": 8},
        "nystromformer": {"num_landmarks": 16, "segment_means_seq_len": 16},
        "rembert": {"input_embedding_size": 32, "output_embedding_size": 32},
        "roformer": {"embedding_size": 64},
        "squeezebert": {"embedding_size": 64},
        "xmod": {"languages": ["en"], "default_language": "en"},
    },
    "decoder": {
        **_as_they_are(
            "biogpt bloom cohere gemma glm gpt2 gpt_bigcode gpt_neox granite helium llama mistral "
            "mpt olmo olmo2 openai-gpt persimmon phi phi3 qwen2 qwen3 smollm3 stablelm starcoder2"
        ),
        "codegen": {"rotary_dim": 8, "n_ctx": 64},
        "ctrl": {"dff": 96},
        "falcon": {"new_decoder_architecture": False},
        "gemma2": {"query_pre_attn_scalar": 16},
        "gemma3_text": {"query_pre_attn_scalar": 16},
        "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
        "gptj": {"rotary_dim": 8},
        "mamba": {"state_size": 4, "time_step_rank": 4},
        "opt": {"word_embed_proj_dim": 64},
        "xglm": {"attention_heads": 4},
    },
    "sequence": {
        **_as_they_are(
            "bart blenderbot blenderbot-small m2m_100 marian mbart mt5 mvp pegasus plbart t5 umt5"
        ),
        "longt5": {"local_radius": 4, "global_block_size": 4, "encoder_attention_type": "local"},
    },
    "vision": {
        **_as_they_are("beit data2vec-vision deit dinov2 ijepa textnet vit vit_msn vitdet"),
        "bit": {"embedding_size": 64, "hidden_sizes": [128, 128, 256, 256], "depths": [1, 1, 1, 1]},
        "convnext": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]},
        "convnextv2": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]},
        "dpt": {"is_hybrid": False, "backbone_out_indices": [0, 0, 1, 1]},
        "efficientnet": {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
        "focalnet": {"embed_dim": 16, "depths": [1, 1, 1, 1]},
        "glpn": {"hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1], "num_attention_heads":
                 [1, 1, 2, 2], "decoder_hidden_size": 16},
        "hiera": {"embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 4, 8],
                  "image_size": [64, 64]},
        "levit": {"image_size": 64, "hidden_sizes": [32, 48, 64], "num_attention_heads": [2, 3,
                  4], "depths": [1, 1, 1], "key_dim": [16, 16, 16]},
        "mobilenet_v1": {"depth_multiplier": 0.5},
        "mobilenet_v2": {"depth_multiplier": 0.5},
        "mobilevit": {"hidden_sizes": [32, 48, 64], "neck_hidden_sizes": [8, 16, 16, 24, 32, 40,
                      64]},
        "mobilevitv2": {"base_attn_unit_dims": [16, 24, 32]},
        "poolformer": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]},
        "pvt": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1], "num_attention_heads":
                [1, 2, 3, 4]},
        "pvt_v2": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1],
                   "num_attention_heads": [1, 2, 3, 4]},
        "regnet": {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1],
                   "groups_width": 8},
        "resnet": {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]},
        "segformer": {"hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1],
                      "num_attention_heads": [1, 1, 2, 2]},
        "swiftformer": {"depths": [1, 1, 1, 1], "embed_dims": [16, 24, 32, 48]},
        "swin": {"embed_dim": 16, "depths": [2, 2], "num_heads": [1, 2], "window_size": 4},
        "swin2sr": {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4},
        "swinv2": {"embed_dim": 16, "depths": [2, 2], "num_heads": [1, 2], "window_size": 4},
        "yolos": {"image_size": [64, 64], "num_detection_tokens": 10},
    },
    "speech": {
        "audio-spectrogram-transformer": {"max_length": 64, "num_mel_bins": 32},
        "data2vec-audio": {"conv_dim": [32, 32, 32]},
        "hubert": {"conv_dim": [32, 32, 32]},
        "sew": {"conv_dim": [32, 32, 32], "squeeze_factor": 2},
        "speech_to_text": {"num_mel_bins": 16, "input_feat_per_channel": 16, "conv_channels": 32,
                           "max_source_positions": 128, "max_target_positions": 64},
        "unispeech": {"conv_dim": [32, 32, 32]},
        "wav2vec2": {"conv_dim": [32, 32, 32]},
        "wav2vec2-conformer": {"conv_dim": [32, 32, 32]},
        "wavlm": {"conv_dim": [32, 32, 32]},
        "whisper": {"num_mel_bins": 16, "max_source_positions": 32, "max_target_positions": 64},
    },
    "multimodal": {
        **_as_they_are("altclip chinese_clip clip groupvit metaclip_2"),
        "blip": {"image_text_hidden_size": 32},
        "vilt": {"max_image_length": -1},
    },
}  # fmt: skip
"""Model types by the kind of inputs that they take, with what each needs beyond ``_SMALL``."""
CACHED = ("gemma", "gpt2", "gpt_neox", "llama", "mistral", "opt", "phi", "qwen2")
"""Decoders that are swept a second time: one step with a cache in and the longer cache out."""
_SPEECH_CONVOLUTIONS = {
    "conv_stride": [5, 2, 2],
    "conv_kernel": [10, 3, 3],
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 3,
    "mask_time_prob": 0.0,
    "apply_spec_augment": False,
}


def small_config(model_type: str, extra: Mapping[str, Any]) -> Any:
    """The configuration of a model type, shrunk."""
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[model_type]
    known = made().to_dict()
    wanted = {**_shrunk(known), **extra}
    if model_type in TYPES["speech"] and "conv_dim" in known:
        wanted = {**wanted, **_SPEECH_CONVOLUTIONS}
    return made(**{name: value for name, value in wanted.items() if value is not None})


def _shrunk(fields: Mapping[str, Any]) -> dict[str, Any]:
    small: dict[str, Any] = {}
    for name, value in fields.items():
        if name.endswith("_config") and isinstance(value, Mapping):
            small[name] = {**value, **_shrunk(value)}
        elif name in _TOKENS:
            small[name] = _TOKENS[name]
        elif name in _SMALL and isinstance(value, int) and not isinstance(value, bool):
            small[name] = _SMALL[name]
    if isinstance(small.get("hidden_size"), int) and fields.get("hidden_sizes"):
        del small["hidden_size"]
    return small
