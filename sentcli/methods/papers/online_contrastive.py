"""Online contrastive loss on pairs with the labels 0 and 1, as sentence-transformers has it for duplicate questions.

Only the hard pairs of a batch count: matching ones that are farther apart than the closest that does not match, and
pairs that do not match and are closer than the farthest matching one.
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import ScoredPairs
from sentcli.objectives import OnlineContrastive

METHOD = Method(
    name="online-contrastive",
    title="Online contrastive loss on 0/1 pairs (Hadsell, Chopra and LeCun, CVPR 2006)",
    objectives={"online-contrastive": OnlineContrastive(margin=0.5)},
    views=ScoredPairs(),
    head=NoHead(),
    pooling="own",
    settings=Settings(batch_size=64, learning_rate=2e-5, epochs=1, max_length=128, warmup_share=0.1, eval_every=360),
)
