"""Chat templates: the text that transformers makes of them, and limits that nothing gets around."""

from __future__ import annotations

import copy
import json
import subprocess

import pytest

from core.chat import user_turn
from core.errors import UserError
from core.models.chat_template import Renderer, render_chat
from core.models.language import Language, encode_chat
from tests.helpers import toys

# Each uses something that published templates use.
PUBLISHED = (
    toys.TEMPLATE,
    "{{ bos_token }}{% for m in messages %}{{ m.content | trim }}{{ eos_token }}{% endfor %}",
    "{%- set ns = namespace(n=0) %}{%- for m in messages %}\n  {%- set ns.n = ns.n + 1 %}"
    "{%- if m['role'] == 'tool' %}{% continue %}{% endif %}\n{{ loop.index0 ~ ': ' ~ m.content }}"
    "{% endfor %} {{ ns.n }}",
    "{% macro turn(m) %}[{{ m | tojson }}]{% endmacro %}{{ turn(messages[0]) }}"
    "{% if tools is not none %}tools{% endif %}{{ '<é>' | tojson }}",
    "{% for m in messages %}{% generation %}{{ m.content.split('</think>')[-1] }}"
    "{% endgeneration %}{% endfor %}{{ messages | map(attribute='role') | join(',') }}",
    "{{ messages[::-1][0].content.lstrip('\\n') }}{{ strftime_now('%Y')[:2] }}"
    "{% if thinking is defined and thinking %}<think>{% endif %}",
)
HOSTILE = (
    "{{ 'a' * 10**9 }}",
    "{{ 'a' * 10**7 }}",
    "{{ 10**(10**10) }}",
    "{{ 'a'.center(10**9) }}{{ '%1000000000d' % 1 }}",
    "{% set n = namespace(a='ab') %}{% for i in range(60) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% for m in messages %}",
    "{{ raise_exception('roles must alternate\n\x1b[2J') }}",
    "{{ messages[0].content.__class__.__mro__[1].__subclasses__() }}",
    "{{ nothing.there }}",
    "{{ '\\ud800'.encode() }}",
)


@pytest.mark.parametrize("words", ["hi", "two\nlines ", "naïve <b>你好</b> {{ 7*7 }}", ""])
def test_a_turn_is_rendered_as_transformers_does(words: str):
    tokenizer = copy.deepcopy(toys.tokenizer())
    turn = [{"role": "user", "content": words}]
    for template in PUBLISHED:
        for options in ({}, {"thinking": True}, {"bos_token": "<own>"}):
            expected = tokenizer.apply_chat_template(
                turn, chat_template=template, add_generation_prompt=True, tokenize=False, **options
            )
            tokenizer.chat_template = template
            assert render_chat(tokenizer, user_turn(words), **options) == expected, template


@pytest.mark.parametrize("template", PUBLISHED)
def test_a_chat_is_encoded_as_transformers_does(template: str):
    tokenizer = copy.deepcopy(toys.tokenizer())
    tokenizer.chat_template = template
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "</think>Hm", "tool_calls": [{"function": {"n": 2}}]},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
    ]
    tools, options = [{"type": "function"}], {"thinking": True}
    body = {"messages": chat, "tools": tools, "chat_template_kwargs": options, "temperature": 0.5}
    for prompt, told in ((chat, {}), (body, {"tools": tools, **options})):
        expected = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=False, **told
        )
        ids = tokenizer(expected, add_special_tokens=False).input_ids
        assert encode_chat(tokenizer, json.dumps(prompt)) == ids


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(seconds=2.0)


@pytest.mark.parametrize("template", HOSTILE)
def test_a_hostile_template_is_refused_in_a_sentence(renderer: Renderer, template: str):
    """None of them ends by itself."""
    with pytest.raises(UserError, match=r"^the chat template [^\n]{5,300}$"):
        renderer.render(template, {"messages": [{"role": "user", "content": "x"}]})
    assert renderer.render("{{ words }}", {"words": "the next one"}) == "the next one"


def test_a_template_with_an_error_names_the_line():
    tokenizer = copy.deepcopy(toys.tokenizer())
    tokenizer.chat_template = "{{ messages }}\n{% for %}"
    with pytest.raises(UserError, match="cannot be used \\(line 2\\)"):
        encode_chat(tokenizer, "hi")


@pytest.mark.parametrize("text", ["\ud800", "a\udfff b", "\ud83e"])
def test_half_a_character_is_a_sentence(text: str):
    tokenizer = copy.deepcopy(toys.tokenizer())
    language = Language("toy", toys.language_model(), tokenizer, None)
    for encode in (language.encode_chat, language.encode):
        with pytest.raises(UserError, match="half of a character"):
            encode(text)
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="half of a character"):
        language.encode_chat(text)


def test_the_process_ends_with_its_owner():
    own = Renderer()
    assert own.render("{{ 1 }}", {}) == "1"
    process = own._process
    assert isinstance(process, subprocess.Popen) and process.poll() is None
    del own
    assert process.poll() is not None
