"""The start model with another pooling and without training: a baseline in SimCSE's table 5."""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method
from sentcli.methods.modules import PoolingOnly

METHOD = Method(
    name="first-last-avg",
    title="Mean of the first and the last layer over the tokens (the untrained row of SimCSE's table 5)",
    head=NoHead(),
    pooling="first-last-avg",
    fit=PoolingOnly(),
)
