"""CoSENT (Huang et al., TASLP 2024): scored pairs in the order of their scores, whatever their distances.

Loss: log(1 + sum exp(scale * (s_k - s_i))) over pairs i and k of a batch with score_i > score_k.
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import ScoredPairs
from sentcli.objectives import CoSENT

METHOD = Method(
    name="cosent",
    title="CoSENT (Huang et al., TASLP 2024): the order of scored pairs",
    objectives={"cosent": CoSENT(scale=20.0)},
    views=ScoredPairs(),
    head=NoHead(),
    pooling="own",
    settings=Settings(batch_size=32, learning_rate=2e-5, epochs=4, max_length=128, warmup_share=0.1, eval_every=360),
)
