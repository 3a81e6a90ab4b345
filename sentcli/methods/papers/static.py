"""A static student: a vector for each token, fitted to a teacher on one's own text; a text is their mean.

The table begins with the teacher's vector of each token by itself, weighted by how rare the token is in the text. It is
then trained so that the vectors of texts, and their similarities within a batch, are the teacher's. The folder opens
with sentence-transformers (StaticEmbedding) and with model2vec, and it encodes without a transformer.

    size     --set start.dimensions=256        the vocabulary is the teacher's, and frequent words of the text
    words    --set start.words=0               the vocabulary is the teacher's alone
"""

from sentcli.methods.heads import NoHead
from sentcli.methods.method import Method, Settings
from sentcli.methods.static_start import StaticStart
from sentcli.methods.views import Copies
from sentcli.objectives import SimilarityDistillation, VectorDistillation

METHOD = Method(
    name="static",
    title="A static model, which learns a teacher's vectors and similarities",
    objectives={"vectors": VectorDistillation(), "similarities": SimilarityDistillation()},
    views=Copies(count=1),
    head=NoHead(),
    pooling="own",
    start=StaticStart(),
    settings=Settings(batch_size=256, learning_rate=1e-2, epochs=10, max_length=256, warmup_share=0.05),
)
"""The values were found on SciFact and Cranfield (docs/methods/static.md): rates of 3e-3 to 3e-2 came to the same, and
new words gained 0.016 nDCG@10; both terms have as much as `vectors` alone and 0.015 more than `similarities` alone; 10
epochs have 0.003 more than 4 on a small set and 0.006 less than 2 on a larger one."""
