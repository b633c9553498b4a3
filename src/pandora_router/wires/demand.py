"""What a request asks for beside plain tokens, which providers bill at prices of their own.

Pure: a request in, a `Demand` out. `prices` says what a specialist has no price for.
"""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pandora_router.wires.json_text import Json, mapping, objects

USUAL = ("", "default", "standard", "standard_only", "on_demand")
"""Names of the service tier, and of the speed, at the plain prices."""
ANY = "auto"
"""The service tier of a request that names none: the provider serves it in one that it chooses."""
LONGEST_NAME = 40
PARTS: Mapping[str, str] = {
    "image_url": "image_in",
    "input_image": "image_in",
    "image": "image_in",
    "computer_screenshot": "image_in",
    "input_audio": "audio_in",
}
"""Types of content parts -> the price of their tokens."""
OUTPUTS = {"audio": "audio_out", "image": "image_out"}
"""Kinds of output beside text -> the price of their tokens."""
CLIENT_TOOLS = frozenset(
    {
        "function", "custom", "bash", "text_editor", "computer", "computer_use", "memory", "local_shell",
        "apply_patch",
    }
)  # fmt: skip
"""Tools that the client runs, at no price."""
ONCE = {"web_search_options": "web_search", "search_parameters": "web_search"}
"""Members that ask for one call of a tool of the provider."""
SERVERS = "mcp_servers"
"""The member with servers whose tools the provider calls."""
AWAY = ("previous_response_id", "conversation", "prompt")
"""Members that name input which lies at the provider."""
MEASURED = frozenset(
    {
        "message", "text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text",
        "reasoning", "thinking", "redacted_thinking", "compaction", "compaction_summary", "tool_use",
        "server_tool_use", "mcp_tool_use", "mcp_list_tools", "mcp_approval_request",
        "mcp_approval_response", "tool_reference",
    }
)  # fmt: skip
"""Types of items and parts that are text in the request, beside the calls of tools and their results."""
CALLED = ("_call", "_output", "_result", "_error")
"""How the types of calls of tools, and of their results, end."""
STORED = frozenset({"image_generation_call", "file_search_call"})
"""Types of calls whose results lie at the provider."""
_LISTS = ("system", "messages", "input", "tools")
"""Members with lists of objects that may hold parts with a price of their own."""
_VERSION = re.compile(r"(?:_preview)?(?:_\d{4}_?\d{2}_?\d{2})?$")


@dataclass(frozen=True)
class Demand:
    """What a request asks for beside plain tokens.

    service_tier: "" for the plain prices, `ANY` if the provider chooses, else its name. speed: "" for the
    plain prices. parts: names of the prices of its tokens beside `in` and `out`, such as `cached_write`.
    tools: tools that run at the provider, each with the most calls of it, None without a limit. away: whether
    it has input whose length cannot be told from the request: it lies at the provider, or in a file.
    compacts: whether the provider may first write a summary of the conversation, in a call of its own.
    sounds: the most tokens that its sounds have together.
    """

    service_tier: str = ANY
    speed: str = ""
    parts: frozenset[str] = frozenset()
    tools: tuple[tuple[str, int | None], ...] = ()
    away: bool = False
    compacts: bool = False
    sounds: int = 0

    @property
    def calls(self) -> int:
        """The most calls of all tools together; those without a limit count as one."""
        return sum(1 if most is None else most for _, most in self.tools)


PLAIN = Demand()


def demand_of(body: Json) -> Demand:
    """What a request of any wire asks for.

    >>> body = {"service_tier": "priority", "tools": [{"type": "web_search_20250305", "max_uses": 3}]}
    >>> demand_of(body) == Demand("priority", tools=(("web_search", 3),))
    True
    >>> marked = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    >>> sorted(demand_of({"system": [marked]}).parts)
    ['cached_in', 'cached_write_hour']
    """
    tier, speed = body.get("service_tier"), body.get("speed")
    modalities = body.get("modalities")
    parts = {OUTPUTS[kind] for kind in OUTPUTS if isinstance(modalities, list) and kind in modalities}
    away = any(body.get(member) for member in AWAY)
    sounds: list[int | None] = []
    for member in _LISTS:
        away |= _add_parts(body.get(member), parts, sounds) and member != "tools"
    parts |= _kept(body.get("cache_control"))
    return Demand(
        ANY if tier is None or tier == ANY else named(tier),
        "" if speed is None else named(speed),
        frozenset(parts),
        tuple(_tools(body)),
        away or None in sounds,
        any(str(edit.get("type")).startswith("compact") for edit in _edits(body)),
        sum(tokens or 0 for tokens in sounds),
    )


def _edits(body: Json) -> Iterator[Json]:
    return objects(mapping(body.get("context_management")).get("edits"))


def named(tier: object) -> str:
    """The name of a service tier or a speed, "" for the usual one; anything but a text is no usual one."""
    name = tier if isinstance(tier, str) else repr(tier)
    return "" if name in USUAL else name[:LONGEST_NAME]


def tool_name(kind: str) -> str:
    """The name of a provider's tool without its version.

    >>> tool_name("web_search_preview_2025_03_11"), tool_name("code_execution_20250825")
    ('web_search', 'code_execution')
    """
    return _VERSION.sub("", kind)[:LONGEST_NAME]


def _add_parts(items: object, parts: set[str], sounds: list[int | None]) -> bool:
    """Add the prices that the objects in a list need, and those in their content, at any depth.

    Each sound adds its `sound_tokens` to `sounds`.

    Returns whether the tokens of one of them are not limited by its bytes (`_lies_there`).
    """
    waiting, unmeasured = [items], False
    while waiting:
        listed = waiting.pop()
        for item in listed if isinstance(listed, list) else ():
            if not isinstance(item, dict):
                continue
            kind = item.get("type")
            if isinstance(kind, str):
                parts |= {PARTS[kind]} if kind in PARTS else set()
                sounds += [sound_tokens(mapping(item.get(kind)))] if kind == SOUND else []
            unmeasured |= _lies_there(item)
            if "cache_control" in item:
                parts |= _kept(item["cache_control"])
            output = item.get("output")
            waiting += [item.get("content"), [output] if isinstance(output, dict) else output]
    return unmeasured


def _lies_there(item: Json) -> bool:
    """Whether the tokens of an item or a part are not limited by its bytes.

    Those are files, videos, references to what lies at the provider, and every type that is not known.

    >>> items = {"type": "video_url"}, {"type": "reasoning", "id": "rs_1"}, {"audio": {"id": "audio_1"}}
    >>> [_lies_there(item) for item in (*items, {"type": "text", "text": "x"}, {"type": "function_call"})]
    [True, True, True, False, False]
    """
    kind = item.get("type")
    if kind == "reasoning" and item.get("id") and not item.get("encrypted_content"):
        return True
    if "id" in mapping(item.get("audio")):  # an earlier answer that was spoken
        return True
    if not isinstance(kind, str) or kind in PARTS or kind in MEASURED:
        return False
    return kind in STORED or not kind.endswith(CALLED)


SOUND = "input_audio"
"""Type of a content part with a sound in the request, and the member that holds it."""
PER_SECOND = 32
"""Tokens of a second of sound: Gemini counts 32, OpenAI 10."""
SLOWEST_MP3 = 1000
"""Bytes of a second of MPEG audio at its lowest bit rate, 8 kbit/s."""
HEAD = 4096
"""Bytes at the beginning of a WAV file among which its header is looked for."""
PLAIN_SOUND = frozenset({1, 3, 6, 7})
"""Tags of WAV formats with the same number of bytes in every second: PCM, floats, A-law and mu-law."""
EXTENSIBLE = 0xFFFE
"""Tag of a WAV format whose real tag comes later in the header."""


def sound_tokens(sound: Json) -> int | None:
    """The most tokens of a sound in a request, as in `{"data": BASE64, "format": "wav"}`.

    Its content counts, not the format that is stated, because providers go by the content too. Returns None
    where the bytes do not limit how long it is: silence takes almost none in FLAC and Opus.

    >>> header = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 0, b"WAVE", b"fmt ", 16, 1, 1, 100, 200, 2, 16)
    >>> second = header + bytes(164)  # 200 bytes, which is a second at this rate
    >>> sound_tokens({"data": binascii.b2a_base64(second).decode().strip(), "format": "wav"})
    33
    >>> sound_tokens({"data": "ZkxhQwAAACI=", "format": "wav"}) is None  # it is FLAC
    True
    """
    data = sound.get("data")
    if not isinstance(data, str) or not sound.keys() <= {"data", "format"}:
        return None
    data = data.partition(",")[2] if data.startswith("data:") else data
    rate = _wav_rate(_decoded(data, 0, HEAD)) or _mp3_rate(data)
    return None if rate is None else 3 * len(data) * PER_SECOND // (4 * rate) + 1


def _decoded(data: str, start: int, count: int) -> bytes:
    """So many bytes of a base64 text, from the byte `start`; b"" if it is not plain base64."""
    first = start // 3 * 4
    piece = data[first : first + (count + 5) // 3 * 4]
    try:
        return binascii.a2b_base64(piece, strict_mode=True)[start % 3 :][:count]
    except (ValueError, binascii.Error):
        return b""


def _wav_rate(head: bytes) -> int | None:
    """Bytes of a second of a WAV file; None if it is none, or if they differ from second to second.

    So are headers that programs may read differently: with two formats, or with a part of odd length.
    """
    if head[:4] != b"RIFF" or head[8:12] != b"WAVE" or head.count(b"fmt ") != 1:
        return None
    place = 12
    while head[place : place + 4] not in (b"fmt ", b""):
        size = int.from_bytes(head[place + 4 : place + 8], "little")
        place += 8 + size if size % 2 == 0 else len(head)
    if len(head) < place + 24:
        return None
    tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", head, place + 8)
    tag = int.from_bytes(head[place + 32 : place + 34], "little") if tag == EXTENSIBLE else tag
    if tag not in PLAIN_SOUND or bits not in (8, 16, 24, 32, 64):
        return None
    return channels * rate * bits // 8 or None


def _mp3_rate(data: str) -> int | None:
    """`SLOWEST_MP3` if this is the base64 text of MPEG audio (layer II or III), else None."""
    tag, start = _decoded(data, 0, 10), 0
    if tag[:3] == b"ID3" and len(tag) == 10:
        size = sum((byte & 0x7F) << shift for byte, shift in zip(tag[6:], (21, 14, 7, 0), strict=True))
        start = 10 + size + (10 if tag[5] & 0x10 else 0)
    frame = _decoded(data, start, 3)
    if len(frame) < 3 or frame[0] != 0xFF or frame[1] & 0xE0 != 0xE0:
        return None
    version, layer, speed, rate = (frame[1] >> 3) & 3, (frame[1] >> 1) & 3, frame[2] >> 4, (frame[2] >> 2) & 3
    valid = version != 1 and layer in (1, 2) and speed not in (0, 15) and rate != 3
    return SLOWEST_MP3 if valid else None


def _kept(mark: object) -> set[str]:
    """The prices of input that is marked for the cache; a member that is not known may mean an hour."""
    if not mark:
        return set()
    usual = mapping(mark).get("ttl") in (None, "5m") and set(mapping(mark)) <= {"type", "ttl"}
    return {"cached_in", "cached_write" if usual else "cached_write_hour"}


def _tools(body: Json) -> Iterator[tuple[str, int | None]]:
    overall = _limit(body.get("max_tool_calls"))
    for tool in objects(body.get("tools")):
        name = tool_name(str(tool.get("type") or "function"))
        if name not in CLIENT_TOOLS:
            yield name, _limit(tool.get("max_uses")) or overall
    if body.get(SERVERS):
        yield "mcp", overall
    yield from ((name, 1) for member, name in ONCE.items() if body.get(member))
    yield from ((tool_name(str(plugin.get("id"))), 1) for plugin in objects(body.get("plugins")))


def _limit(stated: object) -> int | None:
    whole = isinstance(stated, int) and not isinstance(stated, bool)
    return stated if whole and stated > 0 else None  # type: ignore[operator, return-value]
