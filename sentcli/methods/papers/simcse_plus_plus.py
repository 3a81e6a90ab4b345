"""SimCSE++ (Xu et al., EMNLP 2023): SimCSE with negatives that have no dropout, and contrast between dimensions.

Dropout makes the two views of a sentence, and is nothing but noise in the vectors of negatives: each sentence is
encoded a third time without it, and the similarities among these vectors are those of the negatives. The second term
picks each dimension of one view by its correlation with those of the other over the batch, since a batch of 64 rows
cannot keep the 768 dimensions of a vector apart.

Where paper and authors' code differ:
    dimensions   a weight of 0.1 and a temperature of 5 (code); the code as it was published has the term commented out
    gradient     flows through the third encoding, too (code)
"""

from sentcli.methods.heads import MLPHead
from sentcli.methods.method import Method, Settings
from sentcli.objectives import DimensionWise, OffDropout

METHOD = Method(
    name="simcse-plus-plus",
    title="SimCSE++ (Xu et al., EMNLP 2023)",
    objectives={"off-dropout": OffDropout(temperature=0.05), "dimensions": DimensionWise(weight=0.1, temperature=5.0)},
    head=MLPHead(),
    settings=Settings(batch_size=64, learning_rate=3e-5, epochs=1, max_length=32),
)
