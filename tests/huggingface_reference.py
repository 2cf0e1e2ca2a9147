"""What transformers computes from exported folders, compared with reference arrays. Knows nothing of maelm_fairseq.

    python huggingface_reference.py FOLDER

FOLDER has for each case NAME a folder NAME, and NAME.npz or NAME@CLASS.npz with `class`, the name of an AutoModel
class; `tokens` (B, T), padded with 1 at the end; and the outputs that are expected at each text without padding,
float64 (B, T, ...) or, for whole texts, (B, ...); with `mistake`, only float64 is compared, and once. Prints JSON:
{NAME: {"class", "missing", "unexpected", "mismatched", "labels", "differences": {"OUTPUT DTYPE ATTENTION SIDE": largest
difference}}}, and under "transformers" the version.
"""

import json
import os
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import numpy as np
import torch
import transformers

torch.set_num_threads(1)
PAD = 1


def padded(rows, side):
    """Lists of tokens -> (B, T) padded at the `right` or `left`, and which are real."""
    longest = max(map(len, rows))
    tokens = torch.full((len(rows), longest), PAD)
    for i, row in enumerate(rows):
        where = slice(0, len(row)) if side == "right" else slice(longest - len(row), None)
        tokens[i, where] = torch.tensor(row)
    return tokens, tokens != PAD


@torch.no_grad()
def compare(folder, reference):
    """The entry of one case."""
    model_class = getattr(transformers, str(reference["class"]))
    rows = [[token for token in row if token != PAD] for row in reference["tokens"].tolist()]
    expected = {name: reference[name] for name in reference.files if name not in ["class", "tokens", "mistake"]}
    differences, code, once = {}, any(folder.glob("*.py")), "mistake" in reference.files
    for attention in ["eager"] if once else ["eager", "sdpa"]:
        try:
            model, info = model_class.from_pretrained(
                folder,
                output_loading_info=True,
                attn_implementation=attention,
                use_safetensors=True,
                trust_remote_code=code,
            )
        except ValueError as error:  # MPNet has no sdpa in some versions
            if attention == "eager" or "scaled_dot_product_attention" not in str(error):
                raise
            continue
        model.eval()
        assert model.config._attn_implementation == attention
        for dtype in [torch.float64] if once else [torch.float32, torch.float64]:
            model.to(dtype)
            for side in ["right"] if once else ["right", "left"]:
                tokens, real = padded(rows, side)
                output = model(input_ids=tokens, attention_mask=real.long())
                for name, values in expected.items():
                    found = output[name].double().numpy()
                    whole = values.ndim < 2 or values.shape[1] != reference["tokens"].shape[1]
                    if whole and side == "left" and not code:
                        continue  # the stock heads read the first column, which is padding
                    pairs = [
                        (found[i], values[i]) if whole else (found[i][real[i]], values[i][: len(row)])
                        for i, row in enumerate(rows)
                    ]
                    assert all(a.shape == b.shape and np.isfinite(a).all() for a, b in pairs), name
                    key = f"{name} {str(dtype)[6:]} {attention} {side}"
                    differences[key] = max(float(np.abs(a - b).max()) for a, b in pairs)
    return {
        "class": type(model).__name__,
        "missing": sorted(info["missing_keys"]),
        "unexpected": sorted(info["unexpected_keys"]),
        "mismatched": sorted(map(str, info["mismatched_keys"])),
        "labels": {str(i): label for i, label in model.config.id2label.items()},
        "differences": differences,
    }


def main():
    folder = Path(sys.argv[1])
    found = {"transformers": transformers.__version__}
    for path in sorted(folder.glob("*.npz")):
        found[path.stem] = compare(folder / path.stem.partition("@")[0], np.load(path))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
