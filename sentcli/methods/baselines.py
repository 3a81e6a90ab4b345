"""What the papers' tables start from or compare with: language modelling, whitening, averages, supervised STS-B."""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method
from sentcli.methods.modules import PoolingOnly, WhiteningFit
from sentcli.methods.settings import Settings
from sentcli.methods.views import Copies, ScoredPairs
from sentcli.objectives import CosineRegression, MaskedLM

MLM = Method(
    name="mlm",
    title="Masked language modelling (BERT: Devlin et al., NAACL 2019), from a checkpoint or from a config.json alone",
    objectives={"mlm": MaskedLM(weight=1.0, rate=0.15, tie=True)},  # sec. 3.1, task 1
    views=Copies(count=1),
    head=NoHead(),
    settings=Settings(  # appendix A.2
        batch_size=256, learning_rate=1e-4, epochs=1, max_length=128, warmup_share=0.01, weight_decay=0.01
    ),
)

WHITENING = Method(
    name="whitening",
    title="BERT-whitening (Su et al. 2021): a linear map fitted on the vectors of unlabelled text",
    head=NoHead(),
    pooling="first-last-avg",  # as in SimCSE's table 5
    fit=WhiteningFit(dimensions=0),
)

FIRST_LAST_AVG = Method(
    name="first-last-avg",
    title="Mean of the first and the last layer over the tokens (the untrained row of SimCSE's table 5)",
    head=NoHead(),
    pooling="first-last-avg",
    fit=PoolingOnly(),
)

STS_REGRESSION = Method(
    name="sts-regression",
    title="Supervised fine-tuning on scored pairs (SBERT: Reimers and Gurevych, EMNLP 2019; IS-BERT table 4)",
    objectives={"regression": CosineRegression()},
    views=ScoredPairs(),
    head=NoHead(),
    pooling="own",
    settings=Settings(batch_size=16, learning_rate=2e-5, epochs=4, max_length=128, warmup_share=0.1, eval_every=360),
)
