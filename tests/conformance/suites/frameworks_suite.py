"""Agent frameworks, each with two tool calls and an answer, on a specialist of another wire.

A framework that is not installed here is skipped; the test that runs this file knows which belong where.
"""

from __future__ import annotations

import asyncio
import os

import pytest

URL = os.environ["GATEWAY"]
TOLD = []
"""What the tool was told."""


@pytest.fixture(autouse=True)
def _fresh():
    TOLD.clear()


def bash(command: str, description: str = "") -> str:
    """Run a command."""
    TOLD.append(command)
    return "step-one-done" if len(TOLD) == 1 else "step-two-done"


def solved(text):
    assert "The number is 42." in str(text), text
    assert len(TOLD) == 2, TOLD
    assert "echo 42" in TOLD[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_openai_agents(wire, stream):
    agents = pytest.importorskip("agents")
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    kinds = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}

    async def run():
        async with AsyncOpenAI(base_url=f"{URL}/v1", api_key="none") as client:
            model = kinds[wire](model="on_messages", openai_client=client)
            agent = agents.Agent(name="a", model=model, tools=[agents.function_tool(bash)])
            if not stream:
                return (await agents.Runner.run(agent, "Find the number.")).final_output
            result = agents.Runner.run_streamed(agent, "Find the number.")
            assert [event.type async for event in result.stream_events()]
            return result.final_output

    solved(asyncio.run(run()))


@pytest.mark.parametrize("stream", [False, True])
def test_langchain(stream):
    agents = pytest.importorskip("langchain.agents")
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="on_messages", base_url=f"{URL}/v1", api_key="none", streaming=stream)
    agent = agents.create_agent(model, tools=[bash])
    asked = {"messages": [("user", "Find the number.")]}
    if stream:
        steps = list(agent.stream(asked, stream_mode="values"))
        solved(steps[-1]["messages"][-1].content)
    else:
        solved(agent.invoke(asked)["messages"][-1].content)


@pytest.mark.parametrize("stream", [False, True])
def test_haystack(stream):
    pytest.importorskip("haystack")
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret

    chunks = []
    model = OpenAIChatGenerator(
        api_key=Secret.from_token("none"),
        model="on_messages",
        api_base_url=f"{URL}/v1",
        streaming_callback=chunks.append if stream else None,
    )
    agent = Agent(chat_generator=model, tools=[create_tool_from_function(bash)])
    result = agent.run(messages=[ChatMessage.from_user("Find the number.")])
    assert bool(chunks) == stream
    solved(result["messages"][-1].text)


@pytest.mark.parametrize("stream", [False, True])
def test_llm(stream):
    pytest.importorskip("llm")
    from llm.default_plugins.openai_models import Chat

    model = Chat("m", model_name="on_messages", api_base=f"{URL}/v1", supports_tools=True, can_stream=True)
    model.key = "none"
    chain = model.chain("Find the number.", tools=[bash], stream=stream)
    solved("".join(chain) if stream else chain.text())


def test_claude_agent_sdk(tmp_path, monkeypatch):
    sdk = pytest.importorskip("claude_agent_sdk")
    monkeypatch.setenv("HOME", str(tmp_path))
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    settings = {"ANTHROPIC_BASE_URL": URL, "ANTHROPIC_AUTH_TOKEN": "none"}
    allow = {"ANTHROPIC_CUSTOM_HEADERS": "x-pandora-allow: on_chat"}
    options = sdk.ClaudeAgentOptions(
        allowed_tools=["Bash"],
        cwd=str(tmp_path),
        env={**quiet, **settings, **allow, "HOME": str(tmp_path)},
        include_partial_messages=True,
        cli_path=os.environ.get("CLAUDE") or None,
    )

    async def run():
        return [message async for message in sdk.query(prompt="Find the number.", options=options)]

    assert "The number is 42." in asyncio.run(run())[-1].result
    assert (tmp_path / "answer.txt").read_text() == "42\n"


@pytest.mark.parametrize("stream", [False, True])
def test_llama_index(stream):
    pytest.importorskip("llama_index.llms.openai_like")
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai_like import OpenAILike

    about = {"is_chat_model": True, "is_function_calling_model": True}
    model = OpenAILike(model="on_messages", api_base=f"{URL}/v1", api_key="none", **about)
    agent = FunctionAgent(tools=[bash], llm=model, streaming=stream)

    async def run():
        return await agent.run("Find the number.")

    solved(asyncio.run(run()))


@pytest.mark.parametrize("stream", [False, True])
def test_dspy(stream):
    """Predictions of tool calls, which run here, until one has an answer."""
    dspy = pytest.importorskip("dspy")

    class Able(dspy.LM):
        supports_function_calling = True  # DSPy asks a list of hosted models, which has no specialists

    fields = {
        "question": (str, dspy.InputField()),
        "done": (list[str], dspy.InputField()),
        "tools": (list[dspy.Tool], dspy.InputField()),
        "answer": (str, dspy.OutputField()),
        "calls": (dspy.ToolCalls, dspy.OutputField()),
    }

    class Agent(dspy.Module):
        def __init__(self):
            super().__init__()
            self.step = dspy.Predict(dspy.Signature(fields, "Answer the question with tools."))

        def forward(self, question):
            done = []
            for _ in range(5):
                made = self.step(question=question, done=done, tools=[dspy.Tool(bash)])
                if not made.calls:
                    return made
                done += [bash(**call.args) for call in made.calls.tool_calls]
            raise AssertionError(done)

    async def streamed():
        return [part async for part in dspy.streamify(Agent())(question="Find the number.")]

    model = Able("openai/on_messages", api_base=f"{URL}/v1", api_key="none", cache=False)
    adapter = dspy.ChatAdapter(use_native_function_calling=True, use_json_adapter_fallback=False)
    with dspy.context(lm=model, adapter=adapter):
        if stream:
            parts = asyncio.run(streamed())
            assert len(parts) > 3
            solved(parts[-1].answer)
        else:
            solved(Agent()(question="Find the number.").answer)
