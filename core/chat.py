"""Prompts that are chats: as APIs take them, and as a template has rendered them. Light.

A prompt is a text, in requests, traces, files and forms. One that is JSON, a list of messages or
the body of a chat request, is that chat:

    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who are you?"}]

Any other is one turn of the user.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.errors import UserError
from core.json_input import parse_json

ASSISTANT = "assistant"
_ROLES = {"human": "user", "gpt": ASSISTANT}  # as ShareGPT's files say
_MORE = ("name", "reasoning_content", "tool_call_id", "tool_calls")  # what templates read besides
# Tokens between the messages of chat templates: ChatML, Llama, Gemma, DeepSeek, GLM, Mistral …
_BETWEEN = re.compile(
    r"(<[|｜][^<>|｜\n]{1,40}[|｜]?>|<[a-z]{1,20}\|>|<(?:start|end)_of_turn>|</?s>|<bos>|<sop>"
    r"|\[gMASK\]|\[/?INST\])"
)


@dataclass(frozen=True, eq=False)
class Chat:
    """The messages and variables that a chat template is given.

    messages   each has a "role" and the text of its "content", and what else templates read
    variables  of the template, where the request names them: its tools, and its own
    """

    messages: Sequence[Mapping[str, Any]]
    variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def contents(self) -> list[str]:
        return [message["content"] for message in self.messages]

    def saying(self, contents: Sequence[str]) -> Chat:
        """The same chat with other words."""
        pairs = zip(self.messages, contents, strict=True)
        return Chat([{**message, "content": text} for message, text in pairs], self.variables)

    @property
    def prompt(self) -> str:
        """The prompt that is this chat: bare words where it is one turn of the user."""
        if len(self.messages) == 1 and self.messages[0].keys() == {"role", "content"}:
            only = self.messages[0]
            if only["role"] == "user" and not self.variables and _json(only["content"]) is None:
                return only["content"]
        tools = self.variables.get("tools")
        own = {name: value for name, value in self.variables.items() if name != "tools"}
        body = {"messages": self.messages} | ({"tools": tools} if tools else {})
        body |= {"chat_template_kwargs": own} if own else {}
        return json.dumps(body if len(body) > 1 else self.messages, ensure_ascii=False)


def user_turn(words: str) -> Chat:
    return Chat([{"role": "user", "content": words}])


def chat_of(prompt: str) -> Chat:
    """The chat that a prompt is. Raises UserError for one that no target can go on from."""
    found = _json(prompt)
    if found is None:
        return user_turn(prompt)
    chat = read_chat(found, "the prompt")
    if chat.messages[-1]["role"] == ASSISTANT:
        raise UserError("the prompt ends with the assistant's message, which the target writes")
    return chat


def read_chat(body: Any, where: str) -> Chat:
    """The chat of a list of messages, or of a request's body, by OpenAI's names or ShareGPT's.

    Raises UserError, one sentence that begins with ``where``, for content other than text.
    """
    whole = body if isinstance(body, dict) else {"messages": body}
    messages = [_message(each, where) for each in whole["messages"]]
    variables = whole.get("chat_template_kwargs")
    variables = dict(variables) if isinstance(variables, dict) else {}
    if isinstance(whole.get("tools"), list) and whole["tools"]:
        variables["tools"] = whole["tools"]
    return Chat(messages, variables)


def is_chat(value: Any) -> bool:
    """Whether a value is a list of messages."""
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role", value.get("from")), str)


def _json(prompt: str) -> Any:
    """The messages or the body that a prompt is in JSON; None: it is bare words."""
    if not prompt.lstrip().startswith(("[", "{")):
        return None
    try:
        value = parse_json(prompt, "the prompt")
    except UserError:
        return None
    messages = value.get("messages") if isinstance(value, dict) else value
    return value if is_chat(messages) else None


def _message(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    role = given.get("role", given.get("from"))
    content = given.get("content", given.get("value"))
    parts = content if isinstance(content, list) else [content or ""]
    told = [part.get("text") if isinstance(part, dict) else part for part in parts]
    texts = [text for text in told if isinstance(text, str)]
    if len(texts) < len(told):
        raise UserError(f"{where} holds a message with other content than text")
    more = {name: given[name] for name in _MORE if given.get(name)}
    if isinstance(calls := more.get("tool_calls"), list):
        more["tool_calls"] = list(map(_call, calls))
    return {"role": _ROLES.get(role, role), "content": "".join(texts), **more}


def _call(given: Any) -> Any:
    """A call of a tool with its arguments as templates read them: APIs send these as JSON."""
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(words := function.get("arguments"), str):
        return given
    try:
        arguments = parse_json(words, "the arguments")
    except UserError:
        return given
    return {**given, "function": {**function, "arguments": arguments}}


# ── turns of one conversation ────────────────────────────────────────────────────────────────────


def openings(prompts: Iterable[str]) -> dict[str, str]:
    """The prompt that each one's conversation begins with: of those given, the shortest chat that
    it goes on from, by messages or as a template has rendered them, else the prompt itself."""
    found = {prompt: prompt for prompt in prompts}
    rendered, chats = dict[str, str](), dict[tuple[str, ...], str]()
    for prompt in found:
        if not _BETWEEN.match(prompt):
            chats[_told(prompt)] = prompt
        elif last_message(prompt) != prompt:  # a prompt of special tokens alone opens nothing
            rendered[prompt] = _asked(prompt)
    for messages, prompt in chats.items():
        begun = (chats.get(messages[:end]) for end in range(1, len(messages)))
        found[prompt] = next(filter(None, begun), prompt)
    opening = None
    for text, prompt in sorted((text, prompt) for prompt, text in rendered.items()):
        if opening is None or not text.startswith(rendered[opening]):
            opening = prompt  # what goes on from a text is sorted right behind it
        elif text != rendered[opening]:
            found[prompt] = opening
    return found


def _asked(prompt: str) -> str:
    """A rendered chat up to the token behind the user's last message: what follows is not in the
    next turn's, where a template begins an answer otherwise than it repeats one."""
    words = last_message(prompt)
    behind = _BETWEEN.search(prompt, prompt.rindex(words) + len(words))
    return prompt[: behind.end()] if behind else prompt


def _told(prompt: str) -> tuple[str, ...]:
    """The messages of a prompt, each as JSON."""
    body = _json(prompt)
    try:
        chat = user_turn(prompt) if body is None else read_chat(body, "")
    except UserError:  # a picture among them
        chat = user_turn(prompt)
    return tuple(json.dumps(dict(message), sort_keys=True) for message in chat.messages)


# ── what the user said last ──────────────────────────────────────────────────────────────────────


def last_message(prompt: str) -> str:
    """The user's last message in a prompt that is a chat, or that a template has rendered, as
    servers get it; any other prompt as it is."""
    if (found := _json(prompt)) is not None:
        told = _said(found)
    elif _BETWEEN.match(prompt):
        told = list(filter(None, _messages(_BETWEEN.split(prompt))))
    else:
        told = []
    return told[-1] if told else prompt


def own_prompt(prompt: str) -> str:
    """The prompt that asks the same of a target here, which puts its own template around it: a
    chat stays one, and of a rendered one only the user's last message is known."""
    return prompt if _json(prompt) is not None else last_message(prompt)


def _said(body: Any) -> list[str]:
    try:
        messages = read_chat(body, "").messages
    except UserError:  # a picture among them
        return []
    return [each["content"] for each in messages if each["role"] == "user" and each["content"]]


def _messages(parts: list[str]) -> Iterator[str]:
    """The user's messages; ``parts``: text and tokens between messages in turn."""
    for at in range(1, len(parts) - 1, 2):
        mark, text = parts[at].lower(), parts[at + 1]
        if text.strip() == "user":  # the name stands between two tokens
            yield parts[at + 3].strip() if at + 3 < len(parts) else ""
        elif "user" in mark or mark == "[inst]":
            yield text.strip()
        elif text.startswith("user\n"):
            yield text.removeprefix("user\n").strip()
