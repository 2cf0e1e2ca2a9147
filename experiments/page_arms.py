"""How the pages of results call the arms and the older encoders, and in which groups."""

from arms import ARMS

MAIN = [name for name, arm in ARMS.items() if arm.seeds > 1]
ABLATIONS = [name for name, arm in ARMS.items() if arm.seeds == 1]
MLMS = ["D", "D2", "B"]  # those that MAE-LM is compared with
OLD = {
    "mlm": "MLM, masks only",
    "shared_long": "shared layers, the MLM's compute",
    "shared": "shared layers",
    "mae_lm": "MAE-LM",
    "scratch": "no pretraining",
}
ARM_TITLES = {name: arm.title for name, arm in ARMS.items()}
ARM_TITLES.update(OLD)
