"""The agent card of a bidder, fetched and parsed by the A2A project's own Python client.

Runs in an environment without this package; GATEWAY is the address of the bidder.
"""

import asyncio
import os

import httpx
from a2a.client import A2ACardResolver


async def main() -> None:
    async with httpx.AsyncClient() as session:
        card = await A2ACardResolver(session, os.environ["GATEWAY"]).get_agent_card()
    (interface,) = card.supported_interfaces
    (extension,) = card.capabilities.extensions
    (skill,) = card.skills
    assert (interface.protocol_binding, interface.protocol_version) == ("HTTP+JSON", "1.0"), interface
    assert interface.url == os.environ["GATEWAY"], interface
    assert extension.required, extension
    assert extension.uri.startswith("urn:pandora-router:offers:"), extension
    about_card = (
        card.name,
        card.description,
        card.version,
        card.default_input_modes,
        card.default_output_modes,
    )
    assert all((*about_card, skill.id, skill.name, skill.description, skill.tags)), card
    print("card: ok")


asyncio.run(main())
