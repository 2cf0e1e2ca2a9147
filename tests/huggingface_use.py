"""Uses exported folders as a stranger would: with transformers, without maelm_fairseq.

    python huggingface_use.py FOLDER [PROGRAM ARGUMENT...]

It then runs another such program in the same process, as importing transformers takes longer than most of this.
FOLDER has exported models, and
- for each comparison NAME.npz or NAME@CLASS.npz, where NAME is a folder, with `class`, the name of an AutoModel class;
  `tokens` (B, T), padded with 1 at the end; and the outputs that are expected at each text without padding, float64
  (B, T, ...) or, for whole texts, (B, ...)
- tokens.json: {folder with a tokenizer: [[text, second text or null, tokens], ...]}
- texts.json: {"texts": [...], "masked": [...]}

Prints JSON: "transformers", the version; "compared", {NAME: {"class", "unused", "differences": {"OUTPUT DTYPE ATTENTION
SIDE": largest difference}}}; "other tokens", [[folder, text, second text, tokens found], ...]; "fill_mask", for each
pretrained model, masked text and mask {token: probability}; "differences", {what: what should be 0}; "losses", {what:
loss}; "losses of Trainer"; "in half precision", {what: relative difference}.
"""

import json
import os
import runpy
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", WANDB_DISABLED="true")

import numpy as np
import torch
import transformers
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments, pipeline

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
PAD = 1
HEADS = ["", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]
OURS = {  # folders of our classes, and their heads
    "code": "ForMaskedLM",
    "code-t5": "ForMaskedLM",
    "code-shared": "ForMaskedLM",
    "code-mean": "ForSequenceClassification",
    "code-tags": "ForTokenClassification",
    "code-span": "ForQuestionAnswering",
}
NEW = transformers.__version__ > "5"  # with what exports to ONNX
FINE_TUNED = [  # folder, head, labels
    ("code", "ForSequenceClassification", 3),
    ("code", "ForTokenClassification", 3),
    ("code", "ForQuestionAnswering", 2),
    ("code-mean", "ForSequenceClassification", 1),
    ("code-score", "ForSequenceClassification", 3),
]


def load(auto_class, folder, **options):
    """A model or tokenizer by an Auto class; modeling files are trusted."""
    code = any(Path(folder).glob("*.py"))
    loaded = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=code, **options)
    return loaded.eval() if isinstance(loaded, torch.nn.Module) else loaded


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
    """The entry of one comparison."""
    rows = [[token for token in row if token != PAD] for row in reference["tokens"].tolist()]
    expected = {name: reference[name] for name in reference.files if name not in ["class", "tokens"]}
    differences, code = {}, any(folder.glob("*.py"))
    for attention in ["eager", "sdpa"]:
        try:
            options = dict(attn_implementation=attention, output_loading_info=True, trust_remote_code=code)
            model, info = getattr(transformers, str(reference["class"])).from_pretrained(folder, **options)
        except ValueError as error:  # MPNet has no sdpa in some versions
            assert attention == "sdpa" and "scaled_dot_product_attention" in str(error)
            continue
        assert model.eval().config._attn_implementation == attention and not info["mismatched_keys"]
        assert all(name.startswith("pooler.") for name in info["missing_keys"]), info
        for dtype in [torch.float32, torch.float64]:
            model.to(dtype)
            for side in ["right", "left"]:
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
    return {"class": type(model).__name__, "unused": sorted(info["unexpected_keys"]), "differences": differences}


def other_tokens(folder, expected):
    """Texts that get other tokens than expected, by the tokenizer as exported and as transformers saves it."""
    tokenizer, found = load("AutoTokenizer", folder), []
    names = ["bos", "pad", "eos", "unk", "mask", "cls", "sep"]
    with tempfile.TemporaryDirectory() as again:
        tokenizer.save_pretrained(again)
        for made in [tokenizer, load("AutoTokenizer", again)]:
            for text, pair, tokens in expected:
                ids = made(text, pair)["input_ids"]
                if ids != tokens:
                    found.append([folder, text, pair, ids])
            symbols = [getattr(made, f"{name}_token_id") for name in names]
            assert symbols == [0, 1, 2, 3, made.get_vocab()["<mask>"], 0, 2]
            batch = made(["word " * 999, ""], truncation=True, padding=True)
            assert sorted(batch) == ["attention_mask", "input_ids"]
            assert len(batch["input_ids"][1]) == made.model_max_length
    return found


def fill_masks(folder, texts):
    """For each text and mask the probabilities of all tokens, by the pipeline."""
    fill = pipeline("fill-mask", model=str(folder), trust_remote_code=True)
    found = []
    for text in texts:
        masks = fill(text, top_k=fill.model.config.vocab_size)
        for mask in masks if isinstance(masks[0], list) else [masks]:
            found.append({each["token"]: each["score"] for each in mask})
    return found


@torch.no_grad()
def outputs(model, batch):
    """The tensors that a model returns, without dropout."""
    return [value for value in model(**batch).values() if isinstance(value, torch.Tensor)]


def difference(one, other):
    one, other = list(one), list(other)
    assert len(one) == len(other) > 0
    return max(float((a - b).abs().max()) for a, b in zip(one, other))


def save_again(auto_class, folder, batch):
    """The difference after saving a model and loading it again."""
    model = load(auto_class, folder)
    with tempfile.TemporaryDirectory() as again:
        model.save_pretrained(again)
        return difference(outputs(model, batch), outputs(load(auto_class, again), batch))


def hidden_states(folder, batch):
    """The difference between the last hidden states and the features; attention weights must be complete."""
    model = load("AutoModel", folder)
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True, output_attentions=True)
    layers = model.config.num_hidden_layers
    assert len(output.hidden_states) == layers + 1 and len(output.attentions) == layers
    assert all(torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5) for weights in output.attentions)
    return difference([output.hidden_states[-1]], [output.last_hidden_state])


def checkpointing(folder, batch):
    """The difference between gradients with and without gradient checkpointing."""
    gradients = []
    for enable in [False, True]:
        model = load("AutoModelForMaskedLM", folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        if enable:
            model.gradient_checkpointing_enable()
        model.train()(**batch, labels=batch["input_ids"]).loss.backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    return difference(*gradients)


@torch.no_grad()
def traced(auto_class, folder, batch):
    """The difference after tracing a model that returns tuples, on a batch of another shape; it takes token types."""
    model = load(auto_class, folder, return_dict=False)
    program = torch.jit.trace(model, (batch["input_ids"], batch["attention_mask"]))
    other = {name: values[1:4, :9] for name, values in batch.items()}
    expected = model(**other, token_type_ids=torch.zeros_like(other["input_ids"]))
    return difference(program(*other.values()), expected)


def from_configuration(folder, head, batch):
    """The difference between the buckets of a model made from its configuration alone, which computes, and the trained.

    As run_mlm.py makes one with --config_name.
    """
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    new = getattr(transformers, "AutoModel" + head).from_config(config, trust_remote_code=True).eval()
    assert all(values.isfinite().all() for values in outputs(new, batch))
    both = [dict(model.named_buffers()) for model in (new, load("AutoModel" + head, folder))]
    assert both[0].keys() == both[1].keys()
    return max([float((both[0][name] - both[1][name]).abs().max()) for name in both[0]], default=0.0)


def offloaded(folder, head, batch):
    """The difference between the outputs of a model, and the same with its weights on disk."""
    model = load("AutoModel" + head, folder)
    with tempfile.TemporaryDirectory() as disk:
        parts = {name: "disk" for name, _ in model.named_children()}
        on_disk = load("AutoModel" + head, folder, device_map=parts, offload_folder=disk, offload_state_dict=True)
        assert any(parameter.device.type == "meta" for parameter in on_disk.parameters())
        return difference(outputs(model, batch), outputs(on_disk, batch))


def adapted(folder, head, batch):
    """The difference between the outputs of a model with a trained LoRA adapter, and after merging the two."""
    import peft

    model, before = load("AutoModel" + head, folder), outputs(load("AutoModel" + head, folder), batch)
    model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear"))
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        sum(value.float().square().mean() for value in model(**batch).values()).backward()
        optimizer.step()
    trained = outputs(model.eval(), batch)
    assert difference(before, trained) > 1e-3
    return difference(trained, outputs(model.merge_and_unload().eval(), batch))


def in_half_precision(folder, head, batch):
    """The difference between outputs in float32 and in bfloat16, relative to their size."""
    model = load("AutoModel" + head, folder)
    expected, found = outputs(model, batch), outputs(model.to(torch.bfloat16), batch)
    size = max(float(value.abs().max()) for value in expected)
    return difference(expected, [value.float() for value in found]) / size


def onnx(folder, head, batch):
    """The difference between the outputs of a model and those of its ONNX program, for another number of texts."""
    import onnxruntime

    model = load("AutoModel" + head, folder, return_dict=False)
    inputs = {name: batch[name] for name in ["input_ids", "attention_mask"]}
    B, T = torch.export.Dim("B", max=999), torch.export.Dim("T", min=2, max=model.config.max_position_embeddings)
    with tempfile.TemporaryDirectory() as dest:
        path = os.path.join(dest, "model.onnx")
        shapes = {name: {0: B, 1: T} for name in inputs}
        torch.onnx.export(model, kwargs=inputs, f=path, dynamo=True, dynamic_shapes=shapes, verbose=False)
        session = onnxruntime.InferenceSession(path)
        other = {name: values[:3, :9] for name, values in inputs.items()}
        found = session.run(None, {name: values.numpy() for name, values in other.items()})
        with torch.no_grad():
            return difference(model(**other), map(torch.from_numpy, found))


def more_tokens(folder, batch):
    """Adds tokens to the vocabulary of a masked language model: the others keep their logits."""
    model = load("AutoModelForMaskedLM", folder)
    before, size = outputs(model, batch)[0], model.config.vocab_size
    model.resize_token_embeddings(size + 3)
    after = outputs(model, batch)[0]
    assert after.size(-1) == size + 3
    return difference([before], [after[..., :size]])


def train(folder, texts):
    """Losses of two steps of masked language modelling by Trainer; the weights must change."""
    tokenizer, model = load("AutoTokenizer", folder), load("AutoModelForMaskedLM", folder)
    before = [p.detach().clone() for p in model.parameters()]
    with tempfile.TemporaryDirectory() as dest:
        arguments = TrainingArguments(
            dest, max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=1,
            learning_rate=1e-3, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
            gradient_checkpointing=True,
        )  # fmt: skip
        examples = [dict(tokenizer(text, truncation=True, max_length=16)) for text in texts]
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)
        trainer = Trainer(model, arguments, train_dataset=examples, data_collator=collator)
        trainer.train()
    changed = [not a.equal(b) for a, b in zip(before, model.parameters())]
    assert sum(changed) > 30 and all(p.isfinite().all() for p in model.parameters())
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def loss_of(name, head, labels, folder, batch):
    """The loss of a head, new for so many labels, with gradients for all that it reads."""
    B, T = batch["input_ids"].shape
    targets = {
        "ForSequenceClassification": {"labels": torch.arange(B) % 3},
        "ForTokenClassification": {"labels": torch.arange(B * T).view(B, T) % 3},
        "ForQuestionAnswering": {"start_positions": torch.ones(B).long(), "end_positions": torch.full([B], 2)},
    }
    model = load("AutoModel" + head, folder / name, num_labels=labels, ignore_mismatched_sizes=True)
    loss = model(**batch, **targets[head]).loss
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    return float(loss)


def main():
    folder, *next_program = sys.argv[1:]
    folder = Path(folder)
    texts, masked = (json.loads((folder / "texts.json").read_text())[key] for key in ["texts", "masked"])
    batch = dict(load("AutoTokenizer", folder / "code")(texts, padding=True, return_tensors="pt"))
    tokens = json.loads((folder / "tokens.json").read_text())
    code = folder / "code"
    masks = dict(load("AutoTokenizer", code)(masked + texts, padding=True, return_tensors="pt"))
    result = {
        "transformers": transformers.__version__,
        "compared": {
            path.stem: compare(folder / path.stem.partition("@")[0], np.load(path)) for path in folder.glob("*.npz")
        },
        "other tokens": [each for name, expected in tokens.items() for each in other_tokens(name, expected)],
        "fill_mask": {name: fill_masks(folder / name, masked) for name in ["code", "code-shared"]},
        "differences": {
            "save the modeling file again": save_again("AutoModelForMaskedLM", folder / "code-shared", batch),
            "hidden states": hidden_states(code, batch),
            "gradient checkpointing": checkpointing(code, batch),
            "more tokens": more_tokens(code, batch),
            **{f"{head or 'encoder'} traced": traced(f"AutoModel{head}", code, masks) for head in HEADS},
            "shared layers traced": traced("AutoModelForMaskedLM", folder / "code-shared", masks),
            **{
                f"{name} {what.__name__}": what(folder / name, head, batch)
                for name, head in OURS.items()
                for what in [from_configuration, adapted]
            },
            # Old versions find no tied weight on disk, of stock classes neither.
            **{
                f"{name} offloaded": offloaded(folder / name, head, batch)
                for name, head in OURS.items()
                if NEW or head != "ForMaskedLM"
            },
            **{f"{name} ONNX": onnx(folder / name, OURS[name], batch) for name in ["code-shared", "code-tags"] if NEW},
        },
        "in half precision": {name: in_half_precision(folder / name, head, batch) for name, head in OURS.items()},
        "losses": {" ".join(map(str, each)): loss_of(*each, folder, batch) for each in FINE_TUNED},
        "losses of Trainer": train(code, texts),
    }
    print(json.dumps(result))
    if next_program:
        sys.argv[:] = next_program
        runpy.run_path(next_program[0], run_name="__main__")


if __name__ == "__main__":
    main()
