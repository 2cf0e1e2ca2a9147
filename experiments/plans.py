"""The plans of compare.sh: the comparison that is tested, the paper in miniature, a trial."""

from dataclasses import replace

from preregistration import ALL_MASKS, MAE_LM, MLM, NO_MASKS, SCORES, SCRATCH, SHARED, SHARED_LONG, Arm
from pretraining import Size, Text


def encoder_sees(fraction):
    """MAE-LM with a share of the masks in the encoder."""
    masks = replace(ALL_MASKS, encoder_mask_fraction=fraction)
    return replace(MAE_LM, name=f"fraction{fraction:g}", title=f"{fraction:.0%} of masks in the encoder", masks=masks)


def decoder_of(layers):
    """MAE-LM with another number of decoder layers."""
    title = f"MAE-LM, decoder layers: {layers}"
    return replace(MAE_LM, name=f"decoder{layers}", title=title, decoder_layers=layers)


def predicting(mask_prob):
    """MAE-LM that predicts another share of the tokens."""
    masks = replace(NO_MASKS, mask_prob=mask_prob)
    return replace(MAE_LM, name=f"predict{mask_prob:g}", title=f"MAE-LM, {mask_prob:.0%} predicted", masks=masks)


CHANGES = (  # of MAE-LM, one at a time
    *map(encoder_sees, (0.5, 1.0)),
    *map(decoder_of, (1, 4)),
    *map(predicting, (0.15, 0.5)),
    replace(MAE_LM, name="no_bias", title="MAE-LM, no relative position bias", relative_position_bias=False),
)
SMALL = replace(
    SCORES,
    name="small",
    title="The paper in miniature",
    pilots=(),
    tested=False,
    few_shot_repeats=0,
    fine_tuned=(),
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
    ),
    pilots=(SHARED,),
    pilot_updates=2,
    save_updates=2,
    rank_tokens=2_000,
    tasks=("trec", "rotten_tomatoes", "sms_spam"),
    few_shot_repeats=2,
    fine_tuned=(),
)
PLANS = {each.name: each for each in (SCORES, SMALL, TINY)}
