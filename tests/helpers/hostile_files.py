"""Damaged and hostile checkpoints, each written in place of a good one.

Every entry of `FILES` is a function that is given the path and the contents of the good file.
"""

import functools
import io
import operator
import os
import pickle
import zipfile

import torch

WEIGHT = "encoder.layers.0.ffn.0.weight"
FILES = {}  # {name: function of (path of the good file, its contents)}


def saved(name, change, **options):
    """Adds a file with changed contents; `change` edits them in place, or returns others."""

    def write(path, state):
        changed = change(state)
        torch.save(state if changed is None else changed, path, **options)

    FILES[name] = write


def put(*keys, value):
    """A change: the value at a path of keys."""

    def change(state):
        *above, last = keys
        within = functools.reduce(operator.getitem, above, state)
        within[last] = value(within.get(last)) if callable(value) else value

    return change


def in_itself():
    """A list that is its own item."""
    items = []
    items.append(items)
    return items


def doubled(times):
    """A short list of lists that would have 2**times items."""
    items = []
    for _ in range(times):
        items = [items, items]
    return items


def without(*keys):
    """A change: there is nothing at a path of keys."""

    def change(state):
        *above, last = keys
        within = functools.reduce(operator.getitem, above, state)
        del within[last]

    return change


# Damaged ------------------------------------------------------------------------------------------


def bytes_of(name, change):
    """Adds a file whose bytes are what `change` makes of those of the good one."""
    FILES[name] = lambda path, state: path.write_bytes(change(path.read_bytes()))


def flip(content, place, bit):
    """Changes a bit of the byte at a place."""
    return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


bytes_of("empty", lambda content: b"")
bytes_of("cut_in_half", lambda content: content[: len(content) // 2])
bytes_of("zeros", lambda content: bytes(len(content)))
bytes_of("flipped_bit", lambda content: flip(content, len(content) // 2, 1))
bytes_of(
    "flipped_bit_in_the_pickle",
    lambda content: flip(content, content.index(b"data.pkl") + 200, 4),
)
bytes_of(
    "flipped_bit_in_the_directory",
    lambda content: flip(content, content.rindex(b"PK\1\2") + 10, 1),
)
bytes_of("a_pickle_alone", lambda content: pickle.dumps({"model": {}}))


def other(name, make):
    """Adds what `make` creates in place of the file."""

    def write(path, state):
        path.unlink()
        make(path)

    FILES[name] = write


other("a_folder", os.mkdir)
other("a_pipe", os.mkfifo)
other("a_link_to_itself", lambda path: path.symlink_to(path))
other("a_link_to_nowhere", lambda path: path.symlink_to("nowhere"))


# Archives and pickles -----------------------------------------------------------------------------


def archived(name, change, compression=zipfile.ZIP_STORED):
    """Adds an archive; `change` makes its members of the good one's, both {name: content}."""

    def write(path, state):
        with zipfile.ZipFile(path) as stream:
            members = {member: stream.read(member) for member in stream.namelist()}
        with zipfile.ZipFile(path, "w", compression) as stream:
            for member, content in change(members).items():
                stream.writestr(member, content)

    FILES[name] = write


archived("compressed", lambda members: members, zipfile.ZIP_DEFLATED)
archived("no_pickle", lambda members: {"archive/other": b"1"})
archived(
    "storage_missing",
    lambda members: {name: data for name, data in members.items() if "/data/0" not in name},
)
saved("old_format", lambda state: None, _use_new_zipfile_serialization=False)


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


saved("a_module", put("extra_state", "surprise", value=lambda _: torch.nn.Linear(2, 2)))

# Sizes --------------------------------------------------------------------------------------------


def name_2_000_layers(state):
    for layer in range(2_000):
        state["model"][f"encoder.layers.{layer}.ffn_norm.bias"] = torch.zeros(1)


def widen_one_row(state):
    """A model of these widths would take 64 GB."""
    state["model"]["embed_tokens.weight"] = torch.zeros(1, 2**16)
    state["model"][WEIGHT] = torch.zeros(2**18, 1)


def history(num_updates):
    return [{"num_updates": num_updates, "lr_scheduler_state": {}}]


saved("a_million_layers", put("cfg", "model", "encoder_layers", value=10**6))
saved("names_of_2_000_layers", name_2_000_layers)
saved("one_wide_row", widen_one_row)
saved("a_tiny_distance", put("cfg", "model", "relative_position_max_distance", value=1))
saved("no_number_of_updates", without("optimizer_history", -1, "num_updates"))
saved("many_updates", put("optimizer_history", value=history(10**30)))

# Types --------------------------------------------------------------------------------------------

saved("a_number", lambda state: 3)
saved("weights_alone", lambda state: state["model"])
SECTIONS = ["model", "cfg", "optimizer_history", "extra_state", "task_state"]
for _key in [*SECTIONS, "last_optimizer_state"]:
    saved(f"without_{_key}", without(_key))
    saved(f"a_text_for_{_key}", put(_key, value="x"))
saved("weights_that_are_numbers", put("model", WEIGHT, value=3))
saved("a_weight_of_integers", put("model", WEIGHT, value=torch.zeros(64, 32, dtype=torch.int64)))
saved("a_scalar_weight", put("model", WEIGHT, value=torch.tensor(1.0)))
saved("a_weight_that_is_not_finite", put("model", WEIGHT, value=torch.full((64, 32), torch.inf)))
saved("a_weight_missing", without("model", WEIGHT))
saved("a_weight_more", put("model", "encoder.more.weight", value=torch.zeros(3)))
saved("an_unknown_head", put("model", "classification_heads.x.gate.weight", value=torch.zeros(3)))
for _option, _value in [("encoder_layers", "2"), ("dropout", []), ("classification_pooling", 7)]:
    saved(f"{_option}_of_another_type", put("cfg", "model", _option, value=_value))
saved("a_dropout_over_one", put("cfg", "model", "dropout", value=2.0))
saved("a_section_that_is_a_list", put("cfg", "model", value=[1]))
saved("a_task_that_is_a_text", put("cfg", "task", value="mae_lm"))
saved("a_task_that_is_unknown", put("cfg", "task", "_name", value="nosuch"))
saved("a_model_that_is_unknown", put("cfg", "model", "_name", value="nosuch"))
saved("another_vocabulary", put("task_state", "dictionary_fingerprint", value=1))
saved("an_iterator_that_is_a_list", put("extra_state", "train_iterator", value=[]))
saved("updates_that_are_a_text", put("optimizer_history", value=history("5")))
saved(
    "an_optimizer_of_other_sizes",
    put("last_optimizer_state", value={"state": {}, "param_groups": []}),
)
for _name, _state in {
    "epoch_0": {"epoch": 0},
    "a_negative_position": {"iterations_in_epoch": -1},
    "negative_batches": {"iterations_in_epoch": 1, "consumed": [{"batches": -3}]},
    "consumed_that_is_a_number": {"iterations_in_epoch": 1, "consumed": 3},
    "data_that_are_a_number": {"iterations_in_epoch": 1, "data": 3},
}.items():
    saved(_name, put("extra_state", "train_iterator", value=lambda was, new=_state: {**was, **new}))
saved("meters_that_are_none", put("extra_state", "metrics", value={"default": None}))
saved("a_loss_that_is_a_text", put("extra_state", "val_loss", value="5"))
saved("labels_that_are_numbers", put("task_state", "labels", value=[1, 2]))
saved("a_form_of_another_type", put("task_state", "form", value=[1]))
saved(
    "a_form_of_an_unknown_metric",
    put("task_state", "form", value=["a", ["sentence"], "label", ["nope"]]),
)
MOMENTS = ("last_optimizer_state", "state", 0)
saved("moments_of_three_numbers", put(*MOMENTS, "exp_avg", value=torch.ones(3)))
saved("moments_that_are_a_text", put(*MOMENTS, "exp_avg_sq", value="x"))
saved("steps_that_differ", put(*MOMENTS, "step", value=True))
saved("moments_that_are_negative", put(*MOMENTS, "exp_avg_sq", value=lambda was: was - 1))
saved("no_step", without(*MOMENTS, "step"))
saved("no_moments", put("last_optimizer_state", "state", value={}))
saved("moments_missing", without(*MOMENTS))

# What PyTorch loads as a tensor -------------------------------------------------------------------

QUANTIZED = torch.quantize_per_tensor(torch.ones(64, 32), 1, 0, torch.qint8)
NESTED = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
saved("one_number_repeated", put("model", WEIGHT, value=torch.zeros(1, 1).expand(200_000, 200_000)))
saved("a_sparse_weight", put("model", WEIGHT, value=torch.zeros(64, 32).to_sparse()))
saved("a_meta_weight", put("model", WEIGHT, value=torch.empty(64, 32, device="meta")))
saved("a_quantized_weight", put("model", WEIGHT, value=QUANTIZED))
saved("a_nested_weight", put("model", WEIGHT, value=NESTED))
saved("complex_numbers", put("extra_state", "more", value=1j))
saved("a_weight_without_a_name", put("model", None, value=torch.ones(2)))
saved("a_number_for_a_name", put("model", 5, value=torch.ones(2)))
saved("a_number_of_many_digits", put("extra_state", "best", value=10**5000))
saved("a_list_in_itself", put("extra_state", "more", value=lambda _: in_itself()))
saved("lists_that_double", put("extra_state", "more", value=lambda _: doubled(60)))
saved("an_optimizer_of_fp16", put("last_optimizer_state", "loss_scale", value=4.0))


def spoil(path, name):
    """Writes one of the files in place of a good checkpoint."""
    content = io.BytesIO(path.read_bytes())
    FILES[name](path, torch.load(content, map_location="cpu", weights_only=True))
