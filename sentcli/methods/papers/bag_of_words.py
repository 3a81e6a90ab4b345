"""TF-IDF, counts of words, or content words: baselines without a model."""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method
from sentcli.methods.modules import BagOfWordsFit

METHOD = Method(
    name="bag-of-words",
    title="A vector of weighted words (TF-IDF, counts or content words), hashed to fewer dimensions",
    head=NoHead(),
    pooling="own",
    fit=BagOfWordsFit(),
)
