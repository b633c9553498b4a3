"""What LangChain's suite can ask of a small local model, against `pandora serve --demo` at `GATEWAY`.

The rule-based model of the other suite says the same at once; here a real model generates token by token. It
knows neither tools nor JSON schemas. Nothing of pandora-router is imported here.
"""

from __future__ import annotations

import os

from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestLocalModel(ChatModelIntegrationTests):
    """Plain text: whole and streamed, in batches, in conversations, with token counts."""

    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        where = {"base_url": os.environ["GATEWAY"] + "/v1", "api_key": "none"}
        return {"model": "closed book", "stream_usage": True, "max_tokens": 12, **where}

    @property
    def has_tool_calling(self):
        return False

    @property
    def has_structured_output(self):
        return False
