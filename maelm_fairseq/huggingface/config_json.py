"""The contents of config.json."""

from .export_kinds import FINE_TUNED_KINDS, MASKED_LM
from .weights import MPNET, MPNET_BUCKETS, OWN_CLASSES, ROBERTA

MODELING_FILE = "modeling_mae_lm.py"


def make_config(model, family, kind, labels=None, masks_in_encoder=False):
    """The configuration of a class of transformers or of modeling_mae_lm.py.

    Args:
        model, family, kind: as for `weights.weights_for_transformers`
        labels: names of the head's classes; ["score"] for regression
        masks_in_encoder: whether the encoder saw all masks in pretraining, as in an MLM
    """
    cfg = model.cfg
    config = {
        "architectures": [family.class_prefix + kind.class_suffix],
        "model_type": family.model_type,
        "vocab_size": model.embed_tokens.num_embeddings,
        "hidden_size": cfg.encoder_embed_dim,
        "num_hidden_layers": cfg.encoder_layers,
        "num_attention_heads": cfg.encoder_attention_heads,
        "intermediate_size": cfg.encoder_ffn_embed_dim,
        "hidden_act": "gelu",
        "hidden_dropout_prob": cfg.dropout,
        "attention_probs_dropout_prob": cfg.attention_dropout,
        "max_position_embeddings": cfg.max_positions + (0 if family is OWN_CLASSES else 2),
        "layer_norm_eps": model.encoder.norm.eps,
        "initializer_range": 0.02,
        "pad_token_id": model.pad,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    if family is ROBERTA:
        config.update(type_vocab_size=2, classifier_dropout=cfg.pooler_dropout)
    elif family is MPNET:
        config.update(relative_attention_num_buckets=MPNET_BUCKETS)
    else:
        config.update(options_of_own_classes(model, kind, masks_in_encoder))
    if labels is not None:
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    if kind.may_be_regression and len(labels) == 1:
        # Pipelines then leave its scores as they are. Other types follow from the labels.
        config["problem_type"] = "regression"
    return config


def sentence_transformers_files(config, max_length):
    """The files of a model of sentence-transformers: {path: contents}.

    Its vectors are the mean of all tokens.

    Args:
        config: from `make_config`
        max_length: the most tokens of a text
    """
    modules = [
        {"name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    settings = {"max_seq_length": max_length, "do_lower_case": False}
    if config["model_type"] != OWN_CLASSES.model_type:
        # The pooler of stock classes is untrained and unused; leaving it out avoids a warning.
        settings["model_args"] = {"add_pooling_layer": False}
    pooling = {
        "word_embedding_dimension": config["hidden_size"],
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
    }
    return {
        "modules.json": [{"idx": i, **module} for i, module in enumerate(modules)],
        "sentence_bert_config.json": settings,
        "1_Pooling/config.json": pooling,
    }


def options_of_own_classes(model, kind, masks_in_encoder):
    """The options of modeling_mae_lm.py that stock classes do not have."""
    cfg = model.cfg
    module = MODELING_FILE[: -len(".py")]
    classes = {"AutoConfig": "MaeLmConfig", "AutoModel": "MaeLmModel"}
    loadable_kinds = list(FINE_TUNED_KINDS)
    # After fine-tuning the head of pretraining is gone: fill-mask is refused rather than answered
    # at random.
    if kind is MASKED_LM:
        loadable_kinds.append(MASKED_LM)
    for loadable in loadable_kinds:
        classes[loadable.auto_class] = OWN_CLASSES.class_prefix + loadable.class_suffix
    return {
        "auto_map": {auto_class: f"{module}.{name}" for auto_class, name in classes.items()},
        "relative_position_num_buckets": cfg.relative_position_num_buckets,
        "relative_position_max_distance": cfg.relative_position_max_distance,
        "relative_position_buckets": str(cfg.relative_position_buckets),
        "mask_token_id": model.mask_id,
        "decoder_layers": cfg.decoder_layers,
        "share_decoder_layers": cfg.share_decoder_layers,
        "decoder_dropout": cfg.decoder_dropout,
        "decoder_relative_bias": cfg.decoder_relative_bias,
        "masks_in_encoder": masks_in_encoder,
        "classifier_dropout": cfg.pooler_dropout,
        "classifier_pooling": str(cfg.classification_pooling),
    }
