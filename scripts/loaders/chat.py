"""A tokenizer and a model without a download: bytes, ChatML with tools and a mark around what the assistant says, two tiny layers of random
weights. The template is written as those of real models are: a key that is null counts as one that is not there, arguments may be text or an
object."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}{% for t in tools %}{{ t | tojson }}{{ '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif -%}
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' -%}
{%- generation -%}
{%- if m.reasoning_content is string %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif -%}
{{ m.content or '' }}
{%- for c in m.tool_calls or [] -%}
{{ '<tool_call>{"name": "' + c.function.name + '", "arguments": ' }}
{%- if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}{% endif -%}
{{ '}</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>' }}
{%- endgeneration -%}
{%- else -%}
{% if m.name %}{{ m.name + ': ' }}{% endif %}{{ m.content or '' }}{{ '<|im_end|>' }}
{%- endif -%}
{{ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""


def tokenizer():
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {piece: i for i, piece in enumerate(special + sorted(pre_tokenizers.ByteLevel.alphabet()))}
    t = Tokenizer(models.BPE(vocabulary, []))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=t, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE, clean_up_tokenization_spaces=False, model_max_length=1 << 20
    )


def model(vocabulary):
    """vocabulary is at least that of the tokenizer; more where ids are a run's own."""
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        max_position_embeddings=16384, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    ))
