"""BERT-whitening (Su et al. 2021): a linear map gives the vectors of the text mean 0 and covariance I."""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method
from sentcli.methods.modules import WhiteningFit

METHOD = Method(
    name="whitening",
    title="BERT-whitening (Su et al. 2021): a linear map fitted on the vectors of unlabelled text",
    head=NoHead(),
    pooling="first-last-avg",  # as in SimCSE's table 5
    fit=WhiteningFit(dimensions=0),
)
