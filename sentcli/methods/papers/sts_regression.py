"""Supervised fine-tuning on scored pairs: SBERT (Reimers and Gurevych, EMNLP 2019), IS-BERT's table 4."""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import ScoredPairs
from sentcli.objectives import CosineRegression

METHOD = Method(
    name="sts-regression",
    title="Supervised fine-tuning on scored pairs (SBERT: Reimers and Gurevych, EMNLP 2019; IS-BERT table 4)",
    objectives={"regression": CosineRegression()},
    views=ScoredPairs(),
    head=NoHead(),
    pooling="own",
    settings=Settings(batch_size=16, learning_rate=2e-5, epochs=4, max_length=128, warmup_share=0.1, eval_every=360),
)
