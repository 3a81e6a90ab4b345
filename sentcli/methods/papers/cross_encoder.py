"""A cross-encoder, which reads both texts of a pair together and gives their score (Devlin et al., NAACL 2019).

BERT-STSb and BERT-AFS in the tables of SBERT and IS-BERT. The settings are those of SBERT's training of a cross-encoder
on STS-B: a new layer with one output on BERT's own pooler, cross-entropy with the score as the probability.
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import JointPairs
from sentcli.objectives import PairScore

METHOD = Method(
    name="cross-encoder",
    title="Cross-encoder on scored pairs (BERT: Devlin et al., NAACL 2019; SBERT: Reimers and Gurevych, EMNLP 2019)",
    objectives={"pair-score": PairScore()},
    views=JointPairs(),
    head=NoHead(),
    pooling="own",
    settings=Settings(
        batch_size=16,
        learning_rate=2e-5,
        epochs=4,
        max_length=256,
        warmup_share=0.1,
        weight_decay=0.01,
        eval_every=360,
    ),
)
