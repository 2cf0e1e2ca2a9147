"""Uses exported folders as a stranger would: with transformers, without maelm_fairseq.

    python huggingface_use.py FOLDER [PROGRAM ARGUMENT...]

It then runs PROGRAM in the same process, as importing transformers takes longer than most of this.
FOLDER has exported models, and
- for each comparison NAME.npz or NAME@CLASS.npz, where NAME is a folder, with `class`, the name of
  an AutoModel class; `tokens` (B, T), padded with 1 at the end; and the outputs that are expected
  at each text without padding, float64 (B, T, ...) or, for whole texts, (B, ...)
- tokens.json: {folder with a tokenizer: [[text, second text or null, tokens], ...]}
- texts.json: {"texts": [...], "masked": [...]}

Prints JSON:
- "transformers": the version
- "compared": {NAME: {"class", "unused", "differences": {"OUTPUT DTYPE ATTENTION SIDE": largest
  difference}}}
- "other tokens": [[folder, text, second text, tokens found], ...]
- "fill_mask": for each pretrained model, masked text and mask {token: probability}
- "differences": {what: what should be 0}
- "losses": {what: loss}
- "losses of Trainer"
- "in half precision": {what: relative difference}
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
HEADS = [
    "",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
]
OURS = {  # folders of our classes, and their heads
    "code": "ForMaskedLM",
    "code-t5": "ForMaskedLM",
    "code-shared": "ForMaskedLM",
    "code-mean": "ForSequenceClassification",
    "code-tags": "ForTokenClassification",
    "code-span": "ForQuestionAnswering",
}
NEW = transformers.__version__ > "5"  # its environment has what exports to ONNX
FINE_TUNED = [  # folder, head, labels
    ("code", "ForSequenceClassification", 3),
    ("code", "ForTokenClassification", 3),
    ("code", "ForQuestionAnswering", 2),
    ("code-mean", "ForSequenceClassification", 1),
    ("code-score", "ForSequenceClassification", 3),
]


def load(auto_class, folder, **options):
    """A model or tokenizer by an Auto class; modeling files are trusted."""
    has_code = any(Path(folder).glob("*.py"))
    auto = getattr(transformers, auto_class)
    loaded = auto.from_pretrained(folder, trust_remote_code=has_code, **options)
    return loaded.eval() if isinstance(loaded, torch.nn.Module) else loaded


def padded(rows, side):
    """Lists of tokens -> (B, T) padded at the `right` or `left`, and which are real."""
    longest = max(map(len, rows))
    tokens = torch.full((len(rows), longest), PAD)
    for i, row in enumerate(rows):
        if side == "right":
            tokens[i, : len(row)] = torch.tensor(row)
        else:
            tokens[i, longest - len(row) :] = torch.tensor(row)
    return tokens, tokens != PAD


@torch.no_grad()
def compare(folder, reference):
    """The entry of one comparison."""
    has_code = any(folder.glob("*.py"))
    auto = getattr(transformers, str(reference["class"]))
    options = dict(output_loading_info=True, trust_remote_code=has_code)
    differences = {}
    for attention in ["eager", "sdpa"]:
        try:
            model, info = auto.from_pretrained(folder, attn_implementation=attention, **options)
        except ValueError as error:  # MPNet has no sdpa in some versions
            assert attention == "sdpa"
            assert "scaled_dot_product_attention" in str(error)
            continue
        assert model.eval().config._attn_implementation == attention
        assert not info["mismatched_keys"]
        assert all(name.startswith("pooler.") for name in info["missing_keys"]), info
        for dtype in [torch.float32, torch.float64]:
            model.to(dtype)
            for side in ["right", "left"]:
                # The stock heads read the first column, which is padding on the left.
                reads_texts = side == "right" or has_code
                for name, value in largest_differences(model, reference, side, reads_texts).items():
                    differences[f"{name} {str(dtype)[6:]} {attention} {side}"] = value
    unused = sorted(info["unexpected_keys"])
    return {"class": type(model).__name__, "unused": unused, "differences": differences}


def largest_differences(model, reference, side, reads_texts):
    """The largest difference of each output; of outputs for whole texts only with `reads_texts`."""
    rows = [[token for token in row if token != PAD] for row in reference["tokens"].tolist()]
    tokens, real = padded(rows, side)
    output = model(input_ids=tokens, attention_mask=real.long())
    differences = {}
    for name in reference.files:
        if name in ["class", "tokens"]:
            continue
        expected = reference[name]
        computed = output[name].double().numpy()
        is_for_texts = expected.ndim < 2 or expected.shape[1] != reference["tokens"].shape[1]
        if is_for_texts and not reads_texts:
            continue
        differences[name] = 0.0
        for i, row in enumerate(rows):
            ours, theirs = expected[i], computed[i]
            if not is_for_texts:
                ours, theirs = ours[: len(row)], theirs[real[i]]
            assert ours.shape == theirs.shape, name
            assert np.isfinite(theirs).all(), name
            differences[name] = max(differences[name], float(np.abs(ours - theirs).max()))
    return differences


def other_tokens(folder, expected):
    """Texts that get other tokens than expected, by the tokenizer and by it when saved again."""
    tokenizer = load("AutoTokenizer", folder)
    others = []
    with tempfile.TemporaryDirectory() as again:
        tokenizer.save_pretrained(again)
        for loaded in [tokenizer, load("AutoTokenizer", again)]:
            for text, pair, tokens in expected:
                ids = loaded(text, pair)["input_ids"]
                if ids != tokens:
                    others.append([folder, text, pair, ids])
            check_settings(loaded)
    return others


def check_settings(tokenizer):
    names = ["bos", "pad", "eos", "unk", "mask", "cls", "sep"]
    symbols = [getattr(tokenizer, f"{name}_token_id") for name in names]
    assert symbols == [0, 1, 2, 3, tokenizer.get_vocab()["<mask>"], 0, 2]
    batch = tokenizer(["word " * 999, ""], truncation=True, padding=True)
    assert sorted(batch) == ["attention_mask", "input_ids"]
    assert len(batch["input_ids"][1]) == tokenizer.model_max_length


def fill_masks(folder, texts):
    """For each text and mask the probabilities of all tokens, by the pipeline."""
    fill = pipeline("fill-mask", model=str(folder), trust_remote_code=True)
    filled = []
    for text in texts:
        masks = fill(text, top_k=fill.model.config.vocab_size)
        if not isinstance(masks[0], list):  # a text with one mask
            masks = [masks]
        for candidates in masks:
            filled.append({entry["token"]: entry["score"] for entry in candidates})
    return filled


@torch.no_grad()
def outputs(model, batch):
    """The tensors that a model returns, without dropout."""
    return [value for value in model(**batch).values() if isinstance(value, torch.Tensor)]


def difference(one, other):
    """The largest difference between two lists of tensors."""
    one = list(one)
    other = list(other)
    assert len(one) == len(other) > 0
    return max(float((a - b).abs().max()) for a, b in zip(one, other))


def save_again(auto_class, folder, batch):
    """The difference after saving a model and loading it again."""
    model = load(auto_class, folder)
    with tempfile.TemporaryDirectory() as again:
        model.save_pretrained(again)
        return difference(outputs(model, batch), outputs(load(auto_class, again), batch))


def hidden_states(folder, batch):
    """The difference between the last hidden states and the features.

    Attention weights must be complete.
    """
    model = load("AutoModel", folder)
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True, output_attentions=True)
    layers = model.config.num_hidden_layers
    assert len(output.hidden_states) == layers + 1
    assert len(output.attentions) == layers
    for weights in output.attentions:
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)
    return difference([output.hidden_states[-1]], [output.last_hidden_state])


def checkpointing(folder, batch):
    """The difference between gradients with and without gradient checkpointing."""
    without_dropout = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    gradients = []
    for enable in [False, True]:
        model = load("AutoModelForMaskedLM", folder, **without_dropout)
        if enable:
            model.gradient_checkpointing_enable()
        model.train()(**batch, labels=batch["input_ids"]).loss.backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    return difference(*gradients)


@torch.no_grad()
def traced(auto_class, folder, batch):
    """The difference after tracing a model that returns tuples, on a batch of another shape.

    The model takes token types.
    """
    model = load(auto_class, folder, return_dict=False)
    program = torch.jit.trace(model, (batch["input_ids"], batch["attention_mask"]))
    other = {name: values[1:4, :9] for name, values in batch.items()}
    expected = model(**other, token_type_ids=torch.zeros_like(other["input_ids"]))
    return difference(program(*other.values()), expected)


def from_configuration(folder, head, batch):
    """The difference between the buckets of a new model and those of the trained one.

    The new one is made from its configuration alone, as by run_mlm.py with --config_name, and must
    compute something.
    """
    auto = getattr(transformers, "AutoModel" + head)
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    new = auto.from_config(config, trust_remote_code=True).eval()
    assert all(values.isfinite().all() for values in outputs(new, batch))
    ours = dict(new.named_buffers())
    trained = dict(load("AutoModel" + head, folder).named_buffers())
    assert ours.keys() == trained.keys()
    return max([float((ours[name] - trained[name]).abs().max()) for name in ours], default=0.0)


def offloaded(folder, head, batch):
    """The difference between the outputs of a model, and the same with its weights on disk."""
    model = load("AutoModel" + head, folder)
    with tempfile.TemporaryDirectory() as disk:
        parts = {name: "disk" for name, _ in model.named_children()}
        options = dict(device_map=parts, offload_folder=disk, offload_state_dict=True)
        on_disk = load("AutoModel" + head, folder, **options)
        assert any(parameter.device.type == "meta" for parameter in on_disk.parameters())
        return difference(outputs(model, batch), outputs(on_disk, batch))


def adapted(folder, head, batch):
    """The difference between a model with a trained LoRA adapter and the two merged."""
    import peft

    model = load("AutoModel" + head, folder)
    before = outputs(load("AutoModel" + head, folder), batch)
    model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear"))
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-2)
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
    expected = outputs(model, batch)
    halves = outputs(model.to(torch.bfloat16), batch)
    size = max(float(value.abs().max()) for value in expected)
    return difference(expected, [value.float() for value in halves]) / size


def onnx(folder, head, batch):
    """The difference between a model and its ONNX program, for another number of texts."""
    import onnxruntime

    model = load("AutoModel" + head, folder, return_dict=False)
    inputs = {name: batch[name] for name in ["input_ids", "attention_mask"]}
    B = torch.export.Dim("B", max=999)
    T = torch.export.Dim("T", min=2, max=model.config.max_position_embeddings)
    options = dict(dynamo=True, dynamic_shapes={name: {0: B, 1: T} for name in inputs})
    with tempfile.TemporaryDirectory() as dest:
        path = os.path.join(dest, "model.onnx")
        torch.onnx.export(model, kwargs=inputs, f=path, verbose=False, **options)
        session = onnxruntime.InferenceSession(path)
        other = {name: values[:3, :9] for name, values in inputs.items()}
        computed = session.run(None, {name: values.numpy() for name, values in other.items()})
        with torch.no_grad():
            return difference(model(**other), map(torch.from_numpy, computed))


def more_tokens(folder, batch):
    """Adds tokens to the vocabulary of a masked language model: the others keep their logits."""
    model = load("AutoModelForMaskedLM", folder)
    before = outputs(model, batch)[0]
    size = model.config.vocab_size
    model.resize_token_embeddings(size + 3)
    after = outputs(model, batch)[0]
    assert after.size(-1) == size + 3
    return difference([before], [after[..., :size]])


def train(folder, texts):
    """Losses of two steps of masked language modelling by Trainer; the weights must change."""
    tokenizer = load("AutoTokenizer", folder)
    model = load("AutoModelForMaskedLM", folder)
    before = [p.detach().clone() for p in model.parameters()]
    with tempfile.TemporaryDirectory() as dest:
        arguments = TrainingArguments(
            dest,
            max_steps=2,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
            learning_rate=1e-3,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            save_strategy="no",
        )
        examples = [dict(tokenizer(text, truncation=True, max_length=16)) for text in texts]
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)
        trainer = Trainer(model, arguments, train_dataset=examples, data_collator=collator)
        trainer.train()
    changed = [not a.equal(b) for a, b in zip(before, model.parameters())]
    assert sum(changed) > 30
    assert all(p.isfinite().all() for p in model.parameters())
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def loss_of(name, head, labels, folder, batch):
    """The loss of a head, new for so many labels, with gradients for all that it reads."""
    B, T = batch["input_ids"].shape
    starts = torch.ones(B).long()
    ends = torch.full([B], 2)
    targets = {
        "ForSequenceClassification": {"labels": torch.arange(B) % 3},
        "ForTokenClassification": {"labels": torch.arange(B * T).view(B, T) % 3},
        "ForQuestionAnswering": {"start_positions": starts, "end_positions": ends},
    }
    options = dict(num_labels=labels, ignore_mismatched_sizes=True)
    model = load("AutoModel" + head, folder / name, **options)
    loss = model(**batch, **targets[head]).loss
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    return float(loss)


def all_differences(folder, batch, masks):
    """What should be 0, by what was done."""
    code = folder / "code"
    shared = folder / "code-shared"
    differences = {
        "save the modeling file again": save_again("AutoModelForMaskedLM", shared, batch),
        "hidden states": hidden_states(code, batch),
        "gradient checkpointing": checkpointing(code, batch),
        "more tokens": more_tokens(code, batch),
    }
    for head in HEADS:
        differences[f"{head or 'encoder'} traced"] = traced(f"AutoModel{head}", code, masks)
    differences["shared layers traced"] = traced("AutoModelForMaskedLM", shared, masks)
    for name, head in OURS.items():
        for check in [from_configuration, adapted]:
            differences[f"{name} {check.__name__}"] = check(folder / name, head, batch)
    for name, head in OURS.items():
        # Old versions find no tied weight on disk, not even those of stock classes.
        if NEW or head != "ForMaskedLM":
            differences[f"{name} offloaded"] = offloaded(folder / name, head, batch)
    if NEW:
        for name in ["code-shared", "code-tags"]:
            differences[f"{name} ONNX"] = onnx(folder / name, OURS[name], batch)
    return differences


def main():
    folder, *next_program = sys.argv[1:]
    folder = Path(folder)
    given = json.loads((folder / "texts.json").read_text())
    texts, masked = given["texts"], given["masked"]
    code = folder / "code"
    batch = dict(load("AutoTokenizer", code)(texts, padding=True, return_tensors="pt"))
    masks = dict(load("AutoTokenizer", code)(masked + texts, padding=True, return_tensors="pt"))
    compared = {}
    for path in folder.glob("*.npz"):
        name = path.stem.partition("@")[0]
        compared[path.stem] = compare(folder / name, np.load(path))
    others = []
    for name, expected in json.loads((folder / "tokens.json").read_text()).items():
        others += other_tokens(name, expected)
    filled = {name: fill_masks(folder / name, masked) for name in ["code", "code-shared"]}
    differences = all_differences(folder, batch, masks)
    halves = {name: in_half_precision(folder / name, head, batch) for name, head in OURS.items()}
    losses = {}
    for name, head, labels in FINE_TUNED:
        losses[f"{name} {head} {labels}"] = loss_of(name, head, labels, folder, batch)
    result = {
        "transformers": transformers.__version__,
        "compared": compared,
        "other tokens": others,
        "fill_mask": filled,
        "differences": differences,
        "in half precision": halves,
        "losses": losses,
        "losses of Trainer": train(code, texts),
    }
    print(json.dumps(result))
    if next_program:
        sys.argv[:] = next_program
        runpy.run_path(next_program[0], run_name="__main__")


if __name__ == "__main__":
    main()
