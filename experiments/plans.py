"""The plans of compare.sh: the comparison that is tested, the paper in miniature, a trial."""

from dataclasses import replace

from preregistration import ALL_MASKS, MAE_LM, MLM, NO_MASKS, SCORES, SCRATCH, SHARED, SHARED_LONG, Arm
from pretraining import Size, Text


def changed(name, title, **changes):
    """MAE-LM with other settings."""
    return replace(MAE_LM, name=name, title=title, **changes)


CHANGES = (
    changed("fraction0.5", "50% of masks in the encoder", masks=replace(NO_MASKS, encoder_mask_fraction=0.5)),
    changed("fraction1", "100% of masks in the encoder", masks=ALL_MASKS),
    changed("decoder1", "MAE-LM, decoder layers: 1", decoder_layers=1),
    changed("decoder4", "MAE-LM, decoder layers: 4", decoder_layers=4),
    changed("predict0.15", "MAE-LM, 15% predicted", masks=replace(NO_MASKS, mask_prob=0.15)),
    changed("predict0.5", "MAE-LM, 50% predicted", masks=replace(NO_MASKS, mask_prob=0.5)),
    changed("no_bias", "MAE-LM, no relative position bias", relative_position_bias=False),
)
SMALL = replace(
    SCORES,
    name="small",
    title="The paper in miniature",
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
    arms=(Arm(MLM, 14, 2), Arm(SHARED_LONG, 18, 2, pilots=SHARED), Arm(MAE_LM, 14)),
    pilot_updates=2,
    save_updates=2,
    rank_tokens=2_000,
    tasks=("trec", "rotten_tomatoes", "sms_spam"),
    few_shot_repeats=2,
    fine_tuned=(),
)
PLANS = {each.name: each for each in (SCORES, SMALL, TINY)}
