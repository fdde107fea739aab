"""Makes a folder that vLLM serves with random weights: tiny_model.py FOLDER

A Qwen3 config of 8 small layers (8 KiB of KV cache a token) and a byte-level BPE tokenizer of exactly as many tokens as the
config says, trained in seconds on the sources of Python's own standard library. No weights: start with --load-format dummy.
"""

import json
import pathlib
import sys
import sysconfig

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # ids 0, 1, 2
CONTEXT = 32768

# ChatML with tools listed in a system turn and calls written as JSON, so that every kind of message has some rendering.
TEMPLATE = """\
{%- macro turn(role) %}<|im_start|>{{ role }}
{% endmacro -%}
{%- if tools %}{{ turn('system') }}{{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for m in messages %}{{ turn(m.role) }}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}{{ turn('assistant') }}{% endif -%}
"""


def tokenizer():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    sources = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    t.train(
        [str(p) for p in sources],
        trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    if t.get_vocab_size() != VOCABULARY:
        sys.exit(f"the tokenizer has {t.get_vocab_size()} tokens, {VOCABULARY} are needed: too little text in {sources[0].parent}")
    return t


def configs():
    shape = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64}
    ends = {"bos_token_id": 0, "eos_token_id": 2}
    return {
        "config.json": {
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **shape, **ends, "vocab_size": VOCABULARY,
            "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu", "attention_bias": False,
            "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": True, "use_cache": True, "torch_dtype": "bfloat16",
        },
        "generation_config.json": ends,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
            "model_max_length": CONTEXT, "chat_template": TEMPLATE,
        },
    }


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in configs().items():
        (folder / name).write_text(json.dumps(content, indent=1))
    tokenizer().save(str(folder / "tokenizer.json"))


main()
