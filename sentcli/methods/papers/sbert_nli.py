"""SBERT on natural language inference (Reimers and Gurevych, EMNLP 2019, sec. 3.1): the class of a pair.

A linear layer guesses the class from (u, v, |u - v|); only the encoder is kept. The settings are the paper's: one
epoch, batches of 16, 2e-5, a warm-up of 10 %, the mean of the tokens.
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.views import ClassedPairs
from sentcli.objectives import PairClasses

METHOD = Method(
    name="sbert-nli",
    title="SBERT on pairs with a class (Reimers and Gurevych, EMNLP 2019)",
    objectives={"softmax": PairClasses()},
    views=ClassedPairs(),
    head=NoHead(),
    pooling="mean",
    settings=Settings(batch_size=16, learning_rate=2e-5, epochs=1, max_length=128, warmup_share=0.1, eval_every=1000),
)
