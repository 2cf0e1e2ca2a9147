"""Damaged and hostile checkpoints: each writes a file in place of a good one, whose contents it is given."""

import collections
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
    """Adds a file that has other contents; `change` changes them in place, or returns others."""

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


def without(*keys):
    """A change: there is nothing at a path of keys."""

    def change(state):
        del functools.reduce(operator.getitem, keys[:-1], state)[keys[-1]]

    return change


# Damaged ------------------------------------------------------------------------------------------------------------


def bytes_of(name, change):
    """Adds a file whose bytes `change` makes of those of the good one."""
    FILES[name] = lambda path, state: path.write_bytes(change(path.read_bytes()))


def flip(content, place, bit):
    """Changes a bit of the byte at a place."""
    return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


bytes_of("empty", lambda content: b"")
bytes_of("cut_in_half", lambda content: content[: len(content) // 2])
bytes_of("last_byte_missing", lambda content: content[:-1])
bytes_of("zeros", lambda content: bytes(len(content)))
bytes_of("text", lambda content: b"404 Not Found\n")
bytes_of("flipped_bit", lambda content: flip(content, len(content) // 2, 1))
bytes_of("flipped_bit_in_the_pickle", lambda content: flip(content, content.index(b"data.pkl") + 200, 4))
bytes_of("garbage_behind_the_end", lambda content: content + b"\0" * 70000)
bytes_of("two_files_joined", lambda content: content * 2)
bytes_of("a_pickle_alone", lambda content: pickle.dumps({"model": {}}))


def other(name, make):
    """Adds what `make` puts in the place of the file."""

    def write(path, state):
        path.unlink()
        make(path)

    FILES[name] = write


other("a_folder", os.mkdir)
other("a_pipe", os.mkfifo)
other("a_link_to_nowhere", lambda path: path.symlink_to("nowhere"))
other("a_link_to_itself", lambda path: path.symlink_to(path.name))


# Archives and pickles -----------------------------------------------------------------------------------------------


def archived(name, change, compression=zipfile.ZIP_STORED):
    """Adds an archive whose members `change` makes of those of the good one, {name: content}."""

    def write(path, state):
        with zipfile.ZipFile(path) as stream:
            members = {member: stream.read(member) for member in stream.namelist()}
        with zipfile.ZipFile(path, "w", compression) as stream:
            for member, content in change(members).items():
                stream.writestr(member, content)

    FILES[name] = write


def pickled(name, program):
    """Adds an archive with this pickle program in it."""
    others = {"archive/version": b"3\n", "archive/byteorder": b"little"}
    archived(name, lambda members: {"archive/data.pkl": program, **others})


FIRST = "archive/data/0"  # a storage
archived("compressed", lambda members: members, zipfile.ZIP_DEFLATED)
archived("many_zeros", lambda members: {**members, FIRST: bytes(1 << 26)}, zipfile.ZIP_DEFLATED)
archived("no_pickle", lambda members: {"archive/other": b"1"})
archived("an_archive_without_members", lambda members: {})
archived("storage_cut", lambda members: {**members, FIRST: members[FIRST][:8]})
archived("storage_missing", lambda members: {name: data for name, data in members.items() if name != FIRST})
saved("old_format", lambda state: None, _use_new_zipfile_serialization=False)
pickled("a_pickle_that_ends", b"\x80\x02}q\x00")
pickled("an_unknown_instruction", b"\x80\x02\xff.")
pickled("a_terabyte_of_zeros", b"\x80\x02cbuiltins\nbytearray\nq\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x85R.")
pickled("a_deep_list", b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b".")
pickled("a_call_of_the_system", b"\x80\x02cposix\nsystem\nX\x05\x00\x00\x00false\x85R.")


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


saved("an_object", put("extra_state", "surprise", value=Payload("hostile")))
saved("a_module", put("extra_state", "surprise", value=lambda _: torch.nn.Linear(2, 2)))


def nested(kind):
    """40 levels of lists of twice the same: a trillion values, if all are visited."""
    value = kind()
    for _ in range(40):
        value = kind([value, value]) if kind is not dict else {"a": value, "b": value}
    return value


saved("shared_lists", put("extra_state", "bomb", value=nested(list)))
saved("shared_tuples_of_the_optimizer", put("last_optimizer_state", "state", value={0: {"exp_avg": nested(tuple)}}))
saved("shared_options", put("cfg", "model", "dropout", value=nested(dict)))
saved("shared_weights", put("model", value={"embed_tokens.weight": nested(list)}))


ITSELF = []
ITSELF.append(ITSELF)
saved("a_list_in_itself", put("extra_state", "bomb", value=ITSELF))

# Sizes --------------------------------------------------------------------------------------------------------------

saved("a_weight_of_a_terabyte", put("model", WEIGHT, value=torch.zeros(1).expand(1 << 38)))
saved("a_thousand_views", lambda state: state["model"].update({f"w{i}": state["model"][WEIGHT] for i in range(1000)}))
saved("a_million_layers", put("cfg", "model", "encoder_layers", value=10**6))
saved("a_wide_model", put("cfg", "model", "encoder_embed_dim", value=10**7))
saved("many_positions", put("cfg", "model", "max_positions", value=10**9))
saved("many_decoder_layers", put("cfg", "model", "decoder_layers", value=10**7))
saved("many_shared_layers", lambda state: state["cfg"]["model"].update(share_decoder_layers=True, decoder_layers=10**7))
saved("no_heads", put("cfg", "model", "encoder_attention_heads", value=0))
saved("a_negative_size", put("cfg", "model", "encoder_ffn_embed_dim", value=-1))
saved("a_huge_distance", put("cfg", "model", "relative_position_max_distance", value=10**30))
saved("a_tiny_distance", put("cfg", "model", "relative_position_max_distance", value=1))
saved("many_updates", put("optimizer_history", value=[{"num_updates": 10**30, "lr_scheduler_state": {}}]))
saved("many_epochs", put("extra_state", "train_iterator", "epoch", value=10**30))

# Types --------------------------------------------------------------------------------------------------------------

saved("a_number", lambda state: 3)
saved("a_list", lambda state: [state])
saved("a_tensor", lambda state: torch.zeros(3))
saved("nothing", lambda state: {})
saved("weights_alone", lambda state: state["model"])
for _key in ["model", "cfg", "optimizer_history", "extra_state", "task_state", "last_optimizer_state"]:
    saved(f"without_{_key}", without(_key))
    saved(f"a_text_for_{_key}", put(_key, value="x"))
saved("weights_that_are_numbers", put("model", WEIGHT, value=3))
saved("weights_without_names", put("model", value=lambda weights: dict(enumerate(weights.values()))))
saved("a_sparse_weight", put("model", WEIGHT, value=torch.eye(64, 32).to_sparse()))
saved("a_weight_of_integers", put("model", WEIGHT, value=torch.zeros(64, 32, dtype=torch.int64)))
saved("a_complex_weight", put("model", WEIGHT, value=torch.zeros(64, 32, dtype=torch.complex64)))
saved("a_scalar_weight", put("model", WEIGHT, value=torch.tensor(1.0)))
saved("a_weight_that_is_not_finite", put("model", WEIGHT, value=torch.full((64, 32), torch.inf)))
saved("a_weight_missing", without("model", WEIGHT))
saved("a_weight_more", put("model", "encoder.more.weight", value=torch.zeros(3)))
saved("an_unknown_head", put("model", "classification_heads.x.gate.weight", value=torch.zeros(3)))
saved("an_empty_embedding", put("model", "embed_tokens.weight", value=torch.zeros(0, 32)))
for _option, _value in [("encoder_layers", "2"), ("dropout", []), ("classification_pooling", 7)]:
    saved(f"{_option}_of_another_type", put("cfg", "model", _option, value=_value))
saved("a_dropout_over_one", put("cfg", "model", "dropout", value=2.0))
saved("a_section_that_is_a_list", put("cfg", "model", value=[1]))
saved("a_task_that_is_a_text", put("cfg", "task", value="mae_lm"))
saved("a_task_that_is_unknown", put("cfg", "task", "_name", value="nosuch"))
saved("a_model_that_is_unknown", put("cfg", "model", "_name", value="nosuch"))
saved("a_share_that_is_a_text", put("cfg", "task", "mask_prob", value="0.15"))
saved("another_vocabulary", put("task_state", "dictionary_fingerprint", value=1))
saved("a_vocabulary_that_is_a_text", put("task_state", "dictionary_fingerprint", value="1"))
saved("no_iterator", without("extra_state", "train_iterator"))
saved("an_iterator_that_is_a_list", put("extra_state", "train_iterator", value=[]))
saved("an_epoch_that_is_a_text", put("extra_state", "train_iterator", "epoch", value="1"))
saved("consumed_that_is_a_text", put("extra_state", "train_iterator", "consumed", value="x"))
saved("consumed_without_numbers", put("extra_state", "train_iterator", "consumed", value=[{}]))
saved("metrics_that_are_a_list", put("extra_state", "metrics", value=[1]))
saved("patience_that_is_a_text", put("extra_state", "early_stopping", value={"best": "x", "num_runs": "y"}))
saved("no_history", put("optimizer_history", value=[]))
saved("updates_that_are_a_text", put("optimizer_history", value=[{"num_updates": "5", "lr_scheduler_state": {}}]))
saved("negative_updates", put("optimizer_history", value=[{"num_updates": -5, "lr_scheduler_state": {}}]))
saved("a_schedule_that_is_a_text", put("optimizer_history", value=[{"num_updates": 2, "lr_scheduler_state": "x"}]))
saved("an_optimizer_of_other_sizes", put("last_optimizer_state", value={"state": {}, "param_groups": []}))
saved("an_optimizer_of_fp16", put("last_optimizer_state", "loss_scale", value=4.0))
saved("an_optimizer_of_texts", put("last_optimizer_state", value={"state": {0: "x"}, "param_groups": ["y"]}))

ATTRIBUTES = collections.OrderedDict()
vars(ATTRIBUTES).update(arch="mae_lm_tiny")
saved("attributes_of_a_dict", put("args", value=ATTRIBUTES))
saved("keys_that_are_tensors", put("extra_state", "x", value={torch.zeros(1): 1}))


def spoil(path, name):
    """Writes one of the files in place of a good checkpoint."""
    FILES[name](path, torch.load(io.BytesIO(path.read_bytes()), map_location="cpu", weights_only=True))
