"""Uses exported folders as a stranger would, with transformers and sentence-transformers: without maelm_fairseq.

    python huggingface_use.py FOLDER

FOLDER has exported models by the names in main(), and texts.json: {"texts": [...], "masked": [...]}. Prints JSON: under
"fill_mask" for each pretrained one, masked text and mask {token: probability}; under "largest differences" what should
be 0; under "steps" the losses of two steps of training by Trainer for each model and head.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", WANDB_DISABLED="true")

import torch
import transformers
from sentence_transformers import SentenceTransformer
from transformers import (
    AutoConfig,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    pipeline,
)

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()


def load(auto_class, folder, **options):
    """A model or tokenizer by an Auto class; modeling files are trusted."""
    code = any(Path(folder).glob("*.py"))
    loaded = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=code, **options)
    return loaded.eval() if isinstance(loaded, torch.nn.Module) else loaded


def batch_of(folder, texts, side="right"):
    tokenizer = load("AutoTokenizer", folder, padding_side=side)
    return tokenizer(texts, padding=True, truncation=True, max_length=24, return_tensors="pt")


def outputs(model, batch):
    """The tensors that a model returns, without dropout."""
    with torch.no_grad():
        return [value for value in model(**batch).values() if isinstance(value, torch.Tensor)]


def difference(one, other):
    return max(float((a - b).abs().max()) for a, b in zip(one, other))


def fill_masks(folder, texts):
    """For each text and mask the probabilities of all tokens, by the pipeline."""
    fill = pipeline("fill-mask", model=str(folder), trust_remote_code=True)
    found = []
    for text in texts:
        masks = fill(text, top_k=fill.model.config.vocab_size)
        for mask in masks if isinstance(masks[0], list) else [masks]:
            found.append({each["token"]: each["score"] for each in mask})
    return found


def fill_mask_is_refused(folder):
    try:
        pipeline("fill-mask", model=str(folder), trust_remote_code=True)
    except Exception as error:
        return "MaskedLM" in str(error)
    return False


def save_again(folder, texts):
    """Saves model and tokenizer, loads them again, and compares what they compute."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
    auto_class = "AutoModelFor" + config.architectures[0].partition("For")[2]
    model = load(auto_class, folder)
    with tempfile.TemporaryDirectory() as again:
        model.save_pretrained(again)
        load("AutoTokenizer", folder).save_pretrained(again)
        batch, batch_again = batch_of(folder, texts), batch_of(again, texts)
        assert batch["input_ids"].equal(batch_again["input_ids"])
        return difference(outputs(model, batch), outputs(load(auto_class, again), batch_again))


def sentence_vectors(folder, texts):
    """The difference between sentence-transformers' vectors and the mean of the features of all tokens."""
    vectors = SentenceTransformer(str(folder), trust_remote_code=True, device="cpu").encode(texts)
    batch = load("AutoTokenizer", folder)(texts, padding=True, return_tensors="pt")
    features, real = outputs(load("AutoModel", folder), batch)[0], batch["attention_mask"][..., None]
    return difference([torch.tensor(vectors)], [(features * real).sum(1) / real.sum(1)])


def hidden_states(folder, texts):
    """Whether hidden states and attentions are complete, and the same with padding at the left."""
    model = load("AutoModel", folder, attn_implementation="eager")
    found = []
    for side in ["right", "left"]:
        batch = batch_of(folder, texts, side)
        with torch.no_grad():
            output = model(**batch, output_hidden_states=True, output_attentions=True)
        layers = model.config.num_hidden_layers
        assert len(output.hidden_states) == layers + 1 and len(output.attentions) == layers
        assert output.hidden_states[-1].equal(output.last_hidden_state)
        real = batch["attention_mask"].bool()
        for weights in output.attentions:
            assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)
            assert weights.masked_select(~real[:, None, None, :]).eq(0).all()
        found.append([states[real] for states in output.hidden_states])
    return difference(*found)


def checkpointing(auto_class, folder, texts):
    """The difference between gradients with and without gradient checkpointing."""
    gradients = []
    for enable in [False, True]:
        model = load(auto_class, folder)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            elif hasattr(module, "dropout") and isinstance(module.dropout, float):
                module.dropout = 0.0
        if enable:
            model.gradient_checkpointing_enable()
        batch = batch_of(folder, texts)
        model.train()(**batch, labels=batch["input_ids"]).loss.backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) > 30
    return difference(*gradients)


def two_steps(auto_class, folder, texts, **options):
    """Losses of two steps by Trainer; the weights must change."""
    tokenizer = load("AutoTokenizer", folder)
    model, collator = load(auto_class, folder, **options), None
    examples = [dict(tokenizer(text, truncation=True, max_length=16, padding="max_length")) for text in texts]
    for i, example in enumerate(examples):
        if "QuestionAnswering" in auto_class:
            example.update(start_positions=1, end_positions=2)
        elif "Token" in auto_class:
            example["labels"] = [j % 3 for j in range(16)]
        elif "Sequence" in auto_class:
            example["labels"] = i % 3
    if "MaskedLM" in auto_class:
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)
    before = [p.detach().clone() for p in model.parameters()]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=2, per_device_train_batch_size=2, gradient_accumulation_steps=2, logging_steps=1,
            learning_rate=1e-3, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no",
            gradient_checkpointing=model.supports_gradient_checkpointing,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=examples, data_collator=collator)
        trainer.train()
    changed = [not a.equal(b) for a, b in zip(before, model.parameters())]
    assert sum(changed) > 30 and all(p.isfinite().all() for p in model.parameters())
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def more_tokens(folder, texts):
    """Adds a token to the vocabulary of a masked language model: the others keep their logits."""
    model, batch = load("AutoModelForMaskedLM", folder), batch_of(folder, texts)
    before, size = outputs(model, batch)[0], model.config.vocab_size
    model.resize_token_embeddings(size + 3)
    after = outputs(model, batch)[0]
    assert after.size(-1) == size + 3
    return difference([before], [after[..., :size]])


def main():
    folder = Path(sys.argv[1])
    given = json.loads((folder / "texts.json").read_text())
    texts, zero, steps = given["texts"], {}, {}
    for name in ["roberta-topic", "mpnet-t5-answers", "code-answers", "code-shared"]:
        zero[f"save again {name}"] = save_again(folder / name, texts)
    for name in ["roberta", "code"]:
        zero[f"sentence-transformers {name}"] = sentence_vectors(folder / name, texts)
    zero["hidden states"] = hidden_states(folder / "code", texts)
    zero["gradient checkpointing"] = checkpointing("AutoModelForMaskedLM", folder / "code", texts)
    zero["more tokens"] = more_tokens(folder / "code", texts)
    for name, head in [
        ("roberta", "SequenceClassification"), ("mpnet-t5", "QuestionAnswering"), ("code", "SequenceClassification"),
        ("code", "TokenClassification"), ("code", "QuestionAnswering"), ("code", "MaskedLM"),
    ]:  # fmt: skip
        labels = {"num_labels": 3} if "Classification" in head else {}
        steps[f"{name} {head}"] = two_steps(f"AutoModelFor{head}", folder / name, texts, **labels)
    result = {
        "transformers": transformers.__version__,
        "fill_mask": {name: fill_masks(folder / name, given["masked"]) for name in ["code", "code-shared"]},
        "fill_mask_refused": fill_mask_is_refused(folder / "code-narrow"),
        "largest differences": zero,
        "steps": steps,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
