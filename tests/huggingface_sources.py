"""Makes models of transformers with random weights, and what they compute. Knows nothing of maelm_fairseq.

    python huggingface_sources.py FOLDER

FOLDER has cases.json, {NAME: {"class": a class of transformers, "config": its configuration, "format": "safetensors",
or "bin" in half precision}}, and tokens.json, {NAME: rows of tokens, padded with 1 at the end}. Writes for each case a
folder NAME, and NAME.npz with `features` and, of a masked LM, `logits`, float64 (B, T, ...).
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HOME=tempfile.gettempdir())

import numpy as np
import torch
import transformers

torch.set_num_threads(1)
PAD = 1


@torch.no_grad()
def make(folder, case, rows):
    model_class = getattr(transformers, case["class"])
    model = model_class(model_class.config_class(**case["config"])).eval()
    for name, parameter in model.named_parameters():
        parameter.normal_(float("LayerNorm.weight" in name or "layer_norm.weight" in name), 0.3)
        if "token_type" in name or "position" in name:
            parameter.copy_((256 * parameter).round() / 256)  # so that float32 holds their sum
        if "token_type" in name:
            parameter[:] = parameter[0].clone()
    if case["format"] == "bin":
        model.half()
        model.config.save_pretrained(folder)
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    else:
        model.save_pretrained(folder)
    tokens = torch.tensor(rows)
    output = model.double()(tokens, attention_mask=tokens.ne(PAD).long(), output_hidden_states=True)
    found = {"features": output.hidden_states[-1].numpy()}
    if "logits" in output:
        found["logits"] = output.logits.numpy()
    np.savez(f"{folder}.npz", **found)


def main():
    folder = Path(sys.argv[1])
    tokens = json.loads((folder / "tokens.json").read_text())
    torch.manual_seed(5)
    for name, case in json.loads((folder / "cases.json").read_text()).items():
        make(folder / name, case, tokens[name])
    print(transformers.__version__)


if __name__ == "__main__":
    main()
