"""Contrastive Tension (Carlsson et al., ICLR 2021): two encoders agree on equal sentences and on nothing else.

Both start from the same weights and are both trained. Of 8 pairs one shows the same sentence to both, 7 show two
unrelated ones; loss: binary cross-entropy of the dot product. The sentence vector is the mean of the tokens.

Where the authors' code and sentence-transformers differ:
    dropout    off (authors, default), on                            --set dropout=0.1
    reduction  mean (authors, default), sum                          --set tension.reduction=sum
    kept       the better on dev (authors, default), the second      --set twin.keep=second
    optimiser  RMSprop, rate stepped down from 1e-5 to 2e-6 (authors, default)
miCSE adds its term to it (its table 2): --set objectives+=ami; the views are then the two encoders' attentions.
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.modules import SecondEncoder
from sentcli.methods.views import RandomPairs
from sentcli.objectives import ContrastiveTension

METHOD = Method(
    name="ct",
    title="Contrastive Tension (Carlsson et al., ICLR 2021)",
    objectives={"tension": ContrastiveTension(reduction="mean")},
    views=RandomPairs(negatives=7),  # K
    head=NoHead(),
    pooling="mean",
    twin=SecondEncoder(keep="best"),
    settings=Settings(
        batch_size=16,  # pairs
        learning_rate=1e-5,
        max_steps=5000,  # the code's 10 x 500
        max_length=75,
        optimizer="rmsprop",
        schedule="staircase",
        clip_norm=0.0,
        dropout=0.0,
        eval_every=500,
    ),
)
