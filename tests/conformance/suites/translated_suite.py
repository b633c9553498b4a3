"""SDKs of two vendors, unchanged, against specialists of other wires. Run with `.venv-clients`."""

from __future__ import annotations

import os

import anthropic
import openai
import pytest

URL = os.environ["GATEWAY"]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
NAMES = ("on_chat", "on_responses", "on_messages")


@pytest.fixture
def client():
    with openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def claude():
    with anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0) as made:
        yield made


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_chat(client, name, stream):
    tools = [{"type": "function", "function": {"name": "Bash", "parameters": SCHEMA}}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Find the number."}]
    texts = []
    for _ in range(3):
        asked = {"model": name, "messages": messages, "tools": tools}
        if stream:
            with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
                answer = [event.type for event in events] and events.get_final_completion()
        else:
            answer = client.chat.completions.create(**asked)
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
        message = answer.choices[0].message
        texts.append(message.content)
        if not message.tool_calls:
            break
        assert answer.choices[0].finish_reason == "tool_calls"
        call = message.tool_calls[0]
        done = "step-one-done" if len(texts) == 1 else "step-two-done"
        messages += [
            {"role": "assistant", "content": message.content, "tool_calls": [call.model_dump()]},
            {"role": "tool", "tool_call_id": call.id, "content": done},
        ]
    assert texts == ["First", "Second", "The number is 42."]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_responses(client, name, stream):
    tools = [{"type": "function", "name": "Bash", "parameters": SCHEMA, "strict": False}]
    items = [{"role": "user", "content": "Find the number."}]
    texts = []
    for _ in range(3):
        asked = {"model": name, "input": items, "tools": tools, "instructions": "Be brief.", "store": False}
        if stream:
            with client.responses.stream(**asked) as events:
                answer = [event.type for event in events] and events.get_final_response()
        else:
            answer = client.responses.create(**asked)
        assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0
        texts.append(answer.output_text)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            break
        done = "step-one-done" if len(texts) == 1 else "step-two-done"
        items += [
            item.model_dump(exclude_none=True, exclude={"parsed_arguments", "parsed"}) for item in calls
        ]
        items += [{"type": "function_call_output", "call_id": calls[0].call_id, "output": done}]
    assert texts == ["First", "Second", "The number is 42."]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_messages(claude, name, stream):
    tools = [{"name": "Bash", "input_schema": SCHEMA}]
    messages = [{"role": "user", "content": "Find the number."}]
    texts = []
    for _ in range(3):
        asked = {"model": name, "messages": messages, "tools": tools, "max_tokens": 99, "system": "Be brief."}
        if stream:
            with claude.messages.stream(**asked) as events:
                answer = [event.type for event in events] and events.get_final_message()
        else:
            answer = claude.messages.create(**asked)
        assert answer.usage.input_tokens > 0
        assert answer.usage.output_tokens > 0
        texts.append("".join(block.text for block in answer.content if block.type == "text"))
        if answer.stop_reason != "tool_use":
            break
        call = next(block for block in answer.content if block.type == "tool_use")
        assert "command" in call.input
        done = "step-one-done" if len(texts) == 1 else "step-two-done"
        result = {"type": "tool_result", "tool_use_id": call.id, "content": done}
        messages += [
            {
                "role": "assistant",
                "content": [block.model_dump(exclude_none=True) for block in answer.content],
            },
            {"role": "user", "content": [result]},
        ]
    assert texts == ["First", "Second", "The number is 42."]
