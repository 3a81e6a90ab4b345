"""MarginMSE (Hofstätter et al. 2020): by how much a positive is nearer than a hard negative, learnt from a teacher.

The data are anchors with a positive and hard negatives, as ``sentcli data mine`` writes them. The teacher is a
cross-encoder, or an encoder, whose similarities are taken; GPL (Wang et al., NAACL 2022) trains so on queries that a
model wrote.

    scale   of a cross-encoder whose scores are no cosines     --set margin-mse.scale=10
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import LabelledPairs
from sentcli.objectives import MarginMSE

METHOD = Method(
    name="margin-mse",
    title="Margins of a teacher on hard negatives (Hofstätter et al. 2020)",
    objectives={"margin-mse": MarginMSE()},
    views=LabelledPairs(negatives=1),
    head=NoHead(),
    pooling="own",
    settings=Settings(batch_size=32, learning_rate=2e-5, epochs=1, max_length=256, warmup_share=0.1),
)
"""Batch and rate are those of GPL's code; the 1,000 steps of warm-up are a share here, since few have 140,000 steps."""
