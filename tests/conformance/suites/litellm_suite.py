"""The litellm SDK against `GATEWAY`. Run with the interpreter of `.venv-litellm`."""

from __future__ import annotations

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch a price list otherwise
import litellm

WHERE = {"api_base": os.environ["GATEWAY"] + "/v1", "api_key": "none"}
ASK = [{"role": "user", "content": "Say something."}]
SAYS = "This is an answer"

whole = litellm.completion(model="openai/auto", messages=ASK, **WHERE)
assert whole.choices[0].message.content.startswith(SAYS), whole
parts = list(litellm.completion(model="openai/auto", messages=ASK, stream=True, **WHERE))
assert "".join(part.choices[0].delta.content or "" for part in parts).startswith(SAYS), parts


async def several() -> None:
    asked = [litellm.acompletion(model="openai/large", messages=ASK, **WHERE) for _ in range(4)]
    for answer in await asyncio.gather(*asked):
        assert answer.choices[0].message.content.startswith(SAYS), answer


asyncio.run(several())
messages = litellm.completion(
    model="anthropic/auto", messages=ASK, max_tokens=50, api_base=os.environ["GATEWAY"], api_key="none"
)
assert messages.choices[0].message.content.startswith(SAYS), messages
print("litellm: ok")
