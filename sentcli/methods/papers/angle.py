"""AnglE (Li and Li, ACL 2024): CoSENT's loss on an angle in complex space, whose gradient does not vanish near 1.

The similarity is |cosine + sine|, as in the authors' code; eq. 3 of the paper has the opposite order of subtraction.
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import ScoredPairs
from sentcli.objectives import AnglE

METHOD = Method(
    name="angle",
    title="AnglE (Li and Li, ACL 2024): the order of scored pairs by angle",
    objectives={"angle": AnglE(scale=20.0)},
    views=ScoredPairs(),
    head=NoHead(),
    pooling="own",
    settings=Settings(batch_size=32, learning_rate=2e-5, epochs=4, max_length=128, warmup_share=0.1, eval_every=360),
)
