"""LangChain's own conformance suite for chat models, through langchain-openai, against `GATEWAY`.

Run by `test_judges.py` with the interpreter of `.venv-clients`; nothing of pandora-router is imported here.
"""

from __future__ import annotations

import os

from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestGateway(ChatModelIntegrationTests):
    """Tools, tool choice, structured output, JSON mode, streaming and usage are all switched on."""

    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        where = {"base_url": os.environ["GATEWAY"] + "/v1", "api_key": "none"}
        return {"model": "auto", "stream_usage": True, **where}

    @property
    def supports_json_mode(self):
        return True
