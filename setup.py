from setuptools import find_packages, setup

setup(
    name="maelm_fairseq",
    version="0.2.0",
    description="MAE-LM pretraining (Meng et al., ICLR 2024) as a plugin for fairseq",
    license="MIT",
    packages=find_packages(include=["maelm_fairseq*"]),
    package_data={"maelm_fairseq.huggingface": ["card.md"]},
    python_requires=">=3.10,<3.13",
    install_requires=[
        # The last official fairseq cannot be imported by Python 3.11 and later; ve-fairseq can,
        # and is imported as `fairseq` too.
        've-fairseq==0.12.3; python_version >= "3.11"',
        'fairseq==0.12.2; python_version < "3.11"',
        # fairseq 0.12.2 brings the older hydra and omegaconf that it needs; ve-fairseq sets no
        # bounds for either.
        'hydra-core>=1.3.2,<1.4; python_version >= "3.11"',
        'omegaconf>=2.3,<2.4; python_version >= "3.11"',
        "torch>=2.6",  # older versions execute code from some checkpoints, even with weights_only
        "numpy",
        "regex",
        "sentencepiece>=0.2.3",
        "tqdm",
    ],
    extras_require={
        "benchmarks": ["transformers>=4.48"],
        "demo": ["matplotlib", "tensorboard"],
        "experiments": ["matplotlib", "pandas", "scikit-learn", "scipy", "statsmodels"],
        "finetune": ["pandas", "python-crfsuite", "scikit-learn", "scipy", "seqeval"],
        "huggingface": ["protobuf", "safetensors>=0.4", "tokenizers>=0.19"],
        "test": [
            *["pytest", "pytest-timeout", "pytest-xdist", "ruff"],
            *["matplotlib", "tensorboard", "torchmetrics"],
            *["bm25s", "pandas", "python-crfsuite", "scikit-learn", "scipy", "seqeval"],
            "statsmodels",
        ],
    },
)
