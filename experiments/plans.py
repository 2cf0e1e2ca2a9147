"""The plans of compare.sh: the comparison that is tested, explorations, the paper in miniature, a trial."""

from dataclasses import replace

from comparison import ALL_MASKS, MAE_LM, MLM, SCORES, SCRATCH, SHARED, SHARED_LONG, Arm
from pretraining import Size, Text


def share(count):
    """The exploration with so many shared layers."""
    return replace(SHARED, name=f"shared_{count}", title=f"{count} shared layers", decoder_layers=count)


def predicting(model, mask_prob):
    """The exploration of a model that predicts another share of the tokens."""
    masks = replace(model.masks, mask_prob=mask_prob)
    title = f"{model.title}, {mask_prob:.0%} predicted"
    return replace(model, name=f"{model.name}_{100 * mask_prob:.0f}percent", title=title, masks=masks)


def detecting(model, weight):
    """The exploration of a model that also has to tell replaced tokens, with a weight of that loss."""
    title = f"{model.title}, replaced tokens with weight {weight:g}"
    return replace(model, name=f"{model.name}_detect{weight:g}", title=title, detection_weight=weight)


BLIND = replace(SHARED, name="shared_blind", title="shared layers, masks do not see each other", blind_masks=True)
VARIATIONS = (
    *map(share, (1, 3, 4)),
    BLIND,
    *(predicting(SHARED, mask_prob) for mask_prob in (0.15, 0.5)),
    predicting(MLM, 0.15),
    *(detecting(model, weight) for weight in (0.5, 1.0, 2.0) for model in (SHARED, MLM)),
)
UNTESTED = replace(SCORES, pilots=(), tested=False, few_shot_repeats=0, fine_tuned=())
EXPLORATIONS = replace(
    UNTESTED,
    name="width128",
    title="Explorations at width 128",
    size=Size(encoder_layers=4, encoder_embed_dim=128, encoder_ffn_embed_dim=512, encoder_attention_heads=4),
    arms=tuple(Arm(model, 3_500) for model in (MLM, SHARED, MAE_LM, *VARIATIONS)),
    compared=tuple((model, MLM) for model in (SHARED, MAE_LM, *VARIATIONS)),
)


def encoder_sees(fraction):
    """MAE-LM whose encoder sees a share of the masks."""
    masks = replace(ALL_MASKS, encoder_mask_fraction=fraction)
    return replace(MAE_LM, name=f"fraction{fraction:g}", title=f"{fraction:.0%} of masks in the encoder", masks=masks)


def decoder_of(layers):
    """MAE-LM with another number of decoder layers."""
    title = f"MAE-LM, decoder layers: {layers}"
    return replace(MAE_LM, name=f"decoder{layers}", title=title, decoder_layers=layers)


CHANGES = (  # of MAE-LM, one at a time
    *map(encoder_sees, (0.5, 1.0)),
    *map(decoder_of, (1, 4)),
    *(predicting(MAE_LM, mask_prob) for mask_prob in (0.15, 0.5)),
    replace(MAE_LM, name="no_bias", title="MAE-LM, no relative position bias", relative_position_bias=False),
)
SMALL = replace(
    UNTESTED,
    name="small",
    title="The paper in miniature",
    arms=(
        *(Arm(model, 1_500, 2) for model in (MLM, MAE_LM, SHARED)),
        Arm(SCRATCH, 0),
        *(Arm(model, 1_500) for model in CHANGES),
    ),
    compared=((MAE_LM, MLM), (SHARED, MLM), (MLM, SCRATCH), *((model, MAE_LM) for model in CHANGES)),
)
# Everything but fine-tuning, as small as can be.
TINY = replace(
    SCORES,
    name="tiny",
    size=Size(encoder_layers=2, encoder_embed_dim=32, encoder_ffn_embed_dim=64, encoder_attention_heads=4),
    text=Text(tokens_per_sample=32, batch_size=8, vocab_size=500),
    arms=(
        Arm(MLM, 14, 2),
        Arm(SHARED_LONG, 18, 2, pilots=SHARED),
        Arm(MAE_LM, 14),
        Arm(detecting(MLM, 1.0), 14),
    ),
    pilots=(SHARED,),
    pilot_updates=2,
    save_updates=2,
    rank_tokens=2_000,
    tasks=("trec", "rotten_tomatoes", "sms_spam"),
    few_shot_repeats=2,
    fine_tuned=(),
)
PLANS = {each.name: each for each in (SCORES, EXPLORATIONS, SMALL, TINY)}
