"""Clients that people use, unchanged, against `GATEWAY`. Run with the interpreter of `.venv-clients`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import anthropic
import openai
import pytest
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

URL = os.environ["GATEWAY"]
ASK = [{"role": "user", "content": "Say something."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SAYS = "This is an answer"


@pytest.fixture
def client():
    with openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_openai(client):
    whole = client.chat.completions.create(model="auto", messages=ASK)
    assert whole.choices[0].message.content.startswith(SAYS)
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    raw = client.chat.completions.with_raw_response.create(model="large", messages=ASK)
    assert raw.headers["x-pandora-specialist"] == "large"
    assert raw.parse().model == "large"
    assert {"auto", "small", "large"} <= {one.id for one in client.models.list()}
    assert client.embeddings.create(model="large", input="x").data[0].embedding == [0.5, -0.5]


def test_openai_stream(client):
    options = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(model="auto", messages=ASK, stream=True, stream_options=options)
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.startswith(SAYS)
    assert chunks[-1].usage.total_tokens > 0
    plain = list(client.chat.completions.create(model="auto", messages=ASK, stream=True))
    assert all(chunk.usage is None for chunk in plain)


def test_openai_async():
    async def main():
        async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0) as one:
            asked = [one.chat.completions.create(model="auto", messages=ASK) for _ in range(8)]
            answers = await asyncio.gather(*asked)
            assert all(answer.choices[0].message.content.startswith(SAYS) for answer in answers)
            stream = await one.chat.completions.create(model="auto", messages=ASK, stream=True)
            async for _ in stream:
                break
            await stream.close()

    asyncio.run(main())


def test_openai_tools(client):
    first = client.chat.completions.create(model="auto", messages=ASK, tools=[WEATHER])
    call = first.choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments)["city"]
    told = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    again = client.chat.completions.create(
        model="auto", messages=[*ASK, first.choices[0].message, told], tools=[WEATHER]
    )
    assert again.choices[0].message.content.startswith(SAYS)
    assert again.model == first.model


def test_openai_parses_structured_output(client):
    class City(BaseModel):
        name: str
        people: int

    parsed = client.chat.completions.parse(model="auto", messages=ASK, response_format=City)
    assert isinstance(parsed.choices[0].message.parsed, City)


def test_openai_responses(client):
    whole = client.responses.create(model="auto", input="Say something.")
    assert whole.output_text.startswith(SAYS)
    events = list(client.responses.create(model="auto", input="Say something.", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    with client.responses.stream(model="auto", input="Say something.") as stream:
        assert stream.get_final_response().output_text.startswith(SAYS)
    more = client.responses.create(model="auto", input="Go on.", previous_response_id=whole.id)
    assert more.output_text


def test_openai_errors(client):
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nobody", messages=ASK)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="auto", messages=[])
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(
            model="auto", messages=ASK, extra_headers={"x-pandora-router": "maybe"}, stream=True
        )


def test_anthropic():
    with anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0) as client:
        whole = client.messages.create(model="auto", max_tokens=100, messages=ASK)
        assert whole.content[0].text.startswith(SAYS)
        assert whole.usage.output_tokens > 0
        with client.messages.stream(model="auto", max_tokens=100, messages=ASK) as stream:
            assert "".join(stream.text_stream).startswith(SAYS)
            assert stream.get_final_message().stop_reason == "end_turn"
        assert client.messages.count_tokens(model="auto", messages=ASK).input_tokens > 0
        with pytest.raises(anthropic.NotFoundError):
            client.messages.create(model="nobody", max_tokens=100, messages=ASK)


def test_langchain():
    model = ChatOpenAI(model="auto", base_url=f"{URL}/v1", api_key="none")
    assert model.invoke("Say something.").content.startswith(SAYS)
    assert "".join(part.content for part in model.stream("Say something.")).startswith(SAYS)
    responses = ChatOpenAI(model="auto", base_url=f"{URL}/v1", api_key="none", use_responses_api=True)
    assert responses.invoke("Say something.").text.startswith(SAYS)


def test_pydantic_ai():
    class City(BaseModel):
        name: str
        people: int

    provider = OpenAIProvider(base_url=f"{URL}/v1", api_key="none")
    agent = Agent(OpenAIChatModel("auto", provider=provider), output_type=City)
    assert isinstance(agent.run_sync("Tell me about a city.").output, City)
    talking = Agent(OpenAIChatModel("auto", provider=provider))
    assert talking.run_sync("Say something.").output.startswith(SAYS)


def test_llm(tmp_path):
    models = f"- model_id: gateway\n  model_name: auto\n  api_base: {URL}/v1\n"
    (tmp_path / "extra-openai-models.yaml").write_text(models)
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"}
    for more in ([], ["--no-stream"]):
        command = [sys.executable, "-m", "llm", "-m", "gateway", *more, "Say something."]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.stdout.startswith(SAYS), done.stderr


def test_curl():
    body = json.dumps({"model": "auto", "messages": ASK, "stream": True})
    command = [
        "curl",
        "-sN",
        f"{URL}/v1/chat/completions",
        "-H",
        "Content-Type: application/json",
        "-d",
        body,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.rstrip().endswith("data: [DONE]"), done.stderr
